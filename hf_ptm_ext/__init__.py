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

_COLLATORS = (
    "DataCollatorForDenoisingEntities",
    "DataCollatorForEntityReplacement",
    "DataCollatorForKnowledgeEmbedding",
    "DataCollatorForMaskedLanguageModeling",
    "DataCollatorForMassPreTraining",
    "DataCollatorForQuestionAnswering",
    "DataCollatorForMixedVocabulary",
    "DataCollatorForSpanCorruption",
    "DataCollatorForSpanMasking",
    "DataCollatorForTextInfilling",
    "DataCollatorForTranslationLanguageModeling",
    "DataCollatorForUniLMGeneration",
    "DataCollatorForUniLMPreTraining",
    "DataCollatorForUniLMSeq2Seq",
    "DataCollatorForWholeWordMasking",
    "DataCollatorWithNgrams",
)
_FUNCTIONS = {
    "ExtractiveQuestionAnsweringPipeline": "hf_ptm_ext.pipelines",
    "ScalarMix": "hf_ptm_ext.models.weighted_layers.mix_weighted_layers",
    "SquadFeatures": "hf_ptm_ext.collators",
    "kbert_visible_matrix": "hf_ptm_ext.models.kbert.visibility_kbert",
    "postprocess_qa_predictions": "hf_ptm_ext.pipelines",
    "unilm_attention_mask": "hf_ptm_ext.models.unilm.modes_unilm",
    "unilm_beam_search": "hf_ptm_ext.models.unilm.beam_search_unilm",
    "unilm_tokenizer": "hf_ptm_ext.models.unilm.tokenizer_unilm",
}
_ENTITIES = {
    "DictionaryLinker": "hf_ptm_ext.models.ernie_thu.linker_ernie_thu",
    "EntityTable": "hf_ptm_ext.models.ernie_thu.entity_table_ernie_thu",
    "EntityVocabulary": "hf_ptm_ext.models.ernie_thu.entity_vocab_ernie_thu",
    "KnowledgeGraph": "hf_ptm_ext.models.kbert.knowledge_graph_kbert",
}
_ADAPTERS = ("HoulsbyConfig", "PfeifferConfig")
# public name -> module that defines it
_EXPORTS = {
    **_FUNCTIONS,
    **_ENTITIES,
    **dict.fromkeys(_COLLATORS, "hf_ptm_ext.collators"),
    **dict.fromkeys(_ADAPTERS, "hf_ptm_ext.adapters"),
}
for _family in FAMILIES:
    _EXPORTS[_family.config] = _family.module("configuration")
    _EXPORTS.update({name: _family.module("modeling") for _, name in _family.model_classes()})
    if _family.tokenizer is not None:
        _EXPORTS[_family.tokenizer] = _family.module("tokenization")
    if _family.processor is not None:
        _EXPORTS[_family.processor] = _family.module("processing")

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
