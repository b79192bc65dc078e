"""Scores of entity typing (Ling and Weld, AAAI 2012), as the scripts of FIGER and Open Entity compute them.

strict accuracy   the predicted set is exactly the true one
loose macro       precision and recall of each example's set, averaged over examples, then their F1
loose micro       precision and recall over all (example, type) pairs
"""

from typing import Any

import numpy as np

from .relations import f1_score


def predicted_types(logits: Any, always_one: bool = False) -> np.ndarray:
    """Decide which types hold.

    Args:
        logits: `(examples, types)`.
        always_one: also take the type of the highest logit, so that no example is without one (the reference does so
            for FIGER, not for Open Entity).

    Returns:
        Boolean `(examples, types)`: the logit is above 0.

    Raises:
        ValueError: there are none.

    Example:
        >>> predicted_types([[-1.0, -2.0]]).tolist(), predicted_types([[-1.0, -2.0]], always_one=True).tolist()
        ([[False, False]], [[True, False]])
    """
    logits = np.asarray(logits)
    if logits.ndim != 2 or not logits.size:
        raise ValueError(f"`logits` must be (examples, types), at least one of each, got shape {logits.shape}.")
    chosen = logits > 0
    if always_one:
        chosen[np.arange(len(logits)), logits.argmax(axis=1)] = True
    return chosen


def typing_scores(predictions: Any, references: Any) -> dict[str, float]:
    """Strict accuracy, loose macro and loose micro scores.

    Args:
        predictions: predicted types, boolean `(examples, types)`.
        references: true types, the same shape.

    Returns:
        `accuracy`, and `macro_` and `micro_` with `precision`, `recall`, `f1`. An example without predicted types has
        precision 0, one without true types recall 0, as in the reference.

    Raises:
        ValueError: the shapes differ or there is no example.

    Example:
        >>> scores = typing_scores([[1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 1]])
        >>> scores["accuracy"], scores["macro_precision"], scores["micro_recall"]
        (0.0, 0.75, 0.6666666666666666)
    """
    predicted, true = np.asarray(predictions, dtype=bool), np.asarray(references, dtype=bool)
    if predicted.shape != true.shape or predicted.ndim != 2 or not len(true):
        raise ValueError(
            f"`predictions` and `references` must be (examples, types) of one shape, got {predicted.shape} and "
            f"{true.shape}."
        )
    both = (predicted & true).sum(axis=1)
    guessed, wanted = predicted.sum(axis=1), true.sum(axis=1)
    macro = [float(np.divide(both, of, out=np.zeros(len(true)), where=of > 0).mean()) for of in (guessed, wanted)]
    micro = [float(both.sum() / of.sum()) if of.sum() else 0.0 for of in (guessed, wanted)]
    scores = {"accuracy": float((predicted == true).all(axis=1).mean())}
    for name, (precision, recall) in (("macro", macro), ("micro", micro)):
        scores |= {
            f"{name}_precision": precision,
            f"{name}_recall": recall,
            f"{name}_f1": f1_score(precision, recall),
        }
    return scores


__all__ = ["predicted_types", "typing_scores"]
