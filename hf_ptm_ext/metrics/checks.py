"""What the scores share: what they ask of their input, and precision, recall and F1 from counts."""

from collections.abc import Sized


def check_pairs(predictions: Sized, references: Sized, what: str = "be as many") -> None:
    """Refuse lists of different lengths, and empty ones, whose mean is no number."""
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            f"`predictions` and `references` must {what} and at least one, got {len(predictions)} and "
            f"{len(references)}."
        )


def f1_score(precision: float, recall: float) -> float:
    """Harmonic mean, 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def precision_recall_f1(correct: float, guessed: float, true: float) -> tuple[float, float, float]:
    """Precision, recall and F1; 0 where nothing is predicted or true."""
    precision, recall = correct / guessed if guessed else 0.0, correct / true if true else 0.0
    return precision, recall, f1_score(precision, recall)
