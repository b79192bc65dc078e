"""The bottleneck module of Houlsby et al. (2019), "Parameter-Efficient Transfer Learning for NLP".

    A(h) = scaling * (W_up act(W_down h + b_down) + b_up),      W_down: r x H,  W_up: H x r,  r << H

Its output is added to what it reads; where that happens in a layer makes the method. Options beside the paper's are
those of the `adapters` library: a LayerNorm in front of the down-projection or behind the up-projection, dropout, and
a learned scaling.

`WithAdapters` is a model and its adapters in one, as `save_adapted` writes it: this file goes along.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel
else:
    PreTrainedModel = object

# The configuration's field of a model with adapters.
FIELD = "bottlenecks"
SCALINGS = ("learned", "channel")
PARTS = ("norm_before", "down", "up", "norm_after", "scaling")
# Names of weights of adapters.
OF_ADAPTERS = rf"\.(?:{'|'.join(PARTS)})(?:\.|$)"
INIT_WEIGHTS = ("identity", "truncated_normal", "bert")
BERT_STD = 0.02
# Names of the `adapters` library that transformers spells otherwise.
ACTIVATIONS = {"leakyrelu": nn.LeakyReLU}


def activation(name: str) -> nn.Module:
    """A non-linearity by name."""
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
    scaling: float | str = 1.0,
    ln_before: bool = False,
    ln_after: bool = False,
    init_weights: str = "identity",
    init_std: float = 1e-3,
) -> dict[str, nn.Module | nn.Parameter]:
    """The weights of one new adapter."""
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
    """What an adapter adds to the states."""
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


class AdaptedModule(nn.Module):
    """A module of a layer, and one adapter on what it returns.

    Args:
        base_layer: the module.
        place: `hidden_size`, `bottleneck_size` (none where a projection's dropout alone is drawn here), `takes_sum`
            (the module is a LayerNorm that is gone through twice) and `residual_dropout`.
        options: `non_linearity`, `scaling`, `dropout`, `ln_before` and `ln_after` of the adapter.
    """

    norm_before: Any
    down: Any
    up: Any
    norm_after: Any
    scaling: Any

    def __init__(self, base_layer: nn.Module, place: Mapping[str, Any], options: Mapping[str, Any]):
        super().__init__()
        self.base_layer = base_layer
        self.takes_sum, self.residual_dropout = place["takes_sum"], place["residual_dropout"]
        self.dropout, self.factor = options["dropout"], options["scaling"]
        self.non_linearity = activation(options["non_linearity"])
        size, parts = place["bottleneck_size"], {}
        if size is not None:
            norms = options["ln_before"], options["ln_after"]
            parts = make_parts(place["hidden_size"], size, self.factor, *norms)
        for name in PARTS:
            setattr(self, name, parts.get(name))

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """What the module returns, with the adapter's output, `(..., hidden)`."""
        states = self.base_layer(*args, **kwargs)
        if self.residual_dropout:
            states = nn.functional.dropout(states, self.residual_dropout, self.training)
        if self.down is None:
            return states
        added = bottleneck(
            states,
            self.down,
            self.non_linearity,
            self.up,
            self.factor if self.scaling is None else self.scaling,
            self.dropout if self.training else 0.0,
            self.norm_before,
            self.norm_after,
        )
        if not self.takes_sum:
            return states + added
        summed = args[0] if args else next(iter(kwargs.values()))
        return self.base_layer(summed + added)


class WithAdapters(PreTrainedModel):
    """Mixin in front of a model's class: its configuration's `bottlenecks` say where adapters are and how wide."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        spoken = getattr(config, FIELD)
        prefix = f"{self.base_model_prefix}."
        bare = not hasattr(self, self.base_model_prefix)  # of the names of a model with a head
        for name, place in spoken["places"].items():
            path = name.removeprefix(prefix) if bare else name
            owner_name, _, child = path.rpartition(".")
            owner = self.get_submodule(owner_name)
            setattr(owner, child, AdaptedModule(getattr(owner, child), place, spoken["options"]))
        for name in spoken["dropped_elsewhere"]:
            layer: Any = self.get_submodule(name.removeprefix(prefix) if bare else name)
            layer.dropout = 0.0
        if spoken["float32"]:  # beside a model of half precision
            self._keep_in_fp32_modules_strict = {*(self._keep_in_fp32_modules_strict or ()), OF_ADAPTERS}
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, AdaptedModule) and module.scaling is not None:
            init.ones_(module.scaling)

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As the model's; the adapters' code goes along."""
        if self._auto_class is not None:
            self.config.auto_map = {**(getattr(self.config, "auto_map", None) or {}), **self._auto_map}
        super().save_pretrained(*args, **kwargs)
