"""Segments: blocks, words and spans are all runs of neighbouring positions of a batch.

A batch is an array `(batch, seq_len)`; a segment is the half-open run `start .. stop` of one row.
Content blocks are the runs of maskable tokens between special tokens, words are cut out of blocks by word starts,
masked spans are the runs of selected tokens. One data type serves all of them.
"""

from typing import NamedTuple

import numpy as np

from .checks import check_same_shape


class Segments(NamedTuple):
    """Runs of neighbouring positions, in reading order.

    Args:
        row: Row of each segment, int64 `(num_segments,)`.
        start: First position in the row, int64 `(num_segments,)`.
        stop: One past the last position, int64 `(num_segments,)`.

    Examples:
        >>> Segments(np.array([0]), np.array([2]), np.array([5])).lengths
        array([3])
    """

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each segment, int64 `(num_segments,)`."""
        return self.stop - self.start


def previous(values: np.ndarray, fill: int | bool) -> np.ndarray:
    """Shift an array `(batch, seq_len)` one position to the right: entry i holds token i - 1, entry 0 `fill`.

    Examples:
        >>> previous(np.array([[1, 2, 3]]), fill=0)
        array([[0, 1, 2]])
    """
    shifted = np.empty_like(values)
    shifted[:, :1] = fill
    shifted[:, 1:] = values[:, :-1]
    return shifted


def first_positions(mask: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
    """Mark the first position of every run of `mask`, boolean `(batch, seq_len)`.

    Args:
        mask: Boolean `(batch, seq_len)`.
        starts: Boolean `(batch, seq_len)`; where true inside `mask`, a new run begins although the neighbours touch.

    Examples:
        >>> first_positions(np.array([[True, True, False, True]])).astype(int)
        array([[1, 0, 0, 1]])
    """
    fresh = ~previous(mask, False)
    if starts is not None:
        check_same_shape("starts", starts, "mask", mask)
        fresh |= starts
    fresh &= mask
    return fresh


def find_segments(mask: np.ndarray, starts: np.ndarray | None = None) -> Segments:
    """List the runs of `mask` in reading order; none of them crosses a row.

    Args:
        mask: Boolean `(batch, seq_len)`.
        starts: Boolean, extra beginnings inside a run (see `first_positions`).

    Examples:
        >>> find_segments(np.array([[True, True, False, True]]))
        Segments(row=array([0, 0]), start=array([0, 3]), stop=array([2, 4]))
    """
    first = first_positions(mask, starts)
    width = max(mask.shape[1], 1)
    last = mask.copy()
    last[:, :-1] &= ~mask[:, 1:] | first[:, 1:]
    begin = np.flatnonzero(first)
    row = begin // width
    offset = row * width
    return Segments(row, begin - offset, np.flatnonzero(last) - offset + 1)


def segment_index(mask: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
    """Number the runs of `mask` over the batch: the index in `find_segments` at each position, -1 outside.

    Args:
        mask: Boolean `(batch, seq_len)`.
        starts: Boolean, extra beginnings inside a run (see `first_positions`).

    Examples:
        >>> segment_index(np.array([[True, True, False, True]]))
        array([[ 0,  0, -1,  1]])
    """
    numbers = np.cumsum(first_positions(mask, starts).ravel(), dtype=np.int64).reshape(mask.shape) - 1
    numbers[~mask] = -1
    return numbers


def cover(segments: Segments, shape: tuple[int, int]) -> np.ndarray:
    """Mark every position of an array `(batch, seq_len)` that lies in one of disjoint segments.

    Examples:
        >>> cover(Segments(np.array([0]), np.array([1]), np.array([3])), (1, 4)).astype(int)
        array([[0, 1, 1, 0]])
    """
    width = shape[1]
    steps = np.zeros(shape[0] * width + 1, dtype=np.int8)
    # Starts are distinct and so are stops, so two indexed additions count right where a segment touches the next.
    steps[segments.row * width + segments.start] += 1
    steps[segments.row * width + segments.stop] -= 1
    return np.cumsum(steps[:-1], dtype=np.int8).astype(bool).reshape(shape)
