"""Collators: one objective, one file, one dataclass; they compose the functions of `hf_ptm_ext.masking`."""

from .base import MaskingCollator
from .describe import describe_words
from .entity_catalogue import EntityCatalogue
from .entity_replacement import DataCollatorForEntityReplacement
from .knowledge_embedding import DataCollatorForKnowledgeEmbedding
from .masked_lm import DataCollatorForMaskedLanguageModeling
from .span import DataCollatorForSpanMasking
from .unilm import DataCollatorForUniLMPreTraining
from .unilm_generation import DataCollatorForUniLMGeneration
from .unilm_seq2seq import DataCollatorForUniLMSeq2Seq, truncate_source_target
from .vocabulary import VocabularyTables, vocabulary_tables, word_boundary_style
from .whole_word import DataCollatorForWholeWordMasking

__all__ = [
    "DataCollatorForEntityReplacement",
    "DataCollatorForKnowledgeEmbedding",
    "DataCollatorForMaskedLanguageModeling",
    "DataCollatorForSpanMasking",
    "DataCollatorForUniLMGeneration",
    "DataCollatorForUniLMPreTraining",
    "DataCollatorForUniLMSeq2Seq",
    "DataCollatorForWholeWordMasking",
    "EntityCatalogue",
    "MaskingCollator",
    "VocabularyTables",
    "describe_words",
    "truncate_source_target",
    "vocabulary_tables",
    "word_boundary_style",
]
