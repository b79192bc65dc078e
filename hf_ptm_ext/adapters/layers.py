"""Modules that stand in a layer instead of the ones that they wrap, and add the output of the active adapter."""

from typing import Any, ClassVar

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from ..models.bottleneck_core import PARTS, activation, bottleneck, make_parts
from .configuration import BottleneckConfig

CANNOT_MERGE = (
    "A bottleneck adapter has a non-linearity, so it cannot be merged into the weights. Keep it beside the model, or "
    "take it off with `unload()`."
)


class BottleneckLayer(nn.Module, BaseTunerLayer):
    """A wrapped module with its adapters; every kind of weight is a dictionary by adapter, as PEFT saves by name."""

    prefix: ClassVar[str]  # of the dictionaries' names, and so of the names in a saved file
    other_param_names = ("options",)

    def __init__(self, base_layer: nn.Module, hidden_size: int):
        super().__init__()
        self.base_layer = base_layer
        self.hidden_size = hidden_size
        self.options: dict[str, dict[str, Any]] = {}
        self._active_adapter = []
        for part in PARTS:
            setattr(self, f"{self.prefix}{part}", nn.ParameterDict() if part == "scaling" else nn.ModuleDict())

    def part(self, name: str) -> Any:
        """The weights of one kind, by adapter."""
        return getattr(self, f"{self.prefix}{name}")

    def update_layer(self, adapter_name: str, config: BottleneckConfig, layer: int, like: torch.Tensor | None) -> None:
        """Add a new adapter; one of the same name is replaced."""
        parts: dict[str, Any] = make_parts(
            self.hidden_size,
            config.size_in_layer(self.hidden_size, layer),
            config.scaling,
            config.ln_before,
            config.ln_after,
            config.init_weights,
            config.init_std,
        )
        for name, value in parts.items():
            if like is not None and parts["down"].weight.device.type != "meta":
                value = _moved(value, like)
            self.part(name)[adapter_name] = value
        self.options[adapter_name] = {
            "non_linearity": activation(config.non_linearity),
            "scaling": config.scaling,
            "dropout": config.dropout,
        }

    def active(self) -> str | None:
        """Name of the adapter that acts here now, if there is one."""
        if self.disable_adapters:
            return None
        return next((name for name in self.active_adapters if name in self.options), None)

    def added(self, hidden_states: torch.Tensor, adapter_names: list[str] | None) -> torch.Tensor | None:
        """What the adapters that act here add to the states, `(batch, ...)`; `None` if none does."""
        if adapter_names is None:
            adapter = self.active()
            return None if adapter is None else self.adapter_output(adapter, hidden_states)
        added = torch.zeros_like(hidden_states)
        for adapter in set(adapter_names) & set(self.options):
            rows = [row for row, name in enumerate(adapter_names) if name == adapter]
            added[rows] = self.adapter_output(adapter, hidden_states[rows])
        return added

    def adapter_output(self, adapter: str, hidden_states: torch.Tensor) -> torch.Tensor:
        """What an adapter adds to the states, `(..., hidden)`."""
        options = self.options[adapter]
        parts = {name: self.part(name)[adapter] for name in PARTS if adapter in self.part(name)}
        return bottleneck(
            hidden_states,
            parts["down"],
            options["non_linearity"],
            parts["up"],
            parts.get("scaling", options["scaling"]),
            options["dropout"] if self.training else 0.0,
            parts.get("norm_before"),
            parts.get("norm_after"),
        )

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Impossible."""
        raise ValueError(CANNOT_MERGE)

    def unmerge(self) -> None:
        """Nothing is ever merged."""


def _moved(value: nn.Module | nn.Parameter, like: torch.Tensor) -> nn.Module | nn.Parameter:
    if isinstance(value, nn.Module):
        return value.to(device=like.device, dtype=like.dtype)
    return nn.Parameter(value.data.to(device=like.device, dtype=like.dtype))


class HoulsbyLayer(BottleneckLayer):
    """`h + A(h)`, where h is what the wrapped module returns."""

    prefix = "houlsby_"
    adapter_layer_names = tuple(f"houlsby_{part}" for part in PARTS)

    def __init__(self, base_layer: nn.Module, hidden_size: int, residual_dropout: float = 0.0):
        super().__init__(base_layer, hidden_size)
        self.residual_dropout = residual_dropout

    def forward(self, *args: Any, adapter_names: list[str] | None = None, **kwargs: Any) -> torch.Tensor:
        """The wrapped module's output with the adapter's added, `(..., hidden)`."""
        states = self.base_layer(*args, **kwargs)
        if self.residual_dropout:
            states = nn.functional.dropout(states, self.residual_dropout, self.training)
        added = self.added(states, adapter_names)
        return states if added is None else states + added


class PfeifferLayer(BottleneckLayer):
    """`LayerNorm(A(LayerNorm(s)) + s)` around a LayerNorm that takes the sum s; `A(s) + s` around what returns it."""

    prefix = "pfeiffer_"
    adapter_layer_names = tuple(f"pfeiffer_{part}" for part in PARTS)

    def __init__(self, base_layer: nn.Module, hidden_size: int, takes_sum: bool):
        super().__init__(base_layer, hidden_size)
        self.takes_sum = takes_sum

    def forward(
        self, hidden_states: torch.Tensor, *args: Any, adapter_names: list[str] | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """The output of the layer's feed-forward part, `(..., hidden)`."""
        states = self.base_layer(hidden_states, *args, **kwargs)
        added = self.added(states, adapter_names)
        if added is None:
            return states
        return self.base_layer(hidden_states + added) if self.takes_sum else states + added
