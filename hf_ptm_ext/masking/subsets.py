"""Uniformly random subsets of fixed size, many at once."""

from __future__ import annotations

import numpy as np

from .order import shuffled_within_groups
from .ragged import index_ranges, row_index, row_offsets, row_positions

# Above one in so many, drawing with replacement would hit marked items too often.
DENSE = 6


def random_subsets(sizes: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mark a random subset of each group, every subset of its size equally likely.

    Where few items are to be marked, they are drawn with replacement until enough are distinct, which by symmetry is
    uniform and costs what is drawn, not what there is. Elsewhere the items are shuffled.

    Args:
        sizes: Items of each group, int `(num_groups,)`.
        counts: Items to mark in each group, int `(num_groups,)`, not more than there are.
        rng: Source of randomness.

    Returns:
        Boolean `(sizes.sum(),)`, group after group.

    Raises:
        ValueError: If a group has not so many items.

    Example:
        >>> random_subsets(np.array([3, 2]), np.array([3, 0]), np.random.default_rng(0)).astype(int)
        array([1, 1, 1, 0, 0])
    """
    sizes, counts = np.asarray(sizes, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    if (counts > sizes).any() or (counts < 0).any():
        raise ValueError("`counts` must be between 0 and the items of each group. Lower them.")
    marked = np.zeros(int(sizes.sum()), dtype=bool)
    begin = row_offsets(sizes)
    dense = DENSE * counts > sizes
    if dense.any():
        some = np.where(dense, sizes, 0)
        group = row_index(some)
        items = index_ranges(begin, some)[shuffled_within_groups(group, len(sizes), rng)]
        marked[items[row_positions(some) < counts[group]]] = True
    missing = np.where(dense, 0, counts)
    while missing.any():
        group = row_index(missing)
        marked[begin[group] + (rng.random(len(group)) * sizes[group]).astype(np.int64)] = True
        missing = counts - np.diff(np.searchsorted(np.flatnonzero(marked), np.append(begin, len(marked))))
    return marked
