"""Budgets: how many tokens of a sequence or block are selected.

    BERT      k = min(max_predictions, max(1, round_half_even(T p))),  T = tokens of the sequence, specials included
    SpanBERT  m = ceil(n p),                                           n = tokens of the content block

(google-research/bert create_pretraining_data.py; facebookresearch/SpanBERT masking.py.)
"""

from __future__ import annotations

import numpy as np

from ._checks import check_probability


def bert_budget(lengths: np.ndarray, probability: float, max_predictions: int | None = None) -> np.ndarray:
    """Give BERT's number of predictions for sequences of these lengths.

    Args:
        lengths: Tokens of each sequence with special tokens, int `(num_sequences,)`.
        probability: Share of tokens to select (BERT: 0.15).
        max_predictions: Upper bound (BERT: 20 for length 128); None for no bound.

    Returns:
        int64 `(num_sequences,)`; halves round to even, at least 1, 0 only for an empty sequence.

    Raises:
        TypeError: If `probability` is not a number.
        ValueError: If `probability` is outside [0, 1] or `max_predictions` < 1.

    Example:
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


def span_budget(lengths: np.ndarray, probability: float) -> np.ndarray:
    """Give SpanBERT's number of masked tokens for blocks of these lengths.

    Args:
        lengths: Tokens of each content block without special tokens, int `(num_blocks,)`.
        probability: Share of tokens to select (SpanBERT: 0.15).

    Returns:
        int64 `(num_blocks,)`, rounded up.

    Raises:
        TypeError: If `probability` is not a number.
        ValueError: If `probability` is outside [0, 1].

    Example:
        >>> span_budget(np.array([126, 510, 1, 0]), 0.15)
        array([19, 77,  1,  0])
    """
    check_probability("probability", probability)
    return np.ceil(np.asarray(lengths) * probability).astype(np.int64)
