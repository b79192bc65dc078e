"""Collators: one objective, one file, one dataclass; they compose the functions of `hf_ptm_ext.masking`."""

from .base import MaskingCollator
from .bidirectional_lm import DataCollatorForBidirectionalLanguageModeling
from .bptt import DataCollatorForBackpropagationThroughTime
from .concepts import DataCollatorForConcepts
from .denoising import DenoisingCollator
from .denoising_entities import DataCollatorForDenoisingEntities
from .entity_candidates import DataCollatorForEntityCandidates
from .entity_catalogue import EntityCatalogue
from .entity_replacement import DataCollatorForEntityReplacement
from .ernie_masking import DataCollatorForErnieMasking
from .ernie_task import DataCollatorForErnieTask
from .infoword import DataCollatorForInfoWord
from .knowledge_embedding import DataCollatorForKnowledgeEmbedding
from .lexical_relations import DataCollatorForLexicalRelations
from .lexicon_columns import LexiconColumns, token_supersenses
from .masked_lm import DataCollatorForMaskedLanguageModeling
from .mass import MASS_VARIANTS, DataCollatorForMassPreTraining
from .mixed_vocabulary import DataCollatorForMixedVocabulary
from .ngrams import DataCollatorWithNgrams
from .permutation_lm import DataCollatorForPermutationLanguageModeling
from .question_answering import DataCollatorForQuestionAnswering, SquadFeatures
from .sentiment_masking import DataCollatorForSentimentMasking
from .span import DataCollatorForSpanMasking
from .span_corruption import DataCollatorForSpanCorruption
from .supersense_masking import DataCollatorForSupersenseMasking
from .text_infilling import DataCollatorForTextInfilling
from .translation_lm import DataCollatorForTranslationLanguageModeling
from .unicoder import DataCollatorForUnicoder
from .unilm import DataCollatorForUniLMPreTraining
from .unilm_seq2seq import DataCollatorForUniLMGeneration, DataCollatorForUniLMSeq2Seq, truncate_source_target
from .vocabulary import VocabularyTables, vocabulary_tables, word_boundary_style
from .whole_word import DataCollatorForWholeWordMasking
from .word_ngrams import DataCollatorForMacBertMasking, DataCollatorForNgramMasking
from .word_order import DataCollatorForWordOrder
from .words import describe_words

__all__ = [
    "MASS_VARIANTS",
    "DataCollatorForBackpropagationThroughTime",
    "DataCollatorForBidirectionalLanguageModeling",
    "DataCollatorForConcepts",
    "DataCollatorForDenoisingEntities",
    "DataCollatorForEntityCandidates",
    "DataCollatorForEntityReplacement",
    "DataCollatorForErnieMasking",
    "DataCollatorForErnieTask",
    "DataCollatorForInfoWord",
    "DataCollatorForKnowledgeEmbedding",
    "DataCollatorForLexicalRelations",
    "DataCollatorForMacBertMasking",
    "DataCollatorForMaskedLanguageModeling",
    "DataCollatorForMassPreTraining",
    "DataCollatorForMixedVocabulary",
    "DataCollatorForNgramMasking",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForQuestionAnswering",
    "DataCollatorForSentimentMasking",
    "DataCollatorForSpanCorruption",
    "DataCollatorForSpanMasking",
    "DataCollatorForSupersenseMasking",
    "DataCollatorForTextInfilling",
    "DataCollatorForTranslationLanguageModeling",
    "DataCollatorForUniLMGeneration",
    "DataCollatorForUniLMPreTraining",
    "DataCollatorForUniLMSeq2Seq",
    "DataCollatorForUnicoder",
    "DataCollatorForWholeWordMasking",
    "DataCollatorForWordOrder",
    "DataCollatorWithNgrams",
    "DenoisingCollator",
    "EntityCatalogue",
    "LexiconColumns",
    "MaskingCollator",
    "SquadFeatures",
    "VocabularyTables",
    "describe_words",
    "token_supersenses",
    "truncate_source_target",
    "vocabulary_tables",
    "word_boundary_style",
]
