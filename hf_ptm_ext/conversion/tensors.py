"""Tensors of state dicts: what is refused whatever family they are of, and what their names tell."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..weights import not_finite
from .files import name_some

Tensors = dict[str, torch.Tensor]
# What the methods of a layout are given: weights by their names, options, words and their ids, a file or none.
State = Mapping[str, torch.Tensor]
Options = Mapping[str, Any]
Words = Mapping[str, int]
File = Path | None
TokenizerFiles = tuple[dict[str, str], list[str]]  # the files by their names, and what the report says of them
KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def by_our_names(named: Iterable[tuple[str, str, torch.Tensor]]) -> tuple[Tensors, dict[str, str]]:
    """Tensors by our names, and the file's name of each, from triples of our name, the file's and the tensor."""
    tensors: Tensors = {}
    sources: dict[str, str] = {}
    for name, key, tensor in named:
        if name in tensors:
            raise ValueError(f"The keys `{sources[name]}` and `{key}` both stand for `{name}`: remove one.")
        tensors[name], sources[name] = tensor, key
    return tensors, sources


def check_weights(tensors: Mapping[str, Any]) -> None:
    """Refuse what is no dense matrix of finite floating point numbers; names are those of the file."""
    if not tensors:
        raise ValueError(f"There are no weights: the state dict is empty, {dict(tensors)}.")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"`{name}` must be a tensor, got a {type(tensor).__name__}.")
        if tensor.dtype not in KINDS:
            raise ValueError(
                f"`{name}` must hold floating point numbers, got {tensor.dtype}: it is quantised, an index, or of "
                "another model. Convert the file that was trained."
            )
        if tensor.layout != torch.strided or tensor.is_meta or 0 in tensor.shape:
            kind = f"{tensor.layout}, shape {tuple(tensor.shape)}, on {tensor.device.type}"
            raise ValueError(f"`{name}` must be a matrix of values, got {kind}.")
        # Repeated values cost no memory in the file and all of it when they are read.
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            raise ValueError(f"`{name}` claims {tensor.numel()} values and holds fewer: save it in full.")
    damaged = not_finite(tensors)
    if damaged:
        raise ValueError(
            f"These weights hold NaN or infinity: {name_some(damaged)}. The run that wrote them diverged, or the file "
            "is damaged: take an earlier checkpoint."
        )


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy of what is a view or a part of another: safetensors writes neither."""
    whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if whole else tensor.clone(memory_format=torch.contiguous_format)


def unshared(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The tensors to be written, no two of them in the same memory."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if place in seen else own_memory(tensor)
        seen.add(place)
    return result


def has_part(tensors: Iterable[str], part: str) -> bool:
    """Whether any name begins with a prefix."""
    return any(name.startswith(part) for name in tensors)


def layer_numbers(names: Iterable[str], prefix: str) -> set[int]:
    """Numbers of the layers under a prefix."""
    matches = (re.match(rf"{re.escape(prefix)}([0-9]{{1,9}})\.", name) for name in names)
    return {int(match[1]) for match in matches if match}


def size_of(tensors: Mapping[str, torch.Tensor], name: str, dimension: int = 0) -> int | None:
    """A size that a file tells, `None` if the tensor is not there or is a single number."""
    tensor = tensors.get(name)
    return None if tensor is None or tensor.ndim <= max(dimension, 0) else tensor.shape[dimension]
