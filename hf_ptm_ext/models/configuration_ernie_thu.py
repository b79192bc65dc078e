"""ERNIE-THU configuration: BERT's fields, those of the entity stream, and where entity vectors come from."""

from collections.abc import Sequence
from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_ernie_thu.ErnieThuConfig",
    "AutoModel": "modeling_ernie_thu.ErnieThuModel",
    "AutoModelForPreTraining": "modeling_ernie_thu.ErnieThuForPreTraining",
    "AutoModelForMaskedLM": "modeling_ernie_thu.ErnieThuForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_ernie_thu.ErnieThuForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_ernie_thu.ErnieThuForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_ernie_thu.ErnieThuForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_ernie_thu.ErnieThuForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_ernie_thu.ErnieThuForMultipleChoice",
}

SIM, MIX, NORM = FUSION_LAYER_TYPES = ("sim", "mix", "norm")


def published_layer_types(num_layers: int) -> list[str]:
    """The published proportions: `norm` in the upper half, one `mix` below them, `sim` in the rest."""
    upper = num_layers // 2
    return [SIM] * (num_layers - upper - 1) + [MIX] * min(1, num_layers) + [NORM] * upper


def complete_layer_types(types: Sequence[str] | None, num_layers: int) -> list[str]:
    """One kind for every layer."""
    if types is None:
        return published_layer_types(num_layers)
    unknown = sorted({str(kind) for kind in types if kind not in FUSION_LAYER_TYPES})
    if unknown:
        raise ValueError(
            f"`fusion_layer_types` must be made of 'sim' (text alone), 'mix' (fusion without entity attention) and "
            f"'norm' (entity attention and fusion), got {', '.join(map(repr, unknown))}."
        )
    if len(types) > num_layers:
        raise ValueError(
            f"`fusion_layer_types` must have at most `num_hidden_layers` = {num_layers} entries, one a layer, got "
            f"{len(types)}. Change both together."
        )
    return [*types, *[SIM] * (num_layers - len(types))]


@strict
class ErnieThuConfig(BertFamilyConfig):
    """Configuration of ERNIE-THU (Zhang et al. 2019, https://arxiv.org/abs/1905.07129).

    Reads the config.json of a BERT encoder as it is. Fields not listed are BERT's, with BERT's defaults.

    Args:
        fusion_layer_types: kind of each layer: `"sim"` (BERT's layer, the entity stream passes), `"mix"` (fusion
            without entity attention) or `"norm"` (entity attention and fusion). A shorter list is filled with `"sim"`
            at the end, as in the reference code (default `None`: the published proportions, for 12 layers five `sim`,
            one `mix`, six `norm`).
        entity_hidden_size: width of an entity vector (default 100: the released TransE vectors).
        entity_num_attention_heads: heads of the entity attention (default 4: the released code).
        entity_vocab_size: rows of the entity table, the zero row of "no entity" included; `None` (default) if unknown.
        entity_embeddings_in_checkpoint: whether the model has a table of its own, `entity_embeddings.weight` (default
            False: tables are large and shared, and stay outside).
        freeze_entity_embeddings: whether that table stays as it is in training (default True: the reference never
            trains it).
        entity_embeddings_source: where the external table is: `path` inside the checkpoint, or `repo_id`, `filename`,
            `revision` and `sha256` of another repository; `num_rows` and `dim` for checks.
        entity_loss_weight: weight of the denoising entity term (default 1.0: the reference).
        include_none_candidate: whether "no entity" is a candidate of the entity prediction when the model makes the
            candidates itself (default True: the reference; it is never the right one).

    Examples:
        >>> from hf_ptm_ext import ErnieThuConfig
        >>> ErnieThuConfig(num_hidden_layers=4).fusion_layer_types
        ['sim', 'mix', 'norm', 'norm']
    """

    model_type = "ernie_thu"
    # Each layer fuses entities in its own way, so none can stand for another.
    _fixed = {**BertFamilyConfig._fixed, "num_hidden_groups": None, "embedding_size": None}
    keys_to_ignore_at_inference = [
        *BertFamilyConfig.keys_to_ignore_at_inference,
        "entity_last_hidden_state",
        "entity_hidden_states",
        "entity_attentions",
        "entity_loss",
        "entity_logits",
    ]

    fusion_layer_types: list[str] | tuple[str, ...] | None = None
    entity_hidden_size: int = 100
    entity_num_attention_heads: int = 4
    entity_vocab_size: int | None = None
    entity_embeddings_in_checkpoint: bool = False
    freeze_entity_embeddings: bool = True
    entity_embeddings_source: dict | None = None
    entity_loss_weight: float | int = 1.0
    include_none_candidate: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        # The original's list under the original's name, which the base class would take for attention kinds.
        original_types = kwargs.pop("layer_types", None)
        super().__post_init__(**kwargs)
        # Where an auto class has two of our classes to choose from, upstream walks through this list.
        self.architectures = self.architectures or []
        if self.fusion_layer_types is None:
            self.fusion_layer_types = original_types
        self.fusion_layer_types = complete_layer_types(self.fusion_layer_types, self.num_hidden_layers)
        if self.entity_hidden_size < 1 or self.entity_num_attention_heads < 1:
            raise ValueError(
                f"`entity_hidden_size` and `entity_num_attention_heads` must be at least 1, got "
                f"{self.entity_hidden_size} and {self.entity_num_attention_heads}."
            )
        if self.entity_hidden_size % self.entity_num_attention_heads:
            raise ValueError(
                f"`entity_hidden_size` must be a multiple of `entity_num_attention_heads`, got "
                f"{self.entity_hidden_size} and {self.entity_num_attention_heads}."
            )
        if self.entity_embeddings_in_checkpoint and not self.entity_vocab_size:
            raise ValueError(
                "`entity_vocab_size` must be the number of rows of the table, the zero row included, when "
                f"`entity_embeddings_in_checkpoint` is set, got {self.entity_vocab_size}."
            )
        if self.entity_loss_weight < 0:
            raise ValueError(f"`entity_loss_weight` must not be negative, got {self.entity_loss_weight}.")
