"""Batches for teachers with a tokenizer of their own."""

from collections.abc import Sequence
from typing import Any

from .teachers import TEACHER_PREFIX


class TeacherColumns:
    """A collator that pads the columns beginning with `teacher_` with the teacher's tokenizer, the others as before.

    Args:
        collator: what collates the other columns.
        tokenizer: the teacher's tokenizer.
    """

    def __init__(self, collator: Any, tokenizer: Any):
        self.collator = collator
        self.teacher_tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        # The draw counter, the tokenizer and the like are the inner collator's. Dunder names are left to `copy`.
        if name.startswith("__") or name == "collator":
            raise AttributeError(name)
        return getattr(self.collator, name)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Collate.

        Args:
            rows: with or without `teacher_` columns.

        Returns:
            The batch.
        """
        own = [{n: v for n, v in row.items() if not n.startswith(TEACHER_PREFIX)} for row in rows]
        teachers = [
            {n.removeprefix(TEACHER_PREFIX): v for n, v in row.items() if n.startswith(TEACHER_PREFIX)} for row in rows
        ]
        batch = dict(self.collator(own))
        if any(teachers):
            padded = self.teacher_tokenizer.pad(teachers, return_tensors="pt")
            batch.update({f"{TEACHER_PREFIX}{name}": value for name, value in padded.items()})
        return batch


__all__ = ["TeacherColumns"]
