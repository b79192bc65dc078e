"""Objectives with parameters of their own beside a plain model: trained together, saved apart.

The wrapped model is what a checkpoint holds, under its own class, so it loads wherever that class does. The
objective's parameters (a relation table, a classifier) lie beside it and are only needed to train on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

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


class AuxiliaryObjectiveTrainer(PreTrainingTrainer):
    """`PreTrainingTrainer` for an `AuxiliaryObjective`: checkpoints are the plain model's, with one more file.

    Args:
        args: as `PreTrainingTrainer`.
        kwargs: as `PreTrainingTrainer`.
    """

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
        if state_dict is not None:
            state_dict = {
                name.removeprefix(WRAPPED): value for name, value in state_dict.items() if name.startswith(WRAPPED)
            }
        with self._plain_model(wrapper):
            super()._save(output_dir, state_dict)
        if self.args.should_save:
            folder = Path(output_dir if output_dir is not None else self.args.output_dir)
            partial = folder / f"{AUXILIARY_FILE}.partial"
            save_file(wrapper.auxiliary_state_dict(), str(partial))
            partial.replace(folder / AUXILIARY_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        wrapper = self.accelerator.unwrap_model(self.model if model is None else model, keep_torch_compile=False)
        with self._plain_model(wrapper):
            super()._load_from_checkpoint(resume_from_checkpoint, wrapper.model)
        path = Path(resume_from_checkpoint) / AUXILIARY_FILE
        if not path.is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} has no {AUXILIARY_FILE}: it was written by "
                "another Trainer. Load it as the plain model and start a new run."
            )
        wrapper.load_auxiliary_state_dict(load_file(str(path)))


__all__ = ["AuxiliaryObjective", "AuxiliaryObjectiveTrainer"]
