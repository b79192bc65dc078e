"""From the data arguments to rows: documents, tokenizer, blocks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..data import (
    FileDocuments,
    PretrainingStream,
    dataset_documents,
    dataset_source_target,
    embedded_corpus_path,
    encode_documents,
    held_out_split,
    is_held_out,
    read_parallel,
    train_wordpiece,
)
from ..data.sources import FilteredDocuments
from ..data.streaming import FilteredStream, MappedStream, WeightedStream
from ..metrics import UnigramBaseline
from .arguments import hub_data
from .evaluation import TRAIN, VALIDATION, common_rows
from .pretrain_arguments import DataArguments

# Documents counted for the unigram baseline of a stream, whose whole text is never at hand.
BASELINE_DOCUMENTS = 5000
# Rows whose targets are counted for the baseline of a denoising objective.
BASELINE_ROWS, BASELINE_BATCH = 2000, 50
# Documents of a stream that are looked at for evaluation text.
HELD_OUT_SCAN = 20000
EMBEDDED_LICENSES = {"en": "apache-2.0", "zh": "cc-by-sa-4.0"}


@dataclass
class Rows:
    """Rows ready for the collator, and what is known of them."""

    train: Any  # a `datasets.Dataset` or a resumable stream
    evaluation: Any  # a map-style dataset, or `None`
    baseline: UnigramBaseline  # token frequencies of the training text


@dataclass
class Documents:
    """Documents of one corpus or more, whose rows are mixed by their shares; all of training one behind the other."""

    parts: list[Any]  # the training documents of each, readable more than once
    weights: list[float]
    evaluation: Any  # `None` if there are none
    notes: dict[str, Any] = field(default_factory=dict)  # what is said of the data

    @property
    def shares(self) -> list[float]:
        """The share of the rows that each corpus gives."""
        return [weight / sum(self.weights) for weight in self.weights]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.parts)

    def leave_out_common(self, drop: str | None) -> None:
        """Count evaluation documents that are in the training data too, and leave out what is asked for."""
        self.parts, self.evaluation = [list(part) for part in self.parts], list(self.evaluation)
        texts = {
            TRAIN: ["\n".join(document) for document in self],
            VALIDATION: ["\n".join(document) for document in self.evaluation],
        }
        note, losing, out = common_rows(texts, VALIDATION, drop)
        if note:
            self.notes["in_training_data"] = {VALIDATION: note}
        # All corpora are asked one behind the other, as their texts stand.
        gone = iter(out)
        if losing == VALIDATION:
            self.evaluation = [document for document in self.evaluation if not next(gone)]
        elif losing == TRAIN:
            self.parts = [[document for document in part if not next(gone)] for part in self.parts]


def training_source(data: DataArguments) -> Any:
    """The training documents, readable more than once; one of parallel text is a sentence and its translation."""
    if data.source_column is not None:
        return parallel_documents(data, data.train_file, data.target_train_file, data.train_split)
    if data.dataset_name:
        return split_of_dataset(data, data.train_split, data.streaming)
    return (
        file_source(data, data.train_file) if data.train_file else FileDocuments(embedded_corpus_path(data.embedded))
    )


def validation_source(data: DataArguments) -> Any:
    """The named evaluation documents, or `None`."""
    if not data.validation_file and not (data.dataset_name and data.validation_split):
        return None
    if data.source_column is not None:
        return parallel_documents(data, data.validation_file, data.target_validation_file, data.validation_split)
    if data.validation_file:
        return file_source(data, data.validation_file)
    return split_of_dataset(data, str(data.validation_split), streaming=False)


def split_of_dataset(data: DataArguments, split: str, streaming: bool) -> Any:
    """The documents of a dataset's split."""
    options: dict[str, Any] = {"split": split, "text_column": data.text_column, "streaming": streaming}
    return dataset_documents(str(data.dataset_name), data.dataset_config_name, **options)


def file_source(data: DataArguments, files: list[str]) -> FileDocuments:
    """Documents of files under the reading options."""
    names = ("file_format", "encoding", "text_column", "document_separator")
    return FileDocuments(files, **{name: getattr(data, name) for name in names})


def parallel_documents(data: DataArguments, files: Any, target_files: list[str] | None, split: Any) -> list[list[str]]:
    """Sentence pairs of files or of a dataset's split."""
    columns: dict[str, Any] = {"source_column": data.source_column, "target_column": data.target_column}
    if data.dataset_name:
        examples = dataset_source_target(data.dataset_name, data.dataset_config_name, split=split, **columns)
        return [[example.source, example.targets[0]] for example in examples]
    pairs = read_parallel(files, target_files, file_format=data.file_format, encoding=data.encoding, **columns)
    return [list(pair) for pair in pairs]


def read_documents(data: DataArguments) -> Documents:
    """Training documents of each corpus, and for evaluation the named ones, or some of each that are held out."""
    files, targets = data.train_file or [], data.target_train_file or []
    corpora = [data]
    if data.corpus_weights is not None:
        corpora = [
            replace(data, train_file=[file], target_train_file=targets[number : number + 1] or None)
            for number, file in enumerate(files)
        ]
    found = Documents([], data.corpus_weights or [1.0], validation_source(data))
    if found.evaluation is not None or not data.validation_fraction:
        found.parts = [training_source(one) for one in corpora]
        if found.evaluation is not None and not data.streaming:
            found.leave_out_common(data.drop_overlap)
        return found
    parts = [hold_out(one) for one in corpora]
    found.parts = [part for part, _ in parts]
    found.evaluation = [document for _, held_out in parts for document in held_out] or None
    return found


def hold_out(data: DataArguments) -> tuple[Any, Any]:
    """Training documents, and those of them that are held out; equal ones are on one side."""
    source = training_source(data)
    if data.streaming:
        # Each document decides for itself, so nothing has to be known of the others.
        held_out = partial(is_held_out, fraction=data.validation_fraction)
        scanned = islice(training_source(data), HELD_OUT_SCAN)
        evaluation = list(islice((document for document in scanned if held_out(document)), data.max_eval_rows))
        return FilteredDocuments(source, lambda document: not held_out(document)), evaluation
    documents = list(source)
    if len(documents) < 2:
        raise ValueError(
            f"The training data are one document only, so none can be held out: name `validation_file`, set "
            f"`validation_fraction` to 0, or mark documents (`document_separator`, now {data.document_separator!r})."
        )
    return held_out_split(documents, data.validation_fraction)


def trained_tokenizer(data: DataArguments, documents: Any) -> Any:
    """A WordPiece tokenizer trained on the documents."""
    return train_wordpiece(documents, data.vocab_size, lowercase=data.lowercase, model_max_length=data.max_seq_length)


def build_rows(objective: Any, documents: Documents, seed: int, rank: int = 0, world_size: int = 1) -> Rows:
    """Tokenise and pack."""
    data, tokenizer = objective.data_args, objective.tokenizer
    counted: Iterable[Sequence[int]]
    if data.streaming:
        train = stream_of(objective, documents, seed, rank, world_size)
        counted = (
            [token for sentence in document for token in sentence]
            for part, share in zip(documents.parts, documents.shares, strict=True)
            for document in encode_documents(islice(part, math.ceil(share * BASELINE_DOCUMENTS)), tokenizer)
        )
    else:
        train = first_rows(mixed_rows(objective, documents, seed), data.max_train_rows)
        counted = chain.from_iterable(train[column] for column in objective.columns)
    evaluation = None
    if documents.evaluation is not None:
        evaluation = first_rows(objective.rows(documents.evaluation, seed + 1), data.max_eval_rows)
    names = ("cls", "sep", "pad", "mask", "bos", "eos")
    excluded = {getattr(tokenizer, f"{name}_token_id") for name in names} - {None}
    return Rows(train, evaluation, UnigramBaseline.from_rows(counted, len(tokenizer), excluded))


def first_rows(rows: Any, limit: int | None) -> Any:
    """The first rows of a dataset, all without a limit."""
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def stream_of(objective: Any, documents: Documents, seed: int, rank: int, world_size: int) -> Any:
    """A resumable stream of blocks, mixed by weight if there are several documents."""
    data = objective.data_args
    options = {
        **{name: getattr(data, name) for name in ("max_seq_length", "shuffle_buffer_size")},
        **data.packing,
        **{"pairs": objective.pair_rule, "pair_label": objective.pair_label},
        **{"seed": seed, "num_epochs": None, "rank": rank, "world_size": world_size},
    }
    streams = [PretrainingStream(part, objective.tokenizer, **options) for part in documents.parts]
    train: Any = streams[0] if len(streams) == 1 else WeightedStream(streams, documents.weights, seed, rank)
    if objective.keep is not None:
        train = FilteredStream(train, objective.keep)
    return train if objective.add_words is None else MappedStream(train, objective.add_words)


def mixed_rows(objective: Any, documents: Documents, seed: int) -> Any:
    """Rows of all corpora; of several drawn by their shares until each row was there."""
    parts = [objective.rows(part, seed) for part in documents.parts]
    if len(parts) == 1:
        return parts[0]
    from datasets import interleave_datasets

    empty = [file for file, part in zip(objective.data_args.train_file or (), parts, strict=True) if not len(part)]
    if empty:
        raise ValueError(f"`train_file` {empty[0]} gives no row to train on. Leave it and its weight out.")
    return interleave_datasets(parts, probabilities=documents.shares, seed=seed, stopping_strategy="all_exhausted")


def target_baseline(collator: Any, rows: Any, vocab_size: int) -> UnigramBaseline:
    """Frequencies of the training targets of a denoising objective, sentinels and special tokens included."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    iterator, seen = iter(rows), 0
    while seen < BASELINE_ROWS and (batch := list(islice(iterator, BASELINE_BATCH))):
        labels = collator(batch, return_tensors="np")["labels"]
        counts += np.bincount(labels[labels >= 0], minlength=vocab_size)
        seen += len(batch)
    return UnigramBaseline(counts)


def describe_data(data: DataArguments, rows: Rows) -> dict[str, Any]:
    """What the model card says about the data."""
    name, license_name = data.dataset_name, data.data_license
    if not name and data.train_file:
        names = [Path(file).name for file in data.train_file]
        if data.corpus_weights is not None:
            total = sum(data.corpus_weights)
            names = [f"{n} ({100 * w / total:.3g} %)" for n, w in zip(names, data.corpus_weights, strict=True)]
        name = ", ".join(names)
    elif not name:
        name, license_name = f"the embedded {data.corpus} corpus of hf_ptm_ext", EMBEDDED_LICENSES[data.embedded]
    return {
        "name": name,
        "license": license_name or "not stated",
        **hub_data(data),
        "train_rows": "a stream" if data.streaming else len(rows.train),
        "eval_rows": len(rows.evaluation) if rows.evaluation is not None else 0,
        "max_seq_length": data.max_seq_length,
    }
