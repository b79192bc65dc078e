"""hf_ptm_ext: the pre-trained-model systems that transformers never shipped, as plugins of its Auto classes.

Importing the package registers its families with `AutoConfig`, `AutoModel`, ... and costs next to nothing: names are
imported on first use.
"""

import importlib
import sys
import warnings
from typing import Any

from .registration import FAMILIES, register
from .version import __version__

register()

# Sub-package or module -> public names of it that the root has too.
_PUBLIC = {
    "adapters": ("AdapterTrainer", "HoulsbyConfig", "PfeifferConfig", "save_adapted"),
    "collators": (
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
        "SquadFeatures",
    ),
    "compression": (
        "LayerDropCallback",
        "PruningCallback",
        "keep_layers",
        "prepare_fake_quant",
        "prune_model",
        "save_int8",
        "sparsity_report",
        "to_int8",
        "to_torchao",
    ),
    "conversion.awd_lstm": ("convert_fastai",),
    "conversion.entity_tables": ("EntityTable", "EntityVocabulary"),
    "conversion.static_embedding": ("export_sentence_transformers",),
    "conversion.unilm_tokenizer": ("unilm_tokenizer",),
    "data": ("ContiguousStreams", "extend_vocabulary"),
    "data.labelled_triples": ("TripleEncoder",),
    "data.word_vectors": ("WordVectors", "train_word_vectors"),
    "distillation": (
        "DistillationArguments",
        "DistillationTrainer",
        "TheseusArguments",
        "TheseusTrainer",
        "make_student",
    ),
    "e_bert": ("EBertEntities", "fit_linear_map"),
    "input_embeddings": ("expand_vocabulary", "fold_input_embeddings", "init_input_embeddings"),
    "kg_bert": ("TripleScorer",),
    "models.annotations_ernie_thu": ("DictionaryLinker",),
    "models.answers_san": ("StochasticAnswerHead",),
    "models.beam_search_unilm": ("unilm_beam_search",),
    "models.generator_knowbert": ("EntityCandidateGenerator",),
    "models.knowledge_graph_kbert": ("KnowledgeGraph",),
    "models.mix_weighted_layers": ("ScalarMix",),
    "models.modeling_elmo": ("CharCNNEmbeddings",),
    "models.modeling_mass": ("mass_beam_search",),
    "models.modes_unilm": ("unilm_attention_mask",),
    "models.visibility_kbert": ("kbert_visible_matrix",),
    "pipelines": ("ExtractiveQuestionAnsweringPipeline", "postprocess_qa_predictions"),
    "trainers": (
        "BpttTrainer",
        "ContinualMultiTaskTrainer",
        "AuxiliaryObjectiveTrainer",
        "ElectraForReplacedTokenDetection",
        "EntityReplacementTrainer",
        "GradualUnfreezingCallback",
        "InfoWordTrainer",
        "KnowledgeEmbeddingTrainer",
        "LexicalInputModel",
        "LexicalInputTrainer",
        "LexicalRelationModel",
        "LexicalRelationTrainer",
        "MultiTaskTrainer",
        "PreTrainingTrainer",
        "PtmSeq2SeqTrainer",
        "PtmTrainer",
        "ReplacedTokenDetectionTrainer",
        "SentencePairModel",
        "SentencePairTrainer",
        "SentiLareModel",
        "SupersenseModel",
        "UnicoderTrainer",
        "WeightAverageCallback",
        "hidden_word_loss",
    ),
    "weights": ("extend_embeddings", "transfer_vocabulary"),
}
# public name -> module that defines it
_EXPORTS = {_name: f"{__name__}.{_module}" for _module, _names in _PUBLIC.items() for _name in _names}
for _family in FAMILIES:
    for _kind, _classes in _family.parts().items():
        _EXPORTS.update({_name: _family.module(_kind) for _, _name in _classes})

# A public name that is to go -> what replaces it: it works and warns for one minor release, then leaves this table.
_DEPRECATED: dict[str, str] = {}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in _DEPRECATED:
        replacement = _DEPRECATED[name]
        warnings.warn(
            f"`{name}` leaves hf_ptm_ext in the next minor release; use `{replacement}`.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(sys.modules[__name__], replacement)
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
