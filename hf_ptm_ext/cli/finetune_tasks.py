"""The tasks of `hf-ptm-ext finetune`: how their examples become rows, which head they need, what is scored.

A task has the attributes and methods of `ClassificationTask`; the job knows nothing else of it.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from ..data.labelled_text import (
    NO_LABEL,
    NUMBER,
    LabelledText,
    TextColumns,
    dataset_labelled_texts,
    read_labelled_texts,
)
from ..data.rows import NoRows
from ..data.tag_schemes import OUTSIDE, PLAIN, detect_scheme, scheme_breaks, spans_of, to_iob2
from ..data.tagged_words import TaggedWords, dataset_tagged_words, read_tagged_words
from ..metrics.classification import classification_scores
from ..metrics.entities import entity_scores
from ..metrics.kbert import PADDING, kbert_span_scores
from ..metrics.ranking import mean_reciprocal_rank
from ..metrics.regression import regression_scores
from .finetune_arguments import AUTO, TaskDataArguments
from .finetune_questions import ExtractionTask, QuestionAnsweringTask
from .finetune_rows import Rows, rows_of
from .loading import set_labels
from .seeded_runs import update_loss

logger = logging.getLogger(__name__)

IGNORED = -100


def _numbers(labels: Collection[str]) -> bool:
    """Whether a column has numbers, by its values: a file's format does not tell."""
    return all(NUMBER.fullmatch(label) for label in labels)


def read_texts_of(
    data: TaskDataArguments, files: list[str] | None, split: str | None, **options: bool
) -> Iterator[LabelledText]:
    """Labelled texts of files, or of a split of the data set."""
    columns = TextColumns(data.text_column, data.label_column, data.pair_column, data.group_column)
    if files:
        return read_labelled_texts(files, columns, file_format=data.file_format, encoding=data.encoding, **options)
    name, config = data.dataset_name or "", data.dataset_config_name
    return dataset_labelled_texts(name, config, split=split or "", columns=columns, **options)


@dataclass(frozen=True)
class ClassificationTask:
    """One class for a text or a pair of texts.

    Args:
        labels: all classes of the training data, in order.
        groups: whether rows belong to questions, and the mean reciprocal rank is scored.
    """

    labels: tuple[str, ...]
    groups: bool = False
    name = "classification"
    kind = "text classification"
    head = "SequenceClassification"
    pipeline_tag = "text-classification"
    simple = "majority"
    template = "text_task"
    loss = staticmethod(update_loss)

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables, the first of which is what matters most."""
        return (*(("mrr",) if self.groups else ()), "accuracy", "macro_f1", "matthews_correlation")

    @staticmethod
    def read(
        data: TaskDataArguments, files: list[str] | None, split: str | None, unlabelled: bool = False
    ) -> Iterator[LabelledText]:
        """Examples of files, or of a split of the data set."""
        return read_texts_of(data, files, split, unlabelled=unlabelled)

    @classmethod
    def of(cls, examples: Sequence[LabelledText], data: TaskDataArguments) -> "ClassificationTask":
        """The task that the training examples set; numbers that are not whole are no classes.

        Raises:
            ValueError: there are not two classes, or the labels are scores.
        """
        labels = {example.label for example in cls.prepare(examples)}
        numbers = _numbers(labels)
        scores = sorted(label for label in labels if numbers and not label.lstrip("+-").isdecimal())
        if scores:
            raise ValueError(
                f"`label_column` = {data.label_column!r} has numbers that are not whole, such as {scores[0]}: they "
                "are scores, which `--task regression` learns. For classes give them names."
            )
        task = cls(tuple(sorted(labels, key=int if numbers else None)), data.group_column is not None)
        if len(task.labels) < 2:
            raise ValueError(f"The training data must have at least two labels, got {list(task.labels)}.")
        if task.groups and len(task.labels) != 2:
            raise ValueError(
                f"`group_column` ranks right before wrong rows and needs two labels, got {list(task.labels)}."
            )
        return task

    @staticmethod
    def prepare(examples: Sequence[LabelledText]) -> list[LabelledText]:
        """Examples as they are compared with predictions: 1.0 is 1, as tables write columns that once had a gap."""
        return [
            one._replace(label=re.sub(r"^([+-]?\d+)\.0+$", r"\1", one.label)) if one.label is not None else one
            for one in examples
        ]

    @staticmethod
    def text_of(example: LabelledText) -> str:
        """What makes two rows the same."""
        return f"{example.text}\n{example.pair or ''}"

    def classes_of(self, example: LabelledText) -> tuple[str, ...] | None:
        """Its class; `None` without a label."""
        return None if example.label is None else (example.label,)

    def configure(self, config: Any) -> None:
        """Give a config the head's size and the names of its classes."""
        set_labels(config, self.labels)

    def targets(self, examples: Sequence[LabelledText]) -> list[Any]:
        """What the loss compares with: -100 for a class that training does not know."""
        known = {label: number for number, label in enumerate(self.labels)}
        return [known.get(example.label, IGNORED) for example in examples]

    def encode(self, examples: Sequence[LabelledText], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Token ids and labels."""
        pairs = [example.pair for example in examples] if examples[0].pair is not None else None
        encoded = tokenizer(
            [example.text for example in examples],
            pairs,
            truncation=True,
            max_length=max_length,
            verbose=False,
            **options,
        )
        inputs = rows_of(encoded)
        if self.classes_of(examples[0]) is not None:
            inputs = [{**row, "labels": target} for row, target in zip(inputs, self.targets(examples), strict=True)]
        return Rows(inputs)

    @staticmethod
    def collator(tokenizer: Any) -> Any:
        """What pads."""
        return DataCollatorWithPadding(tokenizer)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits `(batch, num_labels)`."""
        return logits[0] if isinstance(logits, tuple) else logits

    def scores(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Rows) -> dict[str, float]:
        """Scores of logits."""
        found = classification_scores(self.decided(predictions), [example.label for example in examples])
        if self.groups:
            # The difference of two logits ranks as the probability of the second class does.
            ranks = (predictions[:, 1] - predictions[:, 0]).tolist()
            found["mrr"] = self._mrr(ranks, examples)
        return found

    def records(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Rows) -> list[dict[str, Any]]:
        """What was predicted for each example."""
        return [
            {
                "text": example.text,
                **({} if example.pair is None else {"pair": example.pair}),
                **({} if example.label is None else {"label": example.label}),
                "prediction": label,
            }
            for example, label in zip(examples, self.decided(predictions), strict=True)
        ]

    def decided(self, predictions: np.ndarray) -> list[Any]:
        """What logits say."""
        return [self.labels[number] for number in predictions.argmax(axis=-1)]

    @staticmethod
    def saved(tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return tokenizer

    def majority(self, train: Sequence[LabelledText], test: Sequence[LabelledText]) -> dict[str, float]:
        """Scores of the most frequent class, answers in the order of the file."""
        (label, _), *_ = Counter(example.label for example in train).most_common(1)
        found = classification_scores([label] * len(test), [example.label for example in test])
        if self.groups:
            found["mrr"] = self._mrr([0.0] * len(test), test)
        return found

    def _mrr(self, scores: Sequence[float], examples: Sequence[LabelledText]) -> float:
        right = [example.label == self.labels[1] for example in examples]
        return mean_reciprocal_rank(scores, right, [example.group for example in examples])


@dataclass(frozen=True)
class RegressionTask(ClassificationTask):
    """A number for a text or a pair of texts, such as how alike two sentences are.

    Args:
        labels: none.
    """

    labels: tuple[str, ...] = ()
    name = "regression"
    kind = "text regression"
    simple = "mean of the training scores"
    shown = ("pearson", "spearman")

    @staticmethod
    def read(
        data: TaskDataArguments, files: list[str] | None, split: str | None, unlabelled: bool = False
    ) -> Iterator[LabelledText]:
        """Examples of files, or of a split of the data set; -1 is a number."""
        return read_texts_of(data, files, split, unlabelled=unlabelled, scores=True)

    @classmethod
    def of(cls, examples: Sequence[LabelledText], data: TaskDataArguments) -> "RegressionTask":
        """The task that the training examples set.

        Raises:
            ValueError: they are all the same.
        """
        if len(set(_targets(examples))) < 2:
            raise ValueError(f"The training data must have at least two scores, got {examples[0].label} alone.")
        return cls()

    @staticmethod
    def prepare(examples: Sequence[LabelledText]) -> list[LabelledText]:
        """Examples as they are."""
        return list(examples)

    def are_hidden(self, examples: Sequence[LabelledText]) -> bool:
        """Whether the labels stand in for those that are not told: all are -1."""
        return all(one.label in NO_LABEL for one in examples)

    def classes_of(self, example: LabelledText) -> tuple[str, ...] | None:
        """No class; `None` without a score."""
        return None if example.label is None else ()

    def configure(self, config: Any) -> None:
        """Give a config one output, and the name of what it is."""
        config.num_labels = 1
        config.problem_type = "regression"

    def targets(self, examples: Sequence[LabelledText]) -> list[Any]:
        """The scores as numbers."""
        return _targets(examples)

    @staticmethod
    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None, label_smoothing: float = 0.0) -> Any:
        """Mean squared difference over all rows of an update."""
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        labels = labels.to(logits.device).float()
        total = ((logits.float().flatten() - labels.flatten()) ** 2).sum()
        return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)

    def scores(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Rows) -> dict[str, float]:
        """Scores of the numbers `(examples, 1)`."""
        return regression_scores(predictions.reshape(-1), _targets(examples))

    def records(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Rows) -> list[dict[str, Any]]:
        """What was predicted for each example, numbers beside numbers."""
        found = super().records(predictions, examples, rows)
        return [{**one, **({"label": float(one["label"])} if "label" in one else {})} for one in found]

    def decided(self, predictions: np.ndarray) -> list[Any]:
        """The numbers."""
        return [float(value) for value in predictions.reshape(-1)]

    def majority(self, train: Sequence[LabelledText], test: Sequence[LabelledText]) -> dict[str, float]:
        """Scores of the mean of the training scores, which correlates with nothing."""
        return regression_scores([float(np.mean(_targets(train)))] * len(test), _targets(test))


def _targets(examples: Sequence[LabelledText]) -> list[float]:
    """Labels as numbers, which the reader has checked."""
    return [float(example.label or "") for example in examples]


@dataclass(frozen=True)
class TaggingTask:
    """A tag for every word; tags that mark spans are scored as entities.

    Args:
        labels: all tags of the training data in IOB2, O first.
        scheme: how the files write spans, or `"plain"`.
        parity: whether K-BERT's own score is given too.
    """

    labels: tuple[str, ...]
    scheme: str
    parity: bool = False
    name = "tagging"
    kind = "tagging"
    head = "TokenClassification"
    pipeline_tag = "token-classification"
    simple = "most frequent tag of the word"
    template = "text_task"
    loss = staticmethod(update_loss)
    outside = OUTSIDE

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables, the first of which is what matters most."""
        spans = ("f1", "precision", "recall", *(("kbert_f1",) if self.parity else ()))
        return ("accuracy", "macro_f1") if self.scheme == PLAIN else spans

    @staticmethod
    def read(
        data: TaskDataArguments, files: list[str] | None, split: str | None, unlabelled: bool = False
    ) -> Iterator[TaggedWords]:
        """Sentences of files, or of a split of the data set."""
        columns: dict[str, Any] = {
            **{name: getattr(data, name) for name in ("words_column", "tags_column", "pair_column")},
            "unlabelled": unlabelled,
        }
        if files:
            return read_tagged_words(files, **columns, file_format=data.file_format, encoding=data.encoding)
        return dataset_tagged_words(data.dataset_name or "", data.dataset_config_name, split=split or "", **columns)

    @classmethod
    def of(cls, examples: Sequence[TaggedWords], data: TaskDataArguments) -> "TaggingTask":
        """The task that the training examples set."""
        scheme = data.tag_scheme
        if scheme == AUTO:
            scheme = detect_scheme(example.tags for example in examples)
        parity = data.parity_metric is not None
        if parity and scheme == PLAIN:
            raise ValueError(f"`parity_metric` = {data.parity_metric} scores spans, and these tags mark none.")
        task = cls((), scheme, parity)
        if scheme != PLAIN and (breaks := sum(scheme_breaks(example.tags, scheme) for example in examples)):
            logger.warning("%d training tags break the scheme %s and are read as conlleval does.", breaks, scheme)
        tags = {tag for example in task.prepare(examples) for tag in example.tags}
        # O first, then B and I of each type together.
        labels = sorted(
            tags | ({OUTSIDE} if scheme != PLAIN else set()), key=lambda tag: (tag != OUTSIDE, tag[1:], tag)
        )
        if len(labels) < 2:
            raise ValueError(f"The training data must have at least two tags, got {labels}.")
        return cls(tuple(labels), scheme, parity)

    def prepare(self, examples: Sequence[TaggedWords]) -> list[TaggedWords]:
        """Sentences with their tags in IOB2."""
        if self.scheme == PLAIN:
            return list(examples)
        return [
            one if one.tags is None else one._replace(tags=tuple(to_iob2(one.tags, self.scheme))) for one in examples
        ]

    @staticmethod
    def text_of(example: TaggedWords) -> str:
        """What makes two rows the same."""
        return "\n".join(" ".join(words) for words in (example.words, example.pair or ()))

    @staticmethod
    def classes_of(example: TaggedWords) -> tuple[str, ...] | None:
        """Its tags; `None` without any."""
        return example.tags

    def configure(self, config: Any) -> None:
        """Give a config the head's size and the names of its tags."""
        set_labels(config, self.labels)

    def encode(self, examples: Sequence[TaggedWords], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Token ids, and a label on the first piece of each word."""
        pairs = [list(example.pair) for example in examples if example.pair is not None]
        encoded = tokenizer(
            [list(example.words) for example in examples],
            pairs or None,
            is_split_into_words=True,
            truncation=True,
            max_length=max_length,
            verbose=False,
            **options,
        )
        known = {label: number for number, label in enumerate(self.labels)}
        rows = Rows(rows_of(encoded))
        for number, (row, example) in enumerate(zip(rows.inputs, examples, strict=True)):
            places: list[int | None] = [None] * len(example.words)
            labels = [IGNORED] * len(row["input_ids"])
            numbers = zip(encoded.word_ids(number), encoded.sequence_ids(number), strict=True)
            for place, (word, sequence) in enumerate(numbers):
                if word is not None and sequence == 0 and places[word] is None:
                    places[word] = place
                    labels[place] = IGNORED if example.tags is None else known.get(example.tags[word], IGNORED)
            if example.tags is not None:
                row["labels"] = labels
            rows.places.append(places)
        lost = sum(place is None for places in rows.places for place in places)
        if lost:
            logger.warning(
                "%d of %d words have no token (cut off at %d, or unknown to the tokenizer's normalisation) and count "
                "as untagged.",
                lost,
                sum(map(len, rows.places)),
                max_length,
            )
        return rows

    @staticmethod
    def collator(tokenizer: Any) -> Any:
        """What pads."""
        return DataCollatorForTokenClassification(tokenizer)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits `(batch, seq_len, num_labels)`: the likeliest label."""
        return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)

    def scores(self, predictions: np.ndarray, examples: Sequence[TaggedWords], rows: Rows) -> dict[str, float]:
        """Scores of label numbers `(examples, seq_len)`; a word without a token counts as untagged."""
        return self.scores_of_tags(self._tags(predictions, rows), examples)

    def records(self, predictions: np.ndarray, examples: Sequence[TaggedWords], rows: Rows) -> list[dict[str, Any]]:
        """What was predicted for each example."""
        return [
            {
                "words": list(example.words),
                **({} if example.tags is None else {"tags": list(example.tags)}),
                "prediction": tags,
            }
            for example, tags in zip(examples, self._tags(predictions, rows), strict=True)
        ]

    @staticmethod
    def saved(tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return tokenizer

    def _tags(self, predictions: np.ndarray, rows: Rows) -> list[list[str]]:
        untagged = OUTSIDE if OUTSIDE in self.labels else self.labels[0]
        return [
            [untagged if place is None else self.labels[row[place]] for place in places]
            for row, places in zip(predictions, rows.places, strict=True)
        ]

    def scores_of_tags(self, tags: Sequence[Sequence[str]], examples: Sequence[TaggedWords]) -> dict[str, float]:
        """Scores of predicted tags."""
        truth = [example.tags for example in examples]
        words = [[tag for sentence in side for tag in sentence] for side in (tags, truth)]
        found = classification_scores(*words)
        if self.scheme == PLAIN:
            return found
        strict, lenient = (
            entity_scores(*([spans_of(one, strict=mode) for one in side] for side in (tags, truth)))
            for mode in (True, False)
        )
        scores = {"accuracy": found["accuracy"], **strict, "conlleval_f1": lenient["f1"]}
        if self.parity:
            batch = [[tag for sentence in side for tag in (*sentence, PADDING)] for side in (tags, truth)]
            scores["kbert_f1"] = kbert_span_scores(batch[:1], batch[1:])["f1"]
        return scores

    def majority(self, train: Sequence[TaggedWords], test: Sequence[TaggedWords]) -> dict[str, float]:
        """Scores of tagging every word with its most frequent tag, unknown words with the most frequent of all."""
        by_word: dict[str, Counter[str]] = defaultdict(Counter)
        for example in train:
            for word, tag in zip(example.words, example.tags, strict=True):
                by_word[word][tag] += 1
        total: Counter[str] = sum(by_word.values(), Counter())
        likeliest = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
        unknown = total.most_common(1)[0][0]
        return self.scores_of_tags([[likeliest.get(word, unknown) for word in one.words] for one in test], test)


TASKS: dict[str, Any] = {
    "classification": ClassificationTask,
    "regression": RegressionTask,
    "tagging": TaggingTask,
    "question-answering": QuestionAnsweringTask,
    "extraction": ExtractionTask,
}


def read_splits(data: TaskDataArguments) -> tuple[dict[str, list[Any]], Any]:
    """The examples of each split that is named, and the task that they set.

    Args:
        data: data arguments.

    Returns:
        Split -> examples; the task.

    Raises:
        ValueError: a split is empty, or see the readers.
    """
    cls = TASKS[data.task]
    examples: dict[str, list[Any]] = {}
    for name in ("train", "validation", "test"):
        files, split = getattr(data, f"{name}_file"), getattr(data, f"{name}_split")
        if not files and not (data.dataset_name and split):
            continue
        limit = data.max_train_rows if name == "train" else data.max_eval_rows
        try:
            examples[name] = list(islice(cls.read(data, files, split, unlabelled=name != "train"), limit))
        except NoRows as error:
            raise ValueError(f"`{name}_file` or `{name}_split` has no example: {error}") from error
        if not examples[name]:
            raise ValueError(f"`{name}_file` or `{name}_split` has no example: {files or split}.")
    task = cls.of(examples["train"], data)
    for name, found in examples.items():
        try:
            examples[name] = task.prepare(found)
        except ValueError as error:
            raise ValueError(f"`{name}_file` or `{name}_split`: {error}") from error
    return examples, task


__all__ = ["TASKS", "ClassificationTask", "TaggingTask", "read_splits"]
