"""MASS's layers: post-LayerNorm transformer layers of encoder and decoder, under BART's state-dict names.

    encoder:  x = LN(x + attention(x));  x = LN(x + fc2(act(fc1(x))))
    decoder:  x = LN(x + causal attention(x));  x = LN(x + attention(x, encoder));  x = LN(x + fc2(act(fc1(x))))

Projections of the same states are one matrix product at run time where all are plain `nn.Linear` modules; as soon as
one is wrapped, hooked or parametrised, each runs as the module it is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .block_mass import eager_attention_forward, is_plain_linear
from .configuration_mass import MassConfig


def project(states: torch.Tensor, *modules: nn.Module) -> tuple[torch.Tensor, ...]:
    """Apply several projections to the same states, in one product where that is exact.

    Args:
        states: `(batch, seq_len, hidden)`.
        modules: the projections.

    Returns:
        One `(batch, seq_len, hidden)` for each.
    """
    if all(is_plain_linear(module) for module in modules):
        weight = torch.cat([module.weight for module in modules])
        bias = torch.cat([module.bias for module in modules])
        return nn.functional.linear(states, weight, bias).chunk(len(modules), dim=-1)
    return tuple(module(states) for module in modules)


class MassAttention(nn.Module):
    """Multi-head attention over the same states or, as cross-attention, over the encoder's."""

    def __init__(self, config: MassConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.num_heads = num_heads
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = is_causal
        self.dropout = config.attention_dropout
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def heads(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, heads, seq_len, head_dim)` from `(batch, seq_len, hidden)`."""
        return states.reshape(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_states: torch.Tensor | None = None,
        attention_mask: Any = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            encoder_states: `(batch, source_len, hidden)`: makes it cross-attention.
            attention_mask: what the configured attention implementation takes, or `None`.
            cache: keys and values of earlier tokens and, for cross-attention, of the source.
            kwargs: passed on to the attention implementation.

        Returns:
            The output `(batch, seq_len, hidden)` and the weights (`None` unless eager).
        """
        crosses = encoder_states is not None
        kept = cache
        if isinstance(cache, EncoderDecoderCache):
            kept = cache.cross_attention_cache if crosses else cache.self_attention_cache
        if crosses and isinstance(cache, EncoderDecoderCache) and cache.is_updated.get(self.layer_idx):
            query = self.heads(self.q_proj(hidden_states))
            key, value = kept.layers[self.layer_idx].keys, kept.layers[self.layer_idx].values
        else:
            if crosses:
                query = self.heads(self.q_proj(hidden_states))
                key, value = map(self.heads, project(encoder_states, self.k_proj, self.v_proj))
            else:
                query, key, value = map(self.heads, project(hidden_states, self.q_proj, self.k_proj, self.v_proj))
            if kept is not None:
                key, value = kept.update(key, value, self.layer_idx)
            if crosses and isinstance(cache, EncoderDecoderCache):
                cache.is_updated[self.layer_idx] = True
        attention: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
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
        return self.out_proj(context.reshape(hidden_states.shape)), weights


class MassLayer(GradientCheckpointingLayer):
    """What layers of encoder and decoder share: attention over the same states, and the feed-forward block."""

    def __init__(self, config: MassConfig, num_heads: int, ffn_dim: int, layer_idx: int, is_causal: bool):
        super().__init__()
        self.self_attn = MassAttention(config, num_heads, layer_idx, is_causal)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.activation_fn = ACT2FN[config.activation_function]
        # One module per place, so that adapters can stand behind each.
        self.self_attn_dropout = nn.Dropout(config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.activation_dropout = nn.Dropout(config.activation_dropout)

    def feed_forward(self, states: torch.Tensor) -> torch.Tensor:
        """The last block, `(batch, seq_len, hidden)`."""
        inner = self.activation_dropout(self.activation_fn(self.fc1(states)))
        return self.final_layer_norm(states + self.dropout(self.fc2(inner)))


class MassEncoderLayer(MassLayer):
    """One layer of the encoder; returns one tensor."""

    def __init__(self, config: MassConfig, layer_idx: int):
        super().__init__(config, config.encoder_attention_heads, config.encoder_ffn_dim, layer_idx, is_causal=False)

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, **kwargs: Any) -> torch.Tensor:
        """Layer output `(batch, seq_len, hidden)`."""
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, **kwargs)
        return self.feed_forward(self.self_attn_layer_norm(hidden_states + self.self_attn_dropout(attended)))


class MassDecoderLayer(MassLayer):
    """One layer of the decoder; returns one tensor."""

    def __init__(self, config: MassConfig, layer_idx: int):
        super().__init__(config, config.decoder_attention_heads, config.decoder_ffn_dim, layer_idx, is_causal=True)
        self.encoder_attn = MassAttention(config, config.decoder_attention_heads, layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.encoder_attn_dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: Any = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Layer output `(batch, seq_len, hidden)`."""
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, cache=cache, **kwargs)
        states = self.self_attn_layer_norm(hidden_states + self.self_attn_dropout(attended))
        crossed, _ = self.encoder_attn(states, encoder_hidden_states, encoder_attention_mask, cache=cache, **kwargs)
        return self.feed_forward(self.encoder_attn_layer_norm(states + self.encoder_attn_dropout(crossed)))
