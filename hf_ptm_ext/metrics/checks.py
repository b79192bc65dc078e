"""What every metric asks of its input: as many predictions as references, and at least one."""

import logging
from collections.abc import Sized
from typing import Any

logger = logging.getLogger(__name__)


def check_pairs(predictions: Sized, references: Sized, what: str = "be as many") -> None:
    """Refuse lists of different lengths, and empty ones, whose mean is no number."""
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            f"`predictions` and `references` must {what} and at least one, got {len(predictions)} and "
            f"{len(references)}."
        )


class CheckedInput:
    """Mixed into an `evaluate.Metric`, which fails in other ways where there is nothing to score."""

    def compute(self, *, predictions: Any = None, references: Any = None, **options: Any) -> Any:
        """As `evaluate.Metric.compute`.

        Args:
            predictions: what is scored; may be added before by `add` or `add_batch`.
            references: what is right.
            options: of the metric.

        Raises:
            ValueError: there are none, or not as many.
        """
        if predictions is not None and references is not None:
            check_pairs(predictions, references)
            empty = sum(isinstance(one, str) and not one.strip() for one in predictions)
            if empty:
                logger.warning("%d of %d predictions are empty; they count as all others.", empty, len(predictions))
        return super().compute(predictions=predictions, references=references, **options)  # type: ignore[misc]


__all__ = ["CheckedInput", "check_pairs"]
