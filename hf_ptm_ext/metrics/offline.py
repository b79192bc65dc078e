"""Metrics in `evaluate`'s form that need no network: their base, and those of classes, ranks, answers and tags."""

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as SequenceFeature

from .answers import question_answering_scores
from .checks import check_pairs
from .classification import classification_scores, mean_reciprocal_rank, relation_scores, typing_scores

logger = logging.getLogger(__name__)

TEXT = Value("string")
MODES = ("strict", "default")
SCHEMES = ("IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")


def pairs_of(kind: Any) -> Features:
    """Predictions and references of one kind."""
    return Features({"predictions": kind, "references": kind})


class OfflineMetric(evaluate.Metric):
    """What a metric of ours declares: its paper, its columns, its pages, and the package that it needs."""

    paper = ""
    columns: Features | list[Features]
    pages: tuple[str, ...] = ()
    package = ""
    scores: Callable[..., dict[str, float]]

    def _info(self) -> evaluate.MetricInfo:
        if self.package:
            self.library()
        return evaluate.MetricInfo(
            description=sys.modules[type(self).__module__].__doc__ or "",
            citation=self.paper,
            inputs_description=type(self).__doc__ or "",
            features=self.columns,
            reference_urls=list(self.pages),
        )

    def _compute(self, *args: Any, **values: Any) -> dict[str, Any]:
        return self.scores(*args, **values)

    @classmethod
    def library(cls) -> Any:
        """The package that computes the scores."""
        try:
            return importlib.import_module(cls.package)
        except ImportError as error:
            name = cls.package.partition(".")[0]
            raise ImportError(f"`{cls.__name__}` needs {name}: pip install hf-ptm-ext[metrics]") from error

    def compute(self, *, predictions: Any = None, references: Any = None, **options: Any) -> Any:
        """As `evaluate.Metric.compute`, which fails in other ways where there is nothing to score."""
        if predictions is not None and references is not None:
            check_pairs(predictions, references)
            empty = sum(isinstance(one, str) and not one.strip() for one in predictions)
            if empty:
                logger.warning("%d of %d predictions are empty; they count as all others.", empty, len(predictions))
        return super().compute(predictions=predictions, references=references, **options)


class Classification(OfflineMetric):
    """Accuracy, macro F1 and Matthews correlation, offline, in `evaluate`'s form.

    | input | value |
    | --- | --- |
    | `predictions` | labels: whole numbers, or words |
    | `references` | labels of the same kind |

    Relations: `classification_scores` is the function behind it; equal to scikit-learn's scores over the classes of
    the truth.

    Examples:
        >>> Classification().compute(predictions=[1, 0], references=[1, 1])["accuracy"]
        0.5
    """

    paper = "Gorodkin 2004, Comparing two K-category assignments by a K-category correlation coefficient"
    columns = [pairs_of(Value("int64")), pairs_of(TEXT)]
    scores = staticmethod(classification_scores)


class RelationClassification(OfflineMetric):
    """Accuracy, macro F1, TACRED's micro scores and SemEval-2010's official score, offline.

    | input | value |
    | --- | --- |
    | `predictions` | labels |
    | `references` | labels |

    Relations: `relation_scores` is the function.

    Examples:
        >>> RelationClassification().compute(predictions=["x", "NA"], references=["x", "x"])["micro_recall"]
        0.5
    """

    paper = "Hendrickx et al. 2010, SemEval-2010 Task 8; Zhang et al. 2017, TACRED"
    columns = pairs_of(TEXT)
    scores = staticmethod(relation_scores)


class EntityTyping(OfflineMetric):
    """Strict accuracy, loose macro and loose micro scores of sets of types, offline.

    | input | value |
    | --- | --- |
    | `predictions` | 0 or 1 for each type |
    | `references` | 0 or 1 for each type |

    Relations: `typing_scores` is the function; `predicted_types` decides from logits.

    Examples:
        >>> EntityTyping().compute(predictions=[[1, 0]], references=[[1, 1]])["macro_recall"]
        0.5
    """

    paper = "Ling and Weld 2012, Fine-Grained Entity Recognition"
    columns = pairs_of(SequenceFeature(Value("int32")))
    scores = staticmethod(typing_scores)


class MeanReciprocalRank(OfflineMetric):
    """Mean reciprocal rank, offline, in `evaluate`'s form.

    | input | value |
    | --- | --- |
    | `predictions` | score of each row |
    | `references` | 1 for a right row, 0 for the others |
    | `groups` | what each row belongs to, as a text |

    Relations: `mean_reciprocal_rank` is the function behind it.

    Examples:
        >>> MeanReciprocalRank().compute(predictions=[0.9, 0.2], references=[0, 1], groups=["q1", "q1"])
        {'mrr': 0.5}
    """

    paper = "Voorhees 1999, The TREC-8 Question Answering Track Report"
    columns = Features({"predictions": Value("float64"), "references": Value("int64"), "groups": TEXT})

    def _compute(
        self, predictions: Sequence[float], references: Sequence[int], groups: Sequence[Any]
    ) -> dict[str, float]:
        return {"mrr": mean_reciprocal_rank(predictions, references, groups)}


class QuestionAnswering(OfflineMetric):
    """Exact match and F1 of answers, offline, in `evaluate`'s form.

    | input | value |
    | --- | --- |
    | `predictions` | texts, "" for no answer |
    | `references` | a list of right answers each, empty for a question without one |
    | `scoring` | "squad" (default), or "cmrc" for Chinese |

    Relations: `question_answering_scores` is the function behind it; with "squad" the numbers of SQuAD's own script
    (and of `evaluate.load("squad")`, which needs a network) divided by 100.

    Examples:
        >>> scores = QuestionAnswering().compute(predictions=["the Rhine"], references=[["Rhine"]])
        >>> scores["exact_match"], scores["f1"]
        (1.0, 1.0)
    """

    paper = "Rajpurkar et al. 2018, Know What You Don't Know; Cui et al. 2019, CMRC 2018"
    columns = Features({"predictions": TEXT, "references": SequenceFeature(TEXT)})
    pages = ("https://rajpurkar.github.io/SQuAD-explorer/", "https://github.com/ymcui/cmrc2018")
    scores = staticmethod(question_answering_scores)


class SeqEval(OfflineMetric):
    """Precision, recall and F1 of typed entities through `seqeval`: over all, and by type.

    | input | value |
    | --- | --- |
    | `predictions` | a list of tags for each sentence |
    | `references` | a list of tags for each sentence |

    Relations: the numbers of `seqeval`, which is asked in its strict mode unless told otherwise: a tag sequence that
    breaks the scheme is no entity there. `evaluate.load("seqeval")` needs a network and is lenient by default. Needs
    the extra `metrics`; `entity_scores` needs nothing.

    Examples:
        >>> tags = [["B-PER", "I-PER", "O", "B-LOC"]]
        >>> scores = SeqEval().compute(predictions=[["B-PER", "I-PER", "O", "B-ORG"]], references=tags)
        >>> scores["overall_f1"], scores["PER"]["f1"]
        (0.5, 1.0)
    """

    paper = "Ramshaw and Marcus 1995; Nakayama 2018, seqeval"
    columns = pairs_of(SequenceFeature(TEXT))
    pages = ("https://github.com/chakki-works/seqeval",)
    package = "seqeval.metrics"

    def _compute(
        self,
        predictions: Sequence[Sequence[str]],
        references: Sequence[Sequence[str]],
        scheme: str = "IOB2",
        mode: str = "strict",
        suffix: bool = False,
    ) -> dict[str, Any]:
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
        options: dict[str, Any] = {"suffix": suffix, "output_dict": True, "zero_division": 0}
        if mode == "strict":
            options |= {"mode": mode, "scheme": getattr(importlib.import_module("seqeval.scheme"), scheme)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # types without a prediction have precision 0, which is meant
            report = self.library().classification_report(references, predictions, **options)
        micro, _, _ = (report.pop(name) for name in ("micro avg", "macro avg", "weighted avg"))
        names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
        types = {
            kind: {**{name: float(row[key]) for name, key in names.items()}, "number": int(row["support"])}
            for kind, row in report.items()
        }
        overall = {f"overall_{name}": float(micro[key]) for name, key in names.items()}
        return {**types, **overall, "overall_accuracy": float(self.library().accuracy_score(references, predictions))}
