"""Permutation language modelling (Yang et al. 2019, XLNet, https://arxiv.org/abs/1906.08237): targets and their order.

Targets of a segment, as in zihangdai/xlnet's data_utils.py:

    from the left: draw n, p(n) in proportion to 1/n for n = 1 ... 5, at most what is left of the budget
    a context of 6 n tokens, l of them on the left, l uniform in 0 ... 6 n - 1
    the n-gram begins at the next word start behind the l tokens and has n PIECES; it must end before the segment does
    go on behind the 6 n - l tokens on its right; at the end of the segment fill the budget up with single tokens

The paper speaks of n words: the reference's loop looks at the first piece again and again, so that a quarter of its
n-grams end inside a word. `whole_words` is the rule as it was meant.

Order, in parts of a row (its halves): positions of a part are permuted. A part sees all of those before it and nothing
of those behind it. In it tokens that are no targets come first and are seen by all. Special tokens have a place in the
order, as targets, and see themselves. Targets see what is before them in the order and not themselves: the query
stream knows their position alone.
"""

import numpy as np

from .checks import check_budget, check_same_shape
from .segments import find_segments
from .tokens import exact_tokens


def sample_context_ngrams(
    candidates: np.ndarray,
    word_starts: np.ndarray,
    segments: np.ndarray,
    budget: np.ndarray | None,
    size_probabilities: np.ndarray,
    rng: np.random.Generator,
    *,
    context: int = 6,
    whole_words: bool = False,
) -> np.ndarray:
    """Select n-grams with a context of unselected tokens around each, boolean `(batch, seq_len)` (XLNet's rule).

    Args:
        candidates: Boolean `(batch, seq_len)`; the tokens of a segment are its candidates, next to each other.
        word_starts: Boolean `(batch, seq_len)`, first piece of every word.
        segments: Boolean `(batch, seq_len)`, first token of every segment, of which each has a budget of its own.
        budget: Tokens to select in each segment in reading order, int `(num_segments,)`, met exactly where there are
            as many candidates; None walks to the end of each segment without a budget.
        size_probabilities: P(n-gram has k pieces) at entry k - 1 (`inverse_size_probabilities(5)`).
        rng: Source of randomness.
        context: Tokens around an n-gram for each of its tokens (XLNet: 6, `mask_alpha`).
        whole_words: n words instead of n pieces.

    Examples:
        >>> from hf_ptm_ext.masking import inverse_size_probabilities
        >>> text = np.ones((2, 60), dtype=bool)
        >>> first = np.zeros((2, 60), dtype=bool)
        >>> first[:, 0] = True
        >>> law = inverse_size_probabilities(5)
        >>> sample_context_ngrams(text, text, first, np.array([9, 10]), law, np.random.default_rng(0)).sum(axis=1)
        array([ 9, 10])
    """
    check_same_shape("word_starts", word_starts, "candidates", candidates)
    check_same_shape("segments", segments, "candidates", candidates)
    law = np.asarray(size_probabilities, dtype=np.float64)
    width, parts = candidates.shape[1], find_segments(candidates, segments)
    here, stop = parts.row * width + parts.start, parts.row * width + parts.stop
    if budget is not None:
        check_budget(budget, len(here))
    left = np.full(len(here), candidates.size) if budget is None else np.minimum(budget, parts.lengths)
    starts = np.flatnonzero(word_starts & candidates)
    next_start = np.append(starts, candidates.size)[np.searchsorted(starts, np.arange(candidates.size + 1))]
    cumulative = np.cumsum(law) / law.sum()
    steps = np.zeros(candidates.size + 1, dtype=np.int64)
    alive = np.flatnonzero(left > 0)
    while len(alive):
        size = 1 + np.minimum(np.searchsorted(cumulative, rng.random(len(alive)), side="right"), len(law) - 1)
        size = np.minimum(size, left[alive])
        before = (rng.random(len(alive)) * (context * size)).astype(np.int64)
        begin = next_start[np.minimum(here[alive] + before, candidates.size)]
        end = begin + size
        if whole_words:
            place = np.searchsorted(starts, begin) + size
            end = np.minimum(np.append(starts, candidates.size)[np.minimum(place, len(starts))], begin + left[alive])
        fits = end < stop[alive]
        alive, size, before, begin, end = (values[fits] for values in (alive, size, before, begin, end))
        steps[begin] += 1
        steps[end] -= 1
        left[alive] -= end - begin
        here[alive] = end + context * size - before
        alive = alive[(left[alive] > 0) & (here[alive] < stop[alive])]
    selected = np.cumsum(steps[:-1]).astype(bool).reshape(candidates.shape)
    if budget is None:
        return selected
    # What the walk has left of a budget, in single tokens of the segment.
    number = np.full(candidates.size, len(parts.row), dtype=np.int64)
    for place, (start, end) in enumerate(zip(parts.row * width + parts.start, stop, strict=True)):
        number[start:end] = place
    groups = (number.reshape(candidates.shape), len(parts.row) + 1)
    return selected | exact_tokens(candidates & ~selected, np.append(left, 0), rng, groups)


def permutation_mask(
    targets: np.ndarray, functional: np.ndarray, parts: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw an order of positions, and give what each may not see, boolean `(batch, seq_len, seq_len)`.

    Args:
        targets: Boolean `(batch, seq_len)`, the tokens that are predicted.
        functional: Boolean `(batch, seq_len)`, special tokens.
        parts: Number of the part that each position is permuted in, int `(batch, seq_len)` (XLNet: 0 in the first half
            of a row, 1 in the second); a part sees all of those of smaller numbers, nothing of those of larger ones.
        rng: Source of randomness.

    Returns:
        True at [b, i, j] where position i must not see position j (`perm_mask` of `XLNetLMHeadModel`).

    Examples:
        >>> targets = np.array([[True, False, True]])
        >>> mask = permutation_mask(targets, targets & False, np.array([[0, 0, 1]]), np.random.default_rng(0))
        >>> mask[0].astype(int)
        array([[1, 0, 1],
               [1, 0, 1],
               [0, 0, 1]])
    """
    check_same_shape("functional", functional, "targets", targets)
    check_same_shape("parts", parts, "targets", targets)
    order = np.argsort(np.argsort(rng.random(targets.shape), axis=1), axis=1)
    targets = targets & ~functional
    ordered = targets | functional
    place = np.where(ordered, order, -1)
    sees_from = np.where(targets, place, place + 1)
    here, there = parts[:, :, None], parts[:, None, :]
    hidden = (sees_from[:, :, None] <= place[:, None, :]) & ordered[:, None, :]
    return (here < there) | (here == there) & hidden
