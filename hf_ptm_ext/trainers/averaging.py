"""A moving average of the weights, by which a trained model is judged and saved, for any Trainer."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .manifest import MANIFEST, write_manifest

TRAINED = "weights_before_average.safetensors"  # of a checkpoint: what training goes on with


class WeightAverageCallback(TrainerCallback):
    """Evaluates and saves an exponential moving average of the weights, with any Trainer and model.

    After update t the average is `sum_i decay^(t - i) theta_i` over the sum of its factors: it is of the updates
    alone, not of the weights that training began with, so that a slow average serves a short training too (the bias
    correction of PaddlePaddle's `ExponentialMovingAverage`, which KT-NET uses). Checkpoints and the saved model are
    the average; a checkpoint also has the weights that training goes on with, and a resumed run is the whole one.

    Args:
        decay: of the average (KT-NET: 0.9999).

    Raises:
        ValueError: `decay` is not in (0, 1); weights that are sharded or not float32; a checkpoint without the weights
            that training goes on with.

    Examples:
        >>> callback = WeightAverageCallback(0.9999)  # Trainer(..., callbacks=[callback])
    """

    def __init__(self, decay: float = 0.9999):
        if not 0 < decay < 1:
            raise ValueError(f"`decay` must be above 0 and below 1, got {decay}.")
        self.decay = decay
        self._weights: dict[str, nn.Parameter] = {}
        self._others: dict[str, torch.Tensor] = {}  # the average; while it is in the model, the trained weights
        self._shown = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin an average, or go on with that of a checkpoint."""
        if args.fsdp or args.deepspeed:
            raise ValueError(
                f"The average is of whole weights, and `fsdp` = {args.fsdp} or `deepspeed` = {args.deepspeed} shards "
                "them: leave them out."
            )
        model: nn.Module = kwargs["model"]
        self._weights = {name: one for name, one in model.named_parameters() if one.requires_grad}
        kinds = {one.dtype for one in self._weights.values()} - {torch.float32}
        if kinds:
            raise ValueError(f"The average needs weights in float32, got {kinds.pop()}: small steps are lost in it.")
        self._others = {name: one.detach().clone() for name, one in self._weights.items()}
        self._shown = False
        if state.global_step:  # the model has the checkpoint's average now
            file = _folder(args, state) / TRAINED
            if not file.is_file():
                raise ValueError(
                    f"{file} must be there to go on with the average of the weights: resume from a complete "
                    "checkpoint of this `output_dir` that was trained with it."
                )
            trained = load_file(file)
            self._others = {name: trained[name].to(one.device) for name, one in self._weights.items()}
            self._shown = True

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Train what was trained."""
        self._show(False)

    @torch.no_grad()
    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the update in, and show the average where it is looked at."""
        share = (1 - self.decay) / (1 - self.decay**state.global_step)
        for name, weight in self._weights.items():
            self._others[name].lerp_(weight, share)
        self.on_epoch_end(args, state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Show the average where it is looked at."""
        if control.should_evaluate or control.should_save or control.should_training_stop:
            self._show(True)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the weights that training goes on with into the checkpoint."""
        if not state.is_world_process_zero:
            return
        folder = _folder(args, state)
        listed = (folder / MANIFEST).is_file()
        (folder / MANIFEST).unlink(missing_ok=True)
        save_file({name: one.contiguous() for name, one in self._others.items()}, folder / TRAINED)
        if listed:
            write_manifest(folder)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the average in the model; the best checkpoint, if it was loaded, is one already."""
        if not (args.load_best_model_at_end and state.best_model_checkpoint):
            self._show(True)
        self._weights, self._others = {}, {}

    @torch.no_grad()
    def _show(self, average: bool) -> None:
        """Put the average, or the trained weights, into the model."""
        if average == self._shown:
            return
        for name, weight in self._weights.items():
            other = weight.detach().clone()
            weight.copy_(self._others[name])
            self._others[name] = other
        self._shown = average


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    """The checkpoint of the update that was made last."""
    return Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
