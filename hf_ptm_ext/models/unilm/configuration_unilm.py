"""UniLM configuration: BERT's fields, token types for four attention modes, and generation."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
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
class UniLMConfig(PreTrainedConfig):
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
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, or the config asks for what a UniLM encoder is not.

    Example:
        >>> from hf_ptm_ext import UniLMConfig
        >>> UniLMConfig(hidden_size=32, num_attention_heads=4).type_vocab_size
        6
    """

    model_type = "unilm"
    keys_to_ignore_at_inference = [
        "cache",
        "hidden_states",
        "attentions",
        "pooler_output",
        "mlm_loss",
        "nsp_loss",
        "seq_relationship_logits",
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
    type_vocab_size: int = 6
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-5
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
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
            raise ValueError(
                "`is_decoder` must be False: UniLM generates by its own attention modes. Load a decoder as one."
            )
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

    def check_end(self) -> None:
        """Refuse an end token that is the padding token: labels hide padding, and the end would never be learnt."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        if self.pad_token_id is not None and self.pad_token_id in ends:
            raise ValueError(
                f"`pad_token_id` must not be `eos_token_id`, got {self.pad_token_id} for both: the end of a text "
                "would be hidden as padding and never be learnt. Give the tokenizer a padding token of its own."
            )

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a BERT config is taken for an encoder of this family, `layer_norm_epsilon` for the epsilon.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The config's fields and the arguments that were not used.
        """
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if "layer_norm_epsilon" in config_dict:
            config_dict = {**config_dict, "layer_norm_eps": config_dict["layer_norm_epsilon"]}
            config_dict.pop("layer_norm_epsilon")
        if config_dict.get("model_type") == "bert":
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


__all__ = ["UniLMConfig"]
