"""What the jobs by seeds ask of a task."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from transformers import DataCollatorWithPadding

from ...objectives.token_losses import update_loss
from ..loading import set_labels

IGNORED = -100


@dataclass
class Rows:
    """Examples as model inputs.

    Args:
        inputs: one dictionary a row, with `labels` if all of them are known.
        places: tagging: for each row the token that stands for each word, `None` where a word was cut off.
        windows: question answering: for each row which example it is of, and where its tokens stand in the passage.
        encoder: triples: what made the rows, and makes those of other triples.
    """

    inputs: list[dict[str, Any]]
    places: list[list[int | None]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    encoder: Any = None


def rows_of(encoded: Any) -> list[dict[str, Any]]:
    """A tokenizer's columns as rows."""
    return [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]


class Task(ABC):
    """One task, as the training examples set it; examples are what its reader gives.

    Its attributes: `labels`, all classes in order (none for numbers and places); `name`, of the option `task`;
    `kind`, in words; `head`, what follows `AutoModelFor`; `pipeline_tag`, the Hub's; `template`, of the card, and
    `page`, of the documentation; `readers`, of files and of a data set; `simple`, what the task is guessed by without
    any training; `shown`, the scores of the tables, the first of which matters most; `outside`, the class of what is
    no entity; `ranks`, whether scores need the trained model itself; `loss`, of a Trainer's outputs (`None`: the
    model's own).
    """

    labels: tuple[str, ...]
    name: ClassVar[str]
    kind: ClassVar[str]
    head: ClassVar[str]
    pipeline_tag: ClassVar[str]
    template: ClassVar[str] = "text_task"
    page: ClassVar[str] = "how-to/classification_and_tagging"
    readers: ClassVar[tuple[Any, Any]]
    simple: Any = "majority"
    shown: Any
    outside: ClassVar[str | None] = None
    ranks: ClassVar[bool] = False
    loss: Any = staticmethod(update_loss)
    linear: Any = None  # scores of a linear model on splits, of tasks that have one

    # ---- examples ----

    @classmethod
    def read(cls, data: Any, files: Any, split: str | None, unlabelled: bool = False) -> Iterator[Any]:
        """Examples of files, or of a split of the data set; `unlabelled` lets labels be missing."""
        of_files, of_data_set = cls.readers
        options = {**cls.columns(data), "unlabelled": unlabelled}
        if files:
            return of_files(files, file_format=data.file_format, encoding=data.encoding, **options)
        return of_data_set(data.dataset_name, data.dataset_config_name, split=split, **options)

    @classmethod
    def columns(cls, data: Any) -> dict[str, Any]:
        """What both readers are told of the columns."""
        return {}

    @classmethod
    @abstractmethod
    def of(cls, examples: Sequence[Any], data: Any) -> Any:
        """The task that the training examples set."""

    def prepare(self, examples: Sequence[Any]) -> list[Any]:
        """Examples as they are compared with predictions."""
        return list(examples)

    def completed(self, examples: dict[str, list[Any]]) -> tuple[dict[str, list[Any]], Any]:
        """The examples of all splits and the task, with what all of them together tell."""
        return examples, self

    @abstractmethod
    def text_of(self, example: Any) -> str:
        """What makes two rows the same."""

    @abstractmethod
    def classes_of(self, example: Any) -> Any:
        """Its classes; `None` if they are not told."""

    def are_hidden(self, examples: Sequence[Any]) -> bool:
        """Whether labels that are there stand in for labels that are not told."""
        return False

    # ---- model and rows ----

    def configure(self, config: Any) -> None:
        """Give a config the head's size and the names of its classes."""
        set_labels(config, self.labels)

    @abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Token ids and labels."""

    def collator(self, tokenizer: Any) -> Any:
        """What pads."""
        return DataCollatorWithPadding(tokenizer)

    def saved(self, tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return tokenizer

    # ---- predictions ----

    def predicted(self, trainer: Any, examples: Sequence[Any], rows: Rows) -> Any:
        """What a Trainer predicts of a split."""
        return trainer.predict(rows.inputs)

    def reduce_logits(self, logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the outputs."""
        return logits[0] if isinstance(logits, tuple) else logits

    def tuned(self, predictions: np.ndarray, examples: Sequence[Any], rows: Rows) -> Any:
        """The task with what predictions of the validation data decide."""
        return self

    def decided(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any = None) -> list[Any]:
        """What reduced outputs say of each example."""
        return [self.labels[number] for number in predictions.argmax(axis=-1)]

    def scores(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any = None) -> dict[str, float]:
        """Scores of reduced outputs; a task whose outputs are scores already overrides `scores_of` instead."""
        raise NotImplementedError(f"`{type(self).__name__}.scores` must score predictions. Subclasses define it.")

    def scores_of(self, output: Any, examples: Sequence[Any], rows: Rows) -> dict[str, float]:
        """Scores of what a Trainer has predicted."""
        return self.scores(output.predictions, examples, rows)

    def record(self, example: Any) -> dict[str, Any]:
        """An example in the file of predictions."""
        return {"text": self.text_of(example)}

    def records(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any = None) -> list[dict[str, Any]]:
        """What was predicted for each example."""
        decided = self.decided(predictions, examples, rows)
        return [
            {**self.record(example), "prediction": found} for example, found in zip(examples, decided, strict=True)
        ]

    @abstractmethod
    def majority(self, train: Sequence[Any], test: Sequence[Any]) -> dict[str, float]:
        """Scores of the simple guess."""
