"""What is checked of weights wherever they come in: converted, loaded by a job, or about to be saved."""

from collections.abc import Iterable, Mapping

import torch


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


__all__ = ["not_finite"]
