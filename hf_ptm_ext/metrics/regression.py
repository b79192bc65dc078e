"""Scores of predicted numbers: the correlations that STS-B is scored with, and the mean squared error."""

from collections.abc import Sequence

import numpy as np

from .checks import check_pairs


def regression_scores(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """All scores of regression.

    Args:
        predictions: predicted numbers.
        references: true numbers, as many.

    Returns:
        `pearson` and `spearman` (of ranks, equal values share theirs), 0 if one side has one value only; `mse`.

    Raises:
        ValueError: the numbers differ, there are none, or one is not finite.

    Example:
        >>> scores = regression_scores([0.1, 0.2, 0.9], [1.0, 2.0, 3.0])
        >>> round(scores["pearson"], 3), round(scores["spearman"], 3), round(scores["mse"], 3)
        (0.918, 1.0, 2.82)
    """
    guessed, true = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (predictions, references))
    check_pairs(guessed, true)
    if not (np.isfinite(guessed).all() and np.isfinite(true).all()):
        raise ValueError("`predictions` and `references` must be finite numbers, got NaN or infinity.")
    return {
        "pearson": _correlation(guessed, true),
        "spearman": _correlation(_ranks(guessed), _ranks(true)),
        "mse": float(((guessed - true) ** 2).mean()),
    }


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; the mean rank for equal values."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


__all__ = ["regression_scores"]
