"""Batches of one of ERNIE 2.0's tasks: padded rows with labels, and the id of the task for its task embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..masking import IGNORE_INDEX
from .base import BatchCollator
from .batching import RowFrame, collect_columns, padding_id


@dataclass
class DataCollatorForErnieTask(BatchCollator):
    """Pad rows of one task, or mask them, and add `task_type_ids`.

    | column | becomes |
    | --- | --- |
    | `input_ids`, `token_type_ids` | padded |
    | `labels` of tokens | padded with -100 |
    | `labels` of texts | `(batch,)` |
    | `task_type_ids` | the task's id at every token, `(batch, seq_len)` |

    Relations: rows come from `data.ernie_tasks`; give one to each `Task` of a `ContinualMultiTaskTrainer`.

    Args:
        tokenizer: Fast or slow.
        task_type_id: Row of the encoder's task embedding; None adds no column (an encoder without one).
        masking: Another collator that makes the batch, such as `DataCollatorForErnieMasking` for knowledge masking.
        pad_to_multiple_of: Pad to a multiple of this length; None leaves that of `masking`.
        return_tensors: "pt" or "np".
        seed: Nothing is drawn here; `masking` has a seed of its own.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}
        >>> collator = DataCollatorForErnieTask(BertTokenizerFast(vocab=vocab), task_type_id=1)
        >>> batch = collator([{"input_ids": [2, 5, 3], "labels": [-100, 1, -100]},
        ...                   {"input_ids": [2, 3], "labels": [-100, -100]}])
        >>> batch["labels"].tolist(), batch["task_type_ids"].tolist()
        ([[-100, 1, -100], [-100, -100, -100]], [[1, 1, 1], [1, 1, 1]])
    """

    tokenizer: PreTrainedTokenizerBase
    task_type_id: int | None = None
    masking: Any = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task_type_id is not None and self.task_type_id < 0:
            raise ValueError(f"`task_type_id` must not be negative, got {self.task_type_id}.")
        self.input_columns: tuple[str, ...] = getattr(self.masking, "input_columns", ())

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        if self.masking is not None:
            self.masking.pad_to_multiple_of = self.pad_to_multiple_of or self.masking.pad_to_multiple_of
            batch = dict(self.masking(features, return_tensors="np"))
        else:
            batch = self._padded(features)
        if self.task_type_id is not None:
            batch["task_type_ids"] = np.full_like(batch["input_ids"], self.task_type_id)
        return batch

    def _padded(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        columns = collect_columns(features)
        rows, mask = columns.pop("input_ids"), columns.pop("attention_mask", None)
        frame = RowFrame.of(rows, self.tokenizer, self.pad_to_multiple_of)
        ids = frame.ids(rows, padding_id(self.tokenizer, frame))
        pads = {"labels": IGNORE_INDEX, "token_type_ids": self.tokenizer.pad_token_type_id}
        return {
            "input_ids": ids,
            "attention_mask": frame.attention_mask(ids, self._detectable_pad, mask),
            **{name: frame.column(name, values, pads.get(name, 0)) for name, values in columns.items()},
        }
