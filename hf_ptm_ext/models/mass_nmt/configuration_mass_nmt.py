"""MASS-NMT configuration: BART's field names, and what the XLM-based variant has beside them."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The version of the code beside a checkpoint; it makes two checkpoints with different code differ in this file too.
HF_PTM_EXT_VERSION = "0.1.0"

# Every auto class and the class that serves it: each checkpoint carries the whole map, whichever head was saved.
AUTO_MAP = {
    "AutoConfig": "configuration_mass_nmt.MassNmtConfig",
    "AutoModel": "modeling_mass_nmt.MassNmtModel",
    "AutoModelForSeq2SeqLM": "modeling_mass_nmt.MassNmtForConditionalGeneration",
}
ATTENTION_SETTINGS = ("v1", "v2")


@strict
class MassNmtConfig(PreTrainedConfig):
    """Configuration of MASS for translation (Song et al. 2019, https://arxiv.org/abs/1905.02450, section 4).

    Defaults are the published command's (microsoft/MASS, MASS-unsupNMT). Field names are BART's, and XLM's for what
    BART lacks.

    Args:
        vocab_size: words, special ones included (default 60,000).
        d_model: hidden size (default 1024).
        encoder_layers: layers of the encoder (default 6).
        decoder_layers: layers of the decoder (default 6); the reference has an option of its own for it.
        encoder_attention_heads: heads of the encoder (default 8).
        decoder_attention_heads: heads of the decoder (default 8).
        encoder_ffn_dim: width of the encoder's feed-forward layers (default 4096).
        decoder_ffn_dim: width of the decoder's feed-forward layers (default 4096).
        activation_function: `"gelu"` (default, exact) or another of transformers' names.
        dropout: after embeddings, attention and feed-forward layers (default 0.1).
        attention_dropout: of attention weights (default 0.1).
        max_position_embeddings: rows of each learned position table, counted from 0 (default 512).
        layer_norm_eps: epsilon of every LayerNorm (default 1e-12).
        init_std: standard deviation of fresh weights (default 0.02).
        n_langs: number of languages (default 2); with one, no language input is needed.
        use_lang_emb: whether tokens get the embedding of their language, given several (default True).
        lang2id: language code -> id; ids are 0..n_langs-1, in the order of sorted codes.
        id2lang: the inverse of `lang2id`, made from it if left out.
        attention_setting: what of the decoder's cross-attention each target language has to itself: `"v1"` (default)
            its output projection, `"v2"` all four projections.
        tie_word_embeddings: whether the vocabulary projection is the decoder's embedding matrix (default True). The
            embeddings of encoder and decoder are never shared.
        mask_token_id: the [MASK] that cross-attention does not see (default 5, XLM's `<special1>`).
        decoder_start_token_id: first token of the decoder (default: `eos_token_id`, as sentences are `</s> w </s>`).
        forced_eos_token_id: what a text ends with at the length limit (default 1, as in the reference).
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range.

    Example:
        >>> from hf_ptm_ext import MassNmtConfig
        >>> config = MassNmtConfig(lang2id={"en": 0, "fr": 1})
        >>> config.id2lang, config.decoder_start_token_id
        ({0: 'en', 1: 'fr'}, 1)
    """

    model_type = "mass_nmt"
    attribute_map = {
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
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

    vocab_size: int = 60000
    d_model: int = 1024
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    activation_function: str = "gelu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    max_position_embeddings: int = 512
    layer_norm_eps: float | int = 1e-12
    init_std: float | int = 0.02
    n_langs: int = 2
    use_lang_emb: bool = True
    lang2id: dict[str, int] | None = None
    id2lang: dict[int, str] | dict[str, str] | None = None
    attention_setting: str = "v1"
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    pad_token_id: int | None = 2
    mask_token_id: int | None = 5
    decoder_start_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = 1
    is_encoder_decoder: bool = True
    use_cache: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.decoder_start_token_id is None:
            eos = self.eos_token_id
            self.decoder_start_token_id = eos[0] if isinstance(eos, list) else eos
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be a probability in [0, 1], got {getattr(self, name)}.")
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            heads = getattr(self, name)
            if heads < 1 or self.d_model % heads:
                raise ValueError(f"`d_model` must be a multiple of `{name}`, got {self.d_model} and {heads}.")
        if self.attention_setting not in ATTENTION_SETTINGS:
            raise ValueError(
                f"`attention_setting` must be one of {', '.join(ATTENTION_SETTINGS)}, got {self.attention_setting!r}."
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"`pad_token_id` must be a row of the {self.vocab_size} embeddings, got {self.pad_token_id}: correct "
                "it or `vocab_size`."
            )
        if not self.is_encoder_decoder:
            raise ValueError("`is_encoder_decoder` must be True: the family has no other model.")
        self._check_activation()
        self._check_languages()
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

    def _check_activation(self) -> None:
        from transformers.activations import ACT2FN  # imports torch, which reading a config's class need not

        if self.activation_function not in ACT2FN:
            raise ValueError(
                f"`activation_function` must be one of {', '.join(sorted(ACT2FN))}, the names in transformers' "
                f"`ACT2FN`; got {self.activation_function!r}."
            )

    def _check_languages(self) -> None:
        """Make the two tables of languages one, and check it."""
        if self.n_langs < 1:
            raise ValueError(f"`n_langs` must be at least 1, got {self.n_langs}.")
        if self.id2lang is not None:
            self.id2lang = {int(number): code for number, code in self.id2lang.items()}
        if self.lang2id is None and self.id2lang is not None:
            self.lang2id = {code: number for number, code in self.id2lang.items()}
        if self.lang2id is None:
            return
        inverse = {number: code for code, number in self.lang2id.items()}
        if sorted(self.lang2id.values()) != list(range(self.n_langs)):
            raise ValueError(
                f"`lang2id` must number the `n_langs` = {self.n_langs} languages from 0, got {self.lang2id}."
            )
        if self.id2lang is not None and self.id2lang != inverse:
            raise ValueError(f"`id2lang` must be the inverse of `lang2id` {self.lang2id}, got {self.id2lang}.")
        self.id2lang = inverse


__all__ = ["MassNmtConfig"]
