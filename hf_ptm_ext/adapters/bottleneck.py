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


def make_parts(
    hidden_size: int,
    bottleneck_size: int,
    scaling: Scaling = 1.0,
    ln_before: bool = False,
    ln_after: bool = False,
    init_weights: InitWeights = "identity",
    init_std: float = 1e-3,
) -> dict[str, nn.Module | nn.Parameter]:
    """The weights of one new adapter.

    Args:
        hidden_size: width H of the states.
        bottleneck_size: width r between the projections.
        scaling: `"learned"` (one parameter) or `"channel"` (one a component); a number is none.
        ln_before: whether a LayerNorm of its own stands in front of the down-projection.
        ln_after: whether one stands behind the scaled output.
        init_weights: see `BottleneckConfig`.
        init_std: see `BottleneckConfig`.

    Returns:
        `down` and `up`, and `norm_before`, `norm_after` and `scaling` where wanted.

    Example:
        >>> parts = make_parts(768, 48)
        >>> sum(value.numel() for part in parts.values() for value in part.parameters()) == 2 * 768 * 48 + 48 + 768
        True
    """
    parts: dict[str, nn.Module | nn.Parameter] = {}
    if ln_before:
        parts["norm_before"] = nn.LayerNorm(hidden_size)
    for name, linear in (
        ("down", nn.Linear(hidden_size, bottleneck_size)),
        ("up", nn.Linear(bottleneck_size, hidden_size)),
    ):
        if init_weights == "bert":
            nn.init.normal_(linear.weight, std=BERT_STD)
        elif init_weights == "identity" and name == "up":
            nn.init.zeros_(linear.weight)
        else:
            nn.init.trunc_normal_(linear.weight, std=init_std, a=-2 * init_std, b=2 * init_std)
        nn.init.zeros_(linear.bias)
        parts[name] = linear
    if ln_after:
        parts["norm_after"] = nn.LayerNorm(hidden_size)
    if isinstance(scaling, str):
        parts["scaling"] = nn.Parameter(torch.ones(1 if scaling == "learned" else hidden_size))
    return parts


def bottleneck(
    hidden_states: torch.Tensor,
    down: nn.Module,
    non_linearity: nn.Module,
    up: nn.Module,
    scaling: float | torch.Tensor = 1.0,
    dropout: float = 0.0,
    norm_before: nn.Module | None = None,
    norm_after: nn.Module | None = None,
) -> torch.Tensor:
    """What an adapter adds to the states.

    Args:
        hidden_states: `(..., hidden)`.
        down: projection to the bottleneck.
        non_linearity: between the projections.
        up: projection from the bottleneck.
        scaling: factor of the output.
        dropout: probability of dropping a component of the scaled output; 0 in evaluation.
        norm_before: LayerNorm in front.
        norm_after: LayerNorm behind.

    Returns:
        `(..., hidden)`, of the states' dtype.

    Example:
        >>> identity = nn.Identity()
        >>> bottleneck(torch.tensor([-1.0, 2.0]), identity, nn.ReLU(), identity, scaling=0.5)
        tensor([0., 1.])
    """
    states = hidden_states
    if isinstance(down, nn.Linear) and not torch.is_autocast_enabled(states.device.type):  # which casts by itself
        states = states.to(down.weight.dtype)
    if norm_before is not None:
        states = norm_before(states)
    states = up(non_linearity(down(states)))
    if isinstance(scaling, torch.Tensor) or scaling != 1.0:
        states = states * scaling
    if dropout:
        states = nn.functional.dropout(states, dropout)
    if norm_after is not None:
        states = norm_after(states)
    return states.to(hidden_states.dtype)


__all__ = ["activation", "bottleneck", "make_parts"]
