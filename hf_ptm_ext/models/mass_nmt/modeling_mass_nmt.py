"""MASS for translation (Song et al. 2019, https://arxiv.org/abs/1905.02450; code microsoft/MASS, MASS-unsupNMT).

An encoder and a decoder in the style of XLM, pre-trained to restore a fragment that is masked in the source,

    loss = mean CE(fragment | source with the fragment masked, the fragment's tokens before)

where the decoder is fed the fragment alone, at its original positions. The same weights translate: source </s> x </s>
in one language, target </s> y </s> in another.

What differs from BART: embeddings are x = LN(E[token] + P[position] + L[language]), not scaled, with positions from 0;
LayerNorm's eps is 1e-12; each target language has its own output projection in the cross-attention; the
cross-attention does not see [MASK]; encoder and decoder have embeddings of their own, and the vocabulary projection,
tied to the decoder's, a bias.

What differs from the reference: a language is given per row (`langs`, `decoder_langs`) where the reference takes the
batch's largest; positions count real tokens, so padding on the left is read as padding on the right.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .beam_search_mass_nmt import MassNmtBeamSearchOutput, mass_nmt_beam_search
from .block_mass_nmt import refuse_unknown_arguments
from .configuration_mass_nmt import AUTO_MAP, HF_PTM_EXT_VERSION, MassNmtConfig
from .generation_mass_nmt import check_generation, number_of_rows
from .inputs_mass_nmt import (
    causal_keys,
    check_length,
    check_positions_fit,
    language_ids,
    languages,
    padding_keys,
    padding_mask,
    row_languages,
    shift_right,
    token_positions,
    visible_source,
    without_padding,
)
from .layers_mass_nmt import MassNmtAttention, MassNmtDecoderLayer, MassNmtEncoderLayer, MassNmtLayer
from .loading_mass_nmt import MassNmtLoading
from .losses_mass_nmt import mean_over_targets, select_labelled, summed_cross_entropy, target_sums
from .mask_contract_mass_nmt import (
    over_cache,
    read_attention_mask,
    refuse_learnt_tokens,
    takes_past_key_values,
    two_dimensional,
)
from .outputs_mass_nmt import MassNmtEncoderOutput
from .search_mass_nmt import own_search, refuse_guidance


class MassNmtPreTrainedModel(MassNmtLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all MASS-NMT classes."""

    config: MassNmtConfig
    config_class = MassNmtConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # cross-attention masks have holes, which were not tried on it
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["MassNmtEncoderLayer", "MassNmtDecoderLayer"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _legacy_keys = {r"^module\.": ""}
    _layer_stacks = ("encoder.layers", "decoder.layers")
    _input_parts = ("encoder.embed_", "encoder.layernorm_", "decoder.embed_", "decoder.layernorm_")

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MassNmtForConditionalGeneration):
            init.zeros_(module.encoder_lm_bias)


class MassNmtStack(MassNmtPreTrainedModel):
    """What encoder and decoder share: embeddings of tokens, positions and languages."""

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        has_languages = config.n_langs > 1 and config.use_lang_emb
        self.embed_languages = nn.Embedding(config.n_langs, config.d_model) if has_languages else None
        self.layernorm_embedding = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embed_tokens = value

    def embed(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, langs: torch.Tensor, real: torch.Tensor | None
    ) -> torch.Tensor:
        """Sum, normalise and drop out embeddings, and zero the padding: `(batch, seq_len, hidden)`."""
        states = inputs_embeds + self.embed_positions(position_ids.clamp(min=0))
        if self.embed_languages is not None:
            states = states + self.embed_languages(langs if langs.dim() == 2 else langs[:, None])
        states = self.dropout(self.layernorm_embedding(states))
        return states if real is None else states * real


class MassNmtEncoder(MassNmtStack):
    """The encoder, bidirectional over the source; it sees [MASK].

    Example:
        >>> import torch
        >>> from hf_ptm_ext import MassNmtConfig, MassNmtModel
        >>> config = MassNmtConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        ...     decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        ... )
        >>> encoder = MassNmtModel(config).eval().encoder
        >>> encoder(torch.tensor([[1, 7, 5, 1]]), langs=torch.tensor([0])).cross_attention_mask.tolist()
        [[True, True, False, True]]
    """

    _can_record_outputs = {"hidden_states": MassNmtLayer, "attentions": MassNmtAttention}

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.layers = nn.ModuleList([MassNmtEncoderLayer(config, index) for index in range(config.encoder_layers)])
        self.gradient_checkpointing = False
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
        """Encode.

        Args:
            input_ids: `(batch, source_len)`.
            attention_mask: `(batch, source_len)`, 1 real and 0 padding; all but the padding token if left out.
            langs: `(batch,)` source languages, or `(batch, source_len)` per token.
            inputs_embeds: `(batch, source_len, hidden)` instead of `input_ids`; then no token is known to be [MASK].
            flags: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, source_len, hidden)` and `cross_attention_mask` `(batch, source_len)`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, no languages, more tokens than positions.
            TypeError: a keyword argument that nothing reads.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, flags, ENCODER_ARGUMENTS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` must be given.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        batch, length = inputs_embeds.shape[:2]
        check_length(self.config, length, "source")
        langs = languages(self.config, langs, batch, inputs_embeds.device, "langs")
        if attention_mask is None:
            attention_mask = padding_mask(self.config, input_ids)
        elif torch.is_tensor(attention_mask) and attention_mask.dim() != 2:
            raise ValueError(
                f"`attention_mask` must be `(batch, source_len)`, got the shape {tuple(attention_mask.shape)}."
            )
        attention_mask = read_attention_mask(self.config, attention_mask, inputs_embeds)
        real = None if attention_mask is None else attention_mask[..., None].to(inputs_embeds.dtype)
        position_ids = token_positions(attention_mask, length, 0, inputs_embeds.device)
        hidden_states = self.embed(inputs_embeds, position_ids, langs, real)
        mask = padding_keys(self.config, inputs_embeds, attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, real=real, **flags)
        return MassNmtEncoderOutput(
            last_hidden_state=hidden_states,
            cross_attention_mask=visible_source(self.config, input_ids, attention_mask),
        )


class MassNmtDecoder(MassNmtStack):
    """The decoder, causal over the target."""

    _can_record_outputs = {
        "hidden_states": MassNmtLayer,
        "attentions": OutputRecorder(MassNmtAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(MassNmtAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.layers = nn.ModuleList([MassNmtDecoderLayer(config, index) for index in range(config.decoder_layers)])
        self.gradient_checkpointing = False
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
        """Decode.

        Args:
            input_ids: `(batch, target_len)`.
            attention_mask: `(batch, cached + target_len)`; without a cache all but the padding token if left out.
            langs: `(batch,)` target languages, or `(batch, target_len)` per token.
            position_ids: `(batch, target_len)` from 0, -1 or anything at padding; counted over real tokens if left
                out.
            encoder_hidden_states: `(batch, source_len, hidden)`.
            encoder_attention_mask: `(batch, source_len)`, what may be seen of the source.
            inputs_embeds: `(batch, target_len, hidden)` instead of `input_ids`.
            cache: keys and values of earlier tokens and of the source.
            use_cache: whether to make a cache where none is given.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, target_len, hidden)` and the cache.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, no source, no languages, positions that
                the table does not have.
            TypeError: a keyword argument that nothing reads, or a cache of another kind.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, DECODER_ARGUMENTS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `decoder_input_ids` and `decoder_inputs_embeds` must be given.")
        if encoder_hidden_states is None:
            raise ValueError("`encoder_hidden_states` must be given: the decoder reads a source.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            raise TypeError(f"`cache` must be a `transformers.EncoderDecoderCache`, got {type(cache).__name__}.")
        if cache is None and use_cache:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        batch, length = inputs_embeds.shape[:2]
        seen = 0 if cache is None else cache.get_seq_length()
        langs = languages(self.config, langs, batch, inputs_embeds.device, "decoder_langs")
        if attention_mask is None and cache_is_empty(cache) and self.config.pad_token_id != self._start_token():
            attention_mask = padding_mask(self.config, input_ids)
        attention_mask = read_attention_mask(
            self.config, attention_mask, inputs_embeds, None if cache is None else -1, "decoder_attention_mask"
        )
        attention_mask = over_cache(attention_mask, seen + length)
        encoder_attention_mask = read_attention_mask(
            self.config, encoder_attention_mask, inputs_embeds, encoder_hidden_states.shape[1]
        )
        flat_mask = attention_mask if two_dimensional(attention_mask) else None
        if position_ids is None:
            if not isinstance(seen, torch.Tensor):
                check_length(self.config, seen + length, "target")
            position_ids = token_positions(flat_mask, length, seen, inputs_embeds.device)
        check_positions_fit(self.config, position_ids, "decoder_position_ids")
        real = None if flat_mask is None else flat_mask[:, -length:, None].to(inputs_embeds.dtype)
        hidden_states = self.embed(inputs_embeds, position_ids, langs, real)
        mask = causal_keys(self.config, inputs_embeds, attention_mask, cache)
        source_mask = padding_keys(self.config, inputs_embeds, encoder_attention_mask, encoder_hidden_states)
        language = row_languages(langs)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                attention_mask=mask,
                source_mask=source_mask,
                language=language,
                real=real,
                cache=cache,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, cache=cache)

    def _start_token(self) -> int | None:
        return self.config.decoder_start_token_id


ENCODER_ARGUMENTS = tuple(inspect.signature(MassNmtEncoder.forward).parameters)
DECODER_ARGUMENTS = tuple(inspect.signature(MassNmtDecoder.forward).parameters)


class MassNmtModel(MassNmtPreTrainedModel):
    """Encoder and decoder without the vocabulary projection.

    Example:
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

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """As upstream, for the embeddings of encoder and decoder.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The encoder's new embeddings.
        """
        self.decoder.resize_token_embeddings(*args, **kwargs)
        return super().resize_token_embeddings(*args, **kwargs)

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
            refuse_unknown_arguments(type(self).__name__, kwargs, MODEL_ARGUMENTS)
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, decoder_position_ids=decoder_position_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, langs, inputs_embeds, return_dict=True, **without_cache(kwargs)
            )
        elif not isinstance(encoder_outputs, dict):  # a tuple, as of `return_dict=False`
            encoder_outputs = MassNmtEncoderOutput(*encoder_outputs[:1])
        source_mask = encoder_outputs.get("cross_attention_mask")
        if source_mask is None:
            known = padding_mask(self.config, input_ids) if attention_mask is None else attention_mask
            source_mask = visible_source(self.config, input_ids, known)
        decoded = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            decoder_langs,
            decoder_position_ids,
            encoder_hidden_states=encoder_outputs["last_hidden_state"],
            encoder_attention_mask=source_mask,
            inputs_embeds=decoder_inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            cache=decoded.cache,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoder_outputs["last_hidden_state"],
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
        )


MODEL_ARGUMENTS = tuple(inspect.signature(MassNmtModel.forward).parameters)


class MassNmtForConditionalGeneration(MassNmtPreTrainedModel, GenerationMixin):
    """MASS for pre-training on masked fragments and for translation.

    `encoder_lm_bias` is the bias of the encoder's own vocabulary projection. Nothing here reads it: checkpoints of the
    reference have it, and go back whole with it.

    Example:
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

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    _prediction_heads = {"lm_head": "vocabulary projection"}

    def __init__(self, config: MassNmtConfig):
        super().__init__(config)
        self.model = MassNmtModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size)
        self.register_buffer("encoder_lm_bias", torch.zeros(config.vocab_size))
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """As upstream, for the embeddings of encoder and decoder and the vocabulary projection.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The encoder's new embeddings.
        """
        self.model.decoder.resize_token_embeddings(*args, **kwargs)
        embeddings = super().resize_token_embeddings(*args, **kwargs)
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

        Args:
            args: as upstream.
            kwargs: as upstream.
        """
        if self.lm_head.weight is self.model.decoder.embed_tokens.weight:
            self.config.tie_word_embeddings = True
        super().save_pretrained(*args, **kwargs)

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
        labels: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Encode the source, decode and, with labels, compute the loss.

        Args:
            input_ids: `(batch, source_len)`; this and the next nine as in `MassNmtModel`.
            attention_mask: `(batch, source_len)`.
            decoder_input_ids: `(batch, target_len)`; </s> and the labels but the last if left out.
            decoder_attention_mask: `(batch, target_len)`.
            langs: `(batch,)`.
            decoder_langs: `(batch,)`.
            decoder_position_ids: `(batch, target_len)`.
            encoder_outputs: the encoder's output.
            inputs_embeds: `(batch, source_len, hidden)`.
            decoder_inputs_embeds: `(batch, target_len, hidden)`.
            labels: `(batch, target_len)`, the token that each decoder position predicts (y1 .. yn </s>, without a
                leading </s>), -100 and the padding token ignored.
            return_logits: whether to compute full logits; `None` (default) means yes, except in training with labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            cache: keys and values of earlier tokens and of the source.
            use_cache: whether to make a cache where none is given (default: `config.use_cache`, False with labels).
            logits_to_keep: compute logits of the last so many tokens only (default 0: all).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `loss`, the mean cross entropy over labels; `logits` `(batch, target_len, vocab_size)`, `None` in training
            with labels unless asked for; the cache.

        Raises:
            ValueError: see `MassNmtEncoder` and `MassNmtDecoder`.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, GENERATION_ARGUMENTS)
        if labels is not None:
            self.config.check_end()
            labels = without_padding(labels, self.config)
            use_cache = bool(use_cache) and cache is not None
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = shift_right(labels, self.config)
        elif self.training and decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError(
                "`decoder_input_ids` must be given in training when `labels` is not. `Trainer` takes `labels` out of "
                "the batch for `label_smoothing_factor` and `compute_loss_func`: use "
                "`DataCollatorForSeq2Seq(tokenizer, model=model)`."
            )
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            langs,
            decoder_langs,
            decoder_position_ids,
            encoder_outputs,
            inputs_embeds,
            decoder_inputs_embeds,
            cache,
            use_cache,
            return_dict=True,
            **kwargs,
        )
        states = outputs.last_hidden_state
        if return_logits is None:
            return_logits = not (self.training and labels is not None)
        logits = self.lm_head(states[:, -logits_to_keep:]) if return_logits else None
        loss = None
        if labels is not None:
            if logits is None or logits_to_keep:
                selected, targets = select_labelled(states, labels)
                flat = self.lm_head(selected)
            else:
                flat, targets = logits.flatten(0, 1), labels.flatten()
            loss = mean_over_targets(summed_cross_entropy(flat, targets), targets, num_items_in_batch)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Decoder input that predicts the labels, for upstream's `DataCollatorForSeq2Seq`.

        Args:
            labels: `(batch, target_len)`, -100 ignored.

        Returns:
            `(batch, target_len)`.
        """
        return shift_right(labels, self.config)

    @torch.no_grad()
    def evaluation_sums(self, labels: torch.Tensor, **inputs: Any) -> dict[str, torch.Tensor]:
        """Sums from which evaluation metrics are made, without ever holding full logits.

        Args:
            labels: as in `forward`.
            inputs: the other inputs of `forward`.

        Returns:
            `{"mass": [sum of cross entropies, correct, number of targets]}`, float64.
        """
        labels = without_padding(labels, self.config)
        if inputs.get("decoder_input_ids") is None and inputs.get("decoder_inputs_embeds") is None:
            inputs["decoder_input_ids"] = shift_right(labels, self.config)
        states = self.model(**inputs, use_cache=False, return_dict=True).last_hidden_state
        return {"mass": target_sums(self.lm_head, *select_labelled(states, labels))}

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
        check_generation(self.config, source, kwargs, self.generation_config)
        refuse_guidance(kwargs, self.generation_config)
        refuse_unknown_arguments(
            type(self).__name__, {"token_type_ids": kwargs.pop("token_type_ids", None)}, MODEL_ARGUMENTS
        )
        encoded = kwargs.get("encoder_outputs") is not None
        if langs is None:
            langs = getattr(self.generation_config, "source_lang", None)
        if decoder_langs is None:
            decoder_langs = getattr(self.generation_config, "target_lang", None)
        if langs is not None or not encoded:
            kwargs["langs"] = language_ids(self.config, langs, batch, device, "langs")
        kwargs["decoder_langs"] = language_ids(self.config, decoder_langs, batch, device, "decoder_langs")
        prompt = kwargs.get("decoder_input_ids")
        if prompt is not None and kwargs.get("decoder_attention_mask") is None:
            mask = padding_mask(self.config, prompt)
            if mask is not None and not mask.all():
                kwargs["decoder_attention_mask"] = mask.long()
        if search_beam_size is not None:
            kwargs = own_search(mass_nmt_beam_search, search_beam_size, kwargs)
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
        if hasattr(kwargs.get("cache"), "prefix_length"):  # a learnt prefix is handed over once
            next_sequence_length = 1
        return super().prepare_inputs_for_generation(
            input_ids, next_sequence_length, decoder_attention_mask=decoder_attention_mask, **kwargs
        )


GENERATION_ARGUMENTS = tuple(inspect.signature(MassNmtForConditionalGeneration.forward).parameters)


def cache_is_empty(cache: Cache | None) -> bool:
    """Whether a cache holds no token, as far as that is known without a look at the device."""
    if cache is None:
        return True
    seen = cache.get_seq_length()
    return not torch.is_tensor(seen) and seen == 0


def without_cache(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments for the encoder, which has no cache."""
    return {name: value for name, value in arguments.items() if name != "use_cache"}


__all__ = [
    "MassNmtBeamSearchOutput",
    "MassNmtForConditionalGeneration",
    "MassNmtModel",
    "MassNmtPreTrainedModel",
    "mass_nmt_beam_search",
]
