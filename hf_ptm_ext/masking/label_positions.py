"""Fixed label positions, so that a head that computes logits at labels only never changes its shapes."""

from __future__ import annotations

import numpy as np

from .replacement import IGNORE_INDEX


def fixed_label_positions(labels: np.ndarray, label_budget: int) -> np.ndarray:
    """List the labelled positions of each row, filled up with unlabelled ones.

    Labelled positions come first, in reading order. The remaining slots hold distinct positions whose label is -100
    (repeated only where a row has too few of them), so a gather at these positions loses nothing and adds nothing.

    Args:
        labels: `(batch, seq_len)`, -100 = ignored.
        label_budget: Slots of each row P (BERT's max_predictions_per_seq; 0.15 * seq_len plus room, a multiple of 8).

    Returns:
        int64 `(batch, P)`.

    Raises:
        ValueError: If `label_budget` < 1, a row has more labels than slots, or more slots than labels but no
            unlabelled position to fill them with.

    Example:
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
