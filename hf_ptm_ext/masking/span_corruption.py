"""Span corruption, T5's objective (Raffel et al. 2020, https://arxiv.org/abs/1910.10683).

For L tokens, noise density 0.15 and mean span length 3:

    noise tokens   N = clip(round_half_even(0.15 L), 1, L - 1)
    spans          K = max(1, round_half_even(N / 3)), not more than the noise or the clean tokens
    layout         clean 1, noise 1, clean 2, noise 2, ... clean K, noise K; N and L - N are each split into K parts,
                   none of them empty, every such split equally likely
    input          every noise span k replaced by sentinel k, then eos
    target         every clean span k replaced by sentinel k, then eos

So token 0 is never noise, and the last token always is. Flat tokens and rows: see `ragged`.
"""

from __future__ import annotations

import numpy as np

from ._checks import check_probability
from .order import shuffled_within_groups
from .ragged import index_ranges, row_index, row_offsets, row_positions


def noise_tokens_and_spans(
    lengths: np.ndarray, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Give the number of noise tokens and noise spans of rows.

    Args:
        lengths: Tokens of each row without special tokens, at least 2, int `(num_rows,)`.
        noise_density: Share of noise tokens (T5: 0.15).
        mean_noise_span_length: Mean tokens of a noise span (T5: 3).

    Returns:
        Noise tokens and spans, both int64 `(num_rows,)`.

    Raises:
        TypeError: If `noise_density` is not a number.
        ValueError: If a row has less than 2 tokens, `noise_density` is not in (0, 1), or `mean_noise_span_length` is
            not positive.

    Example:
        >>> noise_tokens_and_spans(np.array([568, 10, 2]))
        (array([85,  2,  1]), array([28,  1,  1]))
    """
    check_span_corruption(noise_density, mean_noise_span_length)
    lengths = np.asarray(lengths, dtype=np.int64)
    if (lengths < 2).any():
        row = int((lengths < 2).argmax())
        raise ValueError(
            f"`lengths` must be at least 2, one clean and one noise token, got {lengths[row]} in row {row}. Drop "
            "shorter rows."
        )
    noise = np.clip(np.rint(lengths * noise_density).astype(np.int64), 1, lengths - 1)
    spans = np.maximum(np.rint(noise / mean_noise_span_length).astype(np.int64), 1)
    return noise, np.minimum(spans, np.minimum(noise, lengths - noise))


def span_corruption_lengths(
    input_length: int, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[int, int]:
    """Give the tokens of text that fill an input of a wanted length, and the length of their target.

    Args:
        input_length: Tokens of the input, sentinels and eos included (T5: 512).
        noise_density: As in `noise_tokens_and_spans`.
        mean_noise_span_length: As in `noise_tokens_and_spans`.

    Returns:
        Tokens of text, the most whose input is not longer than `input_length`; tokens of their target with sentinels
        and eos. At a density of 0.5 a target longer than the input loses one token, as in T5's own code.

    Raises:
        TypeError: If `noise_density` is not a number.
        ValueError: If an option is out of range, or `input_length` has no room for two tokens of text.

    Example:
        >>> span_corruption_lengths(512)
        (568, 114)
    """
    check_span_corruption(noise_density, mean_noise_span_length)

    def both(tokens: int) -> tuple[int, int]:
        noise, spans = (
            int(n[0]) for n in noise_tokens_and_spans(np.array([tokens]), noise_density, mean_noise_span_length)
        )
        return tokens - noise + spans + 1, noise + spans + 1

    if input_length < 3:
        raise ValueError(f"`input_length` must be at least 3 (token, sentinel, eos), got {input_length}. Raise it.")
    tokens = 2
    while both(tokens + 1)[0] <= input_length:
        tokens += 1
    target = both(tokens)[1]
    if noise_density == 0.5 and target > input_length:
        return tokens - 1, target - 1
    return tokens, target


def random_parts(totals: np.ndarray, parts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Split numbers into parts of at least 1, every split equally likely.

    Args:
        totals: What is split, int `(num_totals,)`, at least 1.
        parts: Number of parts of each, int `(num_totals,)`, from 1 to the total.
        rng: Source of randomness.

    Returns:
        The parts one total after the other, int64 `(parts.sum(),)`.

    Raises:
        ValueError: If a total has no such split.

    Example:
        >>> random_parts(np.array([5, 3]), np.array([1, 3]), np.random.default_rng(0))
        array([5, 1, 1, 1])
    """
    totals, parts = np.asarray(totals, dtype=np.int64), np.asarray(parts, dtype=np.int64)
    if (parts < 1).any() or (parts > totals).any():
        raise ValueError("`parts` must be between 1 and the total, so that none is empty. Lower the number of parts.")
    gaps = totals - 1
    owner = row_index(gaps)
    shuffled = shuffled_within_groups(owner, len(totals), rng)
    cut = shuffled[row_positions(gaps) < (parts - 1)[owner]]
    begins = np.zeros(int(totals.sum()), dtype=bool)
    begins[row_offsets(totals)] = True
    begins[index_ranges(row_offsets(totals) + 1, gaps)[cut]] = True
    return np.diff(np.flatnonzero(begins), append=len(begins))


def sample_span_corruption(
    lengths: np.ndarray,
    rng: np.random.Generator,
    *,
    noise_density: float = 0.15,
    mean_noise_span_length: float = 3.0,
) -> np.ndarray:
    """Draw the clean and the noise spans of rows.

    Args:
        lengths: Tokens of each row without special tokens, at least 2, int `(num_rows,)`.
        rng: Source of randomness.
        noise_density: As in `noise_tokens_and_spans`.
        mean_noise_span_length: As in `noise_tokens_and_spans`.

    Returns:
        Span of each flat token, int64 `(lengths.sum(),)`: 0 for the first clean span of a row, 1 for the first noise
        span, 2 for the second clean one, and so on.

    Raises:
        TypeError: If `noise_density` is not a number.
        ValueError: If a row is too short or an option out of range.

    Example:
        >>> sample_span_corruption(np.array([3, 2]), np.random.default_rng(0))
        array([0, 0, 1, 0, 1])
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    noise, spans = noise_tokens_and_spans(lengths, noise_density, mean_noise_span_length)
    totals = np.stack([lengths - noise, noise], axis=1).ravel()
    parts = random_parts(totals, np.repeat(spans, 2), rng)
    # Of each row first all clean parts, then all noise parts; now in turns.
    number = row_positions(2 * spans)
    begin = np.repeat(2 * row_offsets(spans), 2 * spans)
    in_turns = parts[begin + number // 2 + (number % 2) * np.repeat(spans, 2 * spans)]
    return np.repeat(number, in_turns)


def sentinel_sequences(
    tokens: np.ndarray, lengths: np.ndarray, spans: np.ndarray, sentinel_ids: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Write inputs and targets with sentinels, without eos.

    Args:
        tokens: Flat token ids `(total,)`.
        lengths: Tokens of each row, int `(num_rows,)`.
        spans: Span of each flat token, from `sample_span_corruption`.
        sentinel_ids: Ids of the sentinels in order, int `(num_sentinels,)`.

    Returns:
        Input tokens with the lengths of their rows, and the same of the targets.

    Raises:
        ValueError: If a row has more noise spans than there are sentinels.

    Example:
        >>> sentinel_sequences(np.array([5, 6, 7]), np.array([3]), np.array([0, 0, 1]), np.array([99]))
        ((array([ 5,  6, 99]), array([3])), (array([99,  7]), array([2])))
    """
    most = int(spans.max(initial=-1)) // 2 + 1
    if most > len(sentinel_ids):
        raise ValueError(
            f"`sentinel_ids` must have one sentinel for each noise span of a row, got {len(sentinel_ids)} for {most} "
            "spans. Add sentinels to the tokenizer, or use shorter rows or longer spans."
        )
    row = row_index(lengths)
    first = np.ones(len(tokens), dtype=bool)
    first[1:] = (spans[1:] != spans[:-1]) | (row[1:] != row[:-1])
    is_noise = spans % 2 == 1
    sentinel = sentinel_ids[spans // 2] if len(tokens) else tokens

    def replaced(span: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept = ~span | first
        return np.where(span, sentinel, tokens)[kept], np.bincount(row[kept], minlength=len(lengths))

    return replaced(is_noise), replaced(~is_noise)


def check_span_corruption(noise_density: float, mean_noise_span_length: float) -> None:
    """Raise unless the options of span corruption are in range.

    Args:
        noise_density: Share of noise tokens.
        mean_noise_span_length: Mean tokens of a noise span.

    Raises:
        TypeError: If `noise_density` is not a number.
        ValueError: If `noise_density` is not in (0, 1), or `mean_noise_span_length` is not positive.

    Example:
        >>> check_span_corruption(0.15, 3.0)
    """
    check_probability("noise_density", noise_density)
    if noise_density in (0, 1):
        raise ValueError(f"`noise_density` must be between 0 and 1, got {noise_density}. T5 uses 0.15.")
    if not mean_noise_span_length > 0:
        raise ValueError(f"`mean_noise_span_length` must be positive, got {mean_noise_span_length}. T5 uses 3.")
