"""Objectives with parameters of their own beside a plain model: trained together, saved apart.

The wrapped model is what a checkpoint holds, under its own class, so it loads wherever that class does. The
objective's parameters (a relation table, a classifier) lie beside it and are only needed to train on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from .base import PtmTrainer
from .pretraining import PreTrainingTrainer

AUXILIARY_FILE = "auxiliary_heads.safetensors"
WRAPPED = "model."


class AuxiliaryObjective(nn.Module):
    """A masked language model with further parameters around it; `model` is the plain model.

    Args:
        model: any masked language model of upstream's or ours.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        # Where FSDP cuts.
        self._no_split_modules = getattr(model, "_no_split_modules", None)

    @property
    def config(self) -> Any:
        """The plain model's configuration."""
        return self.model.config

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weight of each term in the loss, by its name; 1 where none is given."""
        return {}

    def gradient_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """As the plain model's own.

        Args:
            args: as the plain model's.
            kwargs: as the plain model's.
        """
        self.model.gradient_checkpointing_enable(*args, **kwargs)

    def auxiliary_state_dict(self) -> dict[str, torch.Tensor]:
        """Give the parameters that are not the plain model's.

        Returns:
            Name -> tensor, contiguous and on the CPU.
        """
        state = self.state_dict()
        return {
            name: value.detach().cpu().contiguous() for name, value in state.items() if not name.startswith(WRAPPED)
        }

    def load_auxiliary_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Load the parameters that are not the plain model's.

        Args:
            state: as `auxiliary_state_dict` gives them, all of them.

        Raises:
            ValueError: a parameter is missing, unknown, or of another shape.
        """
        own = self.auxiliary_state_dict()
        wrong = sorted(name for name in own.keys() ^ state.keys())
        wrong += [name for name in own.keys() & state.keys() if own[name].shape != state[name].shape]
        if wrong:
            raise ValueError(
                f"`state` must have exactly the auxiliary parameters {sorted(own)} in their shapes; wrong: {wrong}. "
                "Build the wrapper with the options of the run that saved them."
            )
        self.load_state_dict(state, strict=False)


class PlainModelCheckpoints(PtmTrainer):
    """Checkpoints of an `AuxiliaryObjective`: the plain model's, with one more file for the other parameters.

    Args:
        args: as `PtmTrainer`.
        kwargs: as `PtmTrainer`.
    """

    auxiliary_file: ClassVar[str] = AUXILIARY_FILE

    @property
    def saved_model(self) -> nn.Module:
        """The wrapper's plain model."""
        return super().saved_model.model

    @contextmanager
    def _plain_model(self, wrapper: AuxiliaryObjective) -> Iterator[None]:
        """Upstream's saving and loading see the plain model as the Trainer's."""
        whole, self.model = self.model, wrapper.model
        try:
            yield
        finally:
            self.model = whole

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        wrapper = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        auxiliary = None
        if state_dict is not None:
            auxiliary = {name: value for name, value in state_dict.items() if not name.startswith(WRAPPED)}
            state_dict = {
                name.removeprefix(WRAPPED): value for name, value in state_dict.items() if name.startswith(WRAPPED)
            }
        with self._plain_model(wrapper):
            super()._save(output_dir, state_dict)
        state = wrapper.auxiliary_state_dict() if auxiliary is None else auxiliary
        if self.args.should_save and state:
            folder = Path(output_dir if output_dir is not None else self.args.output_dir)
            partial = folder / f"{self.auxiliary_file}.partial"
            save_file({name: value.detach().cpu().contiguous() for name, value in state.items()}, str(partial))
            partial.replace(folder / self.auxiliary_file)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if self.is_fsdp_enabled:  # saved and loaded as one sharded whole
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        wrapper = self.accelerator.unwrap_model(self.model if model is None else model, keep_torch_compile=False)
        with self._plain_model(wrapper):
            super()._load_from_checkpoint(resume_from_checkpoint, wrapper.model)
        self._load_auxiliary(wrapper, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            super()._load_best_model()
            return
        wrapper = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        with self._plain_model(wrapper):
            super()._load_best_model()
        self._load_auxiliary(wrapper, str(self.state.best_model_checkpoint))

    def _load_auxiliary(self, wrapper: AuxiliaryObjective, checkpoint: str) -> None:
        if not wrapper.auxiliary_state_dict():
            return
        path = Path(checkpoint) / self.auxiliary_file
        if not path.is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} has no {self.auxiliary_file}: it was written by another "
                "Trainer. Load it as the plain model and start a new run."
            )
        wrapper.load_auxiliary_state_dict(load_file(str(path)))


class AuxiliaryObjectiveTrainer(PlainModelCheckpoints, PreTrainingTrainer):
    """`PreTrainingTrainer` for an `AuxiliaryObjective`.

    Args:
        args: as `PreTrainingTrainer`.
        kwargs: as `PreTrainingTrainer`.
    """


__all__ = ["AuxiliaryObjective", "AuxiliaryObjectiveTrainer", "PlainModelCheckpoints"]
