"""Transformer-XL's layers: attention by content and by distance, and the feed-forward part."""

from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_transfo_xl import TransfoXLConfig


class TransfoXLPositions(nn.Module):
    """Sines, then cosines, of distances."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, distances: torch.Tensor) -> torch.Tensor:
        """`(keys,)` to `(keys, d_model)`."""
        steps = torch.arange(0.0, self.width, 2.0, device=distances.device)
        angles = torch.outer(distances, 1 / 10000 ** (steps / self.width))
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class TransfoXLAttention(nn.Module):
    """Attention to memory and segment by content and distance, with its residual sum and LayerNorm."""

    def __init__(self, config: TransfoXLConfig, biases: tuple[nn.Parameter, nn.Parameter] | None):
        super().__init__()
        self.config, self.n_head = config, config.n_head
        self.d_head: int = config.d_head  # type: ignore[assignment]  # the config has computed it
        width = self.n_head * self.d_head
        self.qkv_net = nn.Linear(config.d_model, 3 * width, bias=False)
        self.o_net = nn.Linear(width, config.d_model, bias=False)
        self.r_net = nn.Linear(config.d_model, width, bias=False)
        self.drop = nn.Dropout(config.dropout)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        own = [nn.Parameter(torch.zeros(self.n_head, self.d_head)) for _ in range(2)] if biases is None else biases
        self.r_w_bias, self.r_r_bias = own

    def forward(
        self,
        states: torch.Tensor,
        memory: torch.Tensor | None,
        positions: torch.Tensor,
        hidden: torch.Tensor,
        with_weights: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of `(batch, seq_len, d_model)`; `hidden` is true at keys that a query does not see."""
        keys = states if memory is None else torch.cat([memory, states], dim=1)
        normed = self.layer_norm(keys) if self.config.pre_lnorm else keys
        query, key, value = (self._heads(part) for part in self.qkv_net(normed).chunk(3, dim=-1))
        query = query[:, :, -states.shape[1] :]
        by_distance = (query + self.r_r_bias[:, None]) @ self._heads(self.r_net(positions)).transpose(-1, -2)
        scale, dropout = self.d_head**-0.5, self.config.dropatt if self.training else 0.0
        lowest = torch.finfo(by_distance.dtype).min
        bias = (shifted(by_distance) * scale).masked_fill(hidden, lowest)
        query = query + self.r_w_bias[:, None]
        weights = None
        if with_weights or self.config._attn_implementation == "eager":
            weights = ((query @ key.transpose(-1, -2)) * scale + bias).softmax(dim=-1)
            context = nn.functional.dropout(weights, dropout, self.training) @ value
        else:
            context = nn.functional.scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale)
        output = states + self.drop(self.o_net(context.transpose(1, 2).flatten(2)))
        return output if self.config.pre_lnorm else self.layer_norm(output), weights

    def _heads(self, states: torch.Tensor) -> torch.Tensor:
        return states.unflatten(-1, (self.n_head, self.d_head)).transpose(-2, -3)


def shifted(by_distance: torch.Tensor) -> torch.Tensor:
    """Scores of query i and distance in column j, farthest first, at the key that is so far away.

    Row i moves to the left by `queries - 1 - i`; what comes in from the right are keys behind the query.
    """
    *batch, queries, keys = by_distance.shape
    padded = nn.functional.pad(by_distance, (1, 0))
    return padded.reshape(*batch, keys + 1, queries)[..., 1:, :].reshape(*batch, queries, keys)


class TransfoXLFeedForward(nn.Module):
    """Linear, ReLU, Linear, with its residual sum and LayerNorm."""

    def __init__(self, config: TransfoXLConfig):
        super().__init__()
        self.pre_lnorm = config.pre_lnorm
        self.CoreNet = nn.Sequential(
            nn.Linear(config.d_model, config.d_inner),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.d_inner, config.d_model),
            nn.Dropout(config.dropout),
        )
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len, d_model)` to the same."""
        if self.pre_lnorm:
            return states + self.CoreNet(self.layer_norm(states))
        return self.layer_norm(states + self.CoreNet(states))


class TransfoXLLayer(GradientCheckpointingLayer):
    """Attention and feed-forward part."""

    def __init__(self, config: TransfoXLConfig, biases: tuple[nn.Parameter, nn.Parameter] | None):
        super().__init__()
        self.dec_attn = TransfoXLAttention(config, biases)
        self.pos_ff = TransfoXLFeedForward(config)

    def forward(self, states: torch.Tensor, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As `TransfoXLAttention`."""
        states, weights = self.dec_attn(states, *inputs)
        return self.pos_ff(states), weights
