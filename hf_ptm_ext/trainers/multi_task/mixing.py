"""Which task each update trains: MT-DNN's ways to mix batches, and two that are common beside them.

| strategy | batches of an epoch |
| --- | --- |
| `"proportional"` | all batches of all tasks (MT-DNN's `--ratio 0`) |
| `"main"` | all of the main task, and `extra_task_ratio` times as many of all others together (MT-DNN's `--ratio`) |
| `"equal"` | as many in all as with `"proportional"`, the same number for each task |
| `"temperature"` | as many in all, a task's share proportional to its number of rows to the power 1 / temperature |
| `"alternating"` | all of the main task, the others in turn with it, as `pattern` says (LIBERT) |

The others' batches of `"main"` are drawn anew in each epoch. Every batch has rows of one task. All are shuffled
(MT-DNN's `--mix_opt 0`), or with `main_last` the main task's follow those of the others (`--mix_opt 1`). Batches are a
function of seed and epoch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

import torch
from torch.utils.data import Sampler

STRATEGIES = ("proportional", "main", "equal", "temperature", "alternating")


@dataclass(frozen=True)
class Mixing:
    """How tasks share an epoch.

    Args:
        strategy: one of the table above (MT-DNN's default: `"proportional"`).
        main_task: which task is seen whole under `"main"`, and last under `main_last` (MT-DNN: the first).
        extra_task_ratio: `"main"`: batches of all other tasks together over those of the main one; 0 (MT-DNN) = all.
        temperature: `"temperature"`: 1 is proportional, larger is more equal.
        shuffle_rows: whether rows are drawn anew in each epoch; MT-DNN's code cuts the rows into batches in their
            order and shuffles those (`False`).
        main_last: whether the main task's batches follow all others (MT-DNN: no).
        pattern: `"alternating"`: tasks of the updates, again and again; `("a", "a", "b")` has two of a for one of b.
            The task of an update is a function of its number alone.

    Raises:
        ValueError: the strategy is unknown or a number is out of range.

    Examples:
        >>> Mixing("temperature", temperature=2.0).shares({"large": 90, "small": 10})
        {'large': 0.75, 'small': 0.25}
    """

    strategy: str = "proportional"
    main_task: str | None = None
    extra_task_ratio: float = 0.0
    temperature: float = 2.0
    shuffle_rows: bool = True
    main_last: bool = False
    pattern: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"`strategy` must be one of {list(STRATEGIES)}, got {self.strategy!r}.")
        if self.extra_task_ratio < 0:
            raise ValueError(f"`extra_task_ratio` must not be negative, got {self.extra_task_ratio}.")
        if self.temperature <= 0:
            raise ValueError(f"`temperature` must be positive, got {self.temperature}.")

    def shares(self, lengths: Mapping[str, int]) -> dict[str, float]:
        """Each task's share of the batches under `"equal"` and `"temperature"`."""
        power = 0.0 if self.strategy == "equal" else 1.0 / self.temperature
        weights = {name: length**power for name, length in lengths.items()}
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def main_of(self, lengths: Mapping[str, int]) -> str:
        """The main task."""
        main = next(iter(lengths)) if self.main_task is None else self.main_task
        if main not in lengths:
            raise ValueError(f"`main_task` must be one of {sorted(lengths)}, got {main!r}.")
        return main

    def batches_per_epoch(self, lengths: Mapping[str, int], batch_size: int, together: int = 1) -> dict[str, int]:
        """How many batches of each task an epoch has; of a draw (`"main"`) what each task has on average.

        Args:
            lengths: rows of each task.
            batch_size: rows of a batch.
            together: batches of an update, of all processes, which `"alternating"` never parts.

        Returns:
            Task -> number of batches; they add up to those of an epoch.

        Raises:
            ValueError: the main task is none of the tasks, or the pattern has other tasks.

        Examples:
            >>> lengths = {"a": 80, "b": 16}
            >>> Mixing("equal").batches_per_epoch(lengths, 8)
            {'a': 6, 'b': 6}
            >>> Mixing("main", main_task="b", extra_task_ratio=0.5).batches_per_epoch(lengths, 8)
            {'a': 1, 'b': 2}
        """
        whole = {name: ceil(length / batch_size) for name, length in lengths.items()}
        main = self.main_of(lengths)
        if self.strategy == "main":
            others = {name: count for name, count in whole.items() if name != main}
            extra = sum(others.values())
            if self.extra_task_ratio:
                extra = int(min(self.extra_task_ratio * whole[main], extra))
            return {name: {main: whole[main], **_apportioned(extra, others)}[name] for name in lengths}
        if self.strategy == "alternating":
            if set(self.pattern) != set(lengths):
                raise ValueError(f"`pattern` must be of the tasks {sorted(lengths)}, got {self.pattern}.")
            turns = ceil(whole[main] / (self.pattern.count(main) * together))
            return {name: turns * self.pattern.count(name) * together for name in lengths}
        if self.strategy == "proportional":
            return whole
        found = _apportioned(sum(whole.values()), self.shares(lengths))
        return {name: max(count, 1) for name, count in found.items()}


def _apportioned(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """A number in whole parts by weight, what is left over going to the largest remainders."""
    whole = sum(weights.values()) or 1
    exact = {name: total * weight / whole for name, weight in weights.items()}
    found = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[: total - sum(found.values())]:
        found[name] += 1
    return found


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
        accumulated: batches of an update in each process.

    Raises:
        ValueError: a task has no rows, or see `Mixing`.

    Examples:
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
        accumulated: int = 1,
    ):
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
        empty = [name for name, length in lengths.items() if not length]
        if empty:
            raise ValueError(f"Every task must have training rows; without any: {empty}.")
        self.lengths, self.batch_size, self.mixing, self.seed = dict(lengths), batch_size, mixing, seed
        self.process_index, self.num_processes = process_index, num_processes
        self.together = num_processes * accumulated
        self.counts = mixing.batches_per_epoch(self.lengths, batch_size, self.together)
        self.epoch = 0

    @property
    def batch_sampler(self) -> "MixedBatchSampler":
        """Itself: where a Trainer looks for what it tells the epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches come next."""
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
        if self.mixing.strategy == "alternating":
            return self._in_turn(generator)
        main = self.mixing.main_of(self.lengths)
        drawn = self.mixing.strategy == "main"  # from the others' batches together
        batches: dict[bool, list[list[int]]] = {True: [], False: []}
        start = 0
        for name, length in self.lengths.items():
            wanted = ceil(length / self.batch_size) if drawn else self.counts[name]
            batches[name == main] += self._passes(start, length, wanted, generator)
            start += length
        if drawn:
            extra = sum(self.counts.values()) - self.counts[main]
            batches[False] = _shuffled(batches[False], generator)[:extra]
        if self.mixing.main_last:
            return _shuffled(batches[False], generator) + batches[True]
        return _shuffled(batches[False] + batches[True], generator)

    def _in_turn(self, generator: torch.Generator) -> list[list[int]]:
        """The batches of updates whose tasks the pattern says."""
        queues, start = {}, 0
        for name, length in self.lengths.items():
            queues[name] = iter(self._passes(start, length, self.counts[name], generator))
            start += length
        pattern = self.mixing.pattern
        updates = sum(self.counts.values()) // self.together
        return [next(queues[pattern[n % len(pattern)]]) for n in range(updates) for _ in range(self.together)]

    def _passes(self, start: int, length: int, wanted: int, generator: torch.Generator) -> list[list[int]]:
        """So many batches of one task, in as many passes as that takes."""
        found: list[list[int]] = []
        while len(found) < wanted:
            found += self._one_pass(start, length, generator)
        return found[:wanted]

    def _one_pass(self, start: int, length: int, generator: torch.Generator) -> list[list[int]]:
        """All rows of one task in batches, the batches in a drawn order."""
        order = torch.randperm(length, generator=generator) if self.mixing.shuffle_rows else torch.arange(length)
        return _shuffled([part.tolist() for part in (order + start).split(self.batch_size)], generator)


def _shuffled(batches: list[list[int]], generator: torch.Generator) -> list[list[int]]:
    """The batches in a drawn order."""
    return [batches[number] for number in torch.randperm(len(batches), generator=generator).tolist()]
