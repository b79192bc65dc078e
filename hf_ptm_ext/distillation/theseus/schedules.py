"""How often a module of the predecessor is replaced, and the draws: pure functions of the step.

    constant:  p(t) = p while t < steps, then 1
    linear:    p(t) = min(1, b + k * t)

with t the number of updates made before this one. The reference sets its rate after an update, so that its first one
always runs at p, also where it was told to replace for 0 steps; `reference_constant_rate` does the same.
"""

import hashlib
from collections.abc import Callable

import torch


def check_rate(name: str, rate: float) -> float:
    """Refuse what is no rate of replacement.

    Args:
        name: of the argument, for the message.
        rate: its value.

    Returns:
        The rate.

    Raises:
        ValueError: it is not in (0, 1].
    """
    if not 0 < rate <= 1:
        raise ValueError(
            f"`{name}` must be in (0, 1], got {rate!r}: at 0 no module of the successor would ever be trained."
        )
    return rate


def _check_steps(replacing_steps: int | None) -> None:
    if replacing_steps is not None and replacing_steps < 0:
        raise ValueError(f"`replacing_steps` must be at least 0, or None for all updates, got {replacing_steps!r}.")


def constant_rate(step: int, replacing_rate: float, replacing_steps: int | None = None) -> float:
    """The rate of the paper's module replacing, and 1 in the successor's fine-tuning.

    Args:
        step: updates made before this one.
        replacing_rate: the rate while modules are replaced.
        replacing_steps: updates with it (default: all).

    Returns:
        The rate of this update.

    Raises:
        ValueError: a rate outside (0, 1], or a negative number of steps.

    Example:
        >>> [constant_rate(step, 0.5, 3) for step in range(5)]
        [0.5, 0.5, 0.5, 1.0, 1.0]
    """
    check_rate("replacing_rate", replacing_rate)
    _check_steps(replacing_steps)
    return replacing_rate if replacing_steps is None or step < replacing_steps else 1.0


def reference_constant_rate(step: int, replacing_rate: float, replacing_steps: int | None = None) -> float:
    """`constant_rate` as the reference code has it: the first update is at `replacing_rate` whatever the steps.

    Args:
        step: updates made before this one.
        replacing_rate: the rate while modules are replaced.
        replacing_steps: updates with it; of 0 the reference makes 1.

    Returns:
        The rate of this update.

    Raises:
        ValueError: as `constant_rate`.

    Example:
        >>> [reference_constant_rate(step, 0.5, 0) for step in range(3)]
        [0.5, 1.0, 1.0]
    """
    return constant_rate(step, replacing_rate, None if replacing_steps is None or step == 0 else replacing_steps)


def linear_rate(step: int, base_replacing_rate: float, k: float) -> float:
    """The rate of the paper's curriculum: it grows by `k` an update until it is 1.

    Args:
        step: updates made before this one.
        base_replacing_rate: the rate of the first update (`b`).
        k: growth per update.

    Returns:
        The rate of this update.

    Raises:
        ValueError: a rate outside (0, 1], or a `k` below 0.

    Example:
        >>> [linear_rate(step, 0.5, 0.25) for step in range(4)]
        [0.5, 0.75, 1.0, 1.0]
    """
    check_rate("base_replacing_rate", base_replacing_rate)
    if not k >= 0:
        raise ValueError(f"`k` must be at least 0, got {k!r}: the rate grows.")
    return min(k * step + base_replacing_rate, 1.0)


def draw_replacements(rate: float, modules: int, generator: torch.Generator | None = None) -> list[bool]:
    """Draw for each module, for the whole batch, whether the successor's takes the place of the predecessor's.

    Args:
        rate: probability of it.
        modules: number of modules.
        generator: where the draws come from, one a module, in order (default: torch's own).

    Returns:
        One choice per module, `True` for the successor's.

    Raises:
        ValueError: a rate outside (0, 1].

    Example:
        >>> draw_replacements(1.0, 3)
        [True, True, True]
    """
    chance = torch.full((1,), check_rate("rate", rate))
    return [bool(torch.bernoulli(chance, generator=generator).item()) for _ in range(modules)]


def generator_of_step(seed: int, step: int) -> torch.Generator:
    """A generator that depends on seed and step alone: the same in every process and in a resumed run.

    Args:
        seed: of the run.
        step: updates made before this one.

    Returns:
        A generator on the CPU.
    """
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


# `replacing_scheduler` -> function of (step, ...).
SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant_rate,
    "linear": linear_rate,
    "reference-constant": reference_constant_rate,
}

__all__ = [
    "SCHEDULES",
    "check_rate",
    "constant_rate",
    "draw_replacements",
    "generator_of_step",
    "linear_rate",
    "reference_constant_rate",
]
