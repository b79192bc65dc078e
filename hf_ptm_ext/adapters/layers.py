"""Modules that stand in a layer instead of the ones that they wrap, and add the output of the active adapter."""

from typing import Any, ClassVar

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from .bottleneck import activation, bottleneck, make_parts
from .configuration import BottleneckConfig

PARTS = ("norm_before", "down", "up", "norm_after", "scaling")
CANNOT_MERGE = (
    "A bottleneck adapter has a non-linearity, so it cannot be merged into the weights. Keep it beside the model, or "
    "take it off with `unload()`."
)


class BottleneckLayer(nn.Module, BaseTunerLayer):
    """A wrapped module with the adapters at its place.

    Every kind of weight (`down`, `up`, ...) has a dictionary from the adapter's name to the weight, since that is what
    PEFT saves, loads, freezes and deletes by name.

    Args:
        base_layer: the wrapped module.
        hidden_size: width of the states that it returns.
    """

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
        """The weights of one kind, by adapter.

        Args:
            name: one of `PARTS`.
        """
        return getattr(self, f"{self.prefix}{name}")

    def update_layer(self, adapter_name: str, config: BottleneckConfig, layer: int, like: torch.Tensor | None) -> None:
        """Add a new adapter; one of the same name is replaced.

        Args:
            adapter_name: its name.
            config: its options.
            layer: number of the transformer layer.
            like: parameter whose device and dtype the adapter gets; `None` to leave it as it is made.
        """
        parts = make_parts(
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
        """What the adapters that act here add to the states, `(batch, ...)`; `None` if none does.

        Args:
            hidden_states: what they read.
            adapter_names: of each row's adapter, any other name for none; `None` for the active one everywhere.
        """
        if adapter_names is None:
            adapter = self.active()
            return None if adapter is None else self.adapter_output(adapter, hidden_states)
        added = torch.zeros_like(hidden_states)
        for adapter in set(adapter_names) & set(self.options):
            rows = [row for row, name in enumerate(adapter_names) if name == adapter]
            added[rows] = self.adapter_output(adapter, hidden_states[rows])
        return added

    def adapter_output(self, adapter: str, hidden_states: torch.Tensor) -> torch.Tensor:
        """What an adapter adds to the states, `(..., hidden)`.

        Args:
            adapter: its name.
            hidden_states: what it reads, `(..., hidden)`.
        """
        options, scaling = self.options[adapter], self.part("scaling")
        return bottleneck(
            hidden_states,
            self.part("down")[adapter],
            options["non_linearity"],
            self.part("up")[adapter],
            scaling[adapter] if adapter in scaling else options["scaling"],
            options["dropout"] if self.training else 0.0,
            self._optional("norm_before", adapter),
            self._optional("norm_after", adapter),
        )

    def _optional(self, part: str, adapter: str) -> nn.Module | None:
        modules = self.part(part)
        if adapter in modules:
            return modules[adapter]
        return None

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Impossible.

        Raises:
            ValueError: always.
        """
        raise ValueError(CANNOT_MERGE)

    def unmerge(self) -> None:
        """Nothing is ever merged."""


def _moved(value: nn.Module | nn.Parameter, like: torch.Tensor) -> nn.Module | nn.Parameter:
    if isinstance(value, nn.Module):
        return value.to(device=like.device, dtype=like.dtype)
    return nn.Parameter(value.data.to(device=like.device, dtype=like.dtype))


class HoulsbyLayer(BottleneckLayer):
    """`h + A(h)`, where h is what the wrapped module returns.

    Args:
        base_layer: the dropout of a sub-layer's output, or its projection.
        hidden_size: width of the states.
        residual_dropout: probability of dropping h in front of the adapter, for a layer that drops it by a function
            behind the projection (default 0).

    Example:
        >>> layer = HoulsbyLayer(nn.Dropout(0.1), hidden_size=32)
        >>> layer(torch.ones(2, 32)).shape
        torch.Size([2, 32])
    """

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
    """`LayerNorm(A(LayerNorm(s)) + s)` around a LayerNorm that takes the sum s; `A(s) + s` around what returns it.

    Args:
        base_layer: the LayerNorm behind the feed-forward part, or a module that returns the sum.
        hidden_size: width of the states.
        takes_sum: whether the wrapped module is the LayerNorm.

    Example:
        >>> layer = PfeifferLayer(nn.LayerNorm(32), hidden_size=32, takes_sum=True)
        >>> layer(torch.ones(2, 32)).shape
        torch.Size([2, 32])
    """

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


__all__ = ["BottleneckLayer", "HoulsbyLayer", "PfeifferLayer"]
