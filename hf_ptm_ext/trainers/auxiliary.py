"""Objectives with parameters of their own around a plain model: trained together, saved apart.

A checkpoint is the plain model's, under its own class; a relation table or a classifier lies beside it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..files import file_aside
from .base import PtmTrainer, from_checkpoint
from .pretraining import PreTrainingTrainer

AUXILIARY_FILE = "auxiliary_heads.safetensors"
WRAPPED = "model."


def written(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors as safetensors writes them: on the CPU, each in one piece."""
    return {name: value.detach().cpu().contiguous() for name, value in state.items()}


def unlike(own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of tensors that only one of the two has, or in another shape."""
    both = own.keys() & state.keys()
    return sorted(own.keys() ^ state.keys()) + [name for name in both if own[name].shape != state[name].shape]


def plain_part(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of a wrapper's weights the plain model's, under its own names."""
    return {name[len(WRAPPED) :]: value for name, value in state.items() if name.startswith(WRAPPED)}


class AuxiliaryObjective(nn.Module):
    """A masked language model with further parameters around it; `model` is the plain model."""

    model: Any

    def __init__(self, model: Any):
        super().__init__()
        self.model = model = from_checkpoint(model)
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

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether the plain model's activations are checkpointed."""
        return bool(getattr(self.model, "is_activation_checkpointing", False))

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: Any = None, **kwargs: Any) -> None:
        """As the plain model's own."""
        self.model.activation_checkpointing_enable(activation_checkpointing_kwargs, **kwargs)

    def auxiliary_state_dict(self) -> dict[str, torch.Tensor]:
        """Give the parameters that are not the plain model's."""
        return written({name: value for name, value in self.state_dict().items() if not name.startswith(WRAPPED)})

    def load_auxiliary_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Load the parameters that are not the plain model's."""
        own = self.auxiliary_state_dict()
        wrong = unlike(own, state)
        if wrong:
            raise ValueError(
                f"`state` must have exactly the auxiliary parameters {sorted(own)} in their shapes; wrong: {wrong}. "
                "Build the wrapper with the options of the run that saved them."
            )
        self.load_state_dict(state, strict=False)


class PlainModelCheckpoints(PtmTrainer):
    """Checkpoints of an `AuxiliaryObjective`: the plain model's, with one more file for the other parameters."""

    auxiliary_file: ClassVar[str] = AUXILIARY_FILE

    @property
    def saved_model(self) -> Any:
        """The wrapper's plain model."""
        return super().saved_model.model

    def plain_state(self) -> dict[str, torch.Tensor] | None:
        state = super().plain_state()
        return None if state is None else plain_part(state)

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
        if state_dict is None:
            plain, auxiliary = None, wrapper.auxiliary_state_dict()
        else:
            plain = plain_part(state_dict)
            auxiliary = {name: value for name, value in state_dict.items() if not name.startswith(WRAPPED)}
        with self._plain_model(wrapper):
            super()._save(output_dir, plain)
        if self.args.should_save and auxiliary:
            with file_aside(Path(output_dir or self.args.output_dir) / self.auxiliary_file) as partial:
                save_file(written(auxiliary), str(partial))

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
    """`PreTrainingTrainer` for an `AuxiliaryObjective`."""
