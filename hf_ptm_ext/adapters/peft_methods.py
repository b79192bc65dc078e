"""Our adapters, and our families' default targets, in PEFT's registries."""

import peft.utils.constants
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.utils import register_peft_method

from .configuration import HoulsbyConfig, PfeifferConfig
from .placements import BART_LIKE, BERT_LIKE
from .tuner import HoulsbyModel, PfeifferModel

METHODS = {"houlsby": (HoulsbyConfig, HoulsbyModel), "pfeiffer": (PfeifferConfig, PfeifferModel)}
# PEFT has no LayerNorm tuning for BERT.
LAYER_NORMS = {"bert": ["LayerNorm"], "transfo_xl": ["layer_norm"]}
# Encoders of upstream for which PEFT has no targets of LoRA.
QUERY_AND_VALUE = {
    "albert": ["query", "value"],
    "camembert": ["query", "value"],
    "distilbert": ["q_lin", "v_lin"],
    "mpnet": ["attn.q", "attn.v"],
    "transfo_xl": ["qkv_net"],
}
ADDED = {
    "TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING": {"transfo_xl": ["qkv_net", "CoreNet.3"]},
    "TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING": {"transfo_xl": ["CoreNet.3"]},
    "TRANSFORMERS_MODELS_TO_LNTUNING_TARGET_MODULES_MAPPING": LAYER_NORMS,
    "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING": QUERY_AND_VALUE,
}
_TABLES = ("TARGET_MODULES_MAPPING", "FEEDFORWARD_MODULES_MAPPING")


def register() -> None:
    """Register both methods, and give our families the targets of the architecture that they have; once."""
    for name, (config, model) in METHODS.items():
        known = PEFT_TYPE_TO_CONFIG_MAPPING.get(name.upper())  # type: ignore[call-overload]
        if known is None:
            # PEFT's mixed model knows its own configurations alone.
            register_peft_method(name=name, config_cls=config, model_cls=model, is_mixed_compatible=False)
        elif known is not config:
            raise ValueError(f"PEFT has a method `{name}` of its own ({known.__module__}); use that one.")
    add_default_targets()


def add_default_targets() -> None:
    """Let every method of PEFT find its default targets in our families; an entry that PEFT has stays."""
    for table_name, table in vars(peft.utils.constants).items():
        if not table_name.endswith(_TABLES):
            continue
        for model_type, targets in ADDED.get(table_name, {}).items():
            table.setdefault(model_type, targets)
        for like, families in (("bert", BERT_LIKE), ("bart", BART_LIKE)):
            if like in table:
                for family in families:
                    table.setdefault(family, table[like])
