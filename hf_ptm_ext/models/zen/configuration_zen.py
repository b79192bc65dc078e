"""ZEN configuration: BERT's fields, and those of the n-gram encoder."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

RELEASED_WORD_LAYERS = 6

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
AUTO_MAP = {
    "AutoConfig": "configuration_zen.ZenConfig",
    "AutoModel": "modeling_zen.ZenModel",
    "AutoModelForPreTraining": "modeling_zen.ZenForPreTraining",
    "AutoModelForMaskedLM": "modeling_zen.ZenForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_zen.ZenForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_zen.ZenForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_zen.ZenForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_zen.ZenForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_zen.ZenForMultipleChoice",
}


@strict
class ZenConfig(PreTrainedConfig):
    """Configuration of the ZEN family (Diao et al. 2019, https://arxiv.org/abs/1911.00720).

    Reads the original project's config.json, whose `word_size` is taken for `word_vocab_size`, and that of any BERT
    with absolute positions. Fields not listed are BERT's, with BERT's defaults.

    Args:
        vocab_size: size of the vocabulary of tokens (default 21128: BERT's Chinese one).
        word_vocab_size: rows of the n-gram table, the lexicon's lines and one for padding (default 104089: the
            released models).
        num_hidden_word_layers: layers of the n-gram encoder, not more than `num_hidden_layers` (default `None`: 6, as
            in the released models, or all if there are fewer). Layers of the text beyond them still get the last
            n-gram states.
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, `hidden_act` is no activation, or the config asks for what a ZEN
            encoder is not (a decoder, relative positions).

    Example:
        >>> from hf_ptm_ext import ZenConfig
        >>> ZenConfig(hidden_size=32, num_attention_heads=4).num_hidden_word_layers
        6
    """

    model_type = "zen"
    keys_to_ignore_at_inference = [
        "hidden_states",
        "attentions",
        "pooler_output",
        "mlm_loss",
        "nsp_loss",
        "seq_relationship_logits",
    ]

    vocab_size: int = 21128
    word_vocab_size: int = 104089
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_hidden_word_layers: int | None = None
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
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.word_vocab_size < 1:
            raise ValueError(f"`word_vocab_size` must be at least 1 (the padding row), got {self.word_vocab_size}.")
        if self.num_hidden_word_layers is None:
            self.num_hidden_word_layers = min(RELEASED_WORD_LAYERS, self.num_hidden_layers)
        if not 0 <= self.num_hidden_word_layers <= self.num_hidden_layers:
            raise ValueError(
                f"`num_hidden_word_layers` must be in [0, `num_hidden_layers` = {self.num_hidden_layers}], got "
                f"{self.num_hidden_word_layers}: no layer of the text would read the others."
            )
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
            raise ValueError("`is_decoder` must be False: ZEN is an encoder. Load a decoder with its own class.")
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
        """As upstream; `word_size` is `word_vocab_size`, a BERT's config that of an encoder without n-grams yet.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The config's fields and the arguments that were not used.
        """
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if "word_size" in config_dict:
            config_dict = {"word_vocab_size": config_dict["word_size"], **config_dict}
            config_dict.pop("word_size")
        if config_dict.get("model_type") == "bert":
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


__all__ = ["ZenConfig"]
