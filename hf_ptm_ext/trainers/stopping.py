"""What ends a training before its end, in one clear error: numbers that are not finite, dead workers, Ctrl-C."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.utils import logging

from ..weights import not_finite
from .manifest import MANIFEST, checkpoints

logger = logging.get_logger(__name__)

NONFINITE = ("stop", "skip")
_DEAD_WORKER = re.compile(r"DataLoader worker \(pid.*?\) (is killed by signal|exited unexpectedly)[^.]*")


class TrainingStopped(RuntimeError):
    """A training that cannot go on; the message says why and from where it resumes."""


class NotFinite(TrainingStopped, FloatingPointError):
    """A loss, a gradient or a weight is NaN or infinite."""


@contextmanager
def kept_interruption() -> Iterator[list[int]]:
    """Ctrl-C in the block is remembered: raised where nobody sees it (in a destructor, say) it would be lost.

    Yields:
        A list that is no longer empty once it was pressed.
    """
    pressed: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    ours = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield pressed
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


class GuardedUpdates(Trainer):
    """`transformers.Trainer` that makes no update of a loss or a gradient that is not finite."""

    def __init__(self, *args: Any, nonfinite: str | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.nonfinite = getattr(self.args, "nonfinite", NONFINITE[0]) if nonfinite is None else nonfinite
        if self.nonfinite not in NONFINITE:
            raise ValueError(f"`nonfinite` must be one of {', '.join(NONFINITE)}, got {self.nonfinite!r}.")
        self._pressed: list[int] = []
        self._micro_batches: list[tuple[torch.Tensor, dict[str, tuple[int, ...]]]] = []
        self.skipped_updates = 0

    # ---- what is not finite ----

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """As upstream; the loss is remembered, and looked at once an update, together with the gradient.

        Args:
            model: as upstream.
            inputs: as upstream.
            args: as upstream.
            kwargs: as upstream.
        """
        if self._pressed:
            raise KeyboardInterrupt
        shapes = {name: tuple(value.shape) for name, value in inputs.items() if torch.is_tensor(value)}
        loss = super().training_step(model, inputs, *args, **kwargs)
        self._micro_batches.append((loss, shapes))
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """As upstream, once an update before its step: the place to refuse it."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        micro_batches, self._micro_batches = self._micro_batches, []
        device = self.args.device
        losses = torch.stack([loss.detach().float().to(device) for loss, _ in micro_batches])
        size = torch.zeros((), device=device) if norm is None else torch.as_tensor(norm, device=device).float()
        wrong = torch.stack([~losses.isfinite().all(), ~size.isfinite()]).float()
        if self.args.world_size > 1:
            wrong = self.accelerator.reduce(wrong, reduction="sum")
        loss_is_wrong, gradient_is_wrong = (wrong > 0).tolist()
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and scaler.is_enabled() and not loss_is_wrong and gradient_is_wrong:
            # Half precision: the scale was too large. The scaler leaves the update out and takes a smaller one.
            gradient_is_wrong = scaler.get_scale() <= 1.0
        if loss_is_wrong or gradient_is_wrong:
            told = self._told(losses.tolist(), [shapes for _, shapes in micro_batches], float(size))
            if self.nonfinite == "stop" or self.is_deepspeed_enabled:
                raise NotFinite(
                    f"{told} No update was made of it, and nothing was saved since {self._last_checkpoint()}. Look at "
                    'these rows, take a smaller `learning_rate` or `max_grad_norm`, or pass `nonfinite="skip"` to '
                    "leave such updates out; then resume from that checkpoint."
                )
            logger.warning(f"{told} The update is left out.")
            self.skipped_updates += 1
            model.zero_grad()  # parameters without a gradient are left alone by every optimiser
            self._forget_update()
        return norm

    def _told(self, losses: list[float], shapes: list[dict[str, tuple[int, ...]]], norm: float) -> str:
        """Which update, micro-batch and columns it was."""
        number = next((place for place, loss in enumerate(losses) if not abs(loss) < float("inf")), None)
        place = 0 if number is None else number
        columns = ", ".join(f"{name} {size}" for name, size in shapes[place].items())
        what = f"the gradient's norm is {norm}" if number is None else f"the loss is {losses[place]}"
        batch = getattr(self, "_batches_used", 0) - len(losses) + place + 1
        which = f"micro-batch {place + 1} of {len(losses)}" if number is not None else f"{len(losses)} micro-batches"
        return (
            f"Update {self.state.global_step + 1} of {self.state.max_steps} is not finite: {what} ({which}, epoch "
            f"{self.state.epoch or 0:.2f}, batch {batch} of this process since the start of the run; columns "
            f"{columns})."
        )

    def _forget_update(self) -> None:
        """An update was left out: it counts in no mean."""

    def _check_weights(self, when: str) -> None:
        """Refuse to keep trained weights that are not finite.

        Raises:
            NotFinite: names some of them.
        """
        trained = ((name, value) for name, value in self.model.named_parameters() if value.requires_grad)
        names = not_finite(trained)
        found = torch.tensor([float(bool(names))], device=self.args.device)
        if self.args.world_size > 1:
            found = self.accelerator.reduce(found, reduction="sum")
        if found.item():
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise NotFinite(
                f"{when} weights are not finite: {shown or 'in another process'}. They are not saved. The run resumes "
                f"from {self._last_checkpoint()}; take a smaller `learning_rate`."
            )

    def _last_checkpoint(self) -> str:
        saved = [folder for folder in checkpoints(self.args.output_dir) if (folder / MANIFEST).is_file()]
        return str(saved[-1]) if saved else f"the start (no checkpoint is in {self.args.output_dir})"

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self._check_weights(f"After update {self.state.global_step}")
        super()._save_checkpoint(model, trial)

    # ---- dead workers, interruptions ----

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            As upstream.

        Raises:
            NotFinite: a loss, a gradient's norm or a weight is not finite.
            TrainingStopped: a worker process of the loader died.
        """
        self._micro_batches = []
        with self._told_workers(), kept_interruption() as self._pressed:
            output = super().train(*args, **kwargs)
        self._check_weights("After training")
        return output

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> Any:
        """As upstream.

        Args:
            dataloader: as upstream.
            args: as upstream.
            kwargs: as upstream.

        Raises:
            ValueError: under FSDP before training, which is what shards the model together with its optimizer.
        """
        if self.is_fsdp_enabled and self.optimizer is None:
            raise ValueError(
                "`evaluate` and `predict` must come after `train` under `fsdp`: the model is sharded together with "
                "its optimizer when training begins. Evaluate the checkpoint without `fsdp` for the scores before it."
            )
        with self._told_workers():
            return super().evaluation_loop(dataloader, *args, **kwargs)

    @contextmanager
    def _told_workers(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            found = None if isinstance(error, TrainingStopped) else _DEAD_WORKER.search(str(error))
            if found is None:
                raise
            if self._pressed:  # Ctrl-C reaches the workers too
                raise KeyboardInterrupt from error
            raise TrainingStopped(
                f"{found[0].strip()}: something ended a process that reads data, mostly the system for want of "
                f"memory (`dataloader_num_workers` is {self.args.dataloader_num_workers}; fewer need less). The run "
                f"resumes from {self._last_checkpoint()}."
            ) from error


__all__ = ["NONFINITE", "GuardedUpdates", "NotFinite", "TrainingStopped", "kept_interruption"]
