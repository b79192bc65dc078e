"""K-Adapter configuration: the encoder's inside it, the adapters' sizes, and how their features are joined."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig
from .inner_config_core import EncoderInside, encoder_config_of

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_k_adapter.KAdapterConfig",
    "AutoModel": "modeling_k_adapter.KAdapterModel",
    "AutoModelForSequenceClassification": "modeling_k_adapter.KAdapterForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_k_adapter.KAdapterForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_k_adapter.KAdapterForQuestionAnswering",
}
FUSIONS = ("concat", "add")


@strict
class KAdapterConfig(EncoderInside, FamilyConfig):
    """Configuration of the K-Adapter family (Wang et al., Findings of ACL 2021, https://arxiv.org/abs/2002.01808).

    Args:
        encoder_config: configuration of the encoder, or its dictionary with a `model_type` (reference: RoBERTa-large).
        adapters: names of the adapters, in order (reference: "fac", "lin", or one of them).
        adapter_layers: which hidden states an adapter reads, 0 = embeddings, i = output of layer i, for every adapter
            (default: the embeddings, the middle and the last but one; reference for 24 layers: 0, 11, 22).
        adapter_hidden_size: width inside an adapter (reference: 768).
        adapter_num_hidden_layers: layers of an adapter at each hidden state (reference: 2).
        adapter_num_attention_heads: their attention heads (reference: 12).
        adapter_intermediate_size: their inner width (reference: 3072).
        adapter_hidden_act: their activation (reference: "gelu").
        adapter_dropout: their dropout (reference: 0.1).
        adapter_skip_layers: after every so many parts of an adapter an earlier part's output is added; 0 = never
            (reference: 0 in all its run scripts).
        adapter_initializer_range: of the projections into and out of an adapter (reference: 2e-4).
        fusion: "concat" (a linear layer on both) or "add" (reference: "concat").
        respect_padding: whether the adapters' layers leave padding out of their attention. The released weights were
            trained with padding attended to (False), which makes a text's result depend on the padding beside it.
        freeze_encoder: whether the encoder is left as it is (paper: yes; the released fine-tuning scripts train it).
        freeze_adapters: whether the adapters are left as they are (fine-tuning: yes).
        relation_markers: ids of the tokens before subject and object (reference: those of "@" and "#"), read by the
            relation head if no positions are given.
        max_head_positions: places that a token's syntactic head can be at (reference: 64).
        classifier_dropout: before the classifiers (reference: 0.1).
        initializer_range: of the other new weights.
        layer_norm_eps: of the adapters' layers (reference: 1e-5).

    Examples:
        >>> from hf_ptm_ext import KAdapterConfig
        >>> config = KAdapterConfig(encoder_config={"model_type": "roberta", "num_hidden_layers": 24})
        >>> config.adapter_layers
        [0, 11, 22]
    """

    model_type = "k_adapter"
    _probabilities = ("adapter_dropout", "classifier_dropout")
    _activation = ""
    keys_to_ignore_at_inference = ["hidden_states", "attentions", "stacked_features"]

    encoder_config: Any = None
    adapters: list[str] | tuple[str, ...] = ("fac",)
    adapter_layers: list[int] | None = None
    adapter_hidden_size: int = 768
    adapter_num_hidden_layers: int = 2
    adapter_num_attention_heads: int = 12
    adapter_intermediate_size: int = 3072
    adapter_hidden_act: str = "gelu"
    adapter_dropout: float | int = 0.1
    adapter_skip_layers: int = 0
    adapter_initializer_range: float | int = 2e-4
    fusion: str = "concat"
    respect_padding: bool = True
    freeze_encoder: bool = True
    freeze_adapters: bool = False
    relation_markers: list[int] | None = None
    max_head_positions: int = 64
    classifier_dropout: float | int = 0.1
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-5
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        self.encoder_config = encoder_config_of(
            {"model_type": "roberta"} if self.encoder_config is None else self.encoder_config
        )
        super().__post_init__(**kwargs)
        self.architectures = self.architectures or []  # upstream looks for the classes of one auto class in it
        layers = self.encoder_config.num_hidden_layers
        self.adapters = list(self.adapters)
        if self.adapter_layers is None:
            self.adapter_layers = sorted({0, max(layers // 2 - 1, 0), max(layers - 2, 0)})
        wrong = [layer for layer in self.adapter_layers if not 0 <= layer <= layers]
        if wrong or not self.adapter_layers:
            raise ValueError(
                f"`adapter_layers` must be hidden states of the encoder, 0 to {layers}, got {self.adapter_layers}."
            )
        if not self.adapters or len(set(self.adapters)) < len(self.adapters) or not all(self.adapters):
            raise ValueError(f"`adapters` must be names, each once, got {self.adapters}.")
        if any("." in name for name in self.adapters):
            raise ValueError(f"`adapters` must be names without dots, got {self.adapters}.")
        if self.fusion not in FUSIONS:
            raise ValueError(f"`fusion` must be one of {', '.join(FUSIONS)}, got {self.fusion!r}.")
        if self.adapter_hidden_size % self.adapter_num_attention_heads:
            raise ValueError(
                f"`adapter_num_attention_heads` must divide `adapter_hidden_size`, got "
                f"{self.adapter_num_attention_heads} and {self.adapter_hidden_size}."
            )
        if self.adapter_skip_layers < 0 or self.adapter_skip_layers == 1:
            raise ValueError(
                f"`adapter_skip_layers` must be 0 or at least 2, got {self.adapter_skip_layers}: the reference has no "
                "earlier output to add after the first part."
            )
        if self.relation_markers is not None and len(self.relation_markers) != 2:
            raise ValueError(
                f"`relation_markers` must be two token ids, subject's and object's, got {self.relation_markers}."
            )


# Behind the class: importing AutoConfig registers it.
from transformers import AutoConfig  # noqa: E402

KAdapterConfig.sub_configs = {"encoder_config": AutoConfig}  # type: ignore
