"""What collators draw next: saved, restored, and known before each batch however far a loader reads ahead."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.data import get_worker_info
from transformers import PreTrainedTokenizerBase

from .rows import seeded_draws

State = dict[str, Any]
# How deep collators lie in collators.
DEPTH = 4


def at_call(state: State, calls: int) -> State:
    """The state of a collator, and of those inside it, before call number `calls`."""
    inner = {name: at_call(value, calls) for name, value in state.items() if isinstance(value, dict)}
    return {**state, **({"calls": calls} if "calls" in state else {}), **inner}


def after_calls(state: State, calls: int) -> State:
    """The state of a collator, and of those inside it, so many calls later."""
    inner = {name: after_calls(value, calls) for name, value in state.items() if isinstance(value, dict)}
    return {**state, **({"calls": state["calls"] + calls} if "calls" in state else {}), **inner}


def is_counted(state: State) -> bool:
    """Whether a state is told by the number of calls, for every part: workers then need not wait for each other."""
    return all(isinstance(value, dict) and "calls" in value for value in state.values())


def stateful_parts(collator: Any) -> dict[str, Any]:
    """A collator and those inside it that can save their state, by where they are; whoever composed them."""
    return dict(_parts(collator, "", DEPTH))


def _parts(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth == 0 or not callable(value) or isinstance(value, type | nn.Module | PreTrainedTokenizerBase):
        return
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        yield place, value
    for name, one in list(getattr(value, "__dict__", {}).items()):
        inside = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list | tuple) else None
        if inside is None:
            yield from _parts(one, f"{place}.{name}", depth - 1)
        elif len(one) <= 100:
            for key, part in inside:
                yield from _parts(part, f"{place}.{name}.{key}", depth - 1)


def state_of(parts: dict[str, Any]) -> State:
    """The states of a collator's parts."""
    return {place: copy.deepcopy(part.state_dict()) for place, part in parts.items()}


def restore(parts: dict[str, Any], state: State) -> None:
    """Let a collator's parts go on from saved states."""
    for place, part in parts.items():
        if place in state:
            part.load_state_dict(state[place])


def restart(collator: Any) -> None:
    """Let a collator, and those inside it, draw from their first call on again."""
    parts = stateful_parts(collator)
    restore(parts, at_call(state_of(parts), 0))


class RecordedCollator:
    """A training collator whose state before each batch is known; global generators draw by the batch's number.

    A loader's workers are dealt the batches in turn, so each knows the numbers of its own, and draws for them what one
    process alone would draw.
    """

    def __init__(self, collator: Any, seed: int, state: State, calls: int, workers: int = 0):
        self.has_generator = hasattr(collator, "create_rng")
        self.collator = copy.copy(collator) if self.has_generator else collator
        self.parts = stateful_parts(collator)
        self.seed, self.calls, self.workers = seed, calls, workers
        self.states: dict[int, State] = {}
        restore(self.parts, state)
        self.start, self.first = state_of(self.parts), calls
        self.counted = is_counted(self.start)
        self.in_worker = 0

    def __getattr__(self, name: str) -> Any:
        # `input_columns` and the like are the collator's. Dunder names are left to `copy` and `pickle`.
        if name.startswith("__") or name == "collator":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return getattr(self.collator, name)

    def __call__(self, rows: list[Any]) -> Any:
        worker = get_worker_info()
        if worker is None:
            number, self.calls = self.calls, self.calls + 1
            self.states[number] = state_of(self.parts)
        else:
            number = self.calls + worker.id + self.in_worker * worker.num_workers
            self.in_worker += 1
            if self.counted:
                restore(self.parts, after_calls(self.start, number - self.first))
        worker_seed = 0 if worker is None or self.counted else int(worker.seed)
        key = [self.seed, int(os.environ.get("RANK", "0")), worker_seed, number]
        with self._numbered(), seeded_draws(key) as drawn:
            if self.has_generator and self.collator.seed is not None:
                # Upstream's collators add the worker's number to their seed.
                self.collator.generator, self.collator.seed = None, drawn - (0 if worker is None else worker.id)
            return self.collator(rows)

    @contextmanager
    def _numbered(self) -> Iterator[None]:
        """In the block a part draws by the batch and by its calls in it; behind it every part is at the next batch."""
        parts = {place: one for place, one in self.parts.items() if self.counted and hasattr(one, "numbered")}
        state = state_of(parts)
        for part in parts.values():
            part.numbered = 0
        try:
            yield
        finally:
            for part in parts.values():
                part.numbered = None
            restore(parts, after_calls(state, 1))

    def state_before(self, number: int) -> State:
        """The collator's state before batch `number`; those of earlier ones are needed no more."""
        if self.workers:
            self.calls = number  # workers of the next pass begin there
            return after_calls(self.start, number - self.first) if self.counted else self.start
        self.states = {call: state for call, state in self.states.items() if call >= number}
        return self.states[number] if number in self.states else state_of(self.parts)
