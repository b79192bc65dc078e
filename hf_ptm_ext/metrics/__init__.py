"""Metrics and baselines that work offline."""

from typing import TYPE_CHECKING, Any

from .unigram import UnigramBaseline

if TYPE_CHECKING:
    from .rouge import Rouge
    from .sacre_bleu import SacreBleu

__all__ = ["Rouge", "SacreBleu", "UnigramBaseline"]


def __getattr__(name: str) -> Any:
    """Import a metric when it is asked for: `evaluate` is slow to import."""
    if name == "Rouge":
        from .rouge import Rouge

        return Rouge
    if name == "SacreBleu":
        from .sacre_bleu import SacreBleu

        return SacreBleu
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
