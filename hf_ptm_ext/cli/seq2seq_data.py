"""From the data arguments to rows of token ids, with the texts that an evaluation compares with."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..data import SourceTarget, dataset_source_target, read_source_target, train_wordpiece
from ..data.bad_rows import SKIP, BadRows
from .console import in_parts, phase
from .seq2seq_arguments import Seq2SeqDataArguments
from .text_job import check_known

logger = logging.getLogger(__name__)


@dataclass
class Split:
    """One split, tokenised.

    Args:
        rows: a `datasets.Dataset` with `input_ids` and `labels`, special tokens included.
        examples: the texts.
    """

    rows: Any
    examples: list[SourceTarget]

    @property
    def scored(self) -> bool:
        """Whether all targets are told."""
        return all(example.targets for example in self.examples)

    @property
    def references(self) -> list[list[str]]:
        """All right targets of each example."""
        return [list(example.targets) for example in self.examples]


def read_split(data: Seq2SeqDataArguments, name: str, bad: BadRows) -> list[SourceTarget] | None:
    """The examples of a split."""
    files, split = getattr(data, f"{name}_file"), getattr(data, f"{name}_split")
    columns: dict[str, Any] = {"source_pair_column": data.source_pair_column, "unlabelled": name == "test"}
    columns |= {"source_column": data.source_column, "target_column": data.target_column}
    examples: Iterator[SourceTarget]
    if files:
        more: dict[str, Any] = {"file_format": data.file_format, "encoding": data.encoding}
        examples = read_source_target(files, max_context_characters=data.max_context_characters, **more, **columns)
    elif data.dataset_name and split:
        examples = dataset_source_target(data.dataset_name, data.dataset_config_name, split=split, **columns)
    else:
        return None
    limit = {"train": data.max_train_rows, "validation": data.max_eval_rows, "test": data.max_test_rows}[name]
    read = list(islice(examples, limit))
    if not read:
        raise ValueError(f"`{name}_file` or `{name}_split` has no example: {files or split}.")
    # Rows keep their numbers where bad ones are left out.
    numbered = zip(read, bad.numbers[-1], strict=False)
    read = [one if one.id is not None else one._replace(id=number) for one, number in numbered]
    hidden = [number for number, example in enumerate(read) if not example.targets]
    if 0 < len(hidden) < len(read) and bad.on_bad_rows == SKIP:
        logger.warning("%d of %d %s rows have no target and are left out.", len(hidden), len(read), name)
        return [example for example in read if example.targets]
    if 0 < len(hidden) < len(read):
        raise ValueError(
            f"`{name}_file` or `{name}_split`: {len(hidden)} of {len(read)} rows have no target, the first of which "
            f"is row {hidden[0]} (counted from 0). Give all of them one, or leave them out with `on_bad_rows` = skip."
        )
    if hidden:
        logger.warning("The %d %s rows have no targets: they are predicted and not scored.", len(hidden), name)
    return read


def trained_tokenizer(data: Seq2SeqDataArguments, examples: Sequence[SourceTarget]) -> Any:
    """A WordPiece tokenizer trained on sources and targets."""
    texts = [[text for text in (one.source, one.source_pair, *one.targets) if text] for one in examples]
    length = data.max_source_length + data.max_target_length
    with phase("training a tokenizer"):
        return train_wordpiece(texts, data.vocab_size, lowercase=data.lowercase, model_max_length=length)


def tokenize(
    data: Seq2SeqDataArguments, examples: list[SourceTarget], tokenizer: Any, name: str, inputs: dict[str, int]
) -> Split:
    """Token ids of sources and first targets, cut to the limits."""
    from datasets import Dataset

    sources: list[list[int]] = []
    targets: list[list[int]] = []
    for part in in_parts(examples, f"tokenizing {name}"):
        sources += encode_sources(data, part, tokenizer)
        targets += tokenizer(text_target=[next(iter(one.targets), "") for one in part], verbose=False)["input_ids"]
    for what, ids, limit in (
        ("source", sources, data.max_source_length),
        ("target", targets, data.max_target_length),
    ):
        if cut := sum(len(row) > limit for row in ids):
            advice = f"raise `max_{what}_length` (now {limit}) if the model has the positions"
            logger.warning("%d of %d %ss of %s are cut: %s.", cut, len(ids), what, name, advice)
    if tokenizer.unk_token_id is not None:
        rows = sources + targets
        check_known(sum(row.count(tokenizer.unk_token_id) for row in rows) / sum(len(row) for row in rows))
    if has_pairs(examples):
        sources = encode_sources(data, examples, tokenizer, truncation="only_first")
    sources = [shortened(row, data.max_source_length, tokenizer) for row in sources]
    targets = [shortened(row, data.max_target_length, tokenizer) for row in targets]
    same = {name: [number] * len(examples) for name, number in inputs.items()}
    return Split(Dataset.from_dict({"input_ids": sources, "labels": targets, **same}), examples)


def has_pairs(examples: Sequence[SourceTarget]) -> bool:
    """Whether there is a second source text."""
    return any(example.source_pair is not None for example in examples)


def encode_sources(
    data: Seq2SeqDataArguments, examples: Sequence[SourceTarget], tokenizer: Any, **options: Any
) -> list[list[int]]:
    """Token ids of sources, joined with their second texts if there are any."""
    first = [data.source_prefix + example.source for example in examples]
    second = [example.source_pair or "" for example in examples] if has_pairs(examples) else None
    if options:
        options["max_length"] = data.max_source_length
        alone = max(len(ids) for ids in tokenizer(second, verbose=False)["input_ids"])
        if alone >= data.max_source_length:
            raise ValueError(
                f"`max_source_length` = {data.max_source_length} has no room beside the longest second source text "
                f"of {alone} tokens, which is never cut. Raise it, or shorten that text."
            )
    return tokenizer(first, second, verbose=False, **options)["input_ids"]


def shortened(ids: list[int], limit: int, tokenizer: Any) -> list[int]:
    """Cut text at its end, and keep the special tokens that stand there."""
    if len(ids) <= limit:
        return ids
    special = set(tokenizer.all_special_ids)
    tail = 0
    while tail < limit and ids[len(ids) - tail - 1] in special:
        tail += 1
    return ids[: limit - tail] + ids[len(ids) - tail :]
