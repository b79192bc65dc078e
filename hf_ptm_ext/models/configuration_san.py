"""Configuration of MT-DNN's stochastic answer network: the encoder's inside it, and how often it asks."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig
from .inner_config_core import EncoderInside, encoder_config_of

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_san.SanConfig",
    "AutoModelForSequenceClassification": "modeling_san.SanForSequenceClassification",
}


@strict
class SanConfig(EncoderInside, FamilyConfig):
    """Configuration of an encoder under MT-DNN's answer network (Liu et al., ACL 2019, https://arxiv.org/abs/1901.11504).

    Args:
        encoder_config: configuration of the encoder, or its dictionary with a `model_type`; it must know two segments.
        turns: how often the answer is asked for (default and reference: 5).
        turn_dropout: probability that a turn is left out of the mean in training (default and reference: 0.1).
        classifier_dropout: on what the answer network reads (default and reference: 0.1).

    Examples:
        >>> from hf_ptm_ext import SanConfig
        >>> SanConfig(encoder_config={"model_type": "bert", "num_hidden_layers": 3}, num_labels=3).num_hidden_layers
        3
    """

    model_type = "san"
    _probabilities = ("turn_dropout", "classifier_dropout")
    _activation = ""
    keys_to_ignore_at_inference = ["hidden_states", "attentions"]

    encoder_config: Any = None
    turns: int = 5
    turn_dropout: float | int = 0.1
    classifier_dropout: float | int = 0.1
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        self.encoder_config = encoder_config_of(
            {"model_type": "bert"} if self.encoder_config is None else self.encoder_config
        )
        super().__post_init__(**kwargs)
        segments = getattr(self.encoder_config, "type_vocab_size", 0) or 0
        if segments < 2:
            raise ValueError(
                "`encoder_config` must have two segments (`type_vocab_size` of 2), by which the answer network tells "
                f"the texts of a pair apart; that of a {self.encoder_config.model_type} has {segments}."
            )
        if self.turns < 1:
            raise ValueError(f"`turns` must be at least 1, got {self.turns}.")
        if self.problem_type == "multi_label_classification":
            raise ValueError(
                f"`problem_type` must be one label's or regression, got {self.problem_type!r}: the answer network "
                "gives one distribution over the labels."
            )


# Behind the class: importing AutoConfig registers it.
from transformers import AutoConfig  # noqa: E402

SanConfig.sub_configs = {"encoder_config": AutoConfig}  # type: ignore
