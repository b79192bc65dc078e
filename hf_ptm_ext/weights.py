"""What is checked of weights wherever they come in: converted, loaded by a job, or about to be saved."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open


def not_finite(tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """Names of the tensors that hold NaN or infinity."""
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    return [
        name
        for name, value in pairs
        if (value.is_floating_point() or value.is_complex()) and not value.is_meta and not bool(value.isfinite().all())
    ]


def not_real(path: Path) -> list[str]:
    """Names of the matrices of a checkpoint that hold integers, booleans or complex numbers."""
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
