"""Weights in bfloat16, and the float32 copies of them, the masters, that an optimizer updates in their place."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from .manifest import TypedTrainer

# Of the argument `weights`.
FP32, BF16 = WEIGHTS = ("fp32", "bf16")
# What cards and logs call the second.
PRECISION = "bfloat16 weights, float32 masters"
# Optimizers of transformers that are torch's AdamW.
ADAMW = ("adamw_torch", "adamw_torch_fused")
MASTER = "float32_master"


class MasterAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` on float32 copies of the weights, from which these are rounded after each update.

    Updates that are too small for bfloat16 add up in the copies. The moments are float32 too, and all of it is in the
    state that a checkpoint holds, to the bit. Weights that are float32 have no copies. Several processes must begin
    with the same weights.

    Args:
        params: as `torch.optim.AdamW`: weights, or groups of them.
        options: as `torch.optim.AdamW`.

    Examples:
        >>> weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
        >>> optimizer = MasterAdamW([weight], lr=1e-3, weight_decay=0.0)
        >>> weight.grad = torch.ones_like(weight)
        >>> for _ in range(4):
        ...     optimizer.step()
        >>> weight.item()  # 1 - 0.001 is 1 in bfloat16
        0.99609375
    """

    def __init__(self, params: Iterable[Any], **options: Any):
        self._weights: list[torch.Tensor] = []
        super().__init__(params, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As upstream; the group's parameters are the masters."""
        weights = list(param_group["params"])
        super().add_param_group({**param_group, "params": [_master_of(weight) for weight in weights]})
        self._weights += weights

    @property
    def masters(self) -> list[torch.Tensor]:
        """One for each weight, in their order."""
        return [master for group in self.param_groups for master in group["params"]]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As upstream, with the gradients of the weights, which follow."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        trained = [pair for pair in zip(self._weights, self.masters, strict=True) if pair[0].grad is not None]
        weights: list[Any] = [weight for weight, _ in trained]
        masters: list[Any] = [master for _, master in trained]
        for master in masters:
            master.grad = torch.empty_like(master)
        if trained:
            torch._foreach_copy_([master.grad for master in masters], [weight.grad for weight in weights])
        super().step()
        if trained:
            torch._foreach_copy_(weights, masters)
        for master in masters:
            master.grad = None
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the weights."""
        for weight in self._weights:
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        """As upstream, with the masters."""
        return {**super().state_dict(), "masters": self.masters}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As upstream; the masters of a state that has none, one of float32 weights, are those of the weights."""
        super().load_state_dict(state_dict)
        for master, saved in zip(self.masters, state_dict.get("masters", self.masters), strict=True):
            master.copy_(saved)


def _master_of(weight: torch.Tensor) -> torch.Tensor:
    """The values that were rounded to the weight, if it still is what was made of them, or its own."""
    kept = vars(weight).pop(MASTER, None)
    if kept is not None and torch.equal(kept.to(weight), weight):
        return kept.to(weight.device)
    return weight.detach().float()


class HalfWeights(TypedTrainer):
    """`transformers.Trainer` that trains weights in bfloat16 by their masters, if its arguments' `weights` is bf16."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if getattr(self.args, "weights", FP32) == BF16:
            round_weights(self.model)

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> tuple[Any, Any]:
        """As upstream, with masters where weights are bfloat16."""
        optimizer_class, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
        return (MasterAdamW if getattr(args, "weights", FP32) == BF16 else optimizer_class), options


def round_weights(model: nn.Module) -> None:
    """Make a model's weights bfloat16; those that are trained remember what they were until the optimizer asks.

    Buffers stay: upstream keeps what positions turn by in float32.
    """
    for weight in model.parameters():
        if weight.requires_grad and weight.is_floating_point():
            setattr(weight, MASTER, weight.data.float())

    def rounded(value: torch.Tensor) -> torch.Tensor:
        return value.bfloat16() if isinstance(value, nn.Parameter) and value.is_floating_point() else value

    model._apply(rounded)  # as `to`, which reaches layers that a wrapper hides
