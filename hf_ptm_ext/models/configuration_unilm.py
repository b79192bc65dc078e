"""UniLM configuration: BERT's fields, token types for four attention modes, and generation."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_unilm.UniLMConfig",
    "AutoModel": "modeling_unilm.UniLMModel",
    "AutoModelForPreTraining": "modeling_unilm.UniLMForPreTraining",
    "AutoModelForMaskedLM": "modeling_unilm.UniLMForMaskedLM",
    "AutoModelForCausalLM": "modeling_unilm.UniLMForConditionalGeneration",
    "AutoModelForSeq2SeqLM": "modeling_unilm.UniLMForConditionalGeneration",
    "AutoModelForSequenceClassification": "modeling_unilm.UniLMForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_unilm.UniLMForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_unilm.UniLMForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_unilm.UniLMForMultipleChoice",
}


@strict
class UniLMConfig(BertFamilyConfig):
    """Configuration of the UniLM family (Dong et al. 2019, https://arxiv.org/abs/1905.03197).

    Reads the config.json of any absolute-position BERT encoder and the nameless one of `microsoft/unilm-*-cased`,
    whose `layer_norm_epsilon` is taken for `layer_norm_eps`. Fields not listed are BERT's, with BERT's defaults.

    Args:
        type_vocab_size: token types (default 6: two for each of bidirectional and seq2seq, one for each direction).
        layer_norm_eps: epsilon of every LayerNorm (default 1e-5: the original code; checkpoints name their own).
        source_type_id: token type of the first segment in seq2seq mode (default 4).
        target_type_id: token type of the second segment in seq2seq mode (default 5).
        label_smoothing: smoothing of the seq2seq fine-tuning loss (default 0; the recipes use 0.1).
        next_sentence_prediction: whether the pre-training model has the next-sentence head (default True).
        add_pooling_layer: whether the bare encoder has BERT's pooler (default True).
        mask_token_id: the [MASK] that is fed for the next token in generation (default 103, BERT uncased's).

    Examples:
        >>> from hf_ptm_ext import UniLMConfig
        >>> UniLMConfig(hidden_size=32, num_attention_heads=4).type_vocab_size
        6
    """

    model_type = "unilm"
    keys_to_ignore_at_inference = [*BertFamilyConfig.keys_to_ignore_at_inference, "cache"]

    type_vocab_size: int = 6
    layer_norm_eps: float | int = 1e-5
    source_type_id: int = 4
    target_type_id: int = 5
    label_smoothing: float | int = 0.0
    next_sentence_prediction: bool = True
    add_pooling_layer: bool = True
    mask_token_id: int | None = 103
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 102
    use_cache: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        for name in ("source_type_id", "target_type_id"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}.")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1), got {self.label_smoothing}.")
        if self.inner_group_num != 1:
            raise ValueError(
                f"`inner_group_num` must be 1 in a UniLM, got {self.inner_group_num}: a cache has room for "
                "`num_hidden_layers` layers. Raise `num_hidden_groups` instead."
            )

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As the base class; the original's `layer_norm_epsilon` is `layer_norm_eps`."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if "layer_norm_epsilon" in config_dict:
            config_dict = {**config_dict, "layer_norm_eps": config_dict["layer_norm_epsilon"]}
            config_dict.pop("layer_norm_epsilon")
        return config_dict, kwargs
