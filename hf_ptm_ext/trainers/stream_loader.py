"""Batches of a resumable stream, by a worker that reads ahead: where the stream stood before each is known."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch.utils.data import DataLoader, IterableDataset

# Batches between two states that a worker sends; between them the stream is read again.
EVERY = 32


class NumberedBatches(IterableDataset):
    """Batches with their numbers, some with the stream's state before them; what is behind a state is read again."""

    def __init__(self, stream: Any, collator: Any, batch_size: int):
        self.stream, self.collator, self.batch_size = stream, collator, batch_size
        self.number = self.behind = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | None, Any]]:
        rows, number = iter(self.stream), self.number
        for _ in range(self.behind):
            next(rows, None)
        while True:
            sent = torch.utils.data.get_worker_info() and (number - self.number) % EVERY == 0
            state = self._state() if sent else None
            batch = list(islice(rows, self.batch_size))
            if not batch and number == self.number:  # it stood at its end: another pass begins
                rows = iter(self.stream)
                batch = list(islice(rows, self.batch_size))
            if not batch:
                yield number, self._state(), None
                return
            yield number, state, self.collator(batch)
            number += 1

    def _state(self) -> bytes:
        """As bytes, into which nobody looks who moves tensors."""
        return json.dumps(self.stream.state_dict()).encode()


def as_it_is(item: Any) -> Any:
    """The worker's item."""
    return item


class StreamLoader(DataLoader):
    """The batches of a resumable stream on a device, in the order of one process.

    Args:
        stream: rows, with `state_dict` and `load_state_dict`.
        collator: makes a batch of rows.
        batch_size: rows of a batch.
        start: the number of the first batch, and how many rows the stream stands before it.
        device: where the batches go.
        kwargs: `num_workers` (0, or one worker that reads ahead) and others as `torch.utils.data.DataLoader`.
    """

    def __init__(
        self, stream: Any, collator: Any, batch_size: int, start: tuple[int, int], device: torch.device, **kwargs: Any
    ):
        batches = NumberedBatches(stream, collator, batch_size)
        batches.number, batches.behind = start
        self.batches, self.stream, self.device, self.number = batches, stream, device, start[0]
        self.states: dict[int, bytes] = {}
        super().__init__(batches, batch_size=None, collate_fn=as_it_is, generator=torch.Generator(), **kwargs)

    def __iter__(self) -> Any:
        if self.states:  # another pass of the worker, whose copy of the stream went on while this one did not
            state, self.batches.behind = self.state_before(self.number)
            self.stream.load_state_dict(state)
        elif self.number != self.batches.number:
            self.batches.behind = 0
        self.batches.number = self.number
        for number, state, batch in super().__iter__():
            if state is not None and self.num_workers:
                self.states[number] = state
            if batch is not None:
                self.number = number + 1
                yield send_to_device(batch, self.device, non_blocking=self.pin_memory)

    def state_before(self, number: int) -> tuple[dict[str, Any], int]:
        """A state of the stream at most some batches before a batch that was not used yet, and how many rows."""
        if not self.states:
            return self.stream.state_dict(), 0
        newest = max(place for place in self.states if place <= number)
        self.states = {place: state for place, state in self.states.items() if place >= newest}
        return json.loads(self.states[newest]), (number - newest) * self.batches.batch_size
