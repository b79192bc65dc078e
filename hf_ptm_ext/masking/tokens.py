"""Token selection: masked-language-model positions drawn one token at a time (Devlin et al. 2019, RoBERTa).

bernoulli   every candidate is selected independently with probability p (upstream's collator);
            a row of n candidates stays empty with probability (1 - p)^n unless `at_least_one`
exact       a uniformly random subset of k candidates a sequence, k from a budget
drawn       k draws of a sequence with replacement (ELECTRA)
weighted    k candidates of the batch or of a sequence, drawn one after the other in proportion to weights (XLM's
            `sample_alpha`)

Budgets, from google-research/bert's create_pretraining_data.py, fairseq's mask_tokens_dataset.py and
facebookresearch/SpanBERT's masking.py:

    BERT      k = min(max_predictions, max(1, round_half_even(T p))),  T = tokens of the sequence, specials included
    RoBERTa   k = floor(T p + u), u uniform in [0, 1),                 so that the mean is T p exactly
    SpanBERT  m = ceil(n p),                                           n = tokens of the content block
"""

import numpy as np

from .checks import check_budget, check_probability, check_same_shape
from .ragged import rank_within_groups, row_positions, shuffled_within_groups


def bert_budget(lengths: np.ndarray, probability: float, max_predictions: int | None = None) -> np.ndarray:
    """Give BERT's number of predictions for sequences of these lengths.

    Args:
        lengths: Tokens of each sequence with special tokens, int `(num_sequences,)`.
        probability: Share of tokens to select (BERT: 0.15).
        max_predictions: Upper bound (BERT: 20 for length 128); None for no bound.

    Returns:
        int64 `(num_sequences,)`; halves round to even, at least 1, 0 only for an empty sequence.

    Examples:
        >>> bert_budget(np.array([128, 30, 4, 0]), 0.15)
        array([19,  4,  1,  0])
    """
    check_probability("probability", probability)
    budget = np.maximum(np.rint(lengths * probability).astype(np.int64), 1)
    if max_predictions is not None:
        if max_predictions < 1:
            raise ValueError(f"`max_predictions` must be at least 1, got {max_predictions}. Use None for no bound.")
        budget = np.minimum(budget, max_predictions)
    return np.where(np.asarray(lengths) > 0, budget, 0)


def roberta_budget(lengths: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Draw RoBERTa's number of predictions (fairseq), whose mean is the share exactly.

    Args:
        lengths: Tokens of each sequence with special tokens, int `(num_sequences,)`.
        probability: Share of tokens to select (RoBERTa: 0.15).
        rng: Source of randomness.

    Returns:
        int64 `(num_sequences,)`; may be 0 where `lengths * probability` is below 1.

    Examples:
        >>> roberta_budget(np.array([100, 0]), 0.15, np.random.default_rng(0))
        array([15,  0])
    """
    check_probability("probability", probability)
    return (np.asarray(lengths) * probability + rng.random(len(lengths))).astype(np.int64)


def span_budget(lengths: np.ndarray, probability: float) -> np.ndarray:
    """Give SpanBERT's number of masked tokens for blocks of these lengths, rounded up.

    Args:
        lengths: Tokens of each content block without special tokens, int `(num_blocks,)`.
        probability: Share of tokens to select (SpanBERT: 0.15).

    Examples:
        >>> span_budget(np.array([126, 510, 1, 0]), 0.15)
        array([19, 77,  1,  0])
    """
    check_probability("probability", probability)
    return np.ceil(np.asarray(lengths) * probability).astype(np.int64)


def bernoulli_items(
    groups: np.ndarray, num_groups: int, probability: float, rng: np.random.Generator, at_least_one: bool = False
) -> np.ndarray:
    """Select items independently, boolean `(num_items,)`; items may be tokens, words or any other unit.

    Args:
        groups: Sequence each item belongs to, int in [0, num_groups), `(num_items,)`.
        num_groups: Number of sequences.
        probability: Probability of each item.
        rng: Source of randomness.
        at_least_one: Give a sequence that came out empty one uniformly drawn item of its own.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> bernoulli_items(np.array([0, 0, 1]), 2, 0.0, rng, at_least_one=True).sum()
        np.int64(2)
    """
    check_probability("probability", probability)
    chosen = rng.random(len(groups), dtype=np.float32) < probability
    if at_least_one:
        chosen[one_per_empty_group(chosen, groups, num_groups, rng)] = True
    return chosen


def one_per_empty_group(
    chosen: np.ndarray, groups: np.ndarray, num_groups: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw one item uniformly from every sequence that has items but none chosen."""
    empty = np.bincount(groups[chosen], minlength=num_groups) == 0
    items = np.flatnonzero(empty[groups])
    order = items[shuffled_within_groups(groups[items], num_groups, rng)]
    return order[rank_within_groups(groups[order]) == 0]


def bernoulli_tokens(
    candidates: np.ndarray,
    probability: float,
    rng: np.random.Generator,
    at_least_one: bool = False,
    groups: tuple[np.ndarray, int] | None = None,
) -> np.ndarray:
    """Select every candidate token independently, boolean `(batch, seq_len)`.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        probability: Probability of each candidate (BERT: 0.15).
        rng: Source of randomness.
        at_least_one: Never leave a sequence that has candidates without a selected token.
        groups: What counts as a sequence, from `sequence_groups`; None means the row.

    Examples:
        >>> bernoulli_tokens(np.array([[False, True, True]]), 1.0, np.random.default_rng(0)).astype(int)
        array([[0, 1, 1]])
    """
    check_probability("probability", probability)
    selected = rng.random(candidates.shape, dtype=np.float32) < probability
    selected &= candidates
    if at_least_one:
        positions, item_groups, num_groups = _items(candidates, groups)
        extra = one_per_empty_group(selected.ravel()[positions], item_groups, num_groups, rng)
        selected.reshape(-1)[positions[extra]] = True
    return selected


def exact_tokens(
    candidates: np.ndarray,
    budget: np.ndarray,
    rng: np.random.Generator,
    groups: tuple[np.ndarray, int] | None = None,
) -> np.ndarray:
    """Select a fixed number of candidate tokens in each sequence, every subset equally likely.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        budget: Number of tokens of each sequence, int `(num_groups,)`; all candidates where it exceeds their number.
        rng: Source of randomness.
        groups: What counts as a sequence, from `sequence_groups`; None means the row.

    Examples:
        >>> exact_tokens(np.ones((2, 9), dtype=bool), np.array([3, 1]), np.random.default_rng(0)).sum(axis=1)
        array([3, 1])
    """
    positions, item_groups, num_groups = _items(candidates, groups)
    check_budget(budget, num_groups)
    order = shuffled_within_groups(item_groups, num_groups, rng)
    # Groups are contiguous after the shuffle: their sizes say where each begins.
    sizes = np.bincount(item_groups, minlength=num_groups)
    chosen = order[row_positions(sizes) < np.repeat(budget, sizes)]
    selected = np.zeros(candidates.size, dtype=bool)
    selected[positions[chosen]] = True
    return selected.reshape(candidates.shape)


def drawn_tokens(
    candidates: np.ndarray,
    budget: np.ndarray,
    rng: np.random.Generator,
    groups: tuple[np.ndarray, int] | None = None,
) -> np.ndarray:
    """Draw a fixed number of candidate tokens of each sequence with replacement, as ELECTRA's code does.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        budget: Number of draws of each sequence, int `(num_groups,)`; none where it has no candidate.
        rng: Source of randomness.
        groups: What counts as a sequence, from `sequence_groups`; None means the row.

    Returns:
        Flat positions, int64 `(draws,)`, sequence by sequence, one twice if it was drawn twice.

    Examples:
        >>> drawn_tokens(np.array([[False, True], [True, True]]), np.array([2, 3]), np.random.default_rng(0))
        array([1, 1, 2, 2, 3])
    """
    positions, item_groups, num_groups = _items(candidates, groups)
    check_budget(budget, num_groups)
    sizes = np.bincount(item_groups, minlength=num_groups)
    owners = np.repeat(np.arange(num_groups), np.where(sizes > 0, budget, 0))
    positions = positions[np.argsort(item_groups, kind="stable")]
    places = (rng.random(len(owners)) * sizes[owners]).astype(np.int64)
    return positions[np.cumsum(sizes)[owners] - sizes[owners] + places]


def weighted_tokens(
    candidates: np.ndarray,
    weights: np.ndarray,
    count: int | np.ndarray,
    rng: np.random.Generator,
    groups: tuple[np.ndarray, int] | None = None,
) -> np.ndarray:
    """Draw candidate tokens of the whole batch, or of each sequence, without replacement in proportion to weights.

    The law is that of drawing one after the other, each time in proportion to the weights that are left: the `count`
    smallest of exponential times with the weights as rates.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        weights: `(batch, seq_len)`, not negative; 0 is never drawn.
        count: Number of tokens of the batch, or of each sequence, int `(num_groups,)`; all with a weight where it
            exceeds their number.
        rng: Source of randomness.
        groups: With one count for each sequence, what counts as one, from `sequence_groups`; None means the row.

    Examples:
        >>> text = np.ones((1, 3), dtype=bool)
        >>> weighted_tokens(text, np.array([[0.0, 2.0, 1.0]]), 2, np.random.default_rng(0)).astype(int)
        array([[0, 1, 1]])
    """
    check_same_shape("weights", weights, "candidates", candidates)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"`weights` must be finite and not negative, got {weights.min()}. Use counts ** -alpha.")
    positions, item_groups, num_groups = _items(candidates & (weights > 0), groups)
    times = rng.standard_exponential(len(positions)) / weights.ravel()[positions]
    if isinstance(count, np.ndarray):
        check_budget(count, num_groups)
        order = np.lexsort((times, item_groups))
        sizes = np.bincount(item_groups, minlength=num_groups)
        positions = positions[order[row_positions(sizes) < np.repeat(count, sizes)]]
    elif count < len(positions):
        positions = positions[np.argpartition(times, count)[:count]]
    selected = np.zeros(candidates.size, dtype=bool)
    selected[positions] = True
    return selected.reshape(candidates.shape)


def _items(candidates: np.ndarray, groups: tuple[np.ndarray, int] | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Flat positions of the candidates, the group of each, the number of groups."""
    positions = np.flatnonzero(candidates)
    if groups is None:
        return positions, positions // max(candidates.shape[1], 1), candidates.shape[0]
    index, num_groups = groups
    check_same_shape("groups", index, "candidates", candidates)
    if len(index) and index.strides[-1] == 0:  # rows as groups, broadcast: no need to materialise them
        return positions, index[:, 0].take(positions // candidates.shape[1]), num_groups
    return positions, index.ravel()[positions], num_groups
