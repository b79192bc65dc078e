"""Metrics and baselines that work offline."""

from .unigram import UnigramBaseline

__all__ = ["UnigramBaseline"]
