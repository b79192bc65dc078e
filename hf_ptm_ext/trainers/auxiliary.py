"""Objectives with parameters of their own around a plain model: trained together, saved apart.

A checkpoint is the plain model's, under its own class; a relation table or a classifier lies beside it.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.utils import cached_file

from ..files import file_aside
from ..objectives import masked_lm_loss
from .base import PtmTrainer, from_checkpoint
from .pretraining import PreTrainingTrainer
from .sharding import plain_class

AUXILIARY_FILE = "auxiliary_heads.safetensors"
PROJECTIONS_FILE = "distill_projections.safetensors"
WRAPPED = "model."


def written(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors as safetensors writes them: on the CPU, each in one piece."""
    return {name: value.detach().cpu().contiguous() for name, value in state.items()}


def unlike(own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of tensors that only one of the two has, or in another shape."""
    both = own.keys() & state.keys()
    return sorted(own.keys() ^ state.keys()) + [name for name in both if own[name].shape != state[name].shape]


def part_of(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Of a wrapper's weights those of one model inside it, under its own names."""
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


class Reading(NamedTuple):
    """What a masked language model made of a batch.

    Args:
        states: of the encoder's last layer, `(batch, seq_len, hidden)`.
        projected: what the vocabulary projection reads, `(batch, seq_len, width)`.
        logits: at the places that were asked for, `(places, vocab_size)`; `(batch, seq_len, vocab_size)` for all.
        output: of the model.
    """

    states: torch.Tensor
    projected: torch.Tensor
    logits: torch.Tensor
    output: Any


def encode_text(model: Any, inputs: Mapping[str, Any], places: torch.Tensor | None = None) -> Reading:
    """Run a masked language model, with the vocabulary projection at some places only.

    Args:
        model: whose projection is one module that reads every position.
        inputs: of its forward, without labels.
        places: flat, `row * seq_len + position` (`label_places`); None for all.

    Raises:
        ValueError: the projection does not read every position.
    """
    states: list[torch.Tensor] = []
    seen: list[torch.Tensor] = []

    def project(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> Any:
        seen.append(arguments[0])
        if places is None or arguments[0].dim() != 3:
            return None
        return arguments[0].flatten(0, 1).index_select(0, places)

    hooks = [
        model.base_model.register_forward_hook(lambda module, arguments, output: states.append(output[0])),
        model.get_output_embeddings().register_forward_pre_hook(project),
    ]
    try:
        output = model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    shape = inputs["input_ids"].shape
    if len(seen) != 1 or seen[0].shape[:2] != shape or len(states) != 1:
        raise ValueError(
            f"`model` must project every position to the vocabulary with one module, {type(model).__name__} "
            "does not. Use upstream's BertForMaskedLM, RobertaForMaskedLM or another of that kind."
        )
    return Reading(states[0], seen[0], output.get("logits", output.get("prediction_logits")), output)


def label_places(
    labels: torch.Tensor, label_positions: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat places of the labels, and the labels there: -100 in unused slots of `label_positions`, a fixed number."""
    flat = labels.reshape(-1)
    if label_positions is None:
        places = (flat != -100).nonzero().squeeze(-1)
    else:
        rows = torch.arange(labels.shape[0], device=labels.device)[:, None]
        places = (rows * labels.shape[1] + label_positions).reshape(-1)
    return places, flat.index_select(0, places)


def first_states(states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """States of the first token of each text, `(batch, hidden)`, on whichever side padding is."""
    if attention_mask is None:
        return states[:, 0]
    return states[torch.arange(len(states), device=states.device), attention_mask.int().argmax(dim=1)]


class AuxiliaryObjective(nn.Module):
    """A masked language model with further parameters around it; `model` is the plain model.

    Its forward takes `num_items_in_batch`, the number of labels of the whole update. `models_beside` names attributes
    that are models of their own, which a job saves as folders of these names.
    """

    model: Any
    accepts_loss_kwargs = True  # upstream's Trainer would look for `**kwargs`
    models_beside: ClassVar[tuple[str, ...]] = ()

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

    def masked_lm_term(self, labels: torch.Tensor, count: Any, text: dict[str, Any]) -> torch.Tensor:
        """The plain model's own loss of masked tokens, a mean over `count` labels (`None`: those of the batch)."""
        if "num_items_in_batch" in inspect.signature(self.model.forward).parameters:
            return self.model(labels=labels, num_items_in_batch=count, **text).loss
        text = {name: value for name, value in text.items() if name != "label_positions"}
        return masked_lm_loss(self.model(**text).logits, labels, count)

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether the plain model's activations are checkpointed."""
        return bool(getattr(self.model, "is_activation_checkpointing", False))

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: Any = None, **kwargs: Any) -> None:
        """As the plain model's own."""
        self.model.activation_checkpointing_enable(activation_checkpointing_kwargs, **kwargs)

    def auxiliary_names(self) -> list[str]:
        """Name the parameters that are not the plain model's, of those that are tied the first."""
        seen, names = {id(value) for value in self.model.parameters()}, []
        for name, value in self.state_dict(keep_vars=True).items():
            if not name.startswith(WRAPPED) and id(value) not in seen:
                seen.add(id(value))
                names.append(name)
        return names

    def auxiliary_state_dict(self) -> dict[str, torch.Tensor]:
        """Give the parameters that are not the plain model's."""
        state = self.state_dict()
        return written({name: state[name] for name in self.auxiliary_names()})

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


def load_beside(
    wrapper: AuxiliaryObjective, name: str, revision: str = "main", file_name: str = AUXILIARY_FILE
) -> bool:
    """Take the other parameters that lie beside a checkpoint, a folder or repository of the Hub; say if they fit."""
    names = wrapper.auxiliary_names()
    file = names and cached_file(
        name,
        file_name,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    state = load_file(str(file)) if file else {}
    if not state or unlike(wrapper.auxiliary_state_dict(), state):
        return False
    wrapper.load_auxiliary_state_dict(state)
    return True


class PlainModelCheckpoints(PtmTrainer):
    """Checkpoints of an `AuxiliaryObjective`: the plain model's, with one more file for the other parameters."""

    auxiliary_file: ClassVar[str] = AUXILIARY_FILE

    @property
    def saved_model(self) -> Any:
        """The wrapper's plain model."""
        return super().saved_model.model

    def save_whole(self, folder: str | Path, state: dict[str, torch.Tensor] | None) -> None:
        """Write the plain model, its other parameters, and the models that are trained beside it, each a folder."""
        wrapper = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        super().save_whole(folder, None if state is None else part_of(state, WRAPPED))
        self._save_auxiliary(wrapper, folder, state)
        for name in wrapper.models_beside:
            part = None if state is None else part_of(state, f"{name}.")
            with plain_class(getattr(wrapper, name)) as model:
                model.save_pretrained(Path(folder) / name, state_dict=part)

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
        with self._plain_model(wrapper):
            super()._save(output_dir, None if state_dict is None else part_of(state_dict, WRAPPED))
        if self.args.should_save:
            self._save_auxiliary(wrapper, output_dir or self.args.output_dir, state_dict)

    def _save_auxiliary(self, wrapper: AuxiliaryObjective, folder: str | Path, state: dict[str, Any] | None) -> None:
        """Write the parameters that are not the plain model's, if there are any."""
        names = wrapper.auxiliary_names()
        if names:
            state = wrapper.state_dict() if state is None else state
            with file_aside(Path(folder) / self.auxiliary_file) as partial:
                save_file(written({name: state[name] for name in names}), str(partial))

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
        if not wrapper.auxiliary_names():
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
