"""Augmentation of task data for distillation: TinyBERT's and Distilled-BiLSTM's."""

from typing import TYPE_CHECKING, Any

from ..word_vectors import WordVectors, load_word_vectors
from .bilstm import DistilledBiLstmAugmentation
from .mapping import Augmentation, augment
from .words import (
    STOPWORDS,
    Tagger,
    WordClasses,
    WordSplitter,
    is_replaceable,
    join_words,
    rough_tags,
)

if TYPE_CHECKING:
    from .proposer import MaskedWordProposer
    from .tinybert import TASK_VARIANTS, TinyBertAugmentation

# Names that need torch -> their file.
_LAZY = {
    "MaskedWordProposer": "proposer",
    "TASK_VARIANTS": "tinybert",
    "TinyBertAugmentation": "tinybert",
}

__all__ = [
    "STOPWORDS",
    "TASK_VARIANTS",
    "Augmentation",
    "DistilledBiLstmAugmentation",
    "MaskedWordProposer",
    "Tagger",
    "TinyBertAugmentation",
    "WordClasses",
    "WordSplitter",
    "WordVectors",
    "augment",
    "is_replaceable",
    "join_words",
    "load_word_vectors",
    "rough_tags",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
