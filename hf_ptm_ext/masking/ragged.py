"""Rows of different length, laid end to end: `values` (total,) and `lengths` (num_rows,).

Objectives that delete, insert and move tokens work on this form, for all rows at once; only the finished rows are
padded. A padded batch becomes flat by `input_ids[text]`, whichever side it is padded on.
"""

from __future__ import annotations

import numpy as np


def row_offsets(lengths: np.ndarray) -> np.ndarray:
    """Give the flat index at which each row begins.

    Args:
        lengths: Values of each row, int `(num_rows,)`.

    Returns:
        int64 `(num_rows,)`.

    Example:
        >>> row_offsets(np.array([2, 0, 3]))
        array([0, 2, 2])
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths


def row_index(lengths: np.ndarray) -> np.ndarray:
    """Give the row of each flat value.

    Args:
        lengths: Values of each row, int `(num_rows,)`.

    Returns:
        int64 `(total,)`.

    Example:
        >>> row_index(np.array([2, 0, 3]))
        array([0, 0, 2, 2, 2])
    """
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def row_positions(lengths: np.ndarray) -> np.ndarray:
    """Count the values of each row from 0.

    Args:
        lengths: Values of each row, int `(num_rows,)`.

    Returns:
        int64 `(total,)`.

    Example:
        >>> row_positions(np.array([2, 0, 3]))
        array([0, 1, 0, 1, 2])
    """
    return index_ranges(np.zeros(len(lengths), dtype=np.int64), lengths)


def index_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Write out ranges of indices one after the other.

    Args:
        starts: First index of each range, int `(num_ranges,)`.
        lengths: Indices of each range, int `(num_ranges,)`.

    Returns:
        int64 `(lengths.sum(),)`.

    Example:
        >>> index_ranges(np.array([5, 0]), np.array([2, 3]))
        array([5, 6, 0, 1, 2])
    """
    return np.arange(int(np.sum(lengths)), dtype=np.int64) + np.repeat(starts - row_offsets(lengths), lengths)


def pad_ragged(
    values: np.ndarray, lengths: np.ndarray, fill: int, width: int | None = None, left: bool = False
) -> np.ndarray:
    """Pad flat rows to one width.

    Args:
        values: Flat values `(total,)`.
        lengths: Values of each row, int `(num_rows,)`.
        fill: Value of padding.
        width: Width of the answer, not below the longest row; None takes the longest row.
        left: Pad on the left.

    Returns:
        `(num_rows, width)`, of the type of `values`; a view of them where nothing is to be filled.

    Raises:
        ValueError: If a row is longer than `width`.

    Example:
        >>> pad_ragged(np.array([5, 6, 7]), np.array([2, 1]), 0)
        array([[5, 6],
               [7, 0]])
    """
    longest = int(lengths.max(initial=0))
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"`width` must hold the longest row, {longest} values, got {width}.")
    if len(values) == len(lengths) * width:
        return values.reshape(len(lengths), width)
    padded = np.full((len(lengths), width), fill, dtype=values.dtype)
    column = np.arange(width)
    padded[column >= width - lengths[:, None] if left else column < lengths[:, None]] = values
    return padded


def append_to_rows(values: np.ndarray, lengths: np.ndarray, value: int) -> np.ndarray:
    """Put one value behind each row.

    Args:
        values: Flat values `(total,)`.
        lengths: Values of each row, int `(num_rows,)`.
        value: What is put there.

    Returns:
        `(total + num_rows,)`; the rows are one longer.

    Example:
        >>> append_to_rows(np.array([5, 6, 7]), np.array([2, 1]), 1)
        array([5, 6, 1, 7, 1])
    """
    longer = np.full(len(values) + len(lengths), value, dtype=values.dtype)
    is_old = np.ones(len(longer), dtype=bool)
    is_old[np.cumsum(lengths + 1) - 1] = False
    longer[is_old] = values
    return longer
