"""What a run of BERT-of-Theseus can be told: rates of replacement, and draws, by the number of updates made before."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers import TrainingArguments

from ..registry import check_known


def check_rate(name: str, rate: float) -> float:
    """Refuse what is no rate of replacement."""
    if not 0 < rate <= 1:
        raise ValueError(
            f"`{name}` must be in (0, 1], got {rate!r}: at 0 no module of the successor would ever be trained."
        )
    return rate


def _check_steps(replacing_steps: int | None) -> None:
    if replacing_steps is not None and replacing_steps < 0:
        raise ValueError(f"`replacing_steps` must be at least 0, or None for all updates, got {replacing_steps!r}.")


def constant_rate(step: int, replacing_rate: float, replacing_steps: int | None = None) -> float:
    """The paper's module replacing: `replacing_rate` for so many updates (default: all), and 1 behind them."""
    check_rate("replacing_rate", replacing_rate)
    _check_steps(replacing_steps)
    return replacing_rate if replacing_steps is None or step < replacing_steps else 1.0


def reference_constant_rate(step: int, replacing_rate: float, replacing_steps: int | None = None) -> float:
    """`constant_rate` as the reference has it: its first update is at `replacing_rate` whatever the steps."""
    return constant_rate(step, replacing_rate, None if replacing_steps is None or step == 0 else replacing_steps)


def linear_rate(step: int, base_replacing_rate: float, k: float) -> float:
    """The paper's curriculum: the rate grows by `k` an update until it is 1."""
    check_rate("base_replacing_rate", base_replacing_rate)
    if not k >= 0:
        raise ValueError(f"`k` must be at least 0, got {k!r}: the rate grows.")
    return min(k * step + base_replacing_rate, 1.0)


def draw_replacements(rate: float, modules: int, generator: torch.Generator | None = None) -> list[bool]:
    """For each module, for the whole batch, whether the successor's takes the place of the predecessor's."""
    chance = torch.full((1,), check_rate("rate", rate))
    return [bool(torch.bernoulli(chance, generator=generator).item()) for _ in range(modules)]


def generator_of_step(seed: int, step: int) -> torch.Generator:
    """A generator of seed and step alone: the same in every process and in a resumed run."""
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


# `replacing_scheduler` -> function of (step, ...).
SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant_rate,
    "linear": linear_rate,
    "reference-constant": reference_constant_rate,
}


@dataclass
class TheseusArguments(TrainingArguments):
    """transformers' TrainingArguments and how modules are replaced.

    Args:
        successor_layers: layers of the successor, a divisor of the predecessor's (default: half of them).
        replacing_scheduler: `constant`, `linear`, or `reference-constant`, whose first update is at `replacing_rate`
            even if `steps_for_replacing` is 0.
        replacing_rate: probability of a module's replacement at the beginning, in (0, 1].
        steps_for_replacing: updates before the successor is trained alone; below 1 a share of the run's, `None` for
            all of them. In the linear schedule, unless `scheduler_linear_k` is given, the update whose rate is 1.
        scheduler_linear_k: growth of the rate per update in the linear schedule.
        train_head: whether the head learns too (default: it stays the predecessor's, as in the reference).
        predecessor_check_rows: on how many rows the predecessor's accuracy is looked at before training; 0 for none.
    """

    successor_layers: int | None = field(
        default=None, metadata={"help": "Layers of the successor. Default: half of the predecessor's."}
    )
    replacing_scheduler: str = field(default="constant", metadata={"help": f"One of {', '.join(SCHEDULES)}."})
    replacing_rate: float = field(default=0.5, metadata={"help": "Rate at the beginning, in (0, 1]."})
    steps_for_replacing: float | None = field(
        default=0.5, metadata={"help": "Updates before the successor trains alone; below 1 a share of all."}
    )
    scheduler_linear_k: float | None = field(
        default=None, metadata={"help": "Growth of the rate per update, of the linear schedule."}
    )
    train_head: bool = field(default=False, metadata={"help": "Train what lies outside the base model too."})
    predecessor_check_rows: int = field(
        default=256, metadata={"help": "Rows on which the predecessor is compared with chance; 0: none."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("replacing_scheduler", self.replacing_scheduler, SCHEDULES)
        check_rate("replacing_rate", self.replacing_rate)
        steps = self.steps_for_replacing
        if steps is not None and (steps < 0 or (steps >= 1 and steps != int(steps))):
            raise ValueError(
                f"`steps_for_replacing` must be a number of updates, a share of them in [0, 1) or None, got {steps!r}."
            )
        linear = self.replacing_scheduler == "linear"
        if self.scheduler_linear_k is not None and (not linear or self.scheduler_linear_k < 0):
            raise ValueError(
                "`scheduler_linear_k` must be at least 0 and belongs to `replacing_scheduler` = 'linear', got "
                f"{self.scheduler_linear_k!r} with {self.replacing_scheduler!r}."
            )
        if linear and self.scheduler_linear_k is None and not steps:
            raise ValueError(
                "`replacing_scheduler` = 'linear' needs `scheduler_linear_k`, or `steps_for_replacing` above 0 by "
                f"which the rate is 1; got None and {steps!r}."
            )

    def replacing_steps(self, total_steps: int) -> int | None:
        """Updates before the successor trains alone."""
        steps = self.steps_for_replacing
        return None if steps is None else math.ceil(steps * total_steps) if steps < 1 else int(steps)

    def rate_at(self, step: int, total_steps: int) -> float:
        """The rate of replacement of one update."""
        steps = self.replacing_steps(total_steps)
        if self.replacing_scheduler != "linear":
            return SCHEDULES[self.replacing_scheduler](step, self.replacing_rate, steps)
        k = self.scheduler_linear_k
        if k is None:
            k = (1 - self.replacing_rate) / max(steps or 1, 1)
        return SCHEDULES["linear"](step, self.replacing_rate, k)
