"""Fragments for MASS: which run of a sentence the decoder writes (Song et al. 2019, https://arxiv.org/abs/1905.02450).

The released code has two rules (microsoft/MASS); token 0 is never part of a fragment in either:

    summarization    tokens 1 .. n-1 in consecutive windows of 64; in a window of w tokens floor(w p) are taken,
                     every start equally likely; p = 0.15
    translation      one window 1 .. n-1; round_half_even(n p) tokens of it (n counts token 0 too); 20 % of the
                     fragments at its beginning, 20 % at its end, 60 % anywhere; p = 0.5

The paper's rule is one fragment of half the sentence. The translation code takes n from the first or longest sentence
of the batch; here each row has its own. Positions count the tokens of a row from 0, without padding.
"""

import numpy as np

from .checks import check_choice, check_probability, check_shares
from .ragged import row_offsets, row_positions, shuffled_within_groups
from .segments import Segments

LENGTH_RULES = ("floor", "round")


def fragment_windows(lengths: np.ndarray, block_size: int | None = None, first: int = 1) -> Segments:
    """Cut rows into the windows that each give one fragment.

    Args:
        lengths: Tokens of each row, int `(num_rows,)`.
        block_size: Tokens of a window (MASS for summarization: 64), or of the rest of a row; None: one window a
            row (the paper).
        first: First position that may be part of a fragment (MASS: 1).

    Returns:
        The windows in reading order; a row without maskable position has none.

    Examples:
        >>> fragment_windows(np.array([6, 1, 3]), block_size=4)
        Segments(row=array([0, 0, 2]), start=array([1, 5, 1]), stop=array([5, 6, 3]))
    """
    maskable = np.maximum(np.asarray(lengths, dtype=np.int64) - first, 0)
    if block_size is None:
        row = np.flatnonzero(maskable)
        return Segments(row, np.full(len(row), first, dtype=np.int64), first + maskable[row])
    if block_size < 1:
        raise ValueError(f"`block_size` must be at least 1 or None, got {block_size}. MASS uses 64.")
    count = -(-maskable // block_size)
    row = np.repeat(np.arange(len(maskable), dtype=np.int64), count)
    start = first + block_size * row_positions(count)
    return Segments(row, start, np.minimum(start + block_size, first + maskable[row]))


def fragment_lengths(windows: Segments, probability: float, length_rule: str = "floor") -> np.ndarray:
    """Give the number of tokens that each window loses to its fragment.

    Args:
        windows: From `fragment_windows`.
        probability: Share of tokens to take.
        length_rule: "floor": floor(w p) of a window of w tokens (the summarization code). "round": round_half_even((w
            + 1) p), which counts the token before the window too (the translation code, whose only window is the
            sentence without its first token).

    Returns:
        int64 `(num_windows,)`, 0 for short windows and never more than the window.

    Examples:
        >>> windows = fragment_windows(np.array([130]), 64)
        >>> fragment_lengths(windows, 0.15)
        array([9, 9, 0])
        >>> fragment_lengths(fragment_windows(np.array([22, 15])), 0.5, "round")
        array([11,  8])
    """
    check_probability("probability", probability)
    check_choice("length_rule", length_rule, LENGTH_RULES)
    tokens = windows.lengths
    if length_rule == "floor":
        return np.floor(tokens * probability).astype(np.int64)
    return np.minimum(np.rint((tokens + 1) * probability).astype(np.int64), tokens)


def at_least_one_token(windows: Segments, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Give one token to a window of every row that would lose none.

    The reference fails on a row without any fragment.

    Args:
        windows: From `fragment_windows`.
        lengths: From `fragment_lengths`.
        rng: Source of randomness.

    Examples:
        >>> windows = fragment_windows(np.array([4, 65]), 64)
        >>> at_least_one_token(windows, np.array([0, 9]), np.random.default_rng(0))
        array([1, 9])
    """
    num_rows = int(windows.row.max(initial=-1)) + 1
    taken = np.bincount(windows.row, weights=lengths, minlength=num_rows)
    poor = np.flatnonzero(taken[windows.row] == 0)
    if not len(poor):
        return lengths
    rows, first = np.unique(windows.row[poor], return_index=True)
    last = np.append(first[1:], len(poor))
    ends = np.cumsum(windows.lengths[poor])
    before = np.append(0, ends)[first]
    token = before + (rng.random(len(rows)) * (ends[last - 1] - before)).astype(np.int64)
    lengths = lengths.copy()
    lengths[poor[np.searchsorted(ends, token, side="right")]] = 1
    return lengths


def sample_fragments(
    windows: Segments,
    lengths: np.ndarray,
    rng: np.random.Generator,
    *,
    start_prob: float = 0.0,
    end_prob: float = 0.0,
    exclude_last_start: bool = False,
) -> Segments:
    """Place one fragment in each window; they come in reading order, without empty ones.

    Args:
        windows: From `fragment_windows`.
        lengths: Tokens of each fragment, int `(num_windows,)`; a window with 0 has none.
        rng: Source of randomness.
        start_prob: Share of fragments at the beginning of their window (translation: 0.2).
        end_prob: Share of fragments at its end (translation: 0.2). All others start anywhere, at both ends too.
        exclude_last_start: Never start at the end by chance, only by `end_prob` (the repository's supervised
            translation code draws from a half-open range).

    Examples:
        >>> windows = fragment_windows(np.array([22]))
        >>> fragments = sample_fragments(windows, np.array([11]), np.random.default_rng(0), end_prob=1.0)
        >>> fragments.start, fragments.stop
        (array([11]), array([22]))
    """
    check_edges(start_prob, end_prob)
    _check_fit(windows, lengths)
    choices = windows.lengths - lengths + 1
    free = np.maximum(choices - 1, 1) if exclude_last_start else choices
    uniform = rng.random((2, len(lengths)))
    offset = (uniform[1] * free).astype(np.int64)
    offset[uniform[0] < start_prob + end_prob] = 0
    at_end = (uniform[0] >= start_prob) & (uniform[0] < start_prob + end_prob)
    offset[at_end] = choices[at_end] - 1
    start = windows.start + offset
    some = lengths > 0
    return Segments(windows.row[some], start[some], (start + lengths)[some])


def sample_pieces(
    windows: Segments,
    lengths: np.ndarray,
    piece_length: int,
    rng: np.random.Generator,
    *,
    start_prob: float = 0.0,
    end_prob: float = 0.0,
) -> Segments:
    """Scatter each fragment over its window in pieces (`--lambda_span` of the translation code).

    Pieces and free tokens are shuffled; with `start_prob` the first piece stands at the beginning, with `end_prob` the
    last one, which may be a shorter remainder, at the end. Pieces of one token are the paper's ablation.

    Args:
        windows: From `fragment_windows`.
        lengths: Tokens to take from each window, int `(num_windows,)`.
        piece_length: Tokens of a piece.
        rng: Source of randomness.
        start_prob: As in `sample_fragments`.
        end_prob: As in `sample_fragments`.

    Examples:
        >>> windows = fragment_windows(np.array([10]))
        >>> sample_pieces(windows, np.array([5]), 2, np.random.default_rng(0)).lengths.sum()
        np.int64(5)
    """
    check_edges(start_prob, end_prob)
    _check_fit(windows, lengths)
    if piece_length < 1:
        raise ValueError(f"`piece_length` must be at least 1, got {piece_length}. 1 masks single tokens.")
    pieces = -(-lengths // piece_length)
    items = pieces + windows.lengths - lengths
    window = np.repeat(np.arange(len(items), dtype=np.int64), items)
    number = row_positions(items)
    is_piece = number < pieces[window]
    size = np.where(is_piece, piece_length, 1)
    last = row_offsets(items) + pieces - 1
    some = lengths > 0
    size[last[some]] = (lengths - (pieces - 1) * piece_length)[some]
    edge = rng.random(len(items))
    # Three groups a window keep a forced piece before or behind all that is shuffled.
    place = np.ones(len(window), dtype=np.int64)
    place[row_offsets(items)[some & (edge < start_prob)]] = 0
    place[last[some & (edge >= start_prob) & (edge < start_prob + end_prob)]] = 2
    order = shuffled_within_groups(3 * window + place, 3 * len(items), rng)
    stop = np.cumsum(size[order])
    before = np.repeat(row_offsets(windows.lengths), items)
    start = stop - size[order] - before + windows.start[window]
    chosen = is_piece[order]
    return Segments(windows.row[window[chosen]], start[chosen], start[chosen] + size[order][chosen])


def check_edges(start_prob: float, end_prob: float) -> None:
    """Raise unless the shares of fragments at both ends of their windows are in range."""
    check_shares("MASS for translation uses 0.2 and 0.2.", start_prob=start_prob, end_prob=end_prob)


def _check_fit(windows: Segments, lengths: np.ndarray) -> None:
    """Raise unless there is one fragment for each window, and it fits."""
    if len(lengths) != len(windows.row) or (lengths > windows.lengths).any() or (lengths < 0).any():
        raise ValueError(
            f"`lengths` must have one entry per window ({len(windows.row)}), between 0 and the window's tokens, got "
            f"{len(lengths)} entries. Use `fragment_lengths(windows, probability)`."
        )
