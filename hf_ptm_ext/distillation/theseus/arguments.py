"""What a run of BERT-of-Theseus can be told."""

import math
from dataclasses import dataclass, field

from transformers import TrainingArguments

from ..registry import unknown_name
from .schedules import SCHEDULES, check_rate


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
        if self.replacing_scheduler not in SCHEDULES:
            raise unknown_name("replacing_scheduler", self.replacing_scheduler, SCHEDULES)
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
        """Updates before the successor trains alone.

        Args:
            total_steps: updates of the run.

        Returns:
            Their number, `None` if it never does.
        """
        steps = self.steps_for_replacing
        return None if steps is None else math.ceil(steps * total_steps) if steps < 1 else int(steps)

    def rate_at(self, step: int, total_steps: int) -> float:
        """The rate of replacement of one update.

        Args:
            step: updates made before it.
            total_steps: updates of the run.

        Returns:
            The rate.
        """
        steps = self.replacing_steps(total_steps)
        if self.replacing_scheduler != "linear":
            return SCHEDULES[self.replacing_scheduler](step, self.replacing_rate, steps)
        k = self.scheduler_linear_k
        if k is None:
            k = (1 - self.replacing_rate) / max(steps or 1, 1)
        return SCHEDULES["linear"](step, self.replacing_rate, k)


__all__ = ["TheseusArguments"]
