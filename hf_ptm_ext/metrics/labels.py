"""`evaluate` metrics of classifiers and rankers, over `classification` and `ranking`."""

from collections.abc import Sequence
from typing import Any

import evaluate
from datasets import Features, Value

from .checks import CheckedInput
from .classification import classification_scores
from .ranking import mean_reciprocal_rank


class Classification(CheckedInput, evaluate.Metric):
    """Accuracy, macro F1 and Matthews correlation, offline, in `evaluate`'s form.

    | input | value |
    | --- | --- |
    | `predictions` | labels: whole numbers, or words |
    | `references` | labels of the same kind |

    Relations: `classification_scores` is the function behind it; equal to scikit-learn's scores over the classes of
    the truth.

    Example:
        >>> scores = Classification().compute(predictions=[1, 0], references=[1, 1])
        >>> scores["accuracy"]
        0.5
    """

    def _info(self) -> evaluate.MetricInfo:
        kinds = (Value("int64"), Value("string"))
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Gorodkin 2004, Comparing two K-category assignments by a K-category correlation coefficient",
            inputs_description=type(self).__doc__ or "",
            features=[Features({"predictions": kind, "references": kind}) for kind in kinds],
        )

    def _compute(self, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
        """Score; see `classification_scores`.

        Args:
            predictions: predicted labels.
            references: true labels.
        """
        return classification_scores(predictions, references)


class MeanReciprocalRank(CheckedInput, evaluate.Metric):
    """Mean reciprocal rank, offline, in `evaluate`'s form.

    | input | value |
    | --- | --- |
    | `predictions` | score of each row |
    | `references` | 1 for a right row, 0 for the others |
    | `groups` | what each row belongs to, as a text |

    Relations: `mean_reciprocal_rank` is the function behind it.

    Example:
        >>> metric = MeanReciprocalRank()
        >>> metric.compute(predictions=[0.9, 0.2], references=[0, 1], groups=["q1", "q1"])
        {'mrr': 0.5}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = {"predictions": Value("float64"), "references": Value("int64"), "groups": Value("string")}
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Voorhees 1999, The TREC-8 Question Answering Track Report",
            inputs_description=type(self).__doc__ or "",
            features=Features(features),
        )

    def _compute(
        self, predictions: Sequence[float], references: Sequence[int], groups: Sequence[Any]
    ) -> dict[str, float]:
        """Score; see `mean_reciprocal_rank`.

        Args:
            predictions: scores.
            references: whether right.
            groups: what the rows belong to.
        """
        return {"mrr": mean_reciprocal_rank(predictions, references, groups)}


__all__ = ["Classification", "MeanReciprocalRank"]
