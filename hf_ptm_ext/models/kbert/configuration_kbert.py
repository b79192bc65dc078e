"""K-BERT configuration: BERT's fields, the switches of knowledge, and the habits of the original's framework."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
AUTO_MAP = {
    "AutoConfig": "configuration_kbert.KBertConfig",
    "AutoModel": "modeling_kbert.KBertModel",
    "AutoModelForPreTraining": "modeling_kbert.KBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_kbert.KBertForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_kbert.KBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_kbert.KBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_kbert.KBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_kbert.KBertForMultipleChoice",
}

POOLINGS = ("first", "mean", "max", "last")
LAYER_NORM_STYLES = ("hf", "uer")


@strict
class KBertConfig(PreTrainedConfig):
    """Configuration of the K-BERT family (Liu et al. 2020, https://arxiv.org/abs/1909.07606).

    Reads the config.json of any absolute-position BERT encoder as it is. Fields not listed are BERT's, with BERT's
    defaults.

    Args:
        pooling: what the sequence and choice heads pool: the state of the `"first"` token (default), the `"mean"` or
            `"max"` over all tokens, knowledge included, or the state of the `"last"` token of the text (the options
            of the reference code). Padding takes no part unless `reference_padding` is set.
        use_visible_matrix: whether `word_index` and `branch_id` restrict attention (default True; False is the
            reference's `--no_vm`, in which knowledge is read as text).
        use_soft_positions: whether tokens of a text with knowledge have tree positions (default True; False is the
            paper's ablation: they are numbered in the order in which they stand, whatever `position_ids` say).
        layer_norm_style: `"hf"` (default), or `"uer"` for (x - mean) / (s + 1e-6) with the unbiased standard deviation
            s, with which UER-py and K-BERT train; `layer_norm_eps` has no part in it.
        reference_padding: whether padding is as in the reference (default False): it attends everywhere, by an
            additive -10000, and `"mean"`, `"max"` and `"last"` pool over it. Results then depend on the length of the
            batch, and attention is computed without a fused kernel.
        first_token_type_id: token type of a text for which none is given (default 0; 1 in checkpoints with UER's
            three segment rows, where 0 is padding).
        add_pooling_layer: whether the bare encoder has BERT's pooler (default True).
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, or the config asks for what this encoder is not (a decoder, relative
            positions).

    Example:
        >>> from hf_ptm_ext import KBertConfig
        >>> KBertConfig(hidden_size=32, num_attention_heads=4, pooling="mean").pooling
        'mean'
    """

    model_type = "kbert"
    keys_to_ignore_at_inference = [
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
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    pooling: str = "first"
    use_visible_matrix: bool = True
    use_soft_positions: bool = True
    layer_norm_style: str = "hf"
    reference_padding: bool = False
    first_token_type_id: int = 0
    add_pooling_layer: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.check_choices()
        if not 0 <= self.first_token_type_id < self.type_vocab_size:
            raise ValueError(
                f"`first_token_type_id` must be in [0, `type_vocab_size` = {self.type_vocab_size}), got "
                f"{self.first_token_type_id}."
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
            raise ValueError("`is_decoder` must be False: K-BERT is an encoder. Load a decoder with its own class.")
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

    def check_choices(self) -> None:
        """Refuse a value that is none of a field's.

        Models ask again, because `from_pretrained(..., pooling=...)` sets the field of a finished config.

        Raises:
            ValueError: `pooling` or `layer_norm_style` is unknown.
        """
        for name, choices in (("pooling", POOLINGS), ("layer_norm_style", LAYER_NORM_STYLES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a BERT config is taken for what it is here, a K-BERT: no weight of it is new.

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


__all__ = ["KBertConfig"]
