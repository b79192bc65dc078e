"""Collators: one objective, one file, one dataclass; they compose the functions of `hf_ptm_ext.masking`."""

from .base import MaskingCollator
from .describe import describe_words
from .masked_lm import DataCollatorForMaskedLanguageModeling
from .span import DataCollatorForSpanMasking
from .vocabulary import VocabularyTables, vocabulary_tables, word_boundary_style
from .whole_word import DataCollatorForWholeWordMasking

__all__ = [
    "DataCollatorForMaskedLanguageModeling",
    "DataCollatorForSpanMasking",
    "DataCollatorForWholeWordMasking",
    "MaskingCollator",
    "VocabularyTables",
    "describe_words",
    "vocabulary_tables",
    "word_boundary_style",
]
