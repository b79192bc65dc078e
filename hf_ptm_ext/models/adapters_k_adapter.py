"""A knowledge adapter: small transformers on chosen hidden states x_i of the encoder, each adding to the one before.

h_0 = 0,   h_k = part_k(x_(i_k) + h_(k-1)),   part(x) = x + up(transformer(down(x)))
"""

from typing import Any

import torch
from torch import nn

from .encoder_core import Encoder
from .inputs_core import build_attention_mask


class AdapterSizes:
    """Sizes of an adapter's layers under the names that the encoder's layers read; the attention is the model's."""

    num_hidden_groups, inner_group_num, embedding_size = None, 1, None

    def __init__(self, config: Any, hidden_size: int, num_attention_heads: int):
        self.whole = config
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.num_hidden_layers = config.adapter_num_hidden_layers
        self.intermediate_size = config.adapter_intermediate_size
        self.hidden_act = config.adapter_hidden_act
        self.hidden_dropout_prob = config.adapter_dropout
        self.attention_probs_dropout_prob = config.adapter_dropout
        self.layer_norm_eps = config.layer_norm_eps

    @property
    def _attn_implementation(self) -> str:
        return str(self.whole._attn_implementation)


class AdapterProjection(nn.Linear):
    """Into an adapter or out of it; initialised smaller than other layers, so that an adapter begins as nothing."""


class AdapterPart(nn.Module):
    """What an adapter does at one hidden state: down, transformer layers, up, and the input added."""

    def __init__(self, config: Any):
        super().__init__()
        self.down_project = AdapterProjection(config.hidden_size, config.adapter_hidden_size)
        sizes = AdapterSizes(config, config.adapter_hidden_size, config.adapter_num_attention_heads)
        self.encoder = Encoder(sizes)
        self.up_project = AdapterProjection(config.adapter_hidden_size, config.hidden_size)

    def forward(self, states: torch.Tensor, mask: Any) -> torch.Tensor:
        """`(batch, seq_len, hidden)` to the same shape."""
        inner, _ = self.encoder(self.down_project(states), mask)
        return states + self.up_project(inner)


class KnowledgeAdapter(nn.Module):
    """One adapter: a part at each of the chosen hidden states."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.part = nn.ModuleList([AdapterPart(config) for _ in config.adapter_layers])

    def forward(
        self, hidden_states: tuple[torch.Tensor, ...], attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Read the encoder's states."""
        seen = attention_mask if self.config.respect_padding else None
        first = hidden_states[0]
        mask = build_attention_mask(self.config, first, seen, None)
        features = torch.zeros_like(first)
        outputs: list[torch.Tensor] = []
        skip = self.config.adapter_skip_layers
        for part, layer in zip(self.part, self.config.adapter_layers, strict=True):
            features = part(hidden_states[layer] + features, mask)
            outputs.append(features)
            if skip and len(outputs) % skip == 0:
                # The index is the released code's: after `skip` parts it adds the part's own output once more.
                features = features + outputs[len(outputs) // skip]
        return features
