"""What is checked of weights wherever they come in: converted, loaded by a job, or about to be saved."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open


def not_finite(tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """Names of the tensors that hold NaN or infinity.

    Args:
        tensors: name -> tensor, or such pairs (`model.named_parameters()`).

    Returns:
        The names, in order; integers and booleans are always finite.

    Example:
        >>> not_finite({"weight": torch.tensor([1.0, float("nan")]), "bias": torch.zeros(2)})
        ['weight']
    """
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    return [
        name
        for name, value in pairs
        if (value.is_floating_point() or value.is_complex()) and not value.is_meta and not bool(value.isfinite().all())
    ]


def not_real(path: Path) -> list[str]:
    """Names of the matrices of a checkpoint that hold integers, booleans or complex numbers.

    Args:
        path: a folder; anything else has none.

    Returns:
        The names of what is called a weight, in order; index buffers have other names.
    """
    found = []
    safe = sorted(path.glob("model*.safetensors"))
    for file in safe:
        with safe_open(file, "pt") as opened:
            kinds = ((name, opened.get_slice(name).get_dtype()) for name in opened.keys())  # noqa: SIM118
            found += [name for name, kind in kinds if not kind.startswith(("F", "BF"))]
    for file in () if safe else sorted(path.glob("pytorch_model*.bin")):  # as loading prefers them
        state = torch.load(file, map_location="meta", weights_only=True)
        tensors = {name: one for name, one in state.items() if torch.is_tensor(one)} if isinstance(state, dict) else {}
        found += [name for name, one in tensors.items() if not one.is_floating_point()]
    return [name for name in found if name.endswith("weight")]


__all__ = ["not_finite", "not_real"]
