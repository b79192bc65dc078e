"""ERNIE-THU configuration: BERT's fields, those of the entity stream, and where entity vectors come from.

The kind of each layer is `fusion_layer_types`. The original calls the list `layer_types`, a name that transformers 5
reserves for attention kinds; a config.json with the original's list is read all the same.
"""

from collections.abc import Sequence
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
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
    """The published proportions: `norm` in the upper half, one `mix` below them, `sim` in the rest.

    Args:
        num_layers: number of layers.

    Returns:
        One kind per layer; for 12 layers five `sim`, one `mix` and six `norm`.

    Example:
        >>> published_layer_types(4)
        ['sim', 'mix', 'norm', 'norm']
    """
    upper = num_layers // 2
    return [SIM] * (num_layers - upper - 1) + [MIX] * min(1, num_layers) + [NORM] * upper


def complete_layer_types(types: Sequence[str] | None, num_layers: int) -> list[str]:
    """One kind for every layer.

    Args:
        types: kinds of the first layers; the others are `sim`, as in the reference. `None`: the published proportions.
        num_layers: number of layers.

    Returns:
        `num_layers` kinds.

    Raises:
        ValueError: a kind does not exist, or there are more kinds than layers.

    Example:
        >>> complete_layer_types(["norm"], 3)
        ['norm', 'sim', 'sim']
    """
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
class ErnieThuConfig(PreTrainedConfig):
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
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, or the config asks for what this encoder is not (a decoder, relative
            positions).

    Example:
        >>> from hf_ptm_ext import ErnieThuConfig
        >>> ErnieThuConfig(num_hidden_layers=4).fusion_layer_types
        ['sim', 'mix', 'norm', 'norm']
    """

    model_type = "ernie_thu"
    keys_to_ignore_at_inference = [
        "hidden_states",
        "attentions",
        "pooler_output",
        "entity_last_hidden_state",
        "entity_hidden_states",
        "entity_attentions",
        "mlm_loss",
        "nsp_loss",
        "entity_loss",
        "seq_relationship_logits",
        "entity_logits",
    ]

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
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
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"`{name}` must be a probability in [0, 1], got {value}.")
        from transformers.activations import ACT2FN  # imports torch, which reading a config's class need not

        if self.hidden_act not in ACT2FN:
            raise ValueError(
                f"`hidden_act` must be one of {', '.join(sorted(ACT2FN))}, the names in transformers' `ACT2FN`; got "
                f"{self.hidden_act!r}."
            )
        if getattr(self, "is_decoder", False):
            raise ValueError("`is_decoder` must be False: ERNIE-THU is an encoder. Load a decoder with its own class.")
        position_embedding_type = getattr(self, "position_embedding_type", "absolute")
        if position_embedding_type != "absolute":
            raise ValueError(
                f"`position_embedding_type` must be 'absolute', got {position_embedding_type!r}: relative position "
                "parameters would be dropped without notice."
            )
        written_by = self.hf_ptm_ext_version
        if written_by is not None and written_by.split(".")[:2] != HF_PTM_EXT_VERSION.split(".")[:2]:
            logger.warning_once(
                f"This checkpoint was written by hf_ptm_ext {written_by} and is read by {HF_PTM_EXT_VERSION}; if "
                "outputs differ, load it with the code it carries (trust_remote_code=True, package not imported)."
            )

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a BERT config is taken for what it is here, an encoder whose entity side is new.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The config's fields and the arguments that were not used.
        """
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") == "bert":
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


__all__ = ["ErnieThuConfig"]
