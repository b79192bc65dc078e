"""MASS configuration: BART's fields, with the sizes of `mass-base-uncased` as defaults."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
AUTO_MAP = {
    "AutoConfig": "configuration_mass.MassConfig",
    "AutoModel": "modeling_mass.MassModel",
    "AutoModelForSeq2SeqLM": "modeling_mass.MassForConditionalGeneration",
    "AutoModelForSequenceClassification": "modeling_mass.MassForSequenceClassification",
}

# What other BART-like configurations may say and MASS is not: field -> the only value that is MASS.
FIXED = {
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": False,
    "encoder_layerdrop": 0,
    "decoder_layerdrop": 0,
}
PROBABILITIES = ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout")


@strict
class MassConfig(PreTrainedConfig):
    """Configuration of the MASS family (Song et al. 2019, https://arxiv.org/abs/1905.02450).

    Reads the config.json of `RUCAIBox/mass-base-uncased` and `RUCAIBox/mass-middle-uncased` as they are. Defaults are
    those of `transformer_mass_base` in the reference code (microsoft/MASS, MASS-summarization).

    Args:
        vocab_size: entries of the vocabulary (default 30522: `bert-base-uncased`'s).
        d_model: width of all states (default 768).
        encoder_layers: layers of the encoder (default 6).
        encoder_attention_heads: attention heads of each encoder layer (default 12).
        encoder_ffn_dim: width inside the encoder's feed-forward blocks (default 3072).
        decoder_layers: layers of the decoder (default 6).
        decoder_attention_heads: attention heads of each decoder layer (default 12).
        decoder_ffn_dim: width inside the decoder's feed-forward blocks (default 3072).
        activation_function: a name in transformers' `ACT2FN` (default `"gelu"`; plain `transformer_mass`: `"relu"`).
        dropout: dropout of embeddings and of what each block adds (default 0.1).
        attention_dropout: dropout of attention weights (default 0.1).
        activation_dropout: dropout inside the feed-forward blocks (default 0.1).
        classifier_dropout: dropout of the classification head (default 0).
        max_position_embeddings: tokens that a source and a target may have (default 512).
        max_source_positions: tokens of a source, where they differ (default: `max_position_embeddings`).
        max_target_positions: tokens of a target, where they differ (default: `max_position_embeddings`).
        init_std: standard deviation of new weights (default 0.02).
        layer_norm_eps: epsilon of every LayerNorm (default 1e-5).
        scale_embedding: whether token embeddings are multiplied by the root of `d_model` (default True).
        share_encoder_decoder_embeddings: whether encoder and decoder have one table of tokens (default True).
        tie_word_embeddings: whether the output matrix is the decoder's table of tokens (default True).
        label_smoothing: smoothing of the loss (default 0; fine-tuning in the reference uses 0.1).
        pad_token_id: padding; the rows of the position tables begin behind it (default 0).
        bos_token_id: [CLS], which the reference never feeds (default 101).
        eos_token_id: [SEP], the end of sources and targets (default 102).
        decoder_start_token_id: what the decoder is fed first: the end token (default 102).
        use_cache: whether the decoder keeps keys and values (default True).
        is_encoder_decoder: always True.
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, or the config asks for what MASS is not.

    Example:
        >>> from hf_ptm_ext import MassConfig
        >>> MassConfig(d_model=32, encoder_attention_heads=4, decoder_attention_heads=4).hidden_size
        32
    """

    model_type = "mass"
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "initializer_range": "init_std",
    }
    keys_to_ignore_at_inference = [
        "cache",
        "decoder_hidden_states",
        "decoder_attentions",
        "cross_attentions",
        "encoder_last_hidden_state",
        "encoder_hidden_states",
        "encoder_attentions",
    ]

    vocab_size: int = 30522
    d_model: int = 768
    encoder_layers: int = 6
    encoder_attention_heads: int = 12
    encoder_ffn_dim: int = 3072
    decoder_layers: int = 6
    decoder_attention_heads: int = 12
    decoder_ffn_dim: int = 3072
    activation_function: str = "gelu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    activation_dropout: float | int = 0.1
    classifier_dropout: float | int = 0.0
    max_position_embeddings: int = 512
    max_source_positions: int | None = None
    max_target_positions: int | None = None
    init_std: float | int = 0.02
    layer_norm_eps: float | int = 1e-5
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    label_smoothing: float | int = 0.0
    pad_token_id: int = 0
    bos_token_id: int | None = 101
    eos_token_id: int | list[int] | None = 102
    decoder_start_token_id: int | None = 102
    use_cache: bool = True
    is_encoder_decoder: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1), got {self.label_smoothing}.")
        for name in PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be a probability in [0, 1], got {getattr(self, name)}.")
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            if heads < 1 or self.d_model % heads:
                raise ValueError(
                    f"`d_model` must be a multiple of `{side}_attention_heads`, got {self.d_model} and {heads}."
                )
        if not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"`pad_token_id` must be an id of the vocabulary, 0 <= id < {self.vocab_size}, got "
                f"{self.pad_token_id}: the rows of the position tables begin behind it."
            )
        from transformers.activations import ACT2FN  # imports torch, which reading a config's class need not

        if self.activation_function not in ACT2FN:
            raise ValueError(
                f"`activation_function` must be one of {', '.join(sorted(ACT2FN))}, the names in transformers' "
                f"`ACT2FN`; got {self.activation_function!r}."
            )
        if not self.is_encoder_decoder:
            raise ValueError("`is_encoder_decoder` must be True: MASS has an encoder and a decoder.")
        for name, value in FIXED.items():
            if getattr(self, name, value) != value:
                raise ValueError(
                    f"`{name}` must be {value}, as in the fairseq code of MASS, got {getattr(self, name)!r}."
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


__all__ = ["MassConfig"]
