"""Reproducible randomness of collators.

Call k of a collator draws from its own generator, seeded with (seed, epoch, rank, worker seed, k). So

* the global random state is neither read nor moved;
* the same seed gives the same masks again, another epoch other masks, another worker or process other masks;
* a resumed job goes on where it stopped: `state_dict()` holds the epoch and the number of calls in it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch


class CallRandomness:
    """One fresh generator per call; a base class of collators.

    Inside a `torch.utils.data.DataLoader` worker `worker_info.seed` enters: it differs by worker, and by epoch because
    the loader draws a new base seed for each pass. The counter then counts the calls of that worker's own copy; the
    copy in the main process does not move, so exact resumption through `state_dict()` holds for `num_workers=0` (with
    workers, restore the loader's generator as well and pass the batches already read by one worker as `calls`). Our
    Trainers number the batches: under them masks are the same with any number of workers, and resume exactly.
    The process rank is read from the environment variable RANK, which `accelerate launch` and `torchrun` set.
    A collator used for training and evaluation counts the calls of both: give evaluation a collator of its own.
    """

    # Set by who counts the batches of all workers together: each then draws what one process alone would. How many
    # calls this batch had so far; `None` if every call counts.
    numbered: int | None = None
    _entropy: int
    _epoch: int
    _calls: int

    def start_randomness(self, seed: int | None) -> None:
        """Begin at epoch 0, call 0."""
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
                raise TypeError(f"`seed` must be an integer or None, got {seed!r}. Pass a number such as 42.")
            if seed < 0:
                raise ValueError(f"`seed` must not be negative, got {seed}. Pass a number such as 42.")
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        self._entropy = int(entropy)  # type: ignore[arg-type]
        self._epoch = 0
        self._calls = 0

    def next_generator(self) -> np.random.Generator:
        """Give the generator of the next call and count it."""
        worker = None if self.numbered is not None else torch.utils.data.get_worker_info()
        worker_seed = 0 if worker is None else int(worker.seed)
        rank = int(os.environ.get("RANK", "0"))
        key = [self._entropy, self._epoch, rank, worker_seed, self._calls]
        if self.numbered is None:
            self._calls += 1
        else:
            key += [self.numbered] * bool(self.numbered)
            self.numbered += 1
        return np.random.default_rng(np.random.SeedSequence(key))

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch; a new epoch starts counting its calls from 0."""
        if epoch < 0:
            raise ValueError(f"`epoch` must not be negative, got {epoch}. Count epochs from 0.")
        if epoch != self._epoch:
            self._epoch = int(epoch)
            self._calls = 0

    def state_dict(self) -> dict[str, Any]:
        """Give what a resumed job needs to draw the masks it would have drawn."""
        return {"entropy": self._entropy, "epoch": self._epoch, "calls": self._calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        for name in ("entropy", "epoch", "calls"):
            if name not in state or int(state[name]) < 0:
                raise ValueError(
                    f"`state` must hold `{name}`, not negative, got {state!r}. Pass what `state_dict()` returned."
                )
        self._entropy, self._epoch, self._calls = (int(state[name]) for name in ("entropy", "epoch", "calls"))
