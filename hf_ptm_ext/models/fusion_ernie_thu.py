"""ERNIE-THU's layers of two streams: text w (BERT's block) and entities e, which meet in the feed-forward part.

    w' = LN(w + Att(w))                               every layer, over the text;   m = 1 where an entity is
    e' = m * LN(e + Att_e(e)) in a `norm` layer,      keys at m = 1 alone;          e' = m * e in a `mix` layer
    h  = gelu(W_t w' + b_t + W_e e' + b_e)            one activation of the sum
    w'' = LN(w' + W_o h + b_o),  e'' = LN(e' + V_o h + c_o)

A `sim` layer is BERT's, with e'' = e. As in the released code, b_e acts where no entity is too, and e'' is not masked:
the next layer masks it as a key and clears it before its own fusion.
"""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_ernie_thu import MIX, NORM, SIM, ErnieThuConfig, complete_layer_types
from .encoder_core import Attention, EncoderLayer, SelfAttention, SelfOutput

Streams = tuple[torch.Tensor, torch.Tensor]


class ErnieThuFusionAttention(Attention):
    """Self-attention over the text, and over the entities with parameters, heads and a mask of its own."""

    def __init__(self, config: ErnieThuConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        width, heads = config.entity_hidden_size, config.entity_num_attention_heads
        self.self_ent = SelfAttention(config, layer_idx, width, heads)
        self.output_ent = SelfOutput(config, width, width)

    def attend_entities(self, entity_states: torch.Tensor, entity_attention_mask: Any, **kwargs: Any) -> torch.Tensor:
        """Attention among entities, `(batch, seq_len, entity_hidden)`; queries run at every position."""
        context, _ = self.self_ent(entity_states, entity_attention_mask, **kwargs)
        return self.output_ent(context, entity_states)


class ErnieThuFusionIntermediate(nn.Module):
    """The feed-forward expansion of both streams into one: the activation of the sum."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_ent = nn.Linear(config.entity_hidden_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor, entity_states: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len, intermediate_size)`."""
        return self.intermediate_act_fn(self.dense(hidden_states) + self.dense_ent(entity_states))


class ErnieThuFusionOutput(SelfOutput):
    """From the fused expansion back to each stream: projection, dropout, residual and LayerNorm."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config, config.intermediate_size)
        self.dense_ent = nn.Linear(config.intermediate_size, config.entity_hidden_size)
        self.LayerNorm_ent = nn.LayerNorm(config.entity_hidden_size, eps=config.layer_norm_eps)
        self.dropout_ent = nn.Dropout(config.hidden_dropout_prob)

    def forward(  # type: ignore[override]
        self, fused: torch.Tensor, residual: torch.Tensor, entity_residual: torch.Tensor
    ) -> Streams:
        """Text `(batch, seq_len, hidden)` and entities `(batch, seq_len, entity_hidden)`."""
        entity_states = self.LayerNorm_ent(self.dropout_ent(self.dense_ent(fused)) + entity_residual)
        return super().forward(fused, residual), entity_states


class ErnieThuSimLayer(EncoderLayer):
    """`sim`: BERT's layer on the text; the entity stream passes as it is."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        entity_states: torch.Tensor,
        attention_mask: Any = None,
        entity_attention_mask: Any = None,
        entity_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Streams:
        """Both streams after the layer, see `ErnieThuMixLayer.forward`."""
        return super().forward(hidden_states, attention_mask, **kwargs), entity_states


class ErnieThuMixLayer(GradientCheckpointingLayer):
    """`mix`: attention over the text, then the fusion; entities do not attend."""

    attention_class = Attention

    def __init__(self, config: ErnieThuConfig, layer_idx: int):
        super().__init__()
        self.attention: Any = self.attention_class(config, layer_idx)
        self.intermediate = ErnieThuFusionIntermediate(config)
        self.output = ErnieThuFusionOutput(config)

    def attend_entities(self, entity_states: torch.Tensor, entity_attention_mask: Any, **kwargs: Any) -> torch.Tensor:
        """Entities as they are."""
        return entity_states

    def forward(
        self,
        hidden_states: torch.Tensor,
        entity_states: torch.Tensor,
        attention_mask: Any = None,
        entity_attention_mask: Any = None,
        entity_mask: Any = None,
        plain_attention: bool = False,
        **kwargs: Any,
    ) -> Streams:
        """Both streams after the layer; masks are as the attention takes them, `entity_mask` is bool."""
        attended = self.attention(hidden_states, attention_mask, plain_attention=plain_attention, **kwargs)
        entity_states = self.attend_entities(entity_states, entity_attention_mask, **kwargs)
        entity_states = entity_states.masked_fill(~entity_mask[..., None], 0.0)
        return self.output(self.intermediate(attended, entity_states), attended, entity_states)


class ErnieThuNormLayer(ErnieThuMixLayer):
    """`norm`: attention over the text and over the entities, then the fusion."""

    attention_class = ErnieThuFusionAttention

    def attend_entities(self, entity_states: torch.Tensor, entity_attention_mask: Any, **kwargs: Any) -> torch.Tensor:
        """Entities after their own attention."""
        return self.attention.attend_entities(entity_states, entity_attention_mask, **kwargs)


LAYERS = {SIM: ErnieThuSimLayer, MIX: ErnieThuMixLayer, NORM: ErnieThuNormLayer}


class ErnieThuTwoStreamEncoder(nn.Module):
    """The stack of layers (`encoder.layer.i` in the state dict), each of its own kind."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__()
        types = complete_layer_types(config.fusion_layer_types, config.num_hidden_layers)
        self.layer = nn.ModuleList([LAYERS[kind](config, index) for index, kind in enumerate(types)])

    def forward(self, hidden_states: torch.Tensor, entity_states: torch.Tensor, *masks: Any, **kwargs: Any) -> Streams:
        """Run the stack."""
        for layer in self.layer:
            hidden_states, entity_states = layer(hidden_states, entity_states, *masks, **kwargs)
        return hidden_states, entity_states


def unread_weights(config: ErnieThuConfig) -> tuple[str, ...]:
    """Weights of the encoder that no text output depends on: the entity output of the last layer that fuses."""
    types = complete_layer_types(config.fusion_layer_types, config.num_hidden_layers)
    fusing = [index for index, kind in enumerate(types) if kind != SIM]
    return tuple(
        f"encoder.layer.{index}.output.{part}.{kind}"
        for index in fusing[-1:]
        for part in ("dense_ent", "LayerNorm_ent")
        for kind in ("weight", "bias")
    )
