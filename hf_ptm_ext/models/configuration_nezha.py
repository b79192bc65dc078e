"""NEZHA configuration: BERT's fields without a table of positions, and the reach of the relative ones."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_nezha.NezhaConfig",
    "AutoModel": "modeling_nezha.NezhaModel",
    "AutoModelForPreTraining": "modeling_nezha.NezhaForPreTraining",
    "AutoModelForMaskedLM": "modeling_nezha.NezhaForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_nezha.NezhaForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_nezha.NezhaForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_nezha.NezhaForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_nezha.NezhaForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_nezha.NezhaForMultipleChoice",
}


@strict
class NezhaConfig(BertFamilyConfig):
    """Configuration of the NEZHA family (Wei et al. 2019, https://arxiv.org/abs/1909.00204).

    Reads the config.json of transformers 4's `nezha` models and the original project's `bert_config.json`. Fields not
    listed are BERT's, with BERT's defaults.

    Args:
        vocab_size: size of the vocabulary (default 21128: the Chinese models).
        max_position_embeddings: tokens of the longest text of pre-training (default 512). There is no table of
            positions, so the model takes longer texts too; tokenizers read it as their longest input.
        max_relative_position: distance from which on all distances are the same (default 64: the released models).

    Examples:
        >>> from hf_ptm_ext import NezhaConfig
        >>> NezhaConfig(hidden_size=32, num_attention_heads=4).max_relative_position
        64
    """

    model_type = "nezha"
    _reads_bert = False  # one with absolute positions, which would be dropped
    _fixed = {"is_decoder": False, "use_relative_position": True}

    vocab_size: int = 21128
    max_relative_position: int = 64
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.max_relative_position < 1:
            raise ValueError(f"`max_relative_position` must be at least 1, got {self.max_relative_position}.")

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a config that calls itself BERT's is taken for what it is if it names relative positions."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") == "bert":
            if not ("max_relative_position" in config_dict or config_dict.get("use_relative_position")):
                raise ValueError(
                    "This config.json is a BERT's with absolute positions, which NEZHA has not: load it with BERT's "
                    "classes. If the weights are NEZHA's, set its `model_type` to 'nezha'."
                )
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs
