"""The bottleneck module of Houlsby et al. (2019), "Parameter-Efficient Transfer Learning for NLP".

    A(h) = scaling * (W_up act(W_down h + b_down) + b_up),      W_down: r x H,  W_up: H x r,  r << H

Its output is added to what it reads; where that happens in a layer makes the method (see `layers.py`). Options beside
the paper's are those of the `adapters` library: a LayerNorm in front of the down-projection or behind the
up-projection, dropout, and a learned scaling.
"""

from typing import Literal, cast

import torch
from torch import nn
from transformers.activations import ACT2FN

Scaling = float | Literal["learned", "channel"]
InitWeights = Literal["identity", "truncated_normal", "bert"]
SCALINGS = ("learned", "channel")
INIT_WEIGHTS = ("identity", "truncated_normal", "bert")
BERT_STD = 0.02
# Names of the `adapters` library that transformers spells otherwise.
ACTIVATIONS = {"leakyrelu": nn.LeakyReLU}


def activation(name: str) -> nn.Module:
    """A non-linearity by name.

    Args:
        name: as transformers spells it (`"gelu"`, `"swish"`, `"relu"`, ...), or `"leakyrelu"`.

    Returns:
        The module.

    Raises:
        ValueError: there is none of that name.

    Example:
        >>> activation("relu")
        ReLU()
    """
    name = name.lower()
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]()
    if name not in ACT2FN:
        known = ", ".join(sorted({*ACT2FN, *ACTIVATIONS}))
        raise ValueError(f"`non_linearity` must be one of {known}, got {name!r}.")
    return cast(nn.Module, ACT2FN[name])


class BottleneckAdapter(nn.Module):
    """Down-projection, non-linearity, up-projection.

    Args:
        hidden_size: width H of the states.
        bottleneck_size: width r between the projections.
        non_linearity: what stands between them (default `"gelu"`, google-research/adapter-bert).
        scaling: factor of the output (default 1), or `"learned"` (one parameter) or `"channel"` (one a component).
        dropout: probability of dropping a component of the scaled output (default 0).
        ln_before: whether a LayerNorm of its own stands in front of the down-projection.
        ln_after: whether one stands behind the scaled output.
        init_weights: see `BottleneckConfig`.
        init_std: see `BottleneckConfig`.

    Example:
        >>> adapter = BottleneckAdapter(768, 48)
        >>> sum(parameter.numel() for parameter in adapter.parameters()) == 2 * 768 * 48 + 48 + 768
        True
    """

    def __init__(
        self,
        hidden_size: int,
        bottleneck_size: int,
        non_linearity: str = "gelu",
        scaling: Scaling = 1.0,
        dropout: float = 0.0,
        ln_before: bool = False,
        ln_after: bool = False,
        init_weights: InitWeights = "identity",
        init_std: float = 1e-3,
    ):
        super().__init__()
        self.norm_before = nn.LayerNorm(hidden_size) if ln_before else None
        self.down = nn.Linear(hidden_size, bottleneck_size)
        self.non_linearity = activation(non_linearity)
        self.up = nn.Linear(bottleneck_size, hidden_size)
        self.norm_after = nn.LayerNorm(hidden_size) if ln_after else None
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.scaling: float | nn.Parameter
        if isinstance(scaling, str):
            self.scaling = nn.Parameter(torch.ones(1 if scaling == "learned" else hidden_size))
        else:
            self.scaling = float(scaling)
        self.reset_parameters(init_weights, init_std)

    def reset_parameters(self, init_weights: InitWeights, init_std: float) -> None:
        """Draw the projections anew; biases become 0."""
        for linear in (self.down, self.up):
            if init_weights == "bert":
                nn.init.normal_(linear.weight, std=BERT_STD)
            else:
                nn.init.trunc_normal_(linear.weight, std=init_std, a=-2 * init_std, b=2 * init_std)
            nn.init.zeros_(linear.bias)
        if init_weights == "identity":
            nn.init.zeros_(self.up.weight)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """What is added to the states, `(..., hidden)` like them and of their dtype."""
        states = hidden_states
        if not torch.is_autocast_enabled(states.device.type):  # which casts by itself
            states = states.to(self.down.weight.dtype)
        if self.norm_before is not None:
            states = self.norm_before(states)
        states = self.up(self.non_linearity(self.down(states)))
        if not (isinstance(self.scaling, float) and self.scaling == 1.0):
            states = states * self.scaling
        if self.dropout is not None:
            states = self.dropout(states)
        if self.norm_after is not None:
            states = self.norm_after(states)
        return states.to(hidden_states.dtype)


__all__ = ["BottleneckAdapter", "activation"]
