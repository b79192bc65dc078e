"""Two sets of rows side by side: each update sees a batch of both, and the shorter set starts again."""

from collections.abc import Sequence
from typing import Any


class ZippedRows:
    """Row n is row n of the first set and row n of the second, each modulo its length (fairseq's round robin).

    Args:
        rows: rows with named columns, such as a `datasets.Dataset` of tokenised text.
        others: entries that go under one name, such as triples `(num_triples, 3)`.
        name: that name.

    Raises:
        ValueError: a set is empty.

    Example:
        >>> text = [{"input_ids": [1]}, {"input_ids": [2]}, {"input_ids": [3]}]
        >>> rows = ZippedRows(text, [[0, 0, 1], [1, 0, 2]], "triple")
        >>> len(rows), rows[2]
        (3, {'input_ids': [3], 'triple': [0, 0, 1]})
    """

    def __init__(self, rows: Sequence[Any], others: Sequence[Any], name: str):
        for field, values in (("rows", rows), ("others", others)):
            if not len(values):
                raise ValueError(f"`{field}` must have at least one row, got none.")
        self.rows, self.others, self.name = rows, others, name

    def __len__(self) -> int:
        return max(len(self.rows), len(self.others))

    def __getitem__(self, number: int) -> dict[str, Any]:
        if not -len(self) <= number < len(self):
            raise IndexError(f"There is no row {number} among {len(self)}.")
        number %= len(self)
        other = self.others[number % len(self.others)]
        return {**self.rows[number % len(self.rows)], self.name: other.tolist() if hasattr(other, "tolist") else other}


__all__ = ["ZippedRows"]
