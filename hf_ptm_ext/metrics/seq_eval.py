"""Entity-level scores of tagged words through `seqeval`, offline."""

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as SequenceFeature

from .checks import CheckedInput

MODES = ("strict", "default")
SCHEMES = ("IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")


class SeqEval(CheckedInput, evaluate.Metric):
    """Precision, recall and F1 of typed entities: over all, and by type.

    | input | value |
    | --- | --- |
    | `predictions` | a list of tags for each sentence |
    | `references` | a list of tags for each sentence |

    Relations: the numbers of `seqeval`, which is asked in its strict mode unless told otherwise: a tag sequence that
    breaks the scheme is no entity there. `evaluate.load("seqeval")` needs a network and is lenient by default. Needs
    the extra `metrics`; `entity_scores` needs nothing.

    Example:
        >>> tags = [["B-PER", "I-PER", "O", "B-LOC"]]
        >>> scores = SeqEval().compute(predictions=[["B-PER", "I-PER", "O", "B-ORG"]], references=tags)
        >>> scores["overall_f1"], scores["PER"]["f1"]
        (0.5, 1.0)
    """

    def _info(self) -> evaluate.MetricInfo:
        _library()
        tags = SequenceFeature(Value("string"))
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Ramshaw and Marcus 1995; Nakayama 2018, seqeval",
            inputs_description=type(self).__doc__ or "",
            features=Features({"predictions": tags, "references": tags}),
            reference_urls=["https://github.com/chakki-works/seqeval"],
        )

    def _compute(
        self,
        predictions: Sequence[Sequence[str]],
        references: Sequence[Sequence[str]],
        scheme: str = "IOB2",
        mode: str = "strict",
        suffix: bool = False,
    ) -> dict[str, Any]:
        """Score.

        Args:
            predictions: tags of each sentence.
            references: tags of each sentence.
            scheme: "IOB2" (default), "IOB1", "IOE1", "IOE2", "IOBES" or "BILOU"; strict mode only.
            mode: "strict" (default), or "default" for `conlleval`'s reading, which needs no scheme.
            suffix: whether the mark stands behind the type (`PER-B`).

        Returns:
            `overall_precision`, `overall_recall`, `overall_f1`, `overall_accuracy` (of tags), and for each type a
            dictionary with `precision`, `recall`, `f1` and `number`.

        Raises:
            ValueError: an option out of range, or sentences of different lengths.
        """
        for name, value, known in (("mode", mode, MODES), ("scheme", scheme, SCHEMES)):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {value!r}.")
        for number, (predicted, true) in enumerate(zip(predictions, references, strict=True)):
            if len(predicted) != len(true):
                raise ValueError(
                    f"`predictions` and `references` must have as many tags; sentence {number} has {len(predicted)} "
                    f"and {len(true)}."
                )
        if not any(map(len, references)):
            raise ValueError(f"`references` must have at least one tag, got {len(references)} empty sentences.")
        metrics = _library()
        strict = {"mode": "strict", "scheme": getattr(importlib.import_module("seqeval.scheme"), scheme)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # types without a prediction have precision 0, which is meant
            report = metrics.classification_report(
                references,
                predictions,
                suffix=suffix,
                output_dict=True,
                zero_division=0,
                **(strict if mode == "strict" else {}),
            )
        averages = {name: report.pop(name) for name in ("micro avg", "macro avg", "weighted avg")}
        micro = averages["micro avg"]
        types = {
            kind: {
                "precision": float(row["precision"]),
                "recall": float(row["recall"]),
                "f1": float(row["f1-score"]),
                "number": int(row["support"]),
            }
            for kind, row in report.items()
        }
        return {
            **types,
            "overall_precision": float(micro["precision"]),
            "overall_recall": float(micro["recall"]),
            "overall_f1": float(micro["f1-score"]),
            "overall_accuracy": float(metrics.accuracy_score(references, predictions)),
        }


def _library() -> Any:
    try:
        return importlib.import_module("seqeval.metrics")
    except ImportError as error:
        raise ImportError("`SeqEval` needs seqeval: pip install hf-ptm-ext[metrics]") from error


__all__ = ["SeqEval"]
