"""Random orders within groups, drawn for the whole batch at once."""

from __future__ import annotations

import numpy as np


def shuffled_within_groups(groups: np.ndarray, num_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Permute items so that groups stay together and the order inside each group is uniformly random.

    One sort of 64-bit keys (group, random bits, index) replaces a shuffle per group: the index in the low bits makes
    the keys distinct and is read back from the sorted keys. With b bits for group and index the random part has
    64 - b bits; for a batch of 32 x 512 that is 44, so ties (which would keep reading order) do not matter.

    Args:
        groups: Group of each item, int in [0, num_groups), `(num_items,)`.
        num_groups: Number of groups.
        rng: Source of randomness.

    Returns:
        int64 `(num_items,)`: item indices, group by group.

    Raises:
        ValueError: If the batch is too large for 64-bit keys (more than 2**44 group-item combinations).

    Example:
        >>> order = shuffled_within_groups(np.array([1, 0, 1, 0]), 2, np.random.default_rng(0))
        >>> sorted(order[:2].tolist()), sorted(order[2:].tolist())
        ([1, 3], [0, 2])
    """
    count = len(groups)
    index_bits = max(count - 1, 0).bit_length()
    random_bits = 64 - index_bits - max(num_groups - 1, 0).bit_length()
    if random_bits < 20:
        raise ValueError(f"`groups` has {count} items in {num_groups} groups, too many for one call. Split the batch.")
    keys = rng.integers(0, (1 << 64) - 1, size=count, dtype=np.uint64, endpoint=True)
    keys >>= np.uint64(64 - random_bits)
    keys <<= np.uint64(index_bits)
    keys |= np.arange(count, dtype=np.uint64)
    if num_groups > 1:
        keys |= groups.astype(np.uint64) << np.uint64(index_bits + random_bits)
    keys.sort()
    keys &= np.uint64((1 << index_bits) - 1)
    return keys.astype(np.int64)


def rank_within_groups(sorted_groups: np.ndarray) -> np.ndarray:
    """Count items from 0 within each group of a sorted list.

    Args:
        sorted_groups: Group of each item, ascending, `(num_items,)`.

    Returns:
        int64 `(num_items,)`.

    Example:
        >>> rank_within_groups(np.array([0, 0, 3, 3, 3]))
        array([0, 1, 0, 1, 2])
    """
    return np.arange(len(sorted_groups)) - np.searchsorted(sorted_groups, sorted_groups, side="left")
