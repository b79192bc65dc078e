"""MASS (Song et al. 2019, https://arxiv.org/abs/1905.02450; reference code microsoft/MASS, MASS-summarization).

An encoder reads a text of which a fragment is masked, a decoder predicts the fragment's tokens one after the other:

    loss = mean over fragment positions j of -log p(x_j | x_<j in the fragment, the masked text)

where the decoder is fed the token before each (`decoder_input_ids`) at its original position
(`decoder_position_ids`). Fine-tuning and generation are those of any encoder-decoder; the decoder starts with the end
token. Layers and names are BART's: post-LayerNorm, a LayerNorm behind the embeddings, token embeddings scaled by the
root of the width, one matrix for the embeddings of both sides and the output.

What differs from BART: positions count real tokens, so padding on the left gives the same result as on the right, and
can be given; the position tables have the reference's rows (see `inputs_mass.py`); no output bias; vocabulary logits
are computed only where a label is while training; keyword arguments that nothing reads are refused; no buffers.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin, LogitsProcessorList
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    Seq2SeqSequenceClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .beam_search_mass import mass_beam_search
from .block_mass import refuse_unknown_arguments
from .configuration_mass import AUTO_MAP, HF_PTM_EXT_VERSION, MassConfig
from .generation_mass import EndAtLimitLogitsProcessor, GenerationSettings
from .inputs_mass import (
    MassPositionalEmbedding,
    causal_mask,
    check_position_ids,
    check_source_mask,
    check_start,
    padding_mask,
    real_tokens,
    shift_right,
    source_limit,
    target_limit,
    token_positions,
)
from .layers_mass import MassAttention, MassDecoderLayer, MassEncoderLayer
from .loading_mass import MassLoading
from .losses_mass import (
    mean_over_targets,
    problem_type_loss,
    select_labelled,
    target_sums,
    values_can_be_read,
)
from .mask_contract_mass import (
    over_cache,
    read_attention_mask,
    refuse_learnt_tokens,
    takes_past_key_values,
    two_dimensional,
)
from .search_mass import own_search, refuse_guidance


class MassPreTrainedModel(MassLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all MASS classes."""

    config: MassConfig
    config_class = MassConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # not tested; sdpa has flash kernels of its own
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["MassEncoderLayer", "MassDecoderLayer"]
    # Left behind by fairseq and by the classes that wrote the Hub's checkpoints: versions, and a bias of zeros.
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version$", r"decoder\.version$", r"final_logits_bias$"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _legacy_keys = {r"^module\.": ""}
    _layer_stacks = ("encoder.layers", "decoder.layers")
    _input_parts = ("shared.", "encoder.embed_", "encoder.layernorm_", "decoder.embed_", "decoder.layernorm_")

    def tied_weights(self) -> dict[str, str]:
        """Which parameters are one by the configuration: name -> name of the parameter that it is."""
        return {}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """As upstream, for two kinds of tying: of both embeddings, and of the output matrix.

        Args:
            all_submodels: as upstream.

        Returns:
            Tied name -> name of the parameter that it is.
        """
        return super().get_expanded_tied_weights_keys(True) if all_submodels else self.tied_weights()

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        if not self.config.share_encoder_decoder_embeddings:  # upstream knows of the encoder's table alone
            old = self.base_model.decoder.embed_tokens
            new = self._get_resized_embeddings(old, new_num_tokens, pad_to_multiple_of, mean_resizing)
            new.requires_grad_(old.weight.requires_grad)
            self.base_model.decoder.embed_tokens = new
        return super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)


class MassStack(MassPreTrainedModel):
    """What encoder and decoder share: embeddings of tokens and positions, LayerNorm, dropout."""

    def __init__(self, config: MassConfig, num_positions: int):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = MassPositionalEmbedding(num_positions, config.d_model, config.pad_token_id)
        self.layernorm_embedding = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embed_tokens = value

    def token_embeddings(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, side: str = ""
    ) -> torch.Tensor:
        """Unscaled embeddings `(batch, seq_len, hidden)` from exactly one of the two."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"Exactly one of `{side}input_ids` and `{side}inputs_embeds` must be given.")
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def embed(self, inputs_embeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Input of the first layer, `(batch, seq_len, hidden)`."""
        if self.config.scale_embedding:
            inputs_embeds = inputs_embeds * self.config.d_model**0.5
        return self.dropout(self.layernorm_embedding(inputs_embeds + self.embed_positions(positions)))


class MassEncoder(MassStack):
    """The encoder: embeddings and `config.encoder_layers` layers."""

    _can_record_outputs = {"hidden_states": MassEncoderLayer, "attentions": MassAttention}

    def __init__(self, config: MassConfig):
        super().__init__(config, source_limit(config))
        self.layers = nn.ModuleList([MassEncoderLayer(config, index) for index in range(config.encoder_layers)])
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode.

        Args:
            input_ids: `(batch, source_len)`.
            attention_mask: `(batch, source_len)`, 1 real and 0 padding; read off the padding token if left out.
            inputs_embeds: `(batch, source_len, hidden)` instead of `input_ids`, not scaled.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `last_hidden_state` `(batch, source_len, hidden)`, meaningless at padding.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, or more tokens than positions.
        """
        embeds = self.token_embeddings(input_ids, inputs_embeds)
        if attention_mask is None:
            attention_mask = real_tokens(self.config, input_ids)
        attention_mask = read_attention_mask(self.config, attention_mask, embeds)
        positions = token_positions(attention_mask, embeds, source_limit(self.config), "source")
        hidden_states = self.embed(embeds, positions)
        mask = padding_mask(self.config, hidden_states, attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)


class MassDecoder(MassStack):
    """The decoder: embeddings and `config.decoder_layers` layers."""

    _can_record_outputs = {
        "hidden_states": MassDecoderLayer,
        "attentions": OutputRecorder(MassAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(MassAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: MassConfig):
        super().__init__(config, target_limit(config))
        self.layers = nn.ModuleList([MassDecoderLayer(config, index) for index in range(config.decoder_layers)])
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode.

        Args:
            input_ids: `(batch, target_len)` tokens fed.
            attention_mask: `(batch, cached + target_len)`, 1 real and 0 padding; needed for padding on the left only.
            encoder_hidden_states: `(batch, source_len, hidden)`.
            encoder_attention_mask: `(batch, source_len)`.
            position_ids: `(batch, target_len)` 0-based positions of the tokens fed, -1 at padding; counted if left
                out.
            cache: keys and values of earlier tokens and of the source.
            inputs_embeds: `(batch, target_len, hidden)` instead of `input_ids`, not scaled.
            use_cache: whether to make a cache if none is given (default: the configuration's).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `last_hidden_state` `(batch, target_len, hidden)` and the cache.

        Raises:
            ValueError: not exactly one of the two inputs, no encoder states, tokens that begin with padding without a
                mask, or positions outside the table.
            TypeError: `cache` is no `transformers.Cache`.
        """
        embeds = self.token_embeddings(input_ids, inputs_embeds, "decoder_")
        if encoder_hidden_states is None:
            raise ValueError("`encoder_hidden_states` must be given: every layer attends to the source.")
        if cache is not None and not isinstance(cache, Cache | EncoderDecoderCache):
            raise TypeError(f"`cache` must be a `transformers.Cache`, got {type(cache).__name__}.")
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        past = 0 if cache is None else cache.get_seq_length()
        attention_mask = read_attention_mask(
            self.config, attention_mask, embeds, None if cache is None else -1, "decoder_attention_mask"
        )
        attention_mask = over_cache(attention_mask, past + embeds.shape[1])
        encoder_attention_mask = read_attention_mask(
            self.config, encoder_attention_mask, embeds, encoder_hidden_states.shape[1]
        )
        if attention_mask is None and input_ids is not None:
            self.check_no_leading_padding(input_ids)
        if position_ids is None:
            positions = token_positions(attention_mask, embeds, target_limit(self.config), "target", past)
        else:
            positions = position_ids
            check_position_ids(positions, embeds.shape[1], target_limit(self.config))
        hidden_states = self.embed(embeds, positions)
        own_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        mask = causal_mask(self.config, hidden_states, attention_mask, own_cache)
        source_mask = padding_mask(self.config, hidden_states, encoder_attention_mask, encoder_hidden_states)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, mask, encoder_hidden_states, encoder_attention_mask=source_mask, cache=cache, **kwargs
            )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, cache=cache)

    def check_no_leading_padding(self, input_ids: torch.Tensor) -> None:
        """Padding in front of a target needs a mask: without one the target would see it."""
        pad = self.config.pad_token_id
        if input_ids.shape[1] < 2 or pad == self.config.decoder_start_token_id or not values_can_be_read(input_ids):
            return
        if ((input_ids[:, 0] == pad) & (input_ids != pad).any(dim=1)).any():
            raise ValueError(
                "`decoder_input_ids` that begin with padding need `decoder_attention_mask`. Pad targets on the right, "
                "or give the mask."
            )


class MassModel(MassPreTrainedModel):
    """The bare encoder and decoder.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassModel
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
        ...     decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, bos_token_id=2, eos_token_id=3,
        ...     decoder_start_token_id=3,
        ... )
        >>> model = MassModel(config).eval()
        >>> masked = torch.tensor([[7, 8, 4, 4, 9, 3]])  # the fragment at positions 2 and 3 is hidden
        >>> output = model(
        ...     masked,
        ...     decoder_input_ids=torch.tensor([[8, 10]]),  # what stands before each hidden token
        ...     decoder_position_ids=torch.tensor([[1, 2]]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 2, 32])
    """

    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: MassConfig):
        super().__init__(config)
        shares = config.share_encoder_decoder_embeddings
        self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id) if shares else None
        self.encoder = MassEncoder(config)
        self.decoder = MassDecoder(config)
        self.post_init()

    def tied_weights(self) -> dict[str, str]:
        return dict(self._tied_weights_keys) if self.shared is not None else {}

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens if self.shared is None else self.shared

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value
        if self.shared is not None:
            self.shared = self.decoder.embed_tokens = value

    @can_return_tuple
    @takes_past_key_values
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """Encode and decode.

        Args:
            input_ids: `(batch, source_len)`, ending with the end token.
            attention_mask: `(batch, source_len)`, 1 real and 0 padding on either side; read off the padding token if
                left out.
            decoder_input_ids: `(batch, target_len)` tokens fed to the decoder; the source shifted right, as in BART,
                if left out.
            decoder_attention_mask: `(batch, cached + target_len)`; needed for targets padded on the left only.
            decoder_position_ids: `(batch, target_len)` 0-based positions of the tokens fed in the original sequence,
                -1 at padding; counted if left out.
            encoder_outputs: what the encoder returned, to be used again.
            cache: keys and values of earlier tokens and of the source.
            inputs_embeds: `(batch, source_len, hidden)` instead of `input_ids`, not scaled.
            decoder_inputs_embeds: `(batch, target_len, hidden)` instead of `decoder_input_ids`, not scaled.
            use_cache: whether the decoder makes a cache (default: the configuration's).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, target_len, hidden)`, the cache and the encoder's
            `encoder_last_hidden_state` `(batch, source_len, hidden)`.

        Raises:
            ValueError: source or target longer than their positions, positions outside the table, an input missing
                or given twice.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, MODEL_ARGUMENTS)
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, decoder_position_ids=decoder_position_ids)
        if attention_mask is None:
            attention_mask = real_tokens(self.config, input_ids)
        check_source_mask(attention_mask)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if input_ids is None:
                raise ValueError(
                    "`decoder_input_ids` or `decoder_inputs_embeds` must be given: without `input_ids` there is "
                    "nothing to make them from."
                )
            shown = two_dimensional(attention_mask)
            decoder_attention_mask = attention_mask if shown else real_tokens(self.config, input_ids)
            check_start(self.config.decoder_start_token_id, self.config.vocab_size)
            decoder_input_ids = shift_right(
                input_ids, decoder_attention_mask.bool(), self.config.decoder_start_token_id, self.config.pad_token_id
            )
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **kwargs,
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
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
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


MODEL_ARGUMENTS = tuple(inspect.signature(MassModel.forward).parameters)


class MassForConditionalGeneration(MassPreTrainedModel, GenerationMixin):
    """MASS with its output matrix: pre-training, fine-tuning, generation.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassForConditionalGeneration
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
        ...     decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, bos_token_id=2, eos_token_id=3,
        ...     decoder_start_token_id=3,
        ... )
        >>> model = MassForConditionalGeneration(config)
        >>> source = torch.tensor([[7, 8, 9, 3], [7, 3, 0, 0]])
        >>> model(source, labels=torch.tensor([[8, 9, 3], [7, 3, -100]])).loss.dim()
        0
        >>> model.eval().generate(source, max_new_tokens=5, min_new_tokens=5, do_sample=False).shape
        torch.Size([2, 6])
    """

    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}
    _prediction_heads = {"lm_head": "output matrix"}

    def __init__(self, config: MassConfig):
        super().__init__(config)
        self.model = MassModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def tied_weights(self) -> dict[str, str]:
        if not self.config.tie_word_embeddings:
            return {}
        table = "decoder.embed_tokens" if self.model.shared is None else "shared"
        return {"lm_head.weight": f"model.{table}.weight"}

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    @can_return_tuple
    @takes_past_key_values
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Encode, decode and, with labels, compute the loss.

        Args:
            input_ids: `(batch, source_len)`; this and the next eight as in `MassModel`.
            attention_mask: `(batch, source_len)`.
            decoder_input_ids: `(batch, target_len)`; the labels shifted right, the start token first, if left out.
            decoder_attention_mask: `(batch, cached + target_len)`.
            decoder_position_ids: `(batch, target_len)`.
            encoder_outputs: what the encoder returned.
            cache: keys and values of earlier tokens and of the source.
            inputs_embeds: `(batch, source_len, hidden)`.
            decoder_inputs_embeds: `(batch, target_len, hidden)`.
            labels: `(batch, target_len)` tokens to predict; -100 and, as in the reference, the padding token are
                ignored.
            use_cache: whether the decoder makes a cache (default: the configuration's; never with labels).
            return_logits: whether to compute full logits; `None` (default) means yes, except in training with labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` (mean over labels, smoothed by `config.label_smoothing` as fairseq does: (1 - eps) times the
            cross entropy plus eps times the mean of -log p over the vocabulary), `logits` `(batch, target_len,
            vocab_size)` (`None` in training with labels unless asked for), the cache and the encoder's states.

        Raises:
            ValueError: as `MassModel`; or nothing says what the decoder is fed in training.
        """
        fed = decoder_input_ids is not None or decoder_inputs_embeds is not None
        if labels is not None:
            self.config.check_end()
            use_cache = False
            labels = labels.masked_fill(labels == self.config.pad_token_id, -100)
            if not fed:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
                if decoder_attention_mask is None:
                    decoder_attention_mask = mask_of_labels(labels)
        elif self.training and not fed:
            raise ValueError(
                "`decoder_input_ids` must be given in training when `labels` is not. `Trainer` takes `labels` out of "
                "the batch for `label_smoothing_factor` and `compute_loss_func`: use "
                "`DataCollatorForSeq2Seq(tokenizer, model=model)`, or `config.label_smoothing` instead."
            )
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            decoder_position_ids,
            encoder_outputs,
            cache,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache,
            return_dict=True,
            **kwargs,
        )
        states = outputs.last_hidden_state
        if return_logits is None:
            return_logits = not (self.training and labels is not None)
        logits = self.lm_head(states) if return_logits else None
        loss = None
        if labels is not None:
            if logits is None:
                selected, targets = select_labelled(states, labels)
                flat = self.lm_head(selected)
            else:
                flat, targets = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
            loss_sum = nn.functional.cross_entropy(
                flat.float(), targets, reduction="sum", label_smoothing=self.config.label_smoothing
            )
            loss = mean_over_targets(loss_sum, targets, num_items_in_batch)
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
        """What the decoder is fed for these labels, for `DataCollatorForSeq2Seq`.

        Args:
            labels: `(batch, target_len)`, -100 or the padding token where there is none, on either side.

        Returns:
            `(batch, target_len)`: the start token, then each label but the last, between the same padding.
        """
        check_start(self.config.decoder_start_token_id, self.config.vocab_size)
        pad = self.config.pad_token_id
        real = (labels != -100) & (labels != pad)
        return shift_right(labels, real, self.config.decoder_start_token_id, pad)

    @torch.no_grad()
    def evaluation_sums(self, labels: torch.Tensor, **inputs: Any) -> dict[str, torch.Tensor]:
        """Sums from which evaluation metrics are made, without ever holding full logits.

        Args:
            labels: as in `forward`.
            inputs: the other inputs of `forward`.

        Returns:
            `{"mass": [sum of cross entropies without smoothing, correct, number of targets]}`, float64.
        """
        labels = labels.masked_fill(labels == self.config.pad_token_id, -100)
        if inputs.get("decoder_input_ids") is None and inputs.get("decoder_inputs_embeds") is None:
            inputs["decoder_input_ids"] = self.prepare_decoder_input_ids_from_labels(labels)
            inputs.setdefault("decoder_attention_mask", mask_of_labels(labels))
        states = self.model(**{**inputs, "use_cache": False, "return_dict": True}).last_hidden_state
        return {"mass": target_sums(self.lm_head, *select_labelled(states, labels))}

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        eos_at_limit: bool = False,
        search_beam_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate as upstream does, by any of its strategies, or by fairseq's beam search.

        Args:
            inputs: `(batch, source_len)` sources, also accepted as `input_ids`; padding on either side, marked by
                `attention_mask` or by the padding token.
            eos_at_limit: whether the last token must be the end token, at its own log-probability as in fairseq
                (default False: hypotheses are cut off at the limit). Replaces `forced_eos_token_id`, which scores it
                0.
            search_beam_size: number of beams of fairseq's beam search (see `mass_beam_search`), which gives the
                reference's hypotheses and scores; upstream's (`num_beams`) keeps other ones of those that end.
            kwargs: as upstream; `max_new_tokens` counts the target, `max_length` the start token too.

        Returns:
            Targets, `(batch, length)`, beginning with the start token; or upstream's output object.

        Raises:
            ValueError: the target may become longer than the decoder's positions, its start token is not in the
                vocabulary, or there is no end token for `eos_at_limit`.
        """
        settings = GenerationSettings(kwargs, self.generation_config)
        start = settings["decoder_start_token_id"]
        check_start(start, self.config.vocab_size)
        settings.check_target(start, target_limit(self.config))
        sources = kwargs.get("input_ids") if inputs is None else inputs
        if sources is not None and kwargs.get("attention_mask") is None:
            kwargs["attention_mask"] = real_tokens(self.config, sources).long()
        refuse_guidance(kwargs, self.generation_config)
        refuse_unknown_arguments(
            type(self).__name__, {"token_type_ids": kwargs.pop("token_type_ids", None)}, MODEL_ARGUMENTS
        )
        if eos_at_limit:
            if settings["eos_token_id"] is None:
                raise ValueError("`eos_at_limit` needs an end token: set `eos_token_id`.")
            processor = EndAtLimitLogitsProcessor(settings.max_length(start), settings["eos_token_id"])
            kwargs["logits_processor"] = LogitsProcessorList([*(kwargs.get("logits_processor") or []), processor])
            kwargs["forced_eos_token_id"] = None
        if search_beam_size is not None:
            kwargs = own_search(mass_beam_search, search_beam_size, kwargs)
        return super().generate(inputs, **kwargs)

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, next_sequence_length: int | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """As upstream; a learnt prefix is handed over once, so its cache goes on whatever `use_cache` says."""
        if hasattr(kwargs.get("cache"), "prefix_length"):
            next_sequence_length = 1
        return super().prepare_inputs_for_generation(input_ids, next_sequence_length, **kwargs)


def mask_of_labels(labels: torch.Tensor) -> torch.Tensor | None:
    """The decoder's mask for labels, `None` where they are seen to begin every row: then none is needed.

    Args:
        labels: `(batch, target_len)`, -100 where there is none.

    Returns:
        `(batch, target_len)` boolean, true from a row's first label on, or `None`.
    """
    begun = (labels != -100).long().cumsum(dim=1) > 0
    begun = begun | ~begun[:, -1:]  # a row without labels hides nothing
    return None if values_can_be_read(labels) and begun.all() else begun


class MassClassificationHead(nn.Module):
    """Dense, tanh and projection over one state per row (`classification_head` in the state dict)."""

    def __init__(self, config: MassConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out_proj = nn.Linear(config.d_model, config.num_labels)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, hidden)` to `(batch, num_labels)`."""
        return self.out_proj(self.dropout(torch.tanh(self.dense(self.dropout(states)))))


class MassForSequenceClassification(MassPreTrainedModel):
    """MASS with a classification or regression head on the decoder's state at the last token, as BART's.

    The text is fed to both sides; the reference has no such head.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassForSequenceClassification
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
        ...     decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, bos_token_id=2, eos_token_id=3,
        ...     decoder_start_token_id=3, num_labels=3,
        ... )
        >>> model = MassForSequenceClassification(config)
        >>> output = model(torch.tensor([[7, 8, 3], [9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: MassConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = MassModel(config)
        self.classification_head = MassClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqSequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: `(batch, source_len)`; this and the next seven as in `MassModel`.
            attention_mask: `(batch, source_len)`.
            decoder_input_ids: `(batch, target_len)`; the source shifted right if left out.
            decoder_attention_mask: `(batch, target_len)`.
            decoder_position_ids: `(batch, target_len)`.
            encoder_outputs: what the encoder returned.
            inputs_embeds: `(batch, source_len, hidden)`; needs one of the decoder's inputs.
            decoder_inputs_embeds: `(batch, target_len, hidden)`.
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.

        Raises:
            ValueError: as `MassModel`, and a `problem_type` that does not exist.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            decoder_position_ids,
            encoder_outputs,
            None,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache=False,
            return_dict=True,
            **{name: value for name, value in kwargs.items() if name != "use_cache"},
        )
        states = outputs.last_hidden_state
        real = decoder_attention_mask if two_dimensional(decoder_attention_mask) else None
        if real is None and decoder_inputs_embeds is None:
            shifted = decoder_input_ids is None
            real = attention_mask if shifted and two_dimensional(attention_mask) else None
            if real is None:
                real = real_tokens(self.config, input_ids if shifted else decoder_input_ids)
        last = torch.full_like(states[:, 0, 0], states.shape[1] - 1, dtype=torch.long)
        if real is not None:
            columns = torch.arange(1, states.shape[1] + 1, device=states.device)
            last = (real.long() * columns).argmax(dim=1)
        logits = self.classification_head(states[torch.arange(states.shape[0], device=states.device), last])
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return Seq2SeqSequenceClassifierOutput(
            loss=loss,
            logits=logits,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


__all__ = [
    "MassForConditionalGeneration",
    "MassForSequenceClassification",
    "MassModel",
    "MassPreTrainedModel",
]
