"""Sentence permutation and document rotation, two of BART's noises (Lewis et al. 2019, https://arxiv.org/abs/1910.13461).

Both give an order of the flat tokens of a batch (see `ragged`): `tokens[order]` is the noisy text. Rules of fairseq's
denoising dataset: a sentence ends at a full stop whose predecessor is none; the last token of the body counts as one.
What follows the last end stays where it is. What may move is the body of a row, all but its outer special tokens.
"""

import numpy as np

from .checks import check_probability
from .ragged import index_ranges, row_index, row_positions, shuffled_within_groups
from .segments import Segments


def find_sentences(full_stops: np.ndarray, body: Segments) -> Segments:
    """List the sentences of the rows, in flat indices and reading order.

    Args:
        full_stops: Boolean `(total,)`, flat tokens that are a full stop.
        body: One segment of each row in flat indices: the tokens between its special tokens; empty ones allowed.

    Examples:
        >>> stops = np.array([0, 0, 1, 0, 1, 1, 0, 0, 0], dtype=bool)  # <s> a . b . . c d </s>
        >>> find_sentences(stops, Segments(np.array([0]), np.array([1]), np.array([8])))
        Segments(row=array([0, 0, 0]), start=array([1, 3, 5]), stop=array([3, 5, 8]))
    """
    some = np.flatnonzero(body.lengths)
    ends = full_stops.copy()
    ends[body.stop[some] - 1] = True
    opens = ends[body.start[some]]  # the first token of a body has no predecessor
    ends[1:] &= ~ends[:-1]
    ends[body.start[some]] = opens
    stop = np.flatnonzero(ends) + 1
    number = np.searchsorted(body.stop[some], stop, side="left")
    inside = number < len(some)
    inside[inside] = stop[inside] > body.start[some][number[inside]]
    stop, number = stop[inside], number[inside]
    start = np.append(0, stop[:-1])[: len(stop)]
    first = np.ones(len(stop), dtype=bool)
    first[1:] = number[1:] != number[:-1]
    start[first] = body.start[some][number[first]]
    return Segments(body.row[some][number], start, stop)


def permuted_sentences(sentences: Segments, total: int, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Permute sentences within their rows: the order of the tokens, int64 `(total,)`.

    ceil(S ratio) of the S sentences of a row, a random subset, are permuted among themselves, every order equally
    likely (some stay in place by chance).

    Args:
        sentences: From `find_sentences`.
        total: Number of flat tokens.
        ratio: Share of sentences (BART: 1).
        rng: Source of randomness.

    Examples:
        >>> sentences = Segments(np.array([0, 0]), np.array([1, 3]), np.array([3, 4]))
        >>> sorted(permuted_sentences(sentences, 5, 1.0, np.random.default_rng(0)).tolist())
        [0, 1, 2, 3, 4]
    """
    check_probability("ratio", ratio)
    order = np.arange(total, dtype=np.int64)
    if not len(sentences.row):
        return order
    num_rows = int(sentences.row.max()) + 1
    count = np.bincount(sentences.row, minlength=num_rows)
    permuted = np.ceil(count * ratio).astype(np.int64)
    shuffled = shuffled_within_groups(sentences.row, num_rows, rng)
    chosen = shuffled[row_positions(count) < permuted[sentences.row]]
    source = np.arange(len(sentences.row))
    source[np.sort(chosen)] = chosen  # both lie row by row
    order[index_ranges(sentences.start, sentences.lengths)] = index_ranges(
        sentences.start[source], sentences.lengths[source]
    )
    return order


def rotated(body: Segments, total: int, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Rotate the bodies of rows: the text begins anywhere and goes on with its beginning behind its end.

    A rotated body of b tokens begins with its token r, r uniform on 0 .. b, where b gives the text as it is.

    Args:
        body: One segment of each row in flat indices, as in `find_sentences`.
        total: Number of flat tokens.
        probability: Probability that a row is rotated.
        rng: Source of randomness.

    Examples:
        >>> body = Segments(np.array([0]), np.array([1]), np.array([4]))
        >>> rotated(body, 5, 1.0, np.random.default_rng(2))
        array([0, 2, 3, 1, 4])
    """
    check_probability("probability", probability)
    uniform = rng.random((2, len(body.row)))
    offset = (uniform[1] * (body.lengths + 1)).astype(np.int64)
    offset[uniform[0] >= probability] = 0
    order = np.arange(total, dtype=np.int64)
    owner = row_index(body.lengths)
    position = row_positions(body.lengths)
    inside = index_ranges(body.start, body.lengths)
    order[inside] = body.start[owner] + (position + offset[owner]) % np.maximum(body.lengths, 1)[owner]
    return order
