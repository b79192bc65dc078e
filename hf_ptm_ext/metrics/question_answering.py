"""`evaluate` metric of extracted answers, over `answers`."""

from collections.abc import Sequence

import evaluate
from datasets import Features, Value
from datasets import Sequence as SequenceFeature

from .answers import question_answering_scores
from .checks import CheckedInput


class QuestionAnswering(CheckedInput, evaluate.Metric):
    """Exact match and F1 of answers, offline, in `evaluate`'s form.

    | input | value |
    | --- | --- |
    | `predictions` | texts, "" for no answer |
    | `references` | a list of right answers each, empty for a question without one |
    | `scoring` | "squad" (default), or "cmrc" for Chinese |

    Relations: `question_answering_scores` is the function behind it; with "squad" the numbers of SQuAD's own script
    (and of `evaluate.load("squad")`, which needs a network) divided by 100.

    Example:
        >>> scores = QuestionAnswering().compute(predictions=["the Rhine"], references=[["Rhine"]])
        >>> scores["exact_match"], scores["f1"]
        (1.0, 1.0)
    """

    def _info(self) -> evaluate.MetricInfo:
        text = Value("string")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Rajpurkar et al. 2018, Know What You Don't Know; Cui et al. 2019, CMRC 2018",
            inputs_description=type(self).__doc__ or "",
            features=Features({"predictions": text, "references": SequenceFeature(text)}),
            reference_urls=["https://rajpurkar.github.io/SQuAD-explorer/", "https://github.com/ymcui/cmrc2018"],
        )

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]], scoring: str = "squad"
    ) -> dict[str, float]:
        """Score; see `question_answering_scores`.

        Args:
            predictions: answers.
            references: right answers.
            scoring: whose rules.
        """
        return question_answering_scores(predictions, references, scoring)


__all__ = ["QuestionAnswering"]
