"""Replacement: what a selected token becomes, its "fate" (Devlin et al. 2019).

    with probability 0.8  [MASK]
    with probability 0.1  a random token
    otherwise             the token itself

One draw decides for a unit: a token (BERT, also under whole-word masking), a word, or a merged span (SpanBERT).
Random tokens always differ within a unit; they come from the vocabulary uniformly (BERT: all ids, special ones
included) or by corpus frequency (SpanBERT).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .checks import check_same_shape, check_shares

IGNORE_INDEX = -100


@dataclass(frozen=True, eq=False)
class RandomTokens:
    """A distribution over token ids; build it with `uniform_tokens` or `unigram_tokens`.

    Args:
        ids: Ids that can be drawn, int64 `(num_ids,)`.
        cumulative: Cumulative probabilities, float64 `(num_ids,)`; None for the uniform distribution.

    Examples:
        >>> RandomTokens(np.array([7])).draw(2, np.random.default_rng(0))
        array([7, 7])
    """

    ids: np.ndarray
    cumulative: np.ndarray | None = None

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent ids."""
        if self.cumulative is None:
            return self.ids[rng.integers(0, len(self.ids), size=count)]
        picks = np.searchsorted(self.cumulative, rng.random(count), side="right")
        return self.ids[np.minimum(picks, len(self.ids) - 1)]


def uniform_tokens(vocab_size: int, excluded: np.ndarray | None = None) -> RandomTokens:
    """Give every id of the vocabulary the same probability.

    Args:
        vocab_size: Number of ids.
        excluded: Boolean `(vocab_size,)`, ids that are never drawn; None excludes nothing, as BERT does.

    Examples:
        >>> uniform_tokens(4, excluded=np.array([True, False, False, True])).ids
        array([1, 2])
    """
    return RandomTokens(_allowed(vocab_size, excluded))


def unigram_tokens(counts: np.ndarray, excluded: np.ndarray | None = None) -> RandomTokens:
    """Give ids the probability of their corpus frequency, SpanBERT's source of random tokens.

    Args:
        counts: Occurrences of each id, `(vocab_size,)`, not negative (`count_tokens`).
        excluded: Boolean `(vocab_size,)`, ids that are never drawn; None excludes nothing.

    Examples:
        >>> unigram_tokens(np.array([0, 3, 1])).cumulative
        array([0.75, 1.  ])
    """
    weights = np.asarray(counts, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"`counts` must be one finite, non-negative number per id, got shape {weights.shape}. "
            "Use `count_tokens(rows, vocab_size)`."
        )
    ids = _allowed(len(weights), excluded)
    ids = ids[weights[ids] > 0]
    if not len(ids):
        raise ValueError("`counts` must have a positive entry outside the excluded ids, got none. Count more text.")
    cumulative = np.cumsum(weights[ids])
    return RandomTokens(ids, cumulative / cumulative[-1])


def count_tokens(rows: Iterable[Iterable[int]], vocab_size: int) -> np.ndarray:
    """Count the ids of a corpus, int64 `(vocab_size,)`.

    Args:
        rows: Rows of token ids, such as the `input_ids` column of a dataset.
        vocab_size: Length of the answer.

    Examples:
        >>> count_tokens([[1, 1], [3]], 4)
        array([0, 2, 0, 1])
    """
    counts = np.zeros(vocab_size, dtype=np.int64)
    for row in rows:
        ids = np.asarray(row, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
            raise ValueError(f"`rows` must hold ids in [0, {vocab_size}), got {ids.min()} to {ids.max()}.")
        counts += np.bincount(ids, minlength=vocab_size)
    return counts


def replace_tokens(
    input_ids: np.ndarray,
    selected: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_token_id: int,
    random_tokens: RandomTokens,
    mask_replace_prob: float = 0.8,
    random_replace_prob: float = 0.1,
    units: np.ndarray | None = None,
) -> np.ndarray:
    """Corrupt the selected tokens of a copy of the batch.

    Args:
        input_ids: Token ids `(batch, seq_len)`; left as they are.
        selected: Boolean `(batch, seq_len)`.
        rng: Source of randomness.
        mask_token_id: Id of [MASK].
        random_tokens: Where random ids come from; one may equal the token it replaces, as in BERT.
        mask_replace_prob: Probability of [MASK] (BERT: 0.8).
        random_replace_prob: Probability of a random token (BERT: 0.1); the rest stays as it is.
        units: Int `(batch, seq_len)`, unit of each selected token (`segment_index`), which shares one fate; None:
            the token.

    Examples:
        >>> ids = np.array([[5, 6, 7]])
        >>> replace_tokens(ids, ids == 6, np.random.default_rng(0), mask_token_id=4,
        ...                random_tokens=uniform_tokens(9), mask_replace_prob=1.0, random_replace_prob=0.0)
        array([[5, 4, 7]])
    """
    check_fate(mask_replace_prob, random_replace_prob)
    check_same_shape("selected", selected, "input_ids", input_ids)
    corrupted = input_ids.copy()
    where = np.flatnonzero(selected)
    if units is None:
        fate = rng.random(len(where))
    else:
        check_same_shape("units", units, "input_ids", input_ids)
        unit = units.ravel()[where]
        fate = rng.random(int(unit.max(initial=-1)) + 1)[unit]
    flat = corrupted.reshape(-1)
    flat[where[fate < mask_replace_prob]] = mask_token_id
    randomised = where[(fate >= mask_replace_prob) & (fate < mask_replace_prob + random_replace_prob)]
    flat[randomised] = random_tokens.draw(len(randomised), rng)
    return corrupted


def check_fate(mask_replace_prob: float, random_replace_prob: float) -> None:
    """Raise unless the two probabilities leave a probability for keeping the token.

    Examples:
        >>> check_fate(0.8, 0.1)
    """
    check_shares(
        "BERT uses 0.8 and 0.1.", mask_replace_prob=mask_replace_prob, random_replace_prob=random_replace_prob
    )


def selected_labels(input_ids: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Label the selected positions with their original ids, also those that stay; -100 (ignored) elsewhere.

    Examples:
        >>> selected_labels(np.array([[5, 6]]), np.array([[False, True]]))
        array([[-100,    6]])
    """
    check_same_shape("selected", selected, "input_ids", input_ids)
    return np.where(selected, input_ids, IGNORE_INDEX)


def _allowed(vocab_size: int, excluded: np.ndarray | None) -> np.ndarray:
    """Ids that may be drawn."""
    if vocab_size < 1:
        raise ValueError(f"`vocab_size` must be at least 1, got {vocab_size}.")
    if excluded is None:
        return np.arange(vocab_size, dtype=np.int64)
    if excluded.shape != (vocab_size,):
        raise ValueError(f"`excluded` must have shape ({vocab_size},), got {excluded.shape}.")
    ids = np.flatnonzero(~excluded)
    if not len(ids):
        raise ValueError("`excluded` must leave at least one id to draw, got all of them excluded.")
    return ids
