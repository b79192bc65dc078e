"""MASS for translation (Song et al. 2019, https://arxiv.org/abs/1905.02450; code microsoft/MASS, MASS-unsupNMT).

An encoder and a decoder in the style of XLM. Other than in BART: embeddings are x = LN(E[token] + P[position] +
L[language]), not scaled; each target language has its own output projection in the cross-attention, which does not see
[MASK]; encoder and decoder have embeddings of their own, and the vocabulary projection, tied to the decoder's, a bias.
Other than in the reference: a language is given per row, where the reference takes the batch's largest.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.generation import GenerationConfig, GenerationMixin, LogitsProcessorList, StoppingCriteriaList
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqModelOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .base_core import arguments_of
from .configuration_mass_nmt import AUTO_MAP, HF_PTM_EXT_VERSION, MassNmtConfig
from .encoder_core import refuse_unknown_arguments
from .languages_mass_nmt import MassNmtCrossAttention, language_ids, languages, number_of_rows, row_languages
from .mask_contract_core import read_attention_mask, refuse_learnt_tokens, takes_past_key_values, two_dimensional
from .search_core import BeamSearchOutput, HypothesisSearch, XlmHypotheses
from .seq2seq_core import (
    Seq2SeqDecoderLayer,
    Seq2SeqDecoderStack,
    Seq2SeqEncoderLayer,
    Seq2SeqPreTrainedModel,
    Seq2SeqStack,
    real_tokens,
    seq2seq_output,
    token_positions,
)
from .seq2seq_generation_core import ConditionalGenerationHead


@dataclass
class MassNmtEncoderOutput(BaseModelOutput):
    """Output of the encoder: upstream's, zero at padding, and what of the source the decoder may see.

    The mask, `(batch, source_len)`, is true at real tokens other than [MASK]. It stands here because `generate` runs
    the encoder once and forgets its `input_ids`.
    """

    cross_attention_mask: torch.Tensor | None = None


class MassNmtPreTrainedModel(Seq2SeqPreTrainedModel):
    """Loading, saving and initialisation shared by all MASS-NMT classes."""

    config: MassNmtConfig
    config_class = MassNmtConfig
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MassNmtForConditionalGeneration):
            init.zeros_(module.encoder_lm_bias)


class MassNmtEmbedding(MassNmtPreTrainedModel):
    """What encoder and decoder share: embeddings of tokens, positions and languages."""

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        has_languages = config.n_langs > 1 and config.use_lang_emb
        self.embed_languages = nn.Embedding(config.n_langs, config.d_model) if has_languages else None
        self.layernorm_embedding = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def embed(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, langs: torch.Tensor, real: torch.Tensor | None
    ) -> torch.Tensor:
        """Sum, normalise and drop out embeddings, and zero the padding: `(batch, seq_len, hidden)`."""
        states = inputs_embeds + self.embed_positions(position_ids.clamp(min=0))
        if self.embed_languages is not None:
            states = states + self.embed_languages(langs if langs.dim() == 2 else langs[:, None])
        states = self.dropout(self.layernorm_embedding(states))
        return states if real is None else states * real


class MassNmtEncoder(Seq2SeqStack, MassNmtEmbedding):
    """The encoder, bidirectional over the source; it sees [MASK]."""

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.layers = nn.ModuleList([Seq2SeqEncoderLayer(config, index) for index in range(config.encoder_layers)])
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        langs: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **flags: Any,  # not called `kwargs`: `generate` would then hand the encoder all that the decoder gets
    ) -> MassNmtEncoderOutput:
        """Encode; inputs as in `MassNmtModel`."""
        embeds = self.token_embeddings(input_ids, inputs_embeds)
        langs = languages(self.config, langs, embeds.shape[0], embeds.device, "langs")
        if attention_mask is None:
            attention_mask = real_tokens(self.config, input_ids)
        attention_mask = read_attention_mask(self.config, attention_mask, embeds)
        visible = visible_source(self.config, input_ids, attention_mask)
        real = None if attention_mask is None else attention_mask[..., None].to(embeds.dtype)
        positions = token_positions(self.config, attention_mask, embeds, "source")
        hidden_states = self.embed(embeds, positions, langs, real)
        return MassNmtEncoderOutput(
            last_hidden_state=self.encode(hidden_states, attention_mask, real=real, **flags),
            cross_attention_mask=visible,
        )


class MassNmtDecoder(Seq2SeqDecoderStack, MassNmtEmbedding):
    """The decoder, causal over the target."""

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        layers = [Seq2SeqDecoderLayer(config, index, MassNmtCrossAttention) for index in range(config.decoder_layers)]
        self.layers = nn.ModuleList(layers)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        langs: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode; inputs as those of `MassNmtModel` with `decoder_` in front."""
        embeds = self.token_embeddings(input_ids, inputs_embeds, "decoder_")
        langs = languages(self.config, langs, embeds.shape[0], embeds.device, "decoder_langs")
        cache = self.used_cache(cache, use_cache)
        tells_padding = self.config.pad_token_id != self.config.decoder_start_token_id
        if attention_mask is None and tells_padding and cache_is_empty(cache):
            attention_mask = real_tokens(self.config, input_ids)
        mask, source_mask = self.read_masks(
            embeds, attention_mask, encoder_hidden_states, encoder_attention_mask, cache
        )
        real = mask[:, -embeds.shape[1] :, None].to(embeds.dtype) if two_dimensional(mask) else None
        hidden_states = self.embed(embeds, self.positions(embeds, mask, position_ids, cache), langs, real)
        options = {"language": row_languages(langs), "real": real, **kwargs}
        return self.decode(hidden_states, mask, encoder_hidden_states, source_mask, cache, **options)


class MassNmtModel(MassNmtPreTrainedModel):
    """Encoder and decoder without the vocabulary projection.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import MassNmtConfig, MassNmtModel
        >>> config = MassNmtConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        ...     decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        ... )
        >>> model = MassNmtModel(config).eval()
        >>> output = model(
        ...     torch.tensor([[1, 7, 8, 1]]), decoder_input_ids=torch.tensor([[1, 9]]), langs=torch.tensor([0]),
        ...     decoder_langs=torch.tensor([1]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 2, 32])
    """

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.encoder = MassNmtEncoder(config)
        self.decoder = MassNmtDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As upstream, for the embeddings of encoder and decoder."""
        self.decoder.resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)

    @can_return_tuple
    @takes_past_key_values
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        langs: torch.Tensor | None = None,
        decoder_langs: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """Encode the source and decode.

        Args:
            input_ids: `(batch, source_len)` </s> x1 .. xn </s>, possibly with [MASK].
            attention_mask: `(batch, source_len)`, 1 real and 0 padding; all but the padding token if left out.
            decoder_input_ids: `(batch, target_len)`: </s> y1 .. yn, or in pre-training the tokens before those of the
                masked fragment.
            decoder_attention_mask: `(batch, target_len)`, with a cache `(batch, cached + target_len)`; without a
                cache all but the padding token if left out.
            langs: `(batch,)` language ids of the sources; `(batch, source_len)` per token is read as well.
            decoder_langs: `(batch,)` language ids of the targets, likewise.
            decoder_position_ids: `(batch, target_len)` original positions, from 0, of the tokens fed; counted over
                real tokens if left out.
            encoder_outputs: the encoder's output instead of a source. Without its `cross_attention_mask` the source
                mask is made of `input_ids` and `attention_mask` as far as they are given.
            inputs_embeds: `(batch, source_len, hidden)` instead of `input_ids`; then no token is known to be [MASK].
            decoder_inputs_embeds: `(batch, target_len, hidden)` instead of `decoder_input_ids`.
            cache: keys and values of earlier tokens and of the source.
            use_cache: whether to make a cache where none is given (default: `config.use_cache`).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, target_len, hidden)`, the cache and the encoder's output.

        Raises:
            ValueError: see `MassNmtEncoder` and `MassNmtDecoder`.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, arguments_of(MassNmtModel))
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, decoder_position_ids=decoder_position_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, langs, inputs_embeds, return_dict=True, **kwargs)
        elif not isinstance(encoder_outputs, dict):  # a tuple, as of `return_dict=False`
            encoder_outputs = MassNmtEncoderOutput(*encoder_outputs[:1])
        source_mask = encoder_outputs.get("cross_attention_mask")
        if source_mask is None:
            known = real_tokens(self.config, input_ids) if attention_mask is None else attention_mask
            source_mask = visible_source(self.config, input_ids, known)
        decoded = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            decoder_langs,
            decoder_position_ids,
            encoder_outputs.last_hidden_state,
            source_mask,
            decoder_inputs_embeds,
            cache,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return seq2seq_output(encoder_outputs, decoded)


def mass_nmt_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | BeamSearchOutput:
    """Decode as XLM does: `generate(..., search_beam_size=K)`, or this function as `custom_generate`.

    A hypothesis </s> y1 .. yn </s> has the score sum log p / (n + 1) ** length_penalty; the rules are those of
    `XlmHypotheses`.
    """
    return HypothesisSearch(
        model, input_ids, XlmHypotheses, logits_processor, stopping_criteria, generation_config, model_kwargs
    ).run()


class MassNmtForConditionalGeneration(
    ConditionalGenerationHead, MassNmtPreTrainedModel, GenerationMixin, model=MassNmtModel, search=mass_nmt_beam_search
):
    """MASS for pre-training on masked fragments and for translation.

    `encoder_lm_bias` is the bias of the encoder's own vocabulary projection. Nothing here reads it: checkpoints of the
    reference have it, and go back whole with it.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import MassNmtConfig, MassNmtForConditionalGeneration
        >>> config = MassNmtConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        ...     decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, lang2id={"en": 0, "fr": 1},
        ... )
        >>> model = MassNmtForConditionalGeneration(config)
        >>> source, target = torch.tensor([[1, 7, 8, 1]]), torch.tensor([[9, 10, 1]])  # </s> x </s> and y </s>
        >>> loss = model(source, labels=target, langs=torch.tensor([0]), decoder_langs=torch.tensor([1])).loss
        >>> model.eval().generate(source, langs="en", decoder_langs="fr", max_new_tokens=4, eos_token_id=None).shape
        torch.Size([1, 5])
    """

    encoder_lm_bias: torch.Tensor
    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def add_projection(self, config: MassNmtConfig) -> None:
        self.lm_head = nn.Linear(config.d_model, config.vocab_size)
        self.register_buffer("encoder_lm_bias", torch.zeros(config.vocab_size))

    def mask_of_labels(self, labels: torch.Tensor) -> torch.Tensor | None:
        """None: the decoder reads the padding off its input."""
        return None

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As upstream, for the embeddings of encoder and decoder and the vocabulary projection."""
        self.model.decoder.resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        missing = embeddings.weight.shape[0] - self.encoder_lm_bias.shape[0]
        self.encoder_lm_bias = nn.functional.pad(self.encoder_lm_bias, (0, missing))
        return embeddings

    def _get_resized_lm_head(self, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        size = old_lm_head.weight.shape[0]
        new = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        with torch.no_grad():
            new.bias[size:] = 0.0  # a token never seen has no frequency to lean on
        return new

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As upstream; a projection that is the decoder's matrix is called so in the config.

        PEFT compares it with the encoder's matrix, takes them for untied after a merge, and says so in the config.
        """
        if self.lm_head.weight is self.model.decoder.embed_tokens.weight:
            self.config.tie_word_embeddings = True
        super().save_pretrained(*args, **kwargs)

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        langs: torch.Tensor | int | str | None = None,
        decoder_langs: torch.Tensor | int | str | None = None,
        search_beam_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Translate: greedy, sampling and beam search as upstream, or the reference's beam search.

        Args:
            inputs: `(batch, source_len)`, also accepted as `input_ids`; padding on either side, marked by
                `attention_mask` or by the padding token.
            langs: languages of the sources: ids `(batch,)`, or one id or code (`config.lang2id`) for all (default:
                `generation_config.source_lang`, if there is one).
            decoder_langs: languages of the targets, likewise (`generation_config.target_lang`).
            search_beam_size: number of beams of the reference's beam search (see `mass_nmt_beam_search`), instead of
                upstream's `num_beams`; reads `length_penalty`, `early_stopping` and `num_return_sequences`.
            kwargs: as upstream. `max_length` counts the leading </s>.

        Returns:
            `(batch, length)` texts </s> y1 .. yn </s>, padded on the right, or upstream's output object. A text at
            the length limit ends with `config.forced_eos_token_id`, as in the reference.

        Raises:
            ValueError: languages are missing or unknown, source or target are longer than the position tables.
        """
        source = kwargs.pop("input_ids", None) if inputs is None else inputs
        batch, device = number_of_rows(source, kwargs), self.device
        kwargs = self.checked_generation(source, search_beam_size, kwargs)
        if langs is None:
            langs = getattr(self.generation_config, "source_lang", None)
        if decoder_langs is None:
            decoder_langs = getattr(self.generation_config, "target_lang", None)
        if langs is not None or kwargs.get("encoder_outputs") is None:
            kwargs["langs"] = language_ids(self.config, langs, batch, device, "langs")
        kwargs["decoder_langs"] = language_ids(self.config, decoder_langs, batch, device, "decoder_langs")
        if kwargs.get("decoder_attention_mask") is None:
            mask = real_tokens(self.config, kwargs.get("decoder_input_ids"))
            if mask is not None and not mask.all():
                kwargs["decoder_attention_mask"] = mask.long()
        return super().generate(source, **kwargs)

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        next_sequence_length: int | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """As upstream; generated tokens are real, whatever they are."""
        if decoder_attention_mask is None:
            decoder_attention_mask = torch.ones_like(input_ids)
        return super().prepare_inputs_for_generation(
            input_ids, next_sequence_length, decoder_attention_mask=decoder_attention_mask, **kwargs
        )


def visible_source(
    config: MassNmtConfig, input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> torch.Tensor | None:
    """What of the source the decoder sees: real tokens, [MASK] aside. Tokens replaced at random stay visible."""
    if torch.is_tensor(attention_mask) and attention_mask.dim() != 2:
        raise ValueError(
            f"`attention_mask` must be `(batch, source_len)`, got the shape {tuple(attention_mask.shape)}."
        )
    seen = None if attention_mask is None else attention_mask.bool()
    if input_ids is None or config.mask_token_id is None:
        return seen
    unmasked = input_ids != config.mask_token_id
    return unmasked if seen is None else seen & unmasked


def cache_is_empty(cache: Cache | None) -> bool:
    """Whether a cache holds no token, as far as that is known without a look at the device."""
    if cache is None:
        return True
    seen = cache.get_seq_length()
    return not torch.is_tensor(seen) and seen == 0
