"""From the data arguments to rows: documents, tokenizer, blocks, word units."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..data import (
    FileDocuments,
    PieceWordIds,
    PretrainingStream,
    RowPacker,
    dataset_documents,
    dataset_source_target,
    embedded_corpus_path,
    encode_documents,
    held_out_split,
    is_held_out,
    jieba_segmenter,
    next_sentence_pairs,
    pretraining_dataset,
    read_parallel,
    special_tokens_of,
    train_wordpiece,
)
from ..data.filtered import FilteredDocuments
from ..data.streaming import FilteredStream, MappedStream, WeightedStream
from ..metrics import UnigramBaseline
from .evaluation import overlaps, warn_of_overlap
from .pretrain_arguments import DENOISING, DataArguments, ObjectiveArguments

# Documents counted for the unigram baseline of a stream, whose whole text is never at hand.
BASELINE_DOCUMENTS = 5000
# Documents of a stream that are looked at for evaluation text.
HELD_OUT_SCAN = 20000
EMBEDDED_LICENSES = {"en": "apache-2.0", "zh": "cc-by-sa-4.0"}


@dataclass
class Rows:
    """Rows ready for the collator.

    Args:
        train: a `datasets.Dataset` or a resumable stream.
        evaluation: a map-style dataset, or `None`.
        baseline: token frequencies of the training text.
        description: what the model card says about the data.
    """

    train: Any
    evaluation: Any
    baseline: UnigramBaseline
    description: dict[str, Any]


@dataclass
class WeightedCorpora:
    """Training documents of several corpora, whose rows are mixed by their weights.

    Args:
        parts: the documents of each, readable more than once.
        weights: the share of each.
    """

    parts: list[Any]
    weights: list[float]

    def __iter__(self) -> Iterator[Any]:
        """All documents, one corpus behind the other."""
        return chain.from_iterable(self.parts)


def training_source(data: DataArguments) -> Any:
    """The training documents, readable more than once; one of parallel text is a sentence and its translation."""
    if data.source_column is not None:
        return parallel_documents(data, data.train_file, data.target_train_file, data.train_split)
    if data.dataset_name:
        return dataset_documents(
            data.dataset_name,
            data.dataset_config_name,
            split=data.train_split,
            text_column=data.text_column,
            streaming=data.streaming,
        )
    if data.train_file:
        return file_source(data, data.train_file)
    return FileDocuments(embedded_corpus_path(data.corpus or "en"))


def validation_source(data: DataArguments) -> Any:
    """The named evaluation documents, or `None`."""
    if data.source_column is not None:
        if not data.validation_file and not (data.dataset_name and data.validation_split):
            return None
        return parallel_documents(data, data.validation_file, data.target_validation_file, data.validation_split)
    if data.validation_file:
        return file_source(data, data.validation_file)
    if data.dataset_name and data.validation_split:
        return dataset_documents(
            data.dataset_name,
            data.dataset_config_name,
            split=data.validation_split,
            text_column=data.text_column,
            streaming=False,
        )
    return None


def parallel_documents(
    data: DataArguments, files: list[str] | None, target_files: list[str] | None, split: str | None
) -> list[list[str]]:
    """Sentence pairs of files or of a dataset's split."""
    columns = {"source_column": data.source_column, "target_column": data.target_column}
    if data.dataset_name:
        examples = dataset_source_target(data.dataset_name, data.dataset_config_name, split=split, **columns)
        return [[example.source, example.targets[0]] for example in examples]
    pairs = read_parallel(files, target_files, file_format=data.file_format, encoding=data.encoding, **columns)
    return [list(pair) for pair in pairs]


def file_source(data: DataArguments, files: list[str]) -> FileDocuments:
    """Documents of files under the reading options."""
    return FileDocuments(
        files,
        file_format=data.file_format,
        encoding=data.encoding,
        text_column=data.text_column,
        document_separator=data.document_separator,
    )


def split_documents(data: DataArguments) -> tuple[Any, Any]:
    """Training and evaluation documents; evaluation is `None` if there is none."""
    if data.corpus_weights is not None:
        return split_corpora(data)
    source, validation = training_source(data), validation_source(data)
    if validation is not None and not data.streaming:
        source, validation = list(source), list(validation)
        texts = [["\n".join(document) for document in documents] for documents in (source, validation)]
        warn_of_overlap("validation", sum(overlaps(*texts)), len(validation))
    if validation is not None or not data.validation_fraction:
        return source, validation
    held_out = partial(is_held_out, fraction=data.validation_fraction)
    if data.streaming:
        # Each document decides for itself, so nothing has to be known of the others.
        scanned = islice(training_source(data), HELD_OUT_SCAN)
        evaluation = list(islice((document for document in scanned if held_out(document)), data.max_eval_rows))
        return FilteredDocuments(source, lambda document: not held_out(document)), evaluation or None
    documents = list(source)
    if len(documents) < 2:
        raise ValueError(
            f"The training data are one document only, so none can be held out: name `validation_file`, set "
            f"`validation_fraction` to 0, or mark documents (`document_separator`, now {data.document_separator!r})."
        )
    return held_out_split(documents, data.validation_fraction)


def split_corpora(data: DataArguments) -> tuple[WeightedCorpora, Any]:
    """Each weighted corpus split as if it were alone; evaluation is of all, or of the named validation data."""
    files = data.train_file or []
    targets = data.target_train_file or [None] * len(files)
    alone = [
        replace(data, train_file=[file], target_train_file=target and [target], corpus_weights=None)
        for file, target in zip(files, targets, strict=True)
    ]
    parts = [split_documents(one) for one in alone]
    held_out = [part[1] for part in parts[: 1 if data.validation_file else None] if part[1] is not None]
    corpora = WeightedCorpora([part[0] for part in parts], list(data.corpus_weights or ()))
    return corpora, [document for documents in held_out for document in documents] or None


def trained_tokenizer(data: DataArguments, documents: Any) -> Any:
    """A WordPiece tokenizer trained on the documents."""
    return train_wordpiece(documents, data.vocab_size, lowercase=data.lowercase, model_max_length=data.max_seq_length)


def build_rows(
    data: DataArguments,
    objective: ObjectiveArguments,
    documents: tuple[Any, Any],
    tokenizer: Any,
    seed: int,
    rank: int,
    world_size: int,
    entities: Any = None,
) -> Rows:
    """Tokenise and pack.

    Args:
        data: data arguments.
        objective: for the segmenter and the two-segment variant.
        documents: training and evaluation documents.
        tokenizer: any tokenizer with a mask token.
        seed: of the stream's shuffling and of the sentence pairs.
        rank: this process.
        world_size: number of processes.
        entities: table and dictionary of objective ernie_thu (default: none).
    """
    train_documents, eval_documents = documents
    add_words = word_adder(objective, tokenizer)
    weighted = train_documents if isinstance(train_documents, WeightedCorpora) else None
    parts = weighted.parts if weighted is not None else [train_documents]
    if data.streaming:
        streams = [
            PretrainingStream(
                part,
                tokenizer,
                max_seq_length=data.max_seq_length,
                packed=data.pack_rows,
                shuffle_buffer_size=data.shuffle_buffer_size,
                seed=seed,
                num_epochs=None,
                rank=rank,
                world_size=world_size,
            )
            for part in parts
        ]
        train: Any = streams[0] if weighted is None else WeightedStream(streams, weighted.weights, seed, rank)
        counted: Iterable[Sequence[int]] = (
            [token for sentence in document for token in sentence]
            for part, share in zip(parts, shares(weighted), strict=True)
            for document in encode_documents(islice(part, math.ceil(share * BASELINE_DOCUMENTS)), tokenizer)
        )
        train_rows = None
        if objective.objective in DENOISING:
            train = FilteredStream(train, partial(long_enough, shortest=shortest_row(tokenizer)))
        if add_words is not None:
            train = MappedStream(train, add_words)
    else:
        mapped = [map_rows(data, objective, part, tokenizer, seed, add_words, entities) for part in parts]
        train = mapped[0] if weighted is None else mixed_rows(data, mapped, shares(weighted), seed)
        if data.max_train_rows is not None:
            train = train.select(range(min(data.max_train_rows, len(train))))
        parallel = objective.objective == "tlm"
        counted = chain(train["source_ids"], train["target_ids"]) if parallel else train["input_ids"]
        train_rows = len(train)
    evaluation = None
    if eval_documents is not None:
        evaluation = map_rows(data, objective, eval_documents, tokenizer, seed + 1, add_words, entities)
        if data.max_eval_rows is not None:
            evaluation = evaluation.select(range(min(data.max_eval_rows, len(evaluation))))
    excluded = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id}
    excluded |= {tokenizer.bos_token_id, tokenizer.eos_token_id}
    baseline = UnigramBaseline.from_rows(counted, len(tokenizer), excluded - {None})
    return Rows(train, evaluation, baseline, describe_data(data, train_rows, evaluation))


def shares(weighted: WeightedCorpora | None) -> list[float]:
    """The share of the rows that each corpus gives."""
    return [1.0] if weighted is None else [weight / sum(weighted.weights) for weight in weighted.weights]


def mixed_rows(data: DataArguments, parts: list[Any], probabilities: list[float], seed: int) -> Any:
    """Rows drawn from all corpora by their shares until each row was there."""
    from datasets import interleave_datasets

    empty = [file for file, part in zip(data.train_file or (), parts, strict=True) if not len(part)]
    if empty:
        raise ValueError(f"`train_file` {empty[0]} gives no row to train on. Leave it and its weight out.")
    return interleave_datasets(parts, probabilities=probabilities, seed=seed, stopping_strategy="all_exhausted")


def word_adder(objective: ObjectiveArguments, tokenizer: Any) -> PieceWordIds | None:
    """What adds the segmenter's words to rows, or `None` when the tokenizer's words serve."""
    if objective.segmenter is None:
        return None
    if objective.segmenter != "jieba":
        raise ValueError(
            f"`segmenter` must be jieba, got {objective.segmenter!r}. For other segmenters write a `word_ids` column "
            "with `hf_ptm_ext.data.PieceWordIds` and train through the Python interface."
        )
    return PieceWordIds(tokenizer, jieba_segmenter())


def map_rows(
    data: DataArguments,
    objective: ObjectiveArguments,
    documents: Any,
    tokenizer: Any,
    seed: int,
    add_words: PieceWordIds | None,
    entities: Any = None,
) -> Any:
    """All rows of the documents, as a `datasets.Dataset`."""
    if entities is not None:
        from datasets import Dataset

        from .pretrain_entities import entity_rows

        return Dataset.from_list(entity_rows(documents, entities, data.max_seq_length, objective.min_entities, seed))
    if objective.objective == "tlm":
        return parallel_rows(data, documents, tokenizer)
    if objective.next_sentence_prediction:
        variant = "spanbert" if objective.objective == "span" else "bert"
        rows = sentence_pair_rows(data, documents, tokenizer, seed, variant)
    else:
        rows = pretraining_dataset(
            documents, tokenizer, max_seq_length=data.max_seq_length, packed=data.pack_rows, seed=seed
        )
    if objective.objective in DENOISING:
        rows = rows.filter(partial(long_enough, shortest=shortest_row(tokenizer)))
    return rows if add_words is None else rows.map(add_words)


def shortest_row(tokenizer: Any) -> int:
    """Tokens of the shortest row that can be corrupted: two of text, and special tokens."""
    return special_tokens_of(tokenizer).single_count + 2


def long_enough(row: dict[str, list[int]], shortest: int) -> bool:
    """Whether a row has so many tokens."""
    return len(row["input_ids"]) >= shortest


def parallel_rows(data: DataArguments, documents: Any, tokenizer: Any) -> Any:
    """Rows of `source_ids` and `target_ids`, each with its special tokens not longer than half of `max_seq_length`."""
    from datasets import Dataset

    specials = 2
    limit = data.max_seq_length // 2 - specials
    if limit < 1:
        raise ValueError(
            f"`max_seq_length` must have room for two sentences with {specials} special tokens each, got "
            f"{data.max_seq_length}."
        )
    pairs = [pair for pair in encode_documents(documents, tokenizer) if len(pair) == 2]
    return Dataset.from_list([{"source_ids": pair[0][:limit], "target_ids": pair[1][:limit]} for pair in pairs])


def sentence_pair_rows(data: DataArguments, documents: Any, tokenizer: Any, seed: int, variant: str) -> Any:
    """Rows of two segments with `next_sentence_label`, built as BERT does or as SpanBERT's two-segment baseline."""
    from datasets import Dataset

    specials = special_tokens_of(tokenizer)
    pairs = next_sentence_pairs(
        list(encode_documents(documents, tokenizer)),
        data.max_seq_length - specials.pair_count,
        np.random.default_rng(seed),
        variant=variant,
    )
    features = [pair.features(specials) for pair in pairs]
    if data.pack_rows:
        packer = RowPacker(data.max_seq_length, tokenizer.pad_token_id)
        features = [row for pair in features for row in packer.add(pair)] + packer.flush()
    return Dataset.from_list(features)


def describe_data(data: DataArguments, train_rows: int | None, evaluation: Any) -> dict[str, Any]:
    """What the model card says about the data."""
    if data.dataset_name:
        name, license_name = data.dataset_name, data.data_license
    elif data.train_file:
        names = [Path(file).name for file in data.train_file]
        if data.corpus_weights is not None:
            total = sum(data.corpus_weights)
            names = [f"{n} ({100 * w / total:.3g} %)" for n, w in zip(names, data.corpus_weights, strict=True)]
        name, license_name = ", ".join(names), data.data_license
    else:
        name = f"the embedded {data.corpus} corpus of hf_ptm_ext"
        license_name = EMBEDDED_LICENSES[data.corpus or "en"]
    return {
        "name": name,
        "license": license_name or "not stated",
        "train_rows": "a stream" if train_rows is None else train_rows,
        "eval_rows": len(evaluation) if evaluation is not None else 0,
        "max_seq_length": data.max_seq_length,
    }
