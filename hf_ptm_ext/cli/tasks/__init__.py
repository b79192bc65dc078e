"""Tasks of the jobs by seeds: how examples become rows, which head they need, what is scored."""

from itertools import islice
from typing import Any

from ...data.rows import NoRows
from ..console import bar
from ..options import naming
from .base import Task
from .classification import ClassificationTask, RegressionTask
from .masked_lm import MaskedLMTask
from .mentions import RelationTask, TypingTask
from .question_answering import ExtractionTask, QuestionAnsweringTask
from .tagging import TaggingTask
from .triples import TripleTask

TASKS: dict[str, type[Task]] = {
    cls.name: cls
    for cls in (
        *(ClassificationTask, RegressionTask, TaggingTask, QuestionAnsweringTask, ExtractionTask),
        *(MaskedLMTask, RelationTask, TypingTask, TripleTask),
    )
}


def read_splits(name: str, data: Any) -> tuple[dict[str, list[Any]], Any]:
    """The examples of each split that is named, and the task that they set."""
    cls = TASKS[name]
    examples: dict[str, list[Any]] = {}
    for split in ("train", "validation", "test"):
        files, part = getattr(data, f"{split}_file"), getattr(data, f"{split}_split", None)
        if not files and not (part and data.dataset_name):
            continue
        limit = data.max_train_rows if split == "train" else data.max_eval_rows
        try:
            rows = islice(cls.read(data, files, part, unlabelled=split != "train"), limit)
            examples[split] = list(bar(rows, f"reading {split}"))
        except NoRows as error:
            raise ValueError(f"`{split}_file` or `{split}_split` has no example: {error}") from error
        if not examples[split]:
            raise ValueError(f"`{split}_file` or `{split}_split` has no example: {files or part}.")
    task = cls.of(examples["train"], data)
    for split, found in examples.items():
        with naming(f"`{split}_file` or `{split}_split`"):
            examples[split] = task.prepare(found)
    return task.completed(examples)
