"""Which task each update trains: MT-DNN's ways to mix batches, and two that are common beside them.

| strategy | batches of an epoch |
| --- | --- |
| `"proportional"` | all batches of all tasks, shuffled (MT-DNN, `mix_opt` 0) |
| `"main"` | all batches of the main task and `extra_task_ratio` times as many of the others (MT-DNN, `mix_opt` 1) |
| `"equal"` | as many in all as with `"proportional"`, the same number for each task |
| `"temperature"` | as many in all, a task's share proportional to its number of rows to the power 1 / temperature |

Every batch has rows of one task. Batches are a function of seed and epoch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

import torch
from torch.utils.data import Sampler

STRATEGIES = ("proportional", "main", "equal", "temperature")


@dataclass(frozen=True)
class Mixing:
    """How tasks share an epoch.

    Args:
        strategy: one of the table above (MT-DNN's default: `"proportional"`).
        main_task: `"main"`: which task is seen whole (MT-DNN: the first).
        extra_task_ratio: `"main"`: batches of all other tasks together over those of the main one.
        temperature: `"temperature"`: 1 is proportional, larger is more equal.
        shuffle_rows: whether rows are drawn anew in each epoch; MT-DNN's code cuts the rows into batches in their
            order and shuffles those (`False`).

    Raises:
        ValueError: the strategy is unknown or a number is out of range.

    Example:
        >>> Mixing("temperature", temperature=2.0).shares({"large": 90, "small": 10})
        {'large': 0.75, 'small': 0.25}
    """

    strategy: str = "proportional"
    main_task: str | None = None
    extra_task_ratio: float = 1.0
    temperature: float = 2.0
    shuffle_rows: bool = True

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"`strategy` must be one of {list(STRATEGIES)}, got {self.strategy!r}.")
        if self.extra_task_ratio < 0:
            raise ValueError(f"`extra_task_ratio` must not be negative, got {self.extra_task_ratio}.")
        if self.temperature <= 0:
            raise ValueError(f"`temperature` must be positive, got {self.temperature}.")

    def shares(self, lengths: Mapping[str, int]) -> dict[str, float]:
        """Each task's share of the batches under `"equal"` and `"temperature"`.

        Args:
            lengths: rows of each task.

        Returns:
            Shares that add up to 1.
        """
        power = 0.0 if self.strategy == "equal" else 1.0 / self.temperature
        weights = {name: length**power for name, length in lengths.items()}
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def batches_per_epoch(self, lengths: Mapping[str, int], batch_size: int) -> dict[str, int]:
        """How many batches of each task an epoch has.

        Args:
            lengths: rows of each task.
            batch_size: rows of a batch.

        Returns:
            Task -> number of batches, at least one for a task with rows unless `extra_task_ratio` is 0.

        Raises:
            ValueError: the main task is none of the tasks.

        Example:
            >>> lengths = {"a": 80, "b": 16}
            >>> Mixing("equal").batches_per_epoch(lengths, 8)
            {'a': 6, 'b': 6}
            >>> Mixing("main", main_task="b", extra_task_ratio=0.5).batches_per_epoch(lengths, 8)
            {'a': 1, 'b': 2}
        """
        whole = {name: ceil(length / batch_size) for name, length in lengths.items()}
        if self.strategy == "proportional":
            return whole
        if self.strategy == "main":
            main = next(iter(lengths)) if self.main_task is None else self.main_task
            if main not in lengths:
                raise ValueError(f"`main_task` must be one of {sorted(lengths)}, got {main!r}.")
            others = sum(count for name, count in whole.items() if name != main)
            factor = min(self.extra_task_ratio * whole[main] / others, 1.0) if others else 0.0
            return {name: count if name == main else ceil(count * factor) for name, count in whole.items()}
        total = sum(whole.values())
        return {name: max(round(total * share), 1) for name, share in self.shares(lengths).items()}


class MixedBatchSampler(Sampler[list[int]]):
    """Batches of row numbers, each of one task, in an order that is a function of seed and epoch.

    A task that is seen more than once in an epoch is begun again in another order. Several processes share the
    batches; the first ones are given twice if they do not come out even, as accelerate does.

    Args:
        lengths: rows of each task, in the order of the data set.
        batch_size: rows of a batch; the last batch of a pass over a task may have fewer.
        mixing: how tasks share an epoch.
        seed: of all draws.
        process_index: this process.
        num_processes: number of processes.

    Raises:
        ValueError: a task has no rows, or see `Mixing`.

    Example:
        >>> sampler = MixedBatchSampler({"a": 4, "b": 2}, 2, Mixing(), seed=0)
        >>> sorted(sorted(batch) for batch in sampler)
        [[0, 1], [2, 3], [4, 5]]
    """

    def __init__(
        self,
        lengths: Mapping[str, int],
        batch_size: int,
        mixing: Mixing,
        seed: int = 0,
        process_index: int = 0,
        num_processes: int = 1,
    ):
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
        empty = [name for name, length in lengths.items() if not length]
        if empty:
            raise ValueError(f"Every task must have training rows; without any: {empty}.")
        self.lengths, self.batch_size, self.mixing, self.seed = dict(lengths), batch_size, mixing, seed
        self.process_index, self.num_processes = process_index, num_processes
        self.counts = mixing.batches_per_epoch(self.lengths, batch_size)
        self.epoch = 0

    @property
    def batch_sampler(self) -> "MixedBatchSampler":
        """Itself: where a Trainer looks for what it tells the epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches come next.

        Args:
            epoch: from 0.
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return ceil(sum(self.counts.values()) / self.num_processes)

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._batches()
        for number in range(self.process_index, len(self) * self.num_processes, self.num_processes):
            yield batches[number % len(batches)]

    def _batches(self) -> list[list[int]]:
        """The batches of all processes."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        batches: list[list[int]] = []
        start = 0
        for name, length in self.lengths.items():
            found: list[list[int]] = []
            while len(found) < self.counts[name]:
                found += self._one_pass(start, length, generator)
            batches += found[: self.counts[name]]
            start += length
        return [batches[number] for number in torch.randperm(len(batches), generator=generator).tolist()]

    def _one_pass(self, start: int, length: int, generator: torch.Generator) -> list[list[int]]:
        """All rows of one task in batches, the batches in a drawn order."""
        order = torch.randperm(length, generator=generator) if self.mixing.shuffle_rows else torch.arange(length)
        parts = [part.tolist() for part in (order + start).split(self.batch_size)]
        return [parts[number] for number in torch.randperm(len(parts), generator=generator).tolist()]


__all__ = ["STRATEGIES", "MixedBatchSampler", "Mixing"]
