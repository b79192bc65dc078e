"""Accuracy, F1 and Matthews correlation of a classifier, from labels of any kind."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .checks import check_pairs
from .relations import macro_f1


def classification_scores(predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """All scores of single-label classification.

    Args:
        predictions: predicted labels.
        references: true labels, as many.

    Returns:
        `accuracy`; `macro_f1`, the mean F1 of the classes of the truth; `matthews_correlation`, of any number of
        classes (Gorodkin 2004), 0 if one side has one class only.

    Raises:
        ValueError: the numbers of labels differ, or there are none.

    Example:
        >>> scores = classification_scores([1, 0, 1, 0], [1, 0, 0, 0])
        >>> {name: round(value, 3) for name, value in scores.items()}
        {'accuracy': 0.75, 'macro_f1': 0.733, 'matthews_correlation': 0.577}
    """
    check_pairs(predictions, references)
    return {
        "accuracy": float(np.mean([p == r for p, r in zip(predictions, references, strict=True)])),
        "macro_f1": macro_f1(predictions, references),
        "matthews_correlation": matthews_correlation(predictions, references),
    }


def matthews_correlation(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    """Correlation of predicted and true classes (Matthews 1975; Gorodkin 2004 for more than two).

    Args:
        predictions: predicted labels.
        references: true labels.

    Returns:
        Between -1 and 1; 0 if one side has one class only.

    Raises:
        ValueError: the numbers of labels differ, or there are none.

    Example:
        >>> matthews_correlation(["a", "b"], ["b", "a"]), matthews_correlation(["a", "a"], ["b", "a"])
        (-1.0, 0.0)
    """
    check_pairs(predictions, references)
    total = len(references)
    correct = sum(p == r for p, r in zip(predictions, references, strict=True))
    guessed, true = Counter(predictions), Counter(references)
    covariance = correct * total - sum(guessed[label] * count for label, count in true.items())
    spread = [total**2 - sum(count**2 for count in counts.values()) for counts in (guessed, true)]
    return covariance / math.sqrt(spread[0] * spread[1]) if all(spread) else 0.0


__all__ = ["classification_scores", "matthews_correlation"]
