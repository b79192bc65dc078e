"""Masked language modelling: task-agnostic students of `hf-ptm-ext distill` learn on plain text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...collators import DataCollatorForMaskedLanguageModeling
from ...data import FileDocuments, pretraining_dataset
from ..arguments import TaskDataArguments
from .base import IGNORED, Rows, Task


@dataclass(frozen=True)
class MaskedLMTask(Task):
    """Original tokens at masked places; texts are packed into rows of the longest length."""

    labels: tuple[str, ...] = ()
    name = "masked-lm"
    kind = "masked language modelling"
    head = "MaskedLM"
    pipeline_tag = "fill-mask"
    simple = "most frequent word"
    shown = ("accuracy",)

    @classmethod
    def read(
        cls, data: TaskDataArguments, files: list[str] | None, split: str | None, unlabelled: bool = False
    ) -> Iterator[Any]:
        """Documents of files."""
        options: dict[str, Any] = {
            "file_format": data.file_format,
            "encoding": data.encoding,
            "text_column": data.text_column,
        }
        return iter(FileDocuments(files or [], **options))

    @classmethod
    def of(cls, examples: Sequence[Any], data: TaskDataArguments) -> "MaskedLMTask":
        """The task, which is the same for all text."""
        return cls()

    def text_of(self, example: Any) -> str:
        return "\n".join(example)

    def classes_of(self, example: Any) -> tuple[str, ...]:
        """No class; tokens are their own labels."""
        return ()

    def encode(self, examples: Sequence[Any], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Rows of token ids; masks are drawn by the collator."""
        dataset = pretraining_dataset(examples, tokenizer, max_seq_length=max_length)
        return Rows([{"input_ids": dataset[number]["input_ids"]} for number in range(len(dataset))])

    def collator(self, tokenizer: Any) -> Any:
        return DataCollatorForMaskedLanguageModeling(tokenizer, seed=0)

    def reduce_logits(self, logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits: the likeliest token."""
        return super().reduce_logits(logits, labels).argmax(-1)

    def scores_of(self, output: Any, examples: Sequence[Any], rows: Rows) -> dict[str, float]:
        """Share of the tokens that the collator masked that are found."""
        kept = output.label_ids != IGNORED
        right = output.predictions[kept] == output.label_ids[kept]
        return {"accuracy": float(right.mean()) if kept.any() else 0.0}

    def records(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any = None) -> list[dict[str, Any]]:
        """Nothing of interest is kept."""
        return []

    def majority(self, train: Sequence[Any], test: Sequence[Any]) -> dict[str, float]:
        """Share of the most frequent word among the words of the test text."""
        words = Counter(word for document in test for text in document for word in text.split())
        return {"accuracy": max(words.values(), default=0) / max(sum(words.values()), 1)}
