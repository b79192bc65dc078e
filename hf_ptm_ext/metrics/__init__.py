"""Metrics and baselines that work offline."""

import importlib
from typing import TYPE_CHECKING, Any

from .answers import normalize_answer, overlap_answer, question_answering_scores
from .classification import (
    classification_scores,
    matthews_correlation,
    mean_reciprocal_rank,
    predicted_types,
    regression_scores,
    relation_scores,
    typing_scores,
)
from .entities import entity_scores, kbert_span_counts, kbert_span_scores
from .linear_tagger import linear_tagger
from .link_prediction import filtered_ranks, link_prediction_scores, random_scores
from .ngram_classifier import ngram_classifier
from .triple_ranking import LinkRanks, relation_ranks, triple_ranks
from .unigram import UnigramBaseline

if TYPE_CHECKING:
    from .offline import (
        Classification,
        EntityTyping,
        MeanReciprocalRank,
        QuestionAnswering,
        RelationClassification,
        SeqEval,
    )
    from .rouge import Rouge
    from .sacre_bleu import SacreBleu

__all__ = [
    "Classification",
    "EntityTyping",
    "LinkRanks",
    "MeanReciprocalRank",
    "QuestionAnswering",
    "RelationClassification",
    "Rouge",
    "SacreBleu",
    "SeqEval",
    "UnigramBaseline",
    "classification_scores",
    "entity_scores",
    "filtered_ranks",
    "kbert_span_counts",
    "kbert_span_scores",
    "linear_tagger",
    "link_prediction_scores",
    "matthews_correlation",
    "mean_reciprocal_rank",
    "ngram_classifier",
    "normalize_answer",
    "overlap_answer",
    "predicted_types",
    "question_answering_scores",
    "random_scores",
    "regression_scores",
    "relation_ranks",
    "relation_scores",
    "triple_ranks",
    "typing_scores",
]


# Classes of `evaluate`, which is slow to import; those of generated text have modules of their own.
_LAZY = {
    **dict.fromkeys(
        ("Classification", "EntityTyping", "MeanReciprocalRank", "QuestionAnswering", "RelationClassification"),
        "offline",
    ),
    "Rouge": "rouge",
    "SacreBleu": "sacre_bleu",
    "SeqEval": "offline",
}


def __getattr__(name: str) -> Any:
    """Import a metric when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
