"""Modules that stand in a layer instead of the ones that they wrap, and add the output of the active adapter."""

from typing import Any, ClassVar

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from .bottleneck import BottleneckAdapter
from .configuration import BottleneckConfig

CANNOT_MERGE = (
    "A bottleneck adapter has a non-linearity, so it cannot be merged into the weights. Keep it beside the model, or "
    "take it off with `unload()`."
)


class BottleneckLayer(nn.Module, BaseTunerLayer):
    """A wrapped module with the adapters at its place, by name.

    Args:
        base_layer: the wrapped module.
        hidden_size: width of the states that it returns.
    """

    adapters_name: ClassVar[str]  # the attribute with the adapters, which is a part of the names in a saved file

    def __init__(self, base_layer: nn.Module, hidden_size: int):
        super().__init__()
        self.base_layer = base_layer
        self.hidden_size = hidden_size
        self._active_adapter = []
        setattr(self, self.adapters_name, nn.ModuleDict())

    @property
    def adapters(self) -> nn.ModuleDict:
        """The adapters, by name."""
        return getattr(self, self.adapters_name)

    def update_layer(self, adapter_name: str, config: BottleneckConfig, layer: int, like: torch.Tensor | None) -> None:
        """Add a new adapter; one of the same name is replaced.

        Args:
            adapter_name: its name.
            config: its options.
            layer: number of the transformer layer.
            like: parameter whose device and dtype the adapter gets; `None` to leave it as it is made.
        """
        adapter = BottleneckAdapter(
            self.hidden_size,
            config.size_in_layer(self.hidden_size, layer),
            config.non_linearity,
            config.scaling,
            config.dropout,
            config.ln_before,
            config.ln_after,
            config.init_weights,
            config.init_std,
        )
        if like is not None and not any(parameter.is_meta for parameter in adapter.parameters()):
            adapter = adapter.to(device=like.device, dtype=like.dtype)
        self.adapters[adapter_name] = adapter.train(self.training)

    def active(self) -> BottleneckAdapter | None:
        """The adapter that acts here now, if there is one."""
        if self.disable_adapters:
            return None
        names = [name for name in self.active_adapters if name in self.adapters]
        return self.adapters[names[0]] if names else None

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Impossible.

        Raises:
            ValueError: always.
        """
        raise ValueError(CANNOT_MERGE)

    def unmerge(self) -> None:
        """Nothing is ever merged."""


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

    adapters_name = "houlsby_adapter"
    adapter_layer_names = ("houlsby_adapter",)

    def __init__(self, base_layer: nn.Module, hidden_size: int, residual_dropout: float = 0.0):
        super().__init__(base_layer, hidden_size)
        self.residual_dropout = residual_dropout

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The wrapped module's output with the adapter's added, `(..., hidden)`."""
        states = self.base_layer(*args, **kwargs)
        if self.residual_dropout:
            states = nn.functional.dropout(states, self.residual_dropout, self.training)
        adapter = self.active()
        return states if adapter is None else states + adapter(states)


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

    adapters_name = "pfeiffer_adapter"
    adapter_layer_names = ("pfeiffer_adapter",)

    def __init__(self, base_layer: nn.Module, hidden_size: int, takes_sum: bool):
        super().__init__(base_layer, hidden_size)
        self.takes_sum = takes_sum

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The output of the layer's feed-forward part, `(..., hidden)`."""
        states = self.base_layer(hidden_states, *args, **kwargs)
        adapter = self.active()
        if adapter is None:
            return states
        if self.takes_sum:
            return self.base_layer(hidden_states + adapter(states))
        return states + adapter(states)


__all__ = ["BottleneckLayer", "HoulsbyLayer", "PfeifferLayer"]
