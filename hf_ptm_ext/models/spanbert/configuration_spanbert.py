"""SpanBERT configuration: BERT's fields and those of the span boundary objective."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
AUTO_MAP = {
    "AutoConfig": "configuration_spanbert.SpanBertConfig",
    "AutoModel": "modeling_spanbert.SpanBertModel",
    "AutoModelForPreTraining": "modeling_spanbert.SpanBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_spanbert.SpanBertForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_spanbert.SpanBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_spanbert.SpanBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_spanbert.SpanBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_spanbert.SpanBertForMultipleChoice",
}


@strict
class SpanBertConfig(PreTrainedConfig):
    """Configuration of the SpanBERT family (Joshi et al. 2020, https://arxiv.org/abs/1907.10529).

    Reads the config.json of any absolute-position BERT encoder as it is. Fields not listed are BERT's, with BERT's
    defaults.

    Args:
        max_pair_targets: tokens of a span that have a boundary loss, and the size of the head's table of relative
            positions (default 15: the released recipe; the code's own default was 20).
        pair_positional_embedding_size: width of that table (default 200: the reference always uses 200).
        pair_target_layer: encoder layer that feeds the boundary head, 0 the first and -1 the last (default -1:
            the reference).
        sbo_loss_weight: weight of the span boundary term (default 1.0: the released recipe; 0 switches it off).
        next_sentence_prediction: whether the pre-training model has the next-sentence head of the two-segment variant
            (default False: SpanBERT trains on single segments).
        add_pooling_layer: whether the bare encoder has BERT's pooler (default True: BERT; set False for the published
            SpanBERT encoders, which have none).
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, `hidden_act` is no activation, or the config asks for what a SpanBERT
            encoder is not (a decoder, relative positions).

    Example:
        >>> from hf_ptm_ext import SpanBertConfig
        >>> SpanBertConfig(hidden_size=32, num_attention_heads=4, max_pair_targets=6).max_pair_targets
        6
    """

    model_type = "spanbert"
    keys_to_ignore_at_inference = [
        "hidden_states",
        "attentions",
        "pooler_output",
        "mlm_loss",
        "sbo_loss",
        "nsp_loss",
        "boundary_logits",
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
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    max_pair_targets: int = 15
    pair_positional_embedding_size: int = 200
    pair_target_layer: int = -1
    sbo_loss_weight: float | int = 1.0
    next_sentence_prediction: bool = False
    add_pooling_layer: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if not -self.num_hidden_layers <= self.pair_target_layer < self.num_hidden_layers:
            raise ValueError(
                f"`pair_target_layer` must be in [-{self.num_hidden_layers}, {self.num_hidden_layers}), the layers of "
                f"the encoder, got {self.pair_target_layer}."
            )
        for name in ("max_pair_targets", "pair_positional_embedding_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
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
        if self.sbo_loss_weight < 0:
            raise ValueError(f"`sbo_loss_weight` must not be negative, got {self.sbo_loss_weight}.")
        if getattr(self, "is_decoder", False):
            raise ValueError("`is_decoder` must be False: SpanBERT is an encoder. Load a decoder with its own class.")
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
        """As upstream; a BERT config is taken for what it is here, a SpanBERT encoder without heads of its own.

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


__all__ = ["SpanBertConfig"]
