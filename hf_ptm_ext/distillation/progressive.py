"""MobileBERT's progressive knowledge transfer (Sun et al., ACL 2020, section 3.4): one layer after the other.

A run of S steps has a phase of S // layers steps for each layer, the last one taking what remains. In phase l only the
terms of layer l count. Learning rates are multiplied, as in the released code (the paper freezes finished layers):

    layers behind l, embeddings, heads:  0, and Adam gathers no moments for them
    layer l:                             3.0 * background
    layers before l:                     0.3 * background
    background at share x of a phase:    min(0.9 + 0.1 * sqrt(1 - x), 10 * x)

Everything is a pure function of the step, so a resumed run needs nothing else.
"""

import math
from collections.abc import Callable

from torch import nn

from .layouts import layer_module

DURING = 3.0
AFTER = 0.3


def phase_of(step: int, total_steps: int, layers: int) -> int:
    """The layer that is trained at a step."""
    return min(step // _phase_steps(total_steps, layers), layers - 1)


def _phase_steps(total_steps: int, layers: int) -> int:
    if total_steps < layers:
        raise ValueError(
            f"Progressive distillation needs a step for each layer at least, got {total_steps} steps for {layers} "
            "layers. Set `max_steps` (or `progressive_steps`) higher."
        )
    return total_steps // layers


def background(step: int, total_steps: int, layers: int) -> float:
    """The course of the learning rate inside a phase: a short warm-up, then nearly constant."""
    steps = _phase_steps(total_steps, layers)
    start = phase_of(step, total_steps, layers) * steps
    share = min((step - start) / steps, 1.0)
    return min(0.9 + 0.1 * math.sqrt(1 - share), 10 * share)


def is_open(layer: int | None, step: int, total_steps: int, layers: int) -> bool:
    """Whether a layer's parameters are trained at a step."""
    return layer is not None and layer <= phase_of(step, total_steps, layers)


def learning_rate_factor(layer: int | None, step: int, total_steps: int, layers: int) -> float:
    """What a layer's learning rate is multiplied by."""
    if layer is None or not is_open(layer, step, total_steps, layers):
        return 0.0
    factor = DURING if layer == phase_of(step, total_steps, layers) else AFTER
    return factor * background(step, total_steps, layers)


def learning_rate_factors(layer: int | None, total_steps: int, layers: int) -> Callable[[int], float]:
    """`learning_rate_factor` as a function of the step alone, for `LambdaLR`."""
    return lambda step: learning_rate_factor(layer, step, total_steps, layers)


def layer_of_parameters(model: nn.Module, layers: int) -> dict[int, int]:
    """To which layer a parameter belongs."""
    return {id(p): layer for layer in range(layers) for p in layer_module(model, layer).parameters()}
