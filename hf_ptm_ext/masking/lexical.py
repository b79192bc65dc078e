"""Masking that asks a lexicon: SentiLARE's words by their polarity, SenseBERT's by the number of their supersenses.

SentiLARE (Ke et al., EMNLP 2020, https://arxiv.org/abs/1911.02493): each word on its own, with probability 0.15 or, if
it is positive or negative, 0.30; one fate for a word:

    0.8  all pieces become [MASK]
    0.1  the pieces of a word of the corpus, cut or filled up with [MASK] to the same number
    0.1  the word stays

SenseBERT (Levine et al., ACL 2020, https://arxiv.org/abs/1908.05646): half of the words with exactly one supersense
are taken, up to 0.4 of BERT's budget; the rest of the budget is drawn from all other words.
"""

import numpy as np

from .checks import check_probability
from .replacement import check_fate
from .segments import Segments
from .tokens import one_per_empty_group
from .whole_word import cover_chosen, exact_units, groups_of


def words_by_polarity(
    words: Segments,
    charged: np.ndarray,
    probability: float,
    charged_probability: float,
    rng: np.random.Generator,
    groups: tuple[np.ndarray, int],
    at_least_one: bool = False,
) -> np.ndarray:
    """Choose words independently, those with a polarity more often; boolean `(num_words,)`.

    Args:
        words: The words.
        charged: Boolean `(num_words,)`, words with a polarity.
        probability: Probability of a word without one (SentiLARE: 0.15).
        charged_probability: Probability of a word with one (SentiLARE: 0.3).
        rng: Source of randomness.
        groups: Sequence of each word and number of sequences (`groups_of`).
        at_least_one: Never leave a sequence that has words without a chosen one.

    Examples:
        >>> words = Segments(np.array([0, 0]), np.array([0, 2]), np.array([2, 3]))
        >>> charged = np.array([True, False])
        >>> words_by_polarity(words, charged, 0.0, 1.0, np.random.default_rng(0), (np.array([0, 0]), 1))
        array([ True, False])
    """
    check_probability("probability", probability)
    check_probability("charged_probability", charged_probability)
    chosen = rng.random(len(words.row)) < np.where(charged, charged_probability, probability)
    if at_least_one:
        chosen[one_per_empty_group(chosen, *groups, rng)] = True
    return chosen


def replace_words(
    input_ids: np.ndarray,
    words: Segments,
    chosen: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_token_id: int,
    mask_replace_prob: float = 0.8,
    random_replace_prob: float = 0.1,
) -> tuple[np.ndarray, np.ndarray]:
    """Corrupt chosen words of a copy of the batch, all pieces of a word alike; random words are the batch's own.

    Args:
        input_ids: Token ids `(batch, seq_len)`; left as they are.
        words: The words of the batch.
        chosen: Boolean `(num_words,)`.
        rng: Source of randomness.
        mask_token_id: Id of [MASK].
        mask_replace_prob: Probability that a word becomes [MASK] (BERT: 0.8).
        random_replace_prob: Probability that it becomes another word, drawn from all words of the batch and so by
            frequency (BERT: 0.1).

    Returns:
        The corrupted ids, and where words were replaced, boolean, both `(batch, seq_len)`.

    Examples:
        >>> words = Segments(np.array([0, 0]), np.array([0, 2]), np.array([2, 3]))
        >>> ids, replaced = replace_words(np.array([[5, 6, 7]]), words, np.array([True, False]),
        ...     np.random.default_rng(0), mask_token_id=4, mask_replace_prob=1.0, random_replace_prob=0.0)
        >>> ids, replaced.astype(int)
        (array([[4, 4, 7]]), array([[1, 1, 0]]))
    """
    check_fate(mask_replace_prob, random_replace_prob)
    width, shape = input_ids.shape[1], (input_ids.shape[0], input_ids.shape[1])
    number = np.flatnonzero(chosen)
    fate = rng.random(len(number))
    replaced = cover_chosen(words, number[fate < mask_replace_prob + random_replace_prob], shape)
    corrupted = np.where(replaced, mask_token_id, input_ids)
    random = number[(fate >= mask_replace_prob) & (fate < mask_replace_prob + random_replace_prob)]
    if len(random):
        drawn = rng.integers(0, len(words.row), size=len(random))
        lengths = np.minimum(words.lengths[random], words.lengths[drawn])
        place = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        to = np.repeat(words.row[random] * width + words.start[random], lengths) + place
        source = np.repeat(words.row[drawn] * width + words.start[drawn], lengths) + place
        corrupted.reshape(-1)[to] = input_ids.ravel()[source]
    return corrupted, replaced


def words_by_senses(
    words: Segments,
    single: np.ndarray,
    budget: np.ndarray,
    rng: np.random.Generator,
    shape: tuple[int, int],
    groups: tuple[np.ndarray, int] | None = None,
    *,
    single_probability: float = 0.5,
    single_share: float = 0.4,
) -> np.ndarray:
    """Select words with one supersense first, then any words up to the budget; boolean of the shape.

    Args:
        words: The words, or tokens, of the batch.
        single: Boolean `(num_words,)`, words with exactly one supersense.
        budget: Tokens to select in each sequence, int `(num_groups,)` (`bert_budget`).
        rng: Source of randomness.
        shape: `(batch, seq_len)`.
        groups: What counts as a sequence, from `sequence_groups`; None means the row.
        single_probability: Share of the words with one supersense that are taken first (SenseBERT: 0.5).
        single_share: Most of the budget that they get, rounded down (SenseBERT: 0.4).

    Examples:
        >>> words = Segments(np.zeros(4, dtype=int), np.arange(4), np.arange(1, 5))
        >>> single = np.array([False, False, False, True])
        >>> rng = np.random.default_rng(0)
        >>> words_by_senses(words, single, np.array([3]), rng, (1, 4), single_probability=1.0)[0, 3]
        np.True_
    """
    check_probability("single_probability", single_probability)
    check_probability("single_share", single_share)
    group, count = groups_of(words, shape, groups)
    lengths, left = words.lengths, np.asarray(budget).astype(np.int64)
    chosen = np.zeros(len(group), dtype=bool)
    first = np.flatnonzero(single & (rng.random(len(group)) < single_probability))
    for numbers, most in ((first, np.floor(single_share * left + 1e-9).astype(np.int64)), (None, left)):
        numbers = np.flatnonzero(~chosen) if numbers is None else numbers
        taken = np.bincount(group[chosen], weights=lengths[chosen], minlength=count).astype(np.int64)
        chosen[numbers[exact_units(group[numbers], lengths[numbers], most - taken, rng)]] = True
    return cover_chosen(words, chosen, shape)


def word_totals(values: np.ndarray, words: Segments) -> np.ndarray:
    """Sum a per-token array `(batch, seq_len)` over each word, `(num_words,)`.

    Examples:
        >>> words = Segments(np.array([0, 0]), np.array([0, 2]), np.array([2, 3]))
        >>> word_totals(np.array([[1, 1, 0, 1]]), words)
        array([2, 0])
    """
    sums = np.concatenate([[0], np.cumsum(values.ravel(), dtype=np.int64)])
    width = values.shape[1]
    return sums[words.row * width + words.stop] - sums[words.row * width + words.start]
