"""Text infilling, BART's noise: spans become one mask each (Lewis et al. 2019, https://arxiv.org/abs/1910.13461).

Rules of fairseq's denoising dataset, for a row with W word starts and ratio p:

    budget    ceil(W p) words
    lengths   Poisson(3.5) in words, drawn until they reach the budget, the last one cut to fit it; those of length 0
              become insertions of a mask
    starts    a random subset of the word starts, one for each length above 0
    span      from its start over `length` words, never past the end of the body; spans may overlap

A span's start becomes the mask (with probability 0.1 a random token) and the rest of the span is deleted: so a start
that lies inside another span is deleted with it, and spans merge. Flat tokens and rows: see `ragged`.
"""

import math
from typing import NamedTuple

import numpy as np

from .checks import check_choice, check_probability
from .ragged import index_ranges, merged, random_subsets, row_index, row_offsets, shuffled_within_groups
from .replacement import RandomTokens
from .segments import Segments

REPLACE_LENGTHS = (-1, 0, 1)


class InfillingSpans(NamedTuple):
    """What `sample_infilling_spans` draws.

    Args:
        spans: Spans in flat indices, in random order within a row; they may overlap.
        words: Words that each span was meant to cover (the body may end before), int64 `(num_spans,)`.
        insertions: Spans of length 0 of each row, int64 `(num_rows,)`.
    """

    spans: Segments
    words: np.ndarray
    insertions: np.ndarray


def poisson_length_probabilities(mean: float = 3.5, smallest: float = 1e-7) -> np.ndarray:
    """Give the length law of text infilling: P(length = k) at entry k.

    Args:
        mean: Parameter of the Poisson law (BART: 3.5).
        smallest: The support ends behind the first length beyond the mean with less probability than this.

    Examples:
        >>> poisson_length_probabilities(3.5)[:4].round(3)
        array([0.03 , 0.106, 0.185, 0.216])
    """
    if not mean > 0 or not math.isfinite(mean):
        raise ValueError(f"`mean` must be positive, got {mean}. BART uses 3.5 words.")
    weights: list[float] = []
    while not weights or weights[-1] >= smallest or len(weights) - 1 <= mean:
        length = len(weights)
        weights.append(math.exp(length * math.log(mean) - mean - math.lgamma(length + 1)))
    return np.array(weights) / sum(weights)


def sample_infilling_spans(
    word_starts: np.ndarray,
    body: Segments,
    ratio: float,
    length_probabilities: np.ndarray,
    rng: np.random.Generator,
) -> InfillingSpans:
    """Draw spans of words until each row's budget of ceil(W ratio) words is used up exactly.

    Args:
        word_starts: Boolean `(total,)`, flat tokens inside the bodies that begin a word.
        body: One segment of each row in flat indices: the tokens between its special tokens; empty ones allowed.
        ratio: Share of words to cover (BART: 0.3).
        length_probabilities: P(length = k) at entry k (`poisson_length_probabilities`); `[0, 1]` for single words.
        rng: Source of randomness.

    Examples:
        >>> words = np.array([0, 1, 1, 1, 1, 0], dtype=bool)
        >>> body = Segments(np.array([0]), np.array([1]), np.array([5]))
        >>> drawn = sample_infilling_spans(words, body, 0.5, np.array([0.0, 1.0]), np.random.default_rng(0))
        >>> drawn.words, drawn.insertions
        (array([1, 1]), array([0]))
    """
    check_probability("ratio", ratio)
    if not (length_probabilities[1:] > 0).any():
        raise ValueError(
            f"`length_probabilities` must give a length above 0 a probability, got {length_probabilities[:4]}."
        )
    start = np.flatnonzero(word_starts)
    # Bodies lie in reading order, so the words of row i are those up to its end that no row before has.
    upto = np.searchsorted(start, body.stop, side="left")
    count = np.diff(upto, prepend=0)
    budget = np.ceil(count * ratio).astype(np.int64)
    lengths, drawn = _lengths_to_budget(budget, length_probabilities, rng)
    row = row_index(drawn)
    insertions = np.bincount(row[lengths == 0], minlength=len(budget))
    words, row = lengths[lengths > 0], row[lengths > 0]
    spans = drawn - insertions

    # A random subset in reading order, then shuffled, since the last length of a row is cut and so unlike the others.
    chosen = np.flatnonzero(random_subsets(count, spans, rng))
    chosen = chosen[shuffled_within_groups(row, len(count), rng)]
    # The start of the word behind the span, or the end of the body where it has no such word.
    behind = chosen + words
    over = behind >= upto[row]
    stop = start[np.minimum(behind, max(len(start) - 1, 0))] if len(start) else behind
    stop = np.where(over, body.stop[row], stop)
    return InfillingSpans(Segments(body.row[row], start[chosen], stop), words, insertions)


def infill(
    tokens: np.ndarray,
    lengths: np.ndarray,
    spans: Segments,
    rng: np.random.Generator,
    *,
    mask_token_id: int,
    random_tokens: RandomTokens,
    random_ratio: float = 0.1,
    replace_length: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Put masks in place of spans: tokens and lengths of the noisy rows.

    Args:
        tokens: Flat token ids `(total,)`; left as they are.
        lengths: Tokens of each row, int `(num_rows,)`.
        spans: Spans in flat indices (`sample_infilling_spans`); their starts are distinct.
        rng: Source of randomness.
        mask_token_id: Id of the mask.
        random_tokens: Where random ids come from.
        random_ratio: Probability that a span gets a random token instead of the mask (BART: 0.1).
        replace_length: 1: one mask for a span (BART). 0: spans are deleted. -1: one mask for each token; where spans
            overlap, the one that starts first decides between masks and random tokens.

    Examples:
        >>> spans = Segments(np.array([0]), np.array([1]), np.array([3]))
        >>> infill(np.array([0, 5, 6, 7, 2]), np.array([5]), spans, np.random.default_rng(0), mask_token_id=9,
        ...        random_tokens=RandomTokens(np.array([4])), random_ratio=0.0)
        (array([0, 9, 7, 2]), array([4]))
    """
    check_probability("random_ratio", random_ratio)
    check_choice("replace_length", replace_length, REPLACE_LENGTHS, "BART uses 1.")
    noisy = tokens.copy()
    is_random = rng.random(len(spans.row)) < random_ratio
    if replace_length == -1:
        last_to_first = np.argsort(-spans.start)
        sizes = spans.lengths[last_to_first]
        covered = index_ranges(spans.start[last_to_first], sizes)
        fate = np.zeros(len(tokens), dtype=np.int8)
        fate[covered] = np.repeat(1 + is_random[last_to_first].astype(np.int8), sizes)  # the last one written counts
        noisy[fate == 1] = mask_token_id
        randomised = np.flatnonzero(fate == 2)
        noisy[randomised] = random_tokens.draw(len(randomised), rng)
        return noisy, np.asarray(lengths)
    noisy[spans.start] = mask_token_id
    noisy[spans.start[is_random]] = random_tokens.draw(int(is_random.sum()), rng)
    first_deleted = spans.start + (replace_length == 1)
    steps = np.bincount(first_deleted, minlength=len(tokens) + 1) - np.bincount(spans.stop, minlength=len(tokens) + 1)
    kept = np.cumsum(steps)[:-1] == 0
    kept_before = np.append(0, np.cumsum(kept))
    begin = row_offsets(lengths)
    return noisy[kept], kept_before[begin + lengths] - kept_before[begin]


def insert_tokens(
    tokens: np.ndarray,
    body: Segments,
    lengths: np.ndarray,
    insertions: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_token_id: int,
    random_tokens: RandomTokens,
    random_ratio: float = 0.1,
) -> tuple[np.ndarray, np.ndarray]:
    """Insert masks and random tokens into the bodies of rows: tokens and lengths of the longer rows.

    The n new tokens stand at a random subset of the b + n places of the new body; ceil(n random_ratio) of them are
    random ids (so a single one always is, unless the ratio is 0), the others masks.

    Args:
        tokens: Flat token ids `(total,)`; left as they are.
        body: One segment of each row in flat indices, in reading order.
        lengths: Tokens of each row, int `(num_rows,)`.
        insertions: New tokens of each row, int `(num_rows,)`.
        rng: Source of randomness.
        mask_token_id: Id of the mask.
        random_tokens: Where random ids come from.
        random_ratio: Share of random ids (BART: 0.1).

    Examples:
        >>> body = Segments(np.array([0]), np.array([1]), np.array([2]))
        >>> insert_tokens(np.array([0, 5, 2]), body, np.array([3]), np.array([1]), np.random.default_rng(0),
        ...               mask_token_id=9, random_tokens=RandomTokens(np.array([4])), random_ratio=0.0)
        (array([0, 5, 9, 2]), array([4]))
    """
    check_probability("random_ratio", random_ratio)
    lengths = np.asarray(lengths) + insertions
    places = np.where(insertions > 0, body.lengths + insertions, 0)
    chosen = np.flatnonzero(random_subsets(places, insertions, rng))
    # Places of a row lie behind one another from the beginning of its body, moved by what rows before have gained.
    at = chosen + np.repeat(body.start + row_offsets(insertions) - row_offsets(places), insertions)
    is_random = random_subsets(insertions, np.ceil(insertions * random_ratio).astype(np.int64), rng)
    new = np.full(len(at), mask_token_id, dtype=tokens.dtype)
    new[is_random] = random_tokens.draw(int(is_random.sum()), rng)
    return merged(at, new, tokens), lengths


def _lengths_to_budget(
    budget: np.ndarray, probabilities: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of each row, flat, that sum up to its budget, and how many each row has."""
    cumulative = np.cumsum(probabilities)
    mean = float(np.dot(np.arange(len(probabilities)), probabilities))
    columns = int(1.3 * budget.max(initial=0) / mean) + 8
    drawn = np.zeros((len(budget), 0), dtype=np.int64)
    while True:
        uniform = rng.random((len(budget), columns)) * cumulative[-1]
        more = np.minimum(np.searchsorted(cumulative, uniform, side="right"), len(probabilities) - 1)
        drawn = np.concatenate([drawn, more], axis=1)
        reached = np.cumsum(drawn, axis=1)
        if (reached[:, -1] >= budget).all():
            break
    before = reached - drawn
    used = before < budget[:, None]  # all up to the one that reaches the budget
    cut = np.minimum(drawn, budget[:, None] - before)
    return cut[used], used.sum(axis=1)
