"""What ends a training before its end, in one clear error: numbers that are not finite, dead workers, Ctrl-C."""

import re
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers.utils import logging

from ..weights import not_finite
from .manifest import MANIFEST, TypedTrainer, checkpoints
from .sharding import local

logger = logging.get_logger(__name__)

NONFINITE = ("stop", "skip")
# Updates after which the host reads what the device found out about one: by then it has long done so.
LAG = 2
_DEAD_WORKER = re.compile(r"DataLoader worker \(pid.*?\) (is killed by signal|exited unexpectedly)[^.]*")


class TrainingStopped(RuntimeError):
    """A training that cannot go on; the message says why and from where it resumes."""


class NotFinite(TrainingStopped, FloatingPointError):
    """A loss, a gradient or a weight is NaN or infinite."""


@contextmanager
def kept_interruption() -> Iterator[list[int]]:
    """Ctrl-C in the block is remembered: raised where nobody sees it (in a destructor, say) it would be lost."""
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


@dataclass
class WatchedUpdate:
    """What is known of an update when the host comes to look at it."""

    number: int
    epoch: float
    batch: int  # the last one of it, of this process since the start of the run
    losses: torch.Tensor  # of its micro-batches
    shapes: list[dict[str, tuple[int, ...]]]
    norm: torch.Tensor
    wrong: torch.Tensor  # whether a loss, and whether the gradient, is not finite
    made: Any = None  # a CUDA event behind `wrong`


class GuardedUpdates(TypedTrainer):
    """`transformers.Trainer` that makes no update of a loss or a gradient that is not finite.

    With `nonfinite` = "stop" on a GPU the optimizer itself leaves such an update and all after it out; the host, which
    would otherwise wait for the device at every update, reads `LAG` updates later what it was, and before each log,
    evaluation and checkpoint.
    """

    def __init__(self, *args: Any, nonfinite: str | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.nonfinite = getattr(self.args, "nonfinite", NONFINITE[0]) if nonfinite is None else nonfinite
        if self.nonfinite not in NONFINITE:
            raise ValueError(f"`nonfinite` must be one of {', '.join(NONFINITE)}, got {self.nonfinite!r}.")
        self._pressed: list[int] = []
        self._micro_batches: list[tuple[torch.Tensor, dict[str, tuple[int, ...]]]] = []
        self.skipped_updates = 0
        self._watched: deque[WatchedUpdate] = deque()
        self._ruined: torch.Tensor | None = None

    # ---- what is not finite ----

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """As upstream; the loss is remembered, and looked at once an update, together with the gradient."""
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
        update = WatchedUpdate(
            self.state.global_step + 1,
            self.state.epoch or 0.0,
            getattr(self, "_batches_used", 0),
            losses,
            [shapes for _, shapes in micro_batches],
            size,
            wrong,
        )
        if self._optimizer_leaves_out(wrong):
            if wrong.is_cuda:
                update.wrong = torch.empty_like(wrong, device="cpu", pin_memory=True).copy_(wrong, non_blocking=True)
                update.made = torch.cuda.Event()
                update.made.record()
            self._watched.append(update)
            self._look_at_updates(LAG)
        elif self._is_wrong(update):
            self.skipped_updates += 1
            model.zero_grad()  # parameters without a gradient are left alone by every optimiser
            self._forget_update()
        return norm

    @property
    def _defers(self) -> bool:
        """Whether the host need not know of an update before it is made."""
        return self.args.device.type == "cuda"

    def _optimizer_leaves_out(self, wrong: torch.Tensor) -> bool:
        """Let a fused optimizer leave out this update, if anything was wrong so far; False if it cannot."""
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)
        scaler = getattr(self.accelerator, "scaler", None)
        able = self._defers and self.nonfinite == "stop" and getattr(optimizer, "_step_supports_amp_scaling", False)
        if not able or self.is_deepspeed_enabled or (scaler and scaler.is_enabled()):
            return False
        self._ruined = wrong.max() if self._ruined is None else torch.maximum(self._ruined, wrong.max())
        optimizer.grad_scale, optimizer.found_inf = None, self._ruined
        return True

    def _let_optimizer_go_on(self) -> None:
        """The next training, ours or another's, is no part of what was ruined."""
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        for name in ("grad_scale", "found_inf"):
            if self._ruined is not None and hasattr(optimizer, name):
                delattr(optimizer, name)
        self._ruined = None

    def _look_at_updates(self, but_the_last: int = 0) -> None:
        """Refuse to go on if one of the updates that were watched was not finite."""
        while len(self._watched) > but_the_last:
            update = self._watched.popleft()
            if update.made is not None:
                update.made.synchronize()
            self._is_wrong(update)

    def _is_wrong(self, update: WatchedUpdate) -> bool:
        """Whether an update is to be left out; raises if it ends the training."""
        loss_is_wrong, gradient_is_wrong = (update.wrong > 0).tolist()
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and scaler.is_enabled() and not loss_is_wrong and gradient_is_wrong:
            # Half precision: the scale was too large. The scaler leaves the update out and takes a smaller one.
            gradient_is_wrong = scaler.get_scale() <= 1.0
        if not (loss_is_wrong or gradient_is_wrong):
            return False
        told = self._told(update)
        if self.nonfinite == "stop" or self.is_deepspeed_enabled:
            raise NotFinite(
                f"{told} No update was made of it, and nothing was saved since {self._last_checkpoint()}. Look at "
                'these rows, take a smaller `learning_rate` or `max_grad_norm`, or pass `nonfinite="skip"` to '
                "leave such updates out; then resume from that checkpoint."
            )
        logger.warning(f"{told} The update is left out.")
        return True

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """As upstream, of updates that were looked at."""
        control = self.control
        if control.should_log or control.should_save or control.should_evaluate or control.should_training_stop:
            self._look_at_updates()
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream; a gradient that is 0 to the last digit is told."""
        if logs.get("grad_norm") == 0:
            logger.warning_once(
                "The gradient of an update is exactly 0, which trains nothing: are there labels (other than -100), "
                "parameters to train, and does the loss come of them? If `torch_compile` is on, try without."
            )
        super().log(logs, *args, **kwargs)

    def _told(self, update: WatchedUpdate) -> str:
        """Which update, micro-batch and columns it was."""
        losses, norm = update.losses.tolist(), float(update.norm)
        number = next((place for place, loss in enumerate(losses) if not abs(loss) < float("inf")), None)
        place = 0 if number is None else number
        columns = ", ".join(f"{name} {size}" for name, size in update.shapes[place].items())
        what = f"the gradient's norm is {norm}" if number is None else f"the loss is {losses[place]}"
        batch = update.batch - len(losses) + place + 1
        which = f"micro-batch {place + 1} of {len(losses)}" if number is not None else f"{len(losses)} micro-batches"
        return (
            f"Update {update.number} of {self.state.max_steps} is not finite: {what} ({which}, epoch "
            f"{update.epoch:.2f}, batch {batch} of this process since the start of the run; columns {columns})."
        )

    def _forget_update(self) -> None:
        """An update was left out: it counts in no mean."""

    def _check_weights(self, when: str) -> None:
        """Refuse to keep trained weights that are not finite."""
        trained = ((name, local(value)) for name, value in self.model.named_parameters() if value.requires_grad)
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
        """As upstream."""
        self._micro_batches, self._ruined, filtered = [], None, self.args.logging_nan_inf_filter
        self._watched.clear()
        if self._defers and self.nonfinite == "stop":
            # Which would read every loss on the host, and finds none: training stops at the first.
            self.args.logging_nan_inf_filter = False
        try:
            with self._told_workers(), kept_interruption() as self._pressed:
                output = super().train(*args, **kwargs)
        finally:
            self.args.logging_nan_inf_filter = filtered
            self._let_optimizer_go_on()
        self._check_weights("After training")
        return output

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> Any:
        """As upstream."""
        with self._told_workers():
            return super().evaluation_loop(dataloader, *args, **kwargs)

    @contextmanager
    def _told_workers(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # torch raises it wherever the interpreter is: what is there may well make another error of it.
            chain: BaseException | None = error
            said = ""
            while chain is not None and not isinstance(error, TrainingStopped):
                said, chain = f"{said}\n{chain}", chain.__cause__ or chain.__context__
            found = _DEAD_WORKER.search(said)
            if found is None:
                raise
            if self._pressed:  # Ctrl-C reaches the workers too
                raise KeyboardInterrupt from error
            raise TrainingStopped(
                f"{found[0].strip()}: something ended a process that reads data, mostly the system for want of "
                f"memory (`dataloader_num_workers` is {self.args.dataloader_num_workers}; fewer need less). The run "
                f"resumes from {self._last_checkpoint()}."
            ) from error
