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

import numpy as np

from .checks import check_probability
from .ragged import index_ranges, merged, random_subsets, row_index, row_offsets, row_positions
from .segments import Segments


def noise_tokens_and_spans(
    lengths: np.ndarray, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Give the number of noise tokens and noise spans of rows, both int64 `(num_rows,)`.

    Args:
        lengths: Tokens of each row without special tokens, at least 2, int `(num_rows,)`.
        noise_density: Share of noise tokens (T5: 0.15).
        mean_noise_span_length: Mean tokens of a noise span (T5: 3).

    Examples:
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

    Examples:
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
    """Split numbers into parts of at least 1, every split equally likely; one total after the other.

    Args:
        totals: What is split, int `(num_totals,)`, at least 1.
        parts: Number of parts of each, int `(num_totals,)`, from 1 to the total.
        rng: Source of randomness.

    Examples:
        >>> random_parts(np.array([5, 3]), np.array([1, 3]), np.random.default_rng(0))
        array([5, 1, 1, 1])
    """
    totals, parts = np.asarray(totals, dtype=np.int64), np.asarray(parts, dtype=np.int64)
    if (parts < 1).any() or (parts > totals).any():
        wrong = int(((parts < 1) | (parts > totals)).argmax())
        raise ValueError(
            f"`parts` must be between 1 and the total, so that none is empty, got {parts[wrong]} parts of "
            f"{totals[wrong]}. Lower the number of parts."
        )
    # A part begins with the total, or behind one of its other items; gap i of total g is item i + g + 1 of all.
    cuts = np.flatnonzero(random_subsets(totals - 1, parts - 1, rng))
    cuts += row_index(parts - 1) + 1
    return np.diff(merged(row_offsets(parts), row_offsets(totals), cuts), append=int(totals.sum()))


def sample_span_corruption(
    lengths: np.ndarray,
    rng: np.random.Generator,
    *,
    noise_density: float = 0.15,
    mean_noise_span_length: float = 3.0,
) -> Segments:
    """Draw the noise spans of rows, in flat indices and reading order; all between them is clean.

    Args:
        lengths: Tokens of each row without special tokens, at least 2, int `(num_rows,)`.
        rng: Source of randomness.
        noise_density: As in `noise_tokens_and_spans`.
        mean_noise_span_length: As in `noise_tokens_and_spans`.

    Examples:
        >>> sample_span_corruption(np.array([3, 2]), np.random.default_rng(0))
        Segments(row=array([0, 1]), start=array([2, 4]), stop=array([3, 5]))
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    noise, spans = noise_tokens_and_spans(lengths, noise_density, mean_noise_span_length)
    parts = random_parts(np.concatenate([lengths - noise, noise]), np.concatenate([spans, spans]), rng)
    clean, hidden = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    # In each row clean and noise parts in turns, so over all rows too.
    stop = np.cumsum(clean + hidden)
    return Segments(row_index(spans), stop - hidden, stop)


def sentinel_sequences(
    tokens: np.ndarray, lengths: np.ndarray, noise: Segments, sentinel_ids: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Write inputs and targets with sentinels, without eos, each with the lengths of its rows.

    Args:
        tokens: Flat token ids `(total,)`.
        lengths: Tokens of each row, int `(num_rows,)`.
        noise: From `sample_span_corruption`.
        sentinel_ids: Ids of the sentinels in order, int `(num_sentinels,)`.

    Examples:
        >>> noise = Segments(np.array([0]), np.array([2]), np.array([3]))
        >>> sentinel_sequences(np.array([5, 6, 7]), np.array([3]), noise, np.array([99]))
        ((array([ 5,  6, 99]), array([3])), (array([99,  7]), array([2])))
    """
    spans = np.bincount(noise.row, minlength=len(lengths))
    most = int(spans.max(initial=0))
    if most > len(sentinel_ids):
        raise ValueError(
            f"`sentinel_ids` must have one sentinel for each noise span of a row, got {len(sentinel_ids)} for {most} "
            "spans. Add sentinels to the tokenizer, or use shorter rows or longer spans."
        )
    sentinel = sentinel_ids[row_positions(spans)]
    hidden = index_ranges(noise.start, noise.lengths)
    hidden_lengths = np.bincount(noise.row, weights=noise.lengths, minlength=len(lengths)).astype(np.int64)

    kept = np.ones(len(tokens), dtype=bool)
    kept[hidden] = False
    kept[noise.start] = True
    inputs = tokens.copy()
    inputs[noise.start] = sentinel

    targets = merged(row_offsets(noise.lengths + 1), sentinel, tokens[hidden])
    return (inputs[kept], lengths - hidden_lengths + spans), (targets, hidden_lengths + spans)


def check_span_corruption(noise_density: float, mean_noise_span_length: float) -> None:
    """Raise unless the options of span corruption are in range.

    Examples:
        >>> check_span_corruption(0.15, 3.0)
    """
    check_probability("noise_density", noise_density)
    if noise_density in (0, 1):
        raise ValueError(f"`noise_density` must be between 0 and 1, got {noise_density}. T5 uses 0.15.")
    if not mean_noise_span_length > 0:
        raise ValueError(f"`mean_noise_span_length` must be positive, got {mean_noise_span_length}. T5 uses 3.")
