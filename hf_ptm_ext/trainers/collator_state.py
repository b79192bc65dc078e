"""What collators draw next: saved, restored, and known before each batch however far a loader reads ahead."""

import copy
import os
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.data import get_worker_info
from transformers import PreTrainedTokenizerBase

from .rows import seeded_draws

State = dict[str, Any]
# How deep collators lie in collators.
DEPTH = 4


def at_call(state: State, calls: int) -> State:
    """The state of a collator, and of those inside it, before call number `calls`.

    Args:
        state: what the collator's `state_dict` gave.
        calls: how many batches it has made.

    Example:
        >>> at_call({"entropy": 5, "calls": 9, "mlm": {"entropy": 6, "calls": 9}}, 2)
        {'entropy': 5, 'calls': 2, 'mlm': {'entropy': 6, 'calls': 2}}
    """
    inner = {name: at_call(value, calls) for name, value in state.items() if isinstance(value, dict)}
    return {**state, **({"calls": calls} if "calls" in state else {}), **inner}


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
    """A training collator whose state before each batch is known, however far the loader reads ahead.

    What draws from the global generators, or from one that upstream's collators make of their `seed`, draws what the
    number of the batch says.

    Args:
        collator: makes the batches.
        seed: for what has no state of its own.
        state: to go on from.
        calls: how many batches were made.
    """

    def __init__(self, collator: Any, seed: int, state: State, calls: int):
        self.has_generator = hasattr(collator, "create_rng")
        self.collator = copy.copy(collator) if self.has_generator else collator
        self.parts = stateful_parts(collator)
        self.seed, self.calls = seed, calls
        self.states: dict[int, State] = {}
        restore(self.parts, state)

    def __getattr__(self, name: str) -> Any:
        # `input_columns` and the like are the collator's. Dunder names are left to `copy` and `pickle`.
        if name.startswith("__") or name == "collator":
            raise AttributeError(name)
        return getattr(self.collator, name)

    def __call__(self, rows: list[Any]) -> Any:
        number, self.calls = self.calls, self.calls + 1
        self.states[number] = state_of(self.parts)
        worker = get_worker_info()
        key = [self.seed, int(os.environ.get("RANK", "0")), 0 if worker is None else int(worker.seed), number]
        with seeded_draws(key) as drawn:
            if self.has_generator and self.collator.seed:
                self.collator.generator, self.collator.seed = None, drawn
            return self.collator(rows)

    def state_before(self, number: int) -> State:
        """The collator's state before batch `number`; those of earlier ones are needed no more."""
        self.states = {call: state for call, state in self.states.items() if call >= number}
        return self.states[number] if number in self.states else state_of(self.parts)


__all__ = ["RecordedCollator", "at_call", "restart", "restore", "state_of", "stateful_parts"]
