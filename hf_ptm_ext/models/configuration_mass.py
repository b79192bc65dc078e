"""MASS configuration: BART's fields, with the sizes of `mass-base-uncased` as defaults."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import Seq2SeqFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_mass.MassConfig",
    "AutoModel": "modeling_mass.MassModel",
    "AutoModelForSeq2SeqLM": "modeling_mass.MassForConditionalGeneration",
    "AutoModelForSequenceClassification": "modeling_mass.MassForSequenceClassification",
}


@strict
class MassConfig(Seq2SeqFamilyConfig):
    """Configuration of the MASS family (Song et al. 2019, https://arxiv.org/abs/1905.02450).

    Reads the config.json of `RUCAIBox/mass-base-uncased` and `RUCAIBox/mass-middle-uncased` as they are. Defaults are
    those of `transformer_mass_base` in the reference code (microsoft/MASS, MASS-summarization): BERT-base's vocabulary
    and sizes, 6 + 6 layers, gelu (plain `transformer_mass`: `"relu"`), dropouts of 0.1, scaled embeddings.

    Args:
        max_source_positions: tokens of a source, where they differ (default: `max_position_embeddings`, 512).
        max_target_positions: tokens of a target, likewise.
        layer_norm_eps: epsilon of every LayerNorm (default 1e-5).
        share_encoder_decoder_embeddings: whether encoder and decoder have one table of tokens (default True).
        tie_word_embeddings: whether the output matrix is the decoder's table of tokens (default True).
        label_smoothing: smoothing of the loss (default 0; fine-tuning in the reference uses 0.1).
        pad_token_id: padding; the rows of the position tables begin behind it (default 0).
        bos_token_id: [CLS], which the reference never feeds (default 101).
        eos_token_id: [SEP], the end of sources and targets (default 102).
        decoder_start_token_id: what the decoder is fed first: the end token (default 102).
        kwargs: the fields of `BartConfig`.

    Examples:
        >>> from hf_ptm_ext import MassConfig
        >>> MassConfig(d_model=32, encoder_attention_heads=4, decoder_attention_heads=4).hidden_size
        32
    """

    model_type = "mass"
    _probabilities = ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout")
    # What other BART-like configurations may say otherwise.
    _fixed = {
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "static_position_embeddings": False,
        "encoder_layerdrop": 0,
        "decoder_layerdrop": 0,
    }

    activation_dropout: float | int = 0.1
    classifier_dropout: float | int = 0.0
    max_source_positions: int | None = None
    max_target_positions: int | None = None
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    label_smoothing: float | int = 0.0
    pad_token_id: int = 0
    bos_token_id: int | None = 101
    eos_token_id: int | list[int] | None = 102
    decoder_start_token_id: int | None = 102
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1), got {self.label_smoothing}.")
