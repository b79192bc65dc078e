"""`evaluate` metrics of relation classification and entity typing, over `relations` and `entity_typing`."""

from collections.abc import Collection, Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as SequenceFeature

from .checks import CheckedInput
from .entity_typing import typing_scores
from .relations import NEGATIVE, relation_scores


class RelationClassification(CheckedInput, evaluate.Metric):
    """Accuracy, macro F1, TACRED's micro scores and SemEval-2010's official score, offline.

    | input | value |
    | --- | --- |
    | `predictions` | labels |
    | `references` | labels |

    Relations: `relation_scores` is the function.

    Example:
        >>> metric = RelationClassification()
        >>> metric.compute(predictions=["x", "NA"], references=["x", "x"])["micro_recall"]
        0.5
    """

    def _info(self) -> evaluate.MetricInfo:
        label = Value("string")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Hendrickx et al. 2010, SemEval-2010 Task 8; Zhang et al. 2017, TACRED",
            inputs_description=type(self).__doc__ or "",
            features=Features({"predictions": label, "references": label}),
        )

    def _compute(
        self, predictions: Sequence[str], references: Sequence[str], negative: Collection[str] = NEGATIVE
    ) -> dict[str, float]:
        return relation_scores(predictions, references, negative)


class EntityTyping(CheckedInput, evaluate.Metric):
    """Strict accuracy, loose macro and loose micro scores of sets of types, offline.

    | input | value |
    | --- | --- |
    | `predictions` | 0 or 1 for each type |
    | `references` | 0 or 1 for each type |

    Relations: `typing_scores` is the function; `predicted_types` decides from logits.

    Example:
        >>> EntityTyping().compute(predictions=[[1, 0]], references=[[1, 1]])["macro_recall"]
        0.5
    """

    def _info(self) -> evaluate.MetricInfo:
        flags = SequenceFeature(Value("int32"))
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Ling and Weld 2012, Fine-Grained Entity Recognition",
            inputs_description=type(self).__doc__ or "",
            features=Features({"predictions": flags, "references": flags}),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return typing_scores(predictions, references)


__all__ = ["EntityTyping", "RelationClassification"]
