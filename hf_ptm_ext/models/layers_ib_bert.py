"""IB-BERT's layer and embeddings: narrow states outside, wide ones inside (LN: a LayerNorm with own weights each).

b = LN(W_in h)                                    `intra_bottleneck_size`, the residual; h has `hidden_size`
a = LN(W_o attention(W_q h, W_k h, W_v h) + b)    heads divide `intra_bottleneck_size`
f = LN(W_2 act(W_1 a) + a)
h' = LN(dropout(W_out f) + h)                     `hidden_size` again
embedding of token i = LN(W [e_(i+1); e_i; e_(i-1)] + type + position), with nothing beyond a text's ends
"""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .encoder_core import Pooler, SelfAttention
from .inputs_core import embedded_types


class IBBertEmbeddings(nn.Module):
    """Narrow word embeddings, joined with their neighbours', brought to the width of the states."""

    def __init__(self, config: Any):
        super().__init__()
        self.trigram_input = config.trigram_input
        self.padding_in_trigrams = config.padding_in_trigrams
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        width = config.embedding_size * (3 if config.trigram_input else 1)
        self.embedding_transformation = (
            nn.Linear(width, config.hidden_size) if width != config.hidden_size or config.trigram_input else None
        )
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Join with the neighbours, which padding and other sequences are not; transform, add, normalise, drop."""
        if self.trigram_input:
            inputs_embeds = self.with_neighbours(inputs_embeds, attention_mask, sequence_ids)
        if self.embedding_transformation is not None:
            inputs_embeds = self.embedding_transformation(inputs_embeds)
        inputs_embeds = inputs_embeds + embedded_types(self.token_type_embeddings, token_type_ids, inputs_embeds)
        return self.dropout(self.LayerNorm(inputs_embeds + self.position_embeddings(position_ids)))

    def with_neighbours(
        self, words: torch.Tensor, attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None
    ) -> torch.Tensor:
        """`(batch, seq_len, 3 * embedding_size)`: the next token's embedding, the token's own, the last one's."""
        # Padded first and cut then: no tensor is one shorter than the row, which exported graphs would be bound by.
        following = nn.functional.pad(words, (0, 0, 0, 1))[:, 1:]
        preceding = nn.functional.pad(words, (0, 0, 1, 0))[:, :-1]
        ids = sequence_ids
        if ids is None and not self.padding_in_trigrams and torch.is_tensor(attention_mask):
            ids = attention_mask if attention_mask.dim() == 2 else None
        if ids is not None:
            real = ids != 0
            following = following * (real & (ids == nn.functional.pad(ids, (0, 1))[:, 1:]))[..., None].to(words.dtype)
            preceding = preceding * (real & (ids == nn.functional.pad(ids, (1, 0))[:, :-1]))[..., None].to(words.dtype)
        return torch.cat([following, words, preceding], dim=-1)


class IBBertBottleneckAttention(SelfAttention):
    """Self-attention that reads the narrow states and is as wide as the inside of a layer."""

    def __init__(self, config: Any, layer_idx: int):
        super().__init__(config, layer_idx, hidden_size=config.intra_bottleneck_size)
        for name in ("query", "key", "value"):
            setattr(self, name, nn.Linear(config.hidden_size, config.intra_bottleneck_size))


class IBBertProjection(nn.Module):
    """Dense, dropout if any, residual if any, LayerNorm."""

    def __init__(self, config: Any, input_size: int, output_size: int, dropout: float = 0.0):
        super().__init__()
        self.dense = nn.Linear(input_size, output_size)
        self.LayerNorm = nn.LayerNorm(output_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """`(..., input_size)` to `(..., output_size)`."""
        projected = self.dropout(self.dense(hidden_states))
        return self.LayerNorm(projected if residual is None else projected + residual)


class IBBertAttention(nn.Module):
    """Self-attention with its output block (`attention.self`, `attention.output` in the state dict)."""

    def __init__(self, config: Any, layer_idx: int):
        super().__init__()
        self.self = IBBertBottleneckAttention(config, layer_idx)
        self.output = IBBertProjection(config, config.intra_bottleneck_size, config.intra_bottleneck_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        residual: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Narrow states and wide residual to `(batch, seq_len, intra_bottleneck_size)`."""
        context, _ = self.self(hidden_states, attention_mask, **kwargs)
        return self.output(context, residual)


class IBBertBottleneck(nn.Module):
    """The way into a layer (`bottleneck.input` in the state dict)."""

    def __init__(self, config: Any):
        super().__init__()
        self.input = IBBertProjection(config, config.hidden_size, config.intra_bottleneck_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., intra_bottleneck_size)`."""
        return self.input(hidden_states)


class IBBertIntermediate(nn.Module):
    """The feed-forward expansion: dense and activation."""

    def __init__(self, config: Any):
        super().__init__()
        self.dense = nn.Linear(config.intra_bottleneck_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., intra_bottleneck_size)` to `(..., intermediate_size)`."""
        return self.intermediate_act_fn(self.dense(hidden_states))


class IBBertOutput(nn.Module):
    """Back from the expansion, and out of the layer (`output.bottleneck` in the state dict)."""

    def __init__(self, config: Any):
        super().__init__()
        self.dense = nn.Linear(config.intermediate_size, config.intra_bottleneck_size)
        self.LayerNorm = nn.LayerNorm(config.intra_bottleneck_size, eps=config.layer_norm_eps)
        self.bottleneck = IBBertProjection(
            config, config.intra_bottleneck_size, config.hidden_size, config.hidden_dropout_prob
        )

    def forward(self, expanded: torch.Tensor, attended: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., intermediate_size)` and the two residuals to `(..., hidden)`."""
        return self.bottleneck(self.LayerNorm(self.dense(expanded) + attended), hidden_states)


class IBBertLayer(GradientCheckpointingLayer):
    """One inverted-bottleneck layer; returns one tensor."""

    def __init__(self, config: Any, layer_idx: int):
        super().__init__()
        self.bottleneck = IBBertBottleneck(config)
        self.attention = IBBertAttention(config, layer_idx)
        self.intermediate = IBBertIntermediate(config)
        self.output = IBBertOutput(config)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Layer output `(batch, seq_len, hidden)`."""
        attended = self.attention(hidden_states, self.bottleneck(hidden_states), attention_mask, **kwargs)
        return self.output(self.intermediate(attended), attended, hidden_states)


class IBBertEncoder(nn.Module):
    """The stack of layers (`encoder.layer.i` in the state dict)."""

    def __init__(self, config: Any):
        super().__init__()
        self.layer = nn.ModuleList([IBBertLayer(config, index) for index in range(config.num_hidden_layers)])

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Output of the last layer `(batch, seq_len, hidden)`; keyword arguments go to every layer."""
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return hidden_states


class IBBertFirstState(nn.Module):
    """The pooler of a config without `classifier_activation`: a sequence's first state as it is."""

    def forward(self, first_token_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to the same."""
        return first_token_states


def pooler_of(config: Any) -> nn.Module:
    """BERT's pooler, or none to speak of."""
    return Pooler(config) if config.classifier_activation else IBBertFirstState()
