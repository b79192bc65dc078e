"""Boundary pairs: inputs and targets of the span boundary objective (Joshi et al. 2020, SpanBERT section 3.2).

external   pair = (start - 1, end + 1), the tokens on both sides of the span; a span that touches the edge of its
           block has no pair, because [CLS] and [SEP] are never boundaries
internal   pair = (start, end), every span has one
targets    original ids of the span, cut to `max_pair_targets`; also for spans that were kept or randomised
"""

import numpy as np

from .checks import check_choice
from .ragged import rank_within_groups
from .replacement import IGNORE_INDEX
from .segments import Segments

ENDPOINTS = ("external", "internal")


def boundary_pairs(
    spans: Segments, candidates: np.ndarray, block_starts: np.ndarray, endpoints: str = "external"
) -> tuple[np.ndarray, np.ndarray]:
    """Find the boundary positions of every span that has a pair.

    Args:
        spans: Merged spans, in reading order.
        candidates: Boolean `(batch, seq_len)`.
        block_starts: Boolean `(batch, seq_len)`, first token of every block.
        endpoints: "external" (SpanBERT's released models) or "internal".

    Returns:
        Indices into `spans` of the spans with a pair, int64 `(num_pairs,)`, and their positions, int64 `(num_pairs,
        2)`.

    Examples:
        >>> candidates = np.array([[False, True, True, True, True, False]])
        >>> blocks = np.array([[False, True, False, False, False, False]])
        >>> spans = Segments(np.array([0, 0]), np.array([2, 4]), np.array([3, 5]))
        >>> boundary_pairs(spans, candidates, blocks)
        (array([0]), array([[1, 3]]))
    """
    check_choice("endpoints", endpoints, ENDPOINTS, "SpanBERT uses 'external'.")
    if endpoints == "internal":
        return np.arange(len(spans.row)), np.stack([spans.start, spans.stop - 1], axis=1)
    row, start, stop = spans
    inside = ~block_starts[row, start] & (stop < candidates.shape[1])
    after = np.minimum(stop, candidates.shape[1] - 1)
    inside &= candidates[row, after] & ~block_starts[row, after]
    with_pair = np.flatnonzero(inside)
    return with_pair, np.stack([start[with_pair] - 1, stop[with_pair]], axis=1)


def pack_pairs(
    input_ids: np.ndarray,
    spans: Segments,
    with_pair: np.ndarray,
    pairs: np.ndarray,
    max_pair_targets: int = 15,
    num_pairs: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Lay the pairs of a batch out in arrays of one size.

    Args:
        input_ids: Original token ids `(batch, seq_len)`.
        spans: Merged spans.
        with_pair: Indices of the spans with a pair, ascending (`boundary_pairs`).
        pairs: Their positions `(len(with_pair), 2)`.
        max_pair_targets: Targets of each span S (SpanBERT: 15); longer spans keep their pair and lose the rest of
            their targets.
        num_pairs: Pair slots of each row P; None takes the fullest row's number, at least 1.

    Returns:
        `span_boundaries` int64 `(batch, P, 2)` with filler rows (0, 0), and `span_labels` int64 `(batch, P, S)` with
        -100 where nothing is predicted.

    Examples:
        >>> spans = Segments(np.array([0]), np.array([1]), np.array([3]))
        >>> boundaries, labels = pack_pairs(
        ...     np.array([[5, 6, 7, 8]]), spans, np.array([0]), np.array([[0, 3]]), max_pair_targets=3
        ... )
        >>> boundaries.tolist(), labels.tolist()
        ([[[0, 3]]], [[[6, 7, -100]]])
    """
    if max_pair_targets < 1:
        raise ValueError(f"`max_pair_targets` must be at least 1, got {max_pair_targets}. SpanBERT uses 15.")
    batch, width = input_ids.shape
    row, start, stop = spans.row[with_pair], spans.start[with_pair], spans.stop[with_pair]
    fullest = int(np.bincount(row, minlength=1).max())
    if num_pairs is None:
        num_pairs = max(fullest, 1)
    elif fullest > num_pairs:
        raise ValueError(
            f"`num_pairs` must hold the pairs of every row, got {num_pairs} for a row with {fullest}. Raise it."
        )
    slot = rank_within_groups(row)
    boundaries = np.zeros((batch, num_pairs, 2), dtype=np.int64)
    boundaries[row, slot] = pairs
    labels = np.full((batch, num_pairs, max_pair_targets), IGNORE_INDEX, dtype=np.int64)
    positions = start[:, None] + np.arange(max_pair_targets)
    targets = input_ids[row[:, None], np.minimum(positions, width - 1)]
    labels[row, slot] = np.where(positions < stop[:, None], targets, IGNORE_INDEX)
    return boundaries, labels


def fixed_label_positions(labels: np.ndarray, label_budget: int) -> np.ndarray:
    """List the labelled positions of each row, filled up with unlabelled ones, int64 `(batch, P)`.

    Labelled positions come first, in reading order. The remaining slots hold distinct positions whose label is -100
    (repeated only where a row has too few of them), so a gather at these positions loses nothing and adds nothing.

    Args:
        labels: `(batch, seq_len)`, -100 = ignored.
        label_budget: Slots of each row P (BERT's max_predictions_per_seq; 0.15 * seq_len plus room, a multiple of 8).

    Raises:
        ValueError: If `label_budget` < 1, a row has more labels than slots, or more slots than labels but no
            unlabelled position to fill them with.

    Examples:
        >>> fixed_label_positions(np.array([[-100, 7, -100, 8]]), 3)
        array([[1, 3, 0]])
    """
    if label_budget < 1:
        raise ValueError(f"`label_budget` must be at least 1, got {label_budget}. Use None for no fixed positions.")
    width = labels.shape[1]
    unlabelled = labels == IGNORE_INDEX
    counts = width - unlabelled.sum(axis=1)
    if counts.max(initial=0) > label_budget:
        raise ValueError(
            f"`label_budget` must hold the labels of every row, got {label_budget} for row {int(counts.argmax())}, "
            f"which has {int(counts.max())} labels. Raise it, or mask less."
        )
    positions = np.argsort(unlabelled.view(np.uint8), axis=1, kind="stable")[:, :label_budget]
    if label_budget > width:
        if (counts == width).any():
            raise ValueError(
                f"`label_budget` {label_budget} exceeds the row length {width} and row {int(counts.argmax())} has no "
                "unlabelled position to fill the rest. Set `pad_to_multiple_of`, or lower `label_budget`."
            )
        fill = np.broadcast_to(positions[:, -1:], (len(labels), label_budget - width))
        positions = np.concatenate([positions, fill], axis=1)
    return positions.astype(np.int64, copy=False)
