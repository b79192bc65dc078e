"""Masked language modelling as a task of `hf-ptm-ext distill`: task-agnostic students learn on plain text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from ..collators import DataCollatorForMaskedLanguageModeling
from ..data import FileDocuments, pretraining_dataset
from .finetune_arguments import TaskDataArguments
from .finetune_rows import Rows
from .seeded_runs import update_loss

IGNORED = -100


@dataclass(frozen=True)
class MaskedLMTask:
    """Original tokens at masked places; texts are packed into rows of the longest length."""

    labels: tuple[str, ...] = ()
    name = "masked-lm"
    kind = "masked language modelling"
    head = "MaskedLM"
    pipeline_tag = "fill-mask"
    simple = "most frequent word"
    shown = ("accuracy",)
    template = "text_task"

    @staticmethod
    def text_of(example: Any) -> str:
        """What makes two documents the same."""
        return "\n".join(example)

    @staticmethod
    def classes_of(example: Any) -> tuple[str, ...]:
        """No class; tokens are their own labels."""
        return ()

    def encode(self, examples: Sequence[Any], tokenizer: Any, max_length: int) -> Rows:
        """Rows of token ids; masks are drawn by the collator."""
        dataset = pretraining_dataset(examples, tokenizer, max_seq_length=max_length)
        return Rows([{"input_ids": dataset[number]["input_ids"]} for number in range(len(dataset))])

    @staticmethod
    def collator(tokenizer: Any) -> Any:
        """What pads and masks."""
        return DataCollatorForMaskedLanguageModeling(tokenizer, seed=0)

    @staticmethod
    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None, **options: Any) -> Any:
        """Cross entropy over an update's labels."""
        return update_loss(outputs, labels, num_items_in_batch, **options)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits: the likeliest token."""
        return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)

    @staticmethod
    def scores_of_labels(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Share of masked tokens that are found."""
        kept = labels != IGNORED
        return {"accuracy": float((predictions[kept] == labels[kept]).mean()) if kept.any() else 0.0}

    @staticmethod
    def records(predictions: np.ndarray, examples: Sequence[Any], rows: Rows) -> list[dict[str, Any]]:
        """Nothing of interest is kept."""
        return []

    @staticmethod
    def saved(tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return tokenizer

    @staticmethod
    def majority(train: Sequence[Any], test: Sequence[Any]) -> dict[str, float]:
        """Share of the most frequent word among the words of the test text."""
        words = Counter(word for document in test for text in document for word in text.split())
        return {"accuracy": max(words.values(), default=0) / max(sum(words.values()), 1)}


def read_texts(data: TaskDataArguments) -> tuple[dict[str, list[Any]], MaskedLMTask]:
    """The documents of each split that is named.

    Args:
        data: data arguments; files of text.

    Returns:
        Split -> documents; the task.

    Raises:
        ValueError: a split is empty.
    """
    examples: dict[str, list[Any]] = {}
    options = {"file_format": data.file_format, "encoding": data.encoding, "text_column": data.text_column}
    for name in ("train", "validation", "test"):
        files = getattr(data, f"{name}_file")
        if files:
            limit = data.max_train_rows if name == "train" else data.max_eval_rows
            examples[name] = list(islice(FileDocuments(files, **options), limit))
            if not examples[name]:
                raise ValueError(f"`{name}_file` has no text: {files}.")
    return examples, MaskedLMTask()


__all__ = ["MaskedLMTask", "read_texts"]
