"""MASS-NMT configuration: BART's field names, and what the XLM-based variant has beside them."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import Seq2SeqFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_mass_nmt.MassNmtConfig",
    "AutoModel": "modeling_mass_nmt.MassNmtModel",
    "AutoModelForSeq2SeqLM": "modeling_mass_nmt.MassNmtForConditionalGeneration",
}
ATTENTION_SETTINGS = ("v1", "v2")


@strict
class MassNmtConfig(Seq2SeqFamilyConfig):
    """Configuration of MASS for translation (Song et al. 2019, https://arxiv.org/abs/1905.02450, section 4).

    Fields not listed are `BartConfig`'s. Defaults are the published command's (microsoft/MASS, MASS-unsupNMT): 60,000
    words, 6 + 6 layers of width 1024 with 8 heads, gelu, dropouts of 0.1.

    Args:
        max_position_embeddings: rows of each learned position table, counted from 0 (default 512).
        layer_norm_eps: epsilon of every LayerNorm (default 1e-12).
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

    Examples:
        >>> from hf_ptm_ext import MassNmtConfig
        >>> config = MassNmtConfig(lang2id={"en": 0, "fr": 1})
        >>> config.id2lang, config.decoder_start_token_id
        ({0: 'en', 1: 'fr'}, 1)
    """

    model_type = "mass_nmt"

    vocab_size: int = 60000
    d_model: int = 1024
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    layer_norm_eps: float | int = 1e-12
    n_langs: int = 2
    use_lang_emb: bool = True
    lang2id: dict[str, int] | None = None
    id2lang: dict[int, str] | dict[str, str] | None = None
    attention_setting: str = "v1"
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    pad_token_id: int | None = 2
    mask_token_id: int | None = 5
    decoder_start_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = 1
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.decoder_start_token_id is None:
            eos = self.eos_token_id
            self.decoder_start_token_id = eos[0] if isinstance(eos, list) else eos
        if self.attention_setting not in ATTENTION_SETTINGS:
            raise ValueError(
                f"`attention_setting` must be one of {', '.join(ATTENTION_SETTINGS)}, got {self.attention_setting!r}."
            )
        self._check_languages()

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
