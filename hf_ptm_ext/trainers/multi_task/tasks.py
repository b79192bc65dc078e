"""What a task of a multi-task run is: its rows, its model and how much it counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.data import Dataset

TASK = "task"


@dataclass
class Task:
    """One task of a `MultiTaskModel`.

    Args:
        model: a model with the task's head, such as `AutoModelForSequenceClassification.from_pretrained(...)`; its
            encoder is replaced by the one that all tasks share.
        train_rows: training rows, as a `Trainer` takes them; `None` for a task that is only evaluated.
        eval_rows: evaluation rows.
        data_collator: makes a batch of rows (default: the Trainer's).
        compute_metrics: as a `Trainer`'s, for this task.
        loss_weight: weight of its loss (reference: 1).
        main_metric: name of the metric that counts in `eval_score` (default: the first one).
        preprocess_logits_for_metrics: as a `Trainer`'s, for this task: what an evaluation keeps of the logits.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> Task(BertForSequenceClassification(config), train_rows=[{"input_ids": [5], "labels": 0}]).loss_weight
        1.0
    """

    model: nn.Module
    train_rows: Any = None
    eval_rows: Any = None
    data_collator: Callable[[list[Any]], dict[str, Any]] | None = None
    compute_metrics: Callable[[Any], dict[str, float]] | None = None
    loss_weight: float = 1.0
    main_metric: str | None = None
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None


class TaskRows(Dataset):
    """The rows of several tasks one after the other, each with the name of its task.

    Args:
        rows: task -> rows.

    Example:
        >>> rows = TaskRows({"a": [{"input_ids": [1]}], "b": [{"input_ids": [2]}, {"input_ids": [3]}]})
        >>> len(rows), rows[2], rows.lengths
        (3, {'input_ids': [3], 'task': 'b'}, {'a': 1, 'b': 2})
    """

    def __init__(self, rows: Mapping[str, Sequence[Any]]):
        self.rows = dict(rows)

    @property
    def lengths(self) -> dict[str, int]:
        """Number of rows of each task."""
        return {name: len(rows) for name, rows in self.rows.items()}

    def __len__(self) -> int:
        return sum(self.lengths.values())

    def __getitem__(self, index: int) -> dict[str, Any]:
        for name, rows in self.rows.items():
            if index < len(rows):
                return {**rows[index], TASK: name}
            index -= len(rows)
        raise IndexError(f"there are {len(self)} rows")


@dataclass
class TaskCollator:
    """Makes a batch of rows of one task with that task's collator, and names the task.

    Args:
        collators: task -> its collator.
    """

    collators: dict[str, Callable[[list[Any]], dict[str, Any]]]

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        names = {row[TASK] for row in rows}
        if len(names) != 1:
            raise ValueError(f"A batch must have rows of one task, got those of {sorted(names)}.")
        (name,) = names
        plain = [{column: value for column, value in row.items() if column != TASK} for row in rows]
        return {**self.collators[name](plain), TASK: name}


__all__ = ["TASK", "Task", "TaskCollator", "TaskRows"]
