"""One class, or one number, for a text or a pair of texts."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.labelled_text import (
    NO_LABEL,
    NUMBER,
    LabelledText,
    TextColumns,
    dataset_labelled_texts,
    read_labelled_texts,
)
from ...metrics import classification_scores, mean_reciprocal_rank, ngram_classifier, regression_scores
from ..arguments import TaskDataArguments
from ..console import in_parts
from .base import IGNORED, Rows, Task, rows_of


@dataclass(frozen=True)
class ClassificationTask(Task):
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
    readers = (read_labelled_texts, dataset_labelled_texts)
    numbers = False  # whether -1 is a score and no missing label

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables."""
        return (*(("mrr",) if self.groups else ()), "accuracy", "macro_f1", "matthews_correlation")

    @classmethod
    def columns(cls, data: TaskDataArguments) -> dict[str, Any]:
        columns = TextColumns(data.text_column, data.label_column, data.pair_column, data.group_column)
        return {"columns": columns, "scores": cls.numbers}

    @classmethod
    def of(cls, examples: Sequence[LabelledText], data: TaskDataArguments) -> "ClassificationTask":
        """The task that the training examples set; numbers that are not whole are no classes."""
        labels = {str(example.label) for example in cls(()).prepare(examples)}
        # By their values: a file's format does not tell.
        numbers = all(NUMBER.fullmatch(label) for label in labels)
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

    def prepare(self, examples: Sequence[LabelledText]) -> list[LabelledText]:
        """Examples as they are compared with predictions: 1.0 is 1, as tables write columns that once had a gap."""
        return [
            one._replace(label=re.sub(r"^([+-]?\d+)\.0+$", r"\1", one.label)) if one.label is not None else one
            for one in examples
        ]

    def text_of(self, example: LabelledText) -> str:
        return f"{example.text}\n{example.pair or ''}"

    def classes_of(self, example: LabelledText) -> tuple[str, ...] | None:
        """Its class; `None` without a label."""
        return None if example.label is None else (example.label,)

    def targets(self, examples: Sequence[LabelledText]) -> list[Any]:
        """What the loss compares with: -100 for a class that training does not know."""
        known = {label: number for number, label in enumerate(self.labels)}
        return [known.get(str(example.label), IGNORED) for example in examples]

    def encode(self, examples: Sequence[LabelledText], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        limits, inputs = {"truncation": True, "max_length": max_length, "verbose": False}, []
        for part in in_parts(examples, "tokenizing"):
            pairs = [example.pair for example in part] if examples[0].pair is not None else None
            inputs += rows_of(tokenizer([example.text for example in part], pairs, **limits, **options))
        if self.classes_of(examples[0]) is not None:
            inputs = [{**row, "labels": target} for row, target in zip(inputs, self.targets(examples), strict=True)]
        return Rows(inputs)

    def scores(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Any = None) -> dict[str, float]:
        """Scores of logits."""
        found = classification_scores(self.decided(predictions, examples), [example.label for example in examples])
        if self.groups:
            # The difference of two logits ranks as the probability of the second class does.
            ranks = (predictions[:, 1] - predictions[:, 0]).tolist()
            found["mrr"] = self._mrr(ranks, examples)
        return found

    def record(self, example: LabelledText) -> dict[str, Any]:
        """Its texts, and its label if it is told."""
        given = {"pair": example.pair, "label": example.label}
        return {"text": example.text, **{name: value for name, value in given.items() if value is not None}}

    def majority(self, train: Sequence[LabelledText], test: Sequence[LabelledText]) -> dict[str, float]:
        """Scores of the most frequent class, answers in the order of the file."""
        (label, _), *_ = Counter(example.label for example in train).most_common(1)
        found = classification_scores([label] * len(test), [example.label for example in test])
        if self.groups:
            found["mrr"] = self._mrr([0.0] * len(test), test)
        return found

    def linear(self, train: Sequence[Any], splits: Sequence[Sequence[Any]], language: str) -> list[dict[str, float]]:
        """Scores of n-grams under a logistic regression on each split."""
        model = ngram_classifier([self.text_of(one) for one in train], [one.label for one in train], language)
        return [
            classification_scores(
                model.predict([self.text_of(one) for one in split]).tolist(), [one.label for one in split]
            )
            for split in splits
        ]

    def _mrr(self, scores: Sequence[float], examples: Sequence[LabelledText]) -> float:
        right = [example.label == self.labels[1] for example in examples]
        return mean_reciprocal_rank(scores, right, [example.group for example in examples])


@dataclass(frozen=True)
class RegressionTask(ClassificationTask):
    """A number for a text or a pair of texts, such as how alike two sentences are."""

    labels: tuple[str, ...] = ()
    name = "regression"
    kind = "text regression"
    simple = "mean of the training scores"
    shown = ("pearson", "spearman")
    numbers = True

    @classmethod
    def of(cls, examples: Sequence[LabelledText], data: TaskDataArguments) -> "RegressionTask":
        task = cls()
        if len(set(task.targets(examples))) < 2:
            raise ValueError(f"The training data must have at least two scores, got {examples[0].label} alone.")
        return task

    def prepare(self, examples: Sequence[LabelledText]) -> list[LabelledText]:
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

    def targets(self, examples: Sequence[LabelledText]) -> list[float]:
        """The scores as numbers, which the reader has checked."""
        return [float(example.label or "") for example in examples]

    @staticmethod
    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None, label_smoothing: float = 0.0) -> Any:
        """Mean squared difference over all rows of an update."""
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        labels = labels.to(logits.device).float()
        total = ((logits.float().flatten() - labels.flatten()) ** 2).sum()
        return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)

    def scores(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Any = None) -> dict[str, float]:
        """Scores of the numbers `(examples, 1)`."""
        return regression_scores(predictions.reshape(-1).tolist(), self.targets(examples))

    def record(self, example: LabelledText) -> dict[str, Any]:
        """Its texts, and its score as a number."""
        found = super().record(example)
        return {**found, **({"label": float(found["label"])} if "label" in found else {})}

    def decided(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Any = None) -> list[float]:
        """The numbers."""
        return [float(value) for value in predictions.reshape(-1)]

    def majority(self, train: Sequence[LabelledText], test: Sequence[LabelledText]) -> dict[str, float]:
        """Scores of the mean of the training scores, which correlates with nothing."""
        return regression_scores([float(np.mean(self.targets(train)))] * len(test), self.targets(test))
