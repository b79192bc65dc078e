"""Rows of different length, laid end to end: `values` (total,) and `lengths` (num_rows,); random orders and subsets.

Objectives that delete, insert and move tokens work on this form, for all rows at once; only the finished rows are
padded. A padded batch becomes flat by `input_ids[text]`, whichever side it is padded on.
"""

import numpy as np

# Above one in so many, drawing with replacement would hit marked items too often.
DENSE = 6


def row_offsets(lengths: np.ndarray) -> np.ndarray:
    """Give the flat index at which each row begins, int64 `(num_rows,)`.

    Examples:
        >>> row_offsets(np.array([2, 0, 3]))
        array([0, 2, 2])
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths


def row_index(lengths: np.ndarray) -> np.ndarray:
    """Give the row of each flat value, int64 `(total,)`.

    Examples:
        >>> row_index(np.array([2, 0, 3]))
        array([0, 0, 2, 2, 2])
    """
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def row_positions(lengths: np.ndarray) -> np.ndarray:
    """Count the values of each row from 0, int64 `(total,)`.

    Examples:
        >>> row_positions(np.array([2, 0, 3]))
        array([0, 1, 0, 1, 2])
    """
    return index_ranges(np.zeros(len(lengths), dtype=np.int64), lengths)


def index_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Write out ranges of `lengths` indices from `starts` on, one after the other, int64 `(lengths.sum(),)`.

    Examples:
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
        width: Not below the longest row; None takes the longest row.
        left: Pad on the left.

    Returns:
        `(num_rows, width)`, of the type of `values`; a view of them where nothing is to be filled.

    Examples:
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
    """Put one value behind each row, `(total + num_rows,)`.

    Examples:
        >>> append_to_rows(np.array([5, 6, 7]), np.array([2, 1]), 1)
        array([5, 6, 1, 7, 1])
    """
    return merged(np.cumsum(lengths + 1) - 1, value, values)


def merged(places: np.ndarray, inserted: np.ndarray | int, others: np.ndarray) -> np.ndarray:
    """Put values at distinct places, and the others in their order at all other places."""
    result = np.empty(len(places) + len(others), dtype=others.dtype)
    is_other = np.ones(len(result), dtype=bool)
    is_other[places] = False
    result[places] = inserted
    result[is_other] = others
    return result


def shuffled_within_groups(groups: np.ndarray, num_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Permute items, as int64 indices, so that groups stay together and their inside is uniformly random.

    One sort of 64-bit keys (group, random bits, index) replaces a shuffle per group: the index in the low bits makes
    the keys distinct and is read back from the sorted keys. With b bits for group and index the random part has
    64 - b bits; for a batch of 32 x 512 that is 44, so ties (which would keep reading order) do not matter.

    Args:
        groups: Group of each item, int in [0, num_groups), `(num_items,)`.
        num_groups: Number of groups.
        rng: Source of randomness.

    Raises:
        ValueError: If the batch is too large for 64-bit keys (more than 2**44 group-item combinations).

    Examples:
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
    """Count items from 0 within each group of an ascending list of groups.

    Examples:
        >>> rank_within_groups(np.array([0, 0, 3, 3, 3]))
        array([0, 1, 0, 1, 2])
    """
    return np.arange(len(sorted_groups)) - np.searchsorted(sorted_groups, sorted_groups, side="left")


def random_subsets(sizes: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mark a random subset of each group, every subset of its size equally likely: boolean, group after group.

    Where few items are to be marked, they are drawn with replacement until enough are distinct, which by symmetry is
    uniform and costs what is drawn, not what there is. Elsewhere the items are shuffled.

    Args:
        sizes: Items of each group, int `(num_groups,)`.
        counts: Items to mark in each group, int `(num_groups,)`, not more than there are.
        rng: Source of randomness.

    Examples:
        >>> random_subsets(np.array([3, 2]), np.array([3, 0]), np.random.default_rng(0)).astype(int)
        array([1, 1, 1, 0, 0])
    """
    sizes, counts = np.asarray(sizes, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    if (counts > sizes).any() or (counts < 0).any():
        wrong = int(((counts > sizes) | (counts < 0)).argmax())
        raise ValueError(
            f"`counts` must be between 0 and the items of each group, got {counts[wrong]} of {sizes[wrong]} in group "
            f"{wrong}. Lower them."
        )
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
