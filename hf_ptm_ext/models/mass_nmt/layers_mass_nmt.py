"""Attention and layers of MASS-NMT: post-LayerNorm, with cross-attention that has parts for each target language.

    encoder: x = LN(x + selfattn(x));                            x = LN(x + FFN(x)); x = 0 at padding
    decoder: x = LN(x + selfattn(x)); x = LN(x + crossattn(x, source)); x = LN(x + FFN(x)); x = 0 at padding

The output projection of the cross-attention is the target language's (`attention_setting` v1); under v2 all four
projections are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .block_mass_nmt import eager_attention_forward
from .configuration_mass_nmt import MassNmtConfig


class MassNmtLanguageLinear(nn.ModuleList):
    """One linear map per language (`0`, `1`, ... in the state dict); every row goes through its own.

    All maps are computed and the right one is taken, so a batch may mix languages, shapes are fixed and every map
    gets a gradient. With two languages that costs one more product per layer.
    """

    def __init__(self, config: MassNmtConfig):
        super().__init__([nn.Linear(config.d_model, config.d_model) for _ in range(config.n_langs)])

    def forward(self, hidden_states: torch.Tensor, language: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len, hidden)` and `(batch,)` ids to `(batch, seq_len, hidden)`."""
        result = self[0](hidden_states)
        for number in range(1, len(self)):
            result = torch.where((language == number)[:, None, None], self[number](hidden_states), result)
        return result


class MassNmtAttention(nn.Module):
    """Multi-head attention over the text itself, or from the decoder over the source."""

    def __init__(self, config: MassNmtConfig, num_heads: int, layer_idx: int, kind: str):
        """Make the projections.

        Args:
            config: the configuration.
            num_heads: number of heads.
            layer_idx: number of the layer, for the cache.
            kind: "bidirectional", "causal" or "cross".
        """
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.is_causal = kind == "causal"
        self.is_cross = kind == "cross"
        per_language = {"v1": ("out_proj",), "v2": ("q_proj", "k_proj", "v_proj", "out_proj")}
        own = per_language[config.attention_setting] if self.is_cross else ()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            plain = name not in own
            setattr(self, name, nn.Linear(config.d_model, config.d_model) if plain else MassNmtLanguageLinear(config))

    def project(self, name: str, states: torch.Tensor, language: torch.Tensor | None) -> torch.Tensor:
        """One of the four projections, `(batch, seq_len, hidden)`."""
        module = getattr(self, name)
        return module(states, language) if isinstance(module, MassNmtLanguageLinear) else module(states)

    def heads(self, name: str, states: torch.Tensor, language: torch.Tensor | None) -> torch.Tensor:
        """Query, key or value, `(batch, heads, seq_len, head_dim)`."""
        projected = self.project(name, states, language)
        return projected.view(*projected.shape[:2], -1, self.head_dim).transpose(1, 2)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        source_states: torch.Tensor | None = None,
        language: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            attention_mask: what the configured attention implementation takes, or `None`.
            source_states: `(batch, source_len, hidden)` of the encoder, for cross-attention.
            language: `(batch,)` target languages, for cross-attention.
            cache: keys and values of earlier tokens, and of the source once it was projected.
            kwargs: passed on to the attention implementation.

        Returns:
            The output `(batch, seq_len, hidden)` and the weights (`None` unless eager).
        """
        query = self.heads("q_proj", hidden_states, language)
        part = cache
        if isinstance(cache, EncoderDecoderCache):
            part = cache.cross_attention_cache if self.is_cross else cache.self_attention_cache
        if self.is_cross and part is not None and cache.is_updated.get(self.layer_idx):
            key, value = part.layers[self.layer_idx].keys, part.layers[self.layer_idx].values
        else:
            states = source_states if self.is_cross else hidden_states
            key, value = (self.heads(name, states, language) for name in ("k_proj", "v_proj"))
            if part is not None:
                key, value = part.update(key, value, self.layer_idx)
                if self.is_cross:
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
        return self.project("out_proj", context.reshape(hidden_states.shape), language), weights


class MassNmtLayer(GradientCheckpointingLayer):
    """What layers of encoder and decoder share: the feed-forward part, residuals and LayerNorms."""

    def __init__(self, config: MassNmtConfig, ffn_dim: int):
        super().__init__()
        # One module per place, so that adapters can stand behind each.
        self.self_attn_dropout = nn.Dropout(config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.activation_fn = ACT2FN[config.activation_function]
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def feed_forward(self, hidden_states: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
        """The last part of a layer; `real` is `(batch, seq_len, 1)`, 0 at padding, or `None`."""
        expanded = self.activation_fn(self.fc1(hidden_states))
        hidden_states = self.final_layer_norm(hidden_states + self.dropout(self.fc2(expanded)))
        return hidden_states if real is None else hidden_states * real


class MassNmtEncoderLayer(MassNmtLayer):
    """One layer of the encoder; returns one tensor."""

    def __init__(self, config: MassNmtConfig, layer_idx: int):
        super().__init__(config, config.encoder_ffn_dim)
        self.self_attn = MassNmtAttention(config, config.encoder_attention_heads, layer_idx, "bidirectional")

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        real: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Layer output `(batch, source_len, hidden)`."""
        attended, _ = self.self_attn(hidden_states, attention_mask, **kwargs)
        hidden_states = self.self_attn_layer_norm(hidden_states + self.self_attn_dropout(attended))
        return self.feed_forward(hidden_states, real)


class MassNmtDecoderLayer(MassNmtLayer):
    """One layer of the decoder; returns one tensor."""

    def __init__(self, config: MassNmtConfig, layer_idx: int):
        super().__init__(config, config.decoder_ffn_dim)
        self.self_attn = MassNmtAttention(config, config.decoder_attention_heads, layer_idx, "causal")
        self.encoder_attn = MassNmtAttention(config, config.decoder_attention_heads, layer_idx, "cross")
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.encoder_attn_dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        source_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        source_mask: torch.Tensor | None = None,
        language: torch.Tensor | None = None,
        real: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Layer output `(batch, target_len, hidden)`."""
        attended, _ = self.self_attn(hidden_states, attention_mask, cache=cache, **kwargs)
        hidden_states = self.self_attn_layer_norm(hidden_states + self.self_attn_dropout(attended))
        attended, _ = self.encoder_attn(
            hidden_states, source_mask, source_states=source_states, language=language, cache=cache, **kwargs
        )
        hidden_states = self.encoder_attn_layer_norm(hidden_states + self.encoder_attn_dropout(attended))
        return self.feed_forward(hidden_states, real)
