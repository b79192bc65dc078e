"""Weighted-layers configuration: the encoder's inside it, and how its layers are mixed."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig
from .inner_config_core import EncoderInside, encoder_config_of

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_weighted_layers.WeightedLayersConfig",
    "AutoModel": "modeling_weighted_layers.WeightedLayersModel",
    "AutoModelForSequenceClassification": "modeling_weighted_layers.WeightedLayersForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_weighted_layers.WeightedLayersForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_weighted_layers.WeightedLayersForQuestionAnswering",
}
POOLINGS = ("first", "mean")


@strict
class WeightedLayersConfig(EncoderInside, FamilyConfig):
    """Configuration of weighted layers (ELMo's scalar mix, Peters et al., NAACL 2018, section 3.2, on any encoder).

    Args:
        encoder_config: configuration of the encoder, or its dictionary with a `model_type`.
        mixed_layers: which hidden states are mixed, 0 = embeddings, i = output of layer i (default: all).
        freeze_encoder: whether the encoder is left as it is, in evaluation mode (feature extraction; default).
        do_layer_norm: whether each layer is normalised before mixing, over all tokens of the batch and the width,
            without weights (ELMo's option; default no).
        mix_dropout: probability with which a layer is left out of the mixture in training (AllenNLP; default 0).
        mix_l2_weight: weight of the squared length of the mixture's logits in the loss (ELMo: 0.001 or 1; default 0).
        pooling: what a text's classifier reads: "first" token or the "mean" over its tokens.
        classifier_dropout: before the classifiers (default 0.1).
        initializer_range: of new weights.

    Examples:
        >>> from hf_ptm_ext import WeightedLayersConfig
        >>> WeightedLayersConfig(encoder_config={"model_type": "bert", "num_hidden_layers": 3}).mixed_layers
        [0, 1, 2, 3]
    """

    model_type = "weighted_layers"
    _probabilities = ("mix_dropout", "classifier_dropout")
    _activation = ""
    keys_to_ignore_at_inference = ["hidden_states", "attentions", "pooler_output"]

    encoder_config: Any = None
    mixed_layers: list[int] | None = None
    freeze_encoder: bool = True
    do_layer_norm: bool = False
    mix_dropout: float | int = 0.0
    mix_l2_weight: float | int = 0.0
    pooling: str = "first"
    classifier_dropout: float | int = 0.1
    initializer_range: float | int = 0.02
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        if "layers" in kwargs:  # would be kept as a field that nothing reads
            raise ValueError(
                f"`layers` is no field, got {kwargs['layers']!r}: name the hidden states in `mixed_layers`, and "
                "leave it out for all of them."
            )
        self.encoder_config = encoder_config_of(
            {"model_type": "bert"} if self.encoder_config is None else self.encoder_config
        )
        super().__post_init__(**kwargs)
        layers = self.encoder_config.num_hidden_layers
        if self.mixed_layers is None:
            self.mixed_layers = list(range(layers + 1))
        wrong = [layer for layer in self.mixed_layers if not 0 <= layer <= layers]
        if wrong or not self.mixed_layers or len(set(self.mixed_layers)) < len(self.mixed_layers):
            raise ValueError(
                f"`mixed_layers` must be different hidden states of the encoder, 0 to {layers}, got "
                f"{self.mixed_layers}."
            )
        if self.pooling not in POOLINGS:
            raise ValueError(f"`pooling` must be one of {', '.join(POOLINGS)}, got {self.pooling!r}.")
        if self.mix_l2_weight < 0:
            raise ValueError(f"`mix_l2_weight` must not be negative, got {self.mix_l2_weight}.")


# Behind the class: importing AutoConfig registers it.
from transformers import AutoConfig  # noqa: E402

WeightedLayersConfig.sub_configs = {"encoder_config": AutoConfig}  # type: ignore
