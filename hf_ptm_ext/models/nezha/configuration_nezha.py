"""NEZHA configuration: BERT's fields without a table of positions, and the reach of the relative ones."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
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
class NezhaConfig(PreTrainedConfig):
    """Configuration of the NEZHA family (Wei et al. 2019, https://arxiv.org/abs/1909.00204).

    Reads the config.json of transformers 4's `nezha` models and the original project's `bert_config.json`. Fields not
    listed are BERT's, with BERT's defaults.

    Args:
        vocab_size: size of the vocabulary (default 21128: the Chinese models).
        max_position_embeddings: tokens of the longest text of pre-training (default 512). There is no table of
            positions, so the model takes longer texts too; tokenizers read it as their longest input.
        max_relative_position: distance from which on all distances are the same (default 64: the released models).
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, `hidden_act` is no activation, or the config asks for what a NEZHA
            encoder is not (a decoder, absolute positions).

    Example:
        >>> from hf_ptm_ext import NezhaConfig
        >>> NezhaConfig(hidden_size=32, num_attention_heads=4).max_relative_position
        64
    """

    model_type = "nezha"
    keys_to_ignore_at_inference = [
        "hidden_states",
        "attentions",
        "pooler_output",
        "mlm_loss",
        "nsp_loss",
        "seq_relationship_logits",
    ]

    vocab_size: int = 21128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    max_relative_position: int = 64
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.max_relative_position < 1:
            raise ValueError(f"`max_relative_position` must be at least 1, got {self.max_relative_position}.")
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
            raise ValueError("`is_decoder` must be False: NEZHA is an encoder. Load a decoder with its own class.")
        if not getattr(self, "use_relative_position", True):
            raise ValueError(
                "`use_relative_position` must be True, got False: such a model has absolute positions and is a BERT. "
                "Load it with BERT's classes."
            )
        written_by = self.hf_ptm_ext_version
        if written_by is not None and written_by.split(".")[:2] != HF_PTM_EXT_VERSION.split(".")[:2]:
            logger.warning_once(
                f"This checkpoint was written by hf_ptm_ext {written_by} and is read by {HF_PTM_EXT_VERSION}; if "
                "outputs differ, load it with the code it carries (trust_remote_code=True, package not imported)."
            )

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a config that calls itself BERT's is taken for what it is if it names relative positions.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The config's fields and the arguments that were not used.

        Raises:
            ValueError: a BERT's config, whose table of positions would be dropped.
        """
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") == "bert":
            if not ("max_relative_position" in config_dict or config_dict.get("use_relative_position")):
                raise ValueError(
                    "This config.json is a BERT's with absolute positions, which NEZHA has not: load it with BERT's "
                    "classes. If the weights are NEZHA's, set its `model_type` to 'nezha'."
                )
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


__all__ = ["NezhaConfig"]
