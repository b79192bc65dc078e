"""The encoder-decoder of MASS and MASS-NMT: post-LayerNorm layers under BART's state-dict names.

encoder:  x = LN(x + attention(x));  x = LN(x + fc2(act(fc1(x))))
decoder:  x = LN(x + causal attention(x));  x = LN(x + attention(x, encoder));  x = LN(x + fc2(act(fc1(x))))
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions, Seq2SeqModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils.output_capturing import OutputRecorder

from .encoder_core import eager_attention_forward, is_plain_linear
from .loading_core import CheckedLoading
from .losses_core import values_can_be_read
from .mask_contract_core import finished_mask, flex_mask, over_cache, read_attention_mask, two_dimensional


class Seq2SeqAttention(nn.Module):
    """Multi-head attention over the same states or, as cross-attention, over the encoder's."""

    def __init__(self, config: Any, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = is_causal
        self.dropout = config.attention_dropout
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, self.new_projection(name))

    def new_projection(self, name: str) -> nn.Module:
        """One of the four projections."""
        return nn.Linear(self.config.d_model, self.config.d_model)

    def project(
        self, states: torch.Tensor, *names: str, language: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Several projections of the same states, in one product where that is exact and pays: not for one token."""
        modules = [getattr(self, name) for name in names]
        if len(modules) > 1 and states.shape[1] > 1 and all(is_plain_linear(module) for module in modules):
            weight = torch.cat([module.weight for module in modules])
            bias = torch.cat([module.bias for module in modules])
            return nn.functional.linear(states, weight, bias).chunk(len(modules), dim=-1)
        return tuple(module(states) for module in modules)

    def heads(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, heads, seq_len, head_dim)` from `(batch, seq_len, hidden)`."""
        return states.reshape(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def keys_and_queries(
        self,
        hidden_states: torch.Tensor,
        encoder_states: torch.Tensor | None,
        cache: EncoderDecoderCache | None,
        language: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value, the latter two with those of the cache; a source is projected once."""
        if encoder_states is None:
            query, key, value = map(self.heads, self.project(hidden_states, "q_proj", "k_proj", "v_proj"))
            if cache is not None:
                key, value = cache.self_attention_cache.update(key, value, self.layer_idx)
            return query, key, value
        (query,) = map(self.heads, self.project(hidden_states, "q_proj", language=language))
        if cache is not None and cache.is_updated.get(self.layer_idx):
            kept: Any = cache.cross_attention_cache.layers[self.layer_idx]
            return query, kept.keys, kept.values
        key, value = map(self.heads, self.project(encoder_states, "k_proj", "v_proj", language=language))
        if cache is not None:
            key, value = cache.cross_attention_cache.update(key, value, self.layer_idx)
            cache.is_updated[self.layer_idx] = True
        return query, key, value

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        encoder_states: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        language: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend; `encoder_states` make it cross-attention, `language` is for families with projections of each."""
        query, key, value = self.keys_and_queries(hidden_states, encoder_states, cache, language)
        attention: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        (output,) = self.project(context.reshape(hidden_states.shape), "out_proj", language=language)
        return output, weights


class Seq2SeqLayer(GradientCheckpointingLayer):
    """What layers of encoder and decoder share: attention over the same states, and the feed-forward block."""

    def __init__(self, config: Any, num_heads: int, ffn_dim: int, layer_idx: int, is_causal: bool):
        super().__init__()
        self.self_attn = Seq2SeqAttention(config, num_heads, layer_idx, is_causal)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.activation_fn = ACT2FN[config.activation_function]
        # One module per place, so that adapters can stand behind each.
        self.self_attn_dropout = nn.Dropout(config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        has_inner_dropout = hasattr(config, "activation_dropout")
        self.activation_dropout = nn.Dropout(config.activation_dropout if has_inner_dropout else 0.0)

    def attend_to_itself(self, states: torch.Tensor, attention_mask: Any, **kwargs: Any) -> torch.Tensor:
        """The first block, `(batch, seq_len, hidden)`."""
        attended, _ = self.self_attn(states, attention_mask, **kwargs)
        return self.self_attn_layer_norm(states + self.self_attn_dropout(attended))

    def feed_forward(self, states: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
        """The last block; `real` is `(batch, seq_len, 1)`, 0 where states become 0, or `None`."""
        inner = self.activation_dropout(self.activation_fn(self.fc1(states)))
        states = self.final_layer_norm(states + self.dropout(self.fc2(inner)))
        return states if real is None else states * real


class Seq2SeqEncoderLayer(Seq2SeqLayer):
    """One layer of the encoder; returns one tensor."""

    def __init__(self, config: Any, layer_idx: int):
        super().__init__(config, config.encoder_attention_heads, config.encoder_ffn_dim, layer_idx, is_causal=False)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: Any = None, real: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Layer output `(batch, source_len, hidden)`."""
        return self.feed_forward(self.attend_to_itself(hidden_states, attention_mask, **kwargs), real)


class Seq2SeqDecoderLayer(Seq2SeqLayer):
    """One layer of the decoder; returns one tensor."""

    def __init__(self, config: Any, layer_idx: int, cross_attention: type[Seq2SeqAttention] = Seq2SeqAttention):
        super().__init__(config, config.decoder_attention_heads, config.decoder_ffn_dim, layer_idx, is_causal=True)
        self.encoder_attn = cross_attention(config, config.decoder_attention_heads, layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.encoder_attn_dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: Any = None,
        encoder_attention_mask: Any = None,
        language: torch.Tensor | None = None,
        real: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Layer output `(batch, target_len, hidden)`."""
        states = self.attend_to_itself(hidden_states, attention_mask, cache=cache, **kwargs)
        crossed, _ = self.encoder_attn(
            states, encoder_attention_mask, encoder_hidden_states, cache=cache, language=language, **kwargs
        )
        return self.feed_forward(self.encoder_attn_layer_norm(states + self.encoder_attn_dropout(crossed)), real)


class Seq2SeqPreTrainedModel(CheckedLoading, PreTrainedModel):
    """Base of a family's base class."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # upstream hides queries by the source's mask if source and target are as long
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["Seq2SeqEncoderLayer", "Seq2SeqDecoderLayer"]
    _legacy_keys = {r"^module\.": ""}
    _layer_stacks = ("encoder.layers", "decoder.layers")
    _input_parts = ("shared.", "encoder.embed_", "encoder.layernorm_", "decoder.embed_", "decoder.layernorm_")


class Seq2SeqStack:
    """Mixin in front of a family's base class, for the encoder: embeddings and a way through the layers."""

    embed_tokens: Any
    _can_record_outputs: Any = {"hidden_states": Seq2SeqLayer, "attentions": Seq2SeqAttention}

    def get_input_embeddings(self: Any) -> nn.Module:
        return self.embed_tokens

    def set_input_embeddings(self: Any, value: nn.Module) -> None:
        self.embed_tokens = value

    def token_embeddings(
        self: Any, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, side: str = ""
    ) -> torch.Tensor:
        """Embeddings `(batch, seq_len, hidden)` of tokens alone, from exactly one of the two."""
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither" if input_ids is None else "both"
            raise ValueError(f"Exactly one of `{side}input_ids` and `{side}inputs_embeds` must be given, got {got}.")
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def encode(self: Any, hidden_states: torch.Tensor, attention_mask: Any, **kwargs: Any) -> torch.Tensor:
        """Embedded tokens through all layers, none of which sees padding."""
        mask = padding_mask(self.config, hidden_states, attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, **kwargs)
        return hidden_states


class Seq2SeqDecoderStack(Seq2SeqStack):
    """The same for the decoder, which has a cache and sees a source."""

    _can_record_outputs: Any = {
        "hidden_states": OutputRecorder(Seq2SeqLayer, num_hidden_layers_key="decoder_layers"),
        "attentions": OutputRecorder(Seq2SeqAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(Seq2SeqAttention, index=1, layer_name="encoder_attn"),
    }

    def used_cache(self: Any, cache: Any, use_cache: bool | None) -> EncoderDecoderCache | None:
        """The cache given or, if one is asked for, a new one."""
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            raise TypeError(f"`cache` must be a `transformers.EncoderDecoderCache`, got {type(cache).__name__}.")
        if cache is None and use_cache:
            return EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        return cache

    def read_masks(
        self: Any,
        embeds: torch.Tensor,
        attention_mask: Any,
        encoder_states: torch.Tensor | None,
        encoder_mask: Any,
        cache: EncoderDecoderCache | None,
    ) -> tuple[Any, Any]:
        """The masks of target and source, see `read_attention_mask`; the target's is one over the cache too."""
        if encoder_states is None:
            raise ValueError(f"`encoder_hidden_states` must be given, got {encoder_states}: a decoder reads a source.")
        width = embeds.shape[1] if cache is None else cache.get_seq_length() + embeds.shape[1]
        keys = None if cache is None else -1
        mask = read_attention_mask(self.config, attention_mask, embeds, keys, "decoder_attention_mask")
        return over_cache(mask, width), read_attention_mask(self.config, encoder_mask, embeds, encoder_states.shape[1])

    def positions(
        self: Any,
        embeds: torch.Tensor,
        attention_mask: Any,
        position_ids: torch.Tensor | None,
        cache: EncoderDecoderCache | None,
    ) -> torch.Tensor:
        """The positions given, checked, or those counted."""
        if position_ids is None:
            past = 0 if cache is None else cache.get_seq_length()
            return token_positions(self.config, attention_mask, embeds, "target", past)
        check_position_ids(position_ids, embeds.shape[1], position_limit(self.config, "target"))
        return position_ids

    def decode(
        self: Any,
        hidden_states: torch.Tensor,
        attention_mask: Any,
        encoder_states: torch.Tensor | None,
        encoder_mask: Any,
        cache: EncoderDecoderCache | None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Embedded tokens through all layers."""
        own_cache = None if cache is None else cache.self_attention_cache
        mask = causal_mask(self.config, hidden_states, attention_mask, own_cache)
        source_mask = padding_mask(self.config, hidden_states, encoder_mask, encoder_states)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_states,  # by position: reentrant checkpointing gives others no gradient
                attention_mask=mask,
                encoder_attention_mask=source_mask,
                cache=cache,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, cache=cache)


def seq2seq_output(encoded: Any, decoded: Any) -> Seq2SeqModelOutput:
    """What the bare model returns."""
    return Seq2SeqModelOutput(
        last_hidden_state=decoded.last_hidden_state,
        cache=decoded.cache,
        decoder_hidden_states=decoded.hidden_states,
        decoder_attentions=decoded.attentions,
        cross_attentions=decoded.cross_attentions,
        encoder_last_hidden_state=encoded.last_hidden_state,
        encoder_hidden_states=encoded.get("hidden_states"),
        encoder_attentions=encoded.get("attentions"),
    )


def position_limit(config: Any, side: str) -> int:
    """Tokens that a "source" or a "target" may have."""
    if not hasattr(config, f"max_{side}_positions"):
        return config.max_position_embeddings
    own = config.max_source_positions if side == "source" else config.max_target_positions
    return config.max_position_embeddings if own is None else own


def real_tokens(config: Any, input_ids: torch.Tensor | None) -> torch.Tensor | None:
    """The mask that the reference codes read off the ids: whatever is not padding is real."""
    return None if input_ids is None or config.pad_token_id is None else input_ids != config.pad_token_id


def token_positions(
    config: Any, mask: Any, embeddings: torch.Tensor, side: str, past: int | torch.Tensor = 0
) -> torch.Tensor:
    """Positions of the tokens that a side is fed, -1 at padding."""
    seq_len, limit = embeddings.shape[1], position_limit(config, side)
    counted = two_dimensional(mask)
    if counted:
        real = mask.to(torch.bool).long()
        positions, width = (real.cumsum(dim=1) * real - 1)[:, -seq_len:], mask.shape[1]
    else:
        positions = torch.arange(seq_len, device=embeddings.device)[None] + past
        width = limit if torch.is_tensor(past) else past + seq_len  # a static cache has no more room than its size
    if width > limit:
        readable = counted and not (torch.compiler.is_compiling() or mask.is_meta)
        longest = int(positions.max()) + 1 if readable else width
        if longest > limit:
            how = "truncate it" if side == "source" else "truncate it, or lower `max_new_tokens` in generation"
            raise ValueError(
                f"The {side} has {longest} tokens and there are {limit} positions (`max_position_embeddings`, or "
                f"`max_{side}_positions` of a config that has it): {how}."
            )
    return positions


def check_position_ids(positions: torch.Tensor, seq_len: int, limit: int) -> None:
    """Refuse positions of another shape or, where looking costs nothing, outside the table."""
    if positions.shape[-1] != seq_len:
        raise ValueError(
            f"`decoder_position_ids` must have one position for each of the {seq_len} tokens fed, got the shape "
            f"{tuple(positions.shape)}."
        )
    if not values_can_be_read(positions) or not positions.numel():
        return
    lowest, highest = int(positions.min()), int(positions.max())
    if lowest < -1 or highest >= limit:
        raise ValueError(
            f"`decoder_position_ids` must be positions 0 <= position < {limit} (`max_position_embeddings`, or "
            f"`max_target_positions` of a config that has it) or -1 at padding, got "
            f"{lowest if lowest < -1 else highest}. They are counted from 0 at the first token of the original "
            "sequence."
        )


def padding_mask(config: Any, states: torch.Tensor, mask: Any, encoder_states: torch.Tensor | None = None) -> Any:
    """What the attention implementation takes to hide padding keys, those of `encoder_states` in cross-attention."""
    if mask is not None and not two_dimensional(mask):
        return finished_mask(config, states, mask)
    if config._attn_implementation == "flex_attention" and mask is not None:
        real = mask.to(torch.bool)
        return flex_mask(lambda batch, head, q, kv: real[batch, kv], states, mask.shape[1])
    # Upstream leaves out a mask of ones, but looking at it makes an accelerator wait.
    may_look = mask is None or values_can_be_read(mask)
    return create_bidirectional_mask(
        config, states, mask, encoder_hidden_states=encoder_states, allow_is_bidirectional_skip=may_look
    )


def causal_mask(config: Any, states: torch.Tensor, mask: Any, cache: Cache | None) -> Any:
    """What the attention implementation takes to hide later tokens, and padding if there is a mask.

    A finished mask hides later tokens itself; without one, padding behind the real tokens cannot be seen anyway.
    """
    if mask is not None and not two_dimensional(mask):
        return finished_mask(config, states, mask)
    if config._attn_implementation == "flex_attention":
        queries = states.shape[1]
        past = 0 if cache is None else cache.get_seq_length()
        keys = queries if cache is None else cache.get_mask_sizes(queries, 0)[0]
        if mask is None:
            return flex_mask(lambda batch, head, q, kv: kv <= q + past, states, keys)
        real = nn.functional.pad(mask.to(torch.bool), (0, keys - mask.shape[1]))
        return flex_mask(lambda batch, head, q, kv: (kv <= q + past) & real[batch, kv], states, keys)
    may_look = mask is None or values_can_be_read(mask)
    return create_causal_mask(config, states, mask, cache, allow_is_causal_skip=may_look)
