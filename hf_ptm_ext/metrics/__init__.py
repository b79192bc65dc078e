"""Metrics and baselines that work offline."""

from typing import TYPE_CHECKING, Any

from .entity_typing import predicted_types, typing_scores
from .link_prediction import filtered_ranks, link_prediction_scores, random_scores
from .relations import relation_scores
from .unigram import UnigramBaseline

if TYPE_CHECKING:
    from .knowledge import EntityTyping, RelationClassification
    from .rouge import Rouge
    from .sacre_bleu import SacreBleu

__all__ = [
    "EntityTyping",
    "RelationClassification",
    "Rouge",
    "SacreBleu",
    "UnigramBaseline",
    "filtered_ranks",
    "link_prediction_scores",
    "predicted_types",
    "random_scores",
    "relation_scores",
    "typing_scores",
]


def __getattr__(name: str) -> Any:
    """Import a metric when it is asked for: `evaluate` is slow to import."""
    if name in ("EntityTyping", "RelationClassification"):
        from . import knowledge

        return getattr(knowledge, name)
    if name == "Rouge":
        from .rouge import Rouge

        return Rouge
    if name == "SacreBleu":
        from .sacre_bleu import SacreBleu

        return SacreBleu
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
