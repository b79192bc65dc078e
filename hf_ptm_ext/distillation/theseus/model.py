"""BERT-of-Theseus's forward (Xu et al. 2020, https://arxiv.org/abs/2002.02925).

    y_i = r_i * successor_i(y_{i-1}) + (1 - r_i) * predecessor_i(y_{i-1}),   r_i ~ Bernoulli(p) for the whole batch

where predecessor_i is L / M of its layers. Only the task's own loss is used; only the successor's layers learn.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ...trainers.auxiliary import AuxiliaryObjective
from ..base import refuse_reentrant
from ..layouts import base_model
from .layers import STREAMS, check_division, find_layers, make_successor

REENTRANT = "the embeddings are frozen, and reentrant checkpointing gives the layers above them no gradient."


class ZeroGradient(torch.autograd.Function):
    """Hands states on; the parameters get a gradient of zeros."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*parameters)
        return states.view_as(states)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gradients[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors)


class TheseusModule(nn.Module):
    """A layer of the successor and those of the predecessor that it replaces; `streams`: see `STREAMS`."""

    def __init__(self, successor: nn.Module, predecessor: Iterable[nn.Module], streams: int = 1):
        super().__init__()
        self.successor = successor
        self.predecessor = nn.ModuleList(predecessor)
        self.streams = streams
        self.replaced = True
        # Parameters that get a gradient of zeros here.
        self.idle: list[nn.Parameter] = []

    # The choice is another in every update: traced with the layers it would make a graph for every combination.
    @torch.compiler.disable(recursive=False)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the successor's layer, or the predecessor's."""
        output = None
        for layer in (self.successor,) if self.replaced else self.predecessor:
            if output is not None:
                args, kwargs = self._next_inputs(output, args, kwargs)
            output = layer(*args, **kwargs)
        if self.idle and torch.is_grad_enabled():
            if isinstance(output, tuple):
                return (ZeroGradient.apply(output[0], *self.idle), *output[1:])
            return ZeroGradient.apply(output, *self.idle)
        return output

    def _next_inputs(
        self, output: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = output[: self.streams] if isinstance(output, tuple) else (output,)
        if args:
            return (*states, *args[len(states) :]), kwargs
        return args, {**kwargs, "hidden_states": states[0]}


class TheseusModel(AuxiliaryObjective):
    """A successor whose layers stand in for modules of its predecessor, a random choice of them in each update.

    `model` is the successor, a plain model of the predecessor's class with all of its own weights: what is evaluated,
    saved and used. The predecessor's layers are no submodules and never in the state dict. Trained are the
    successor's layers; a layer that an update leaves out gets a gradient of zeros, as in the reference, so every
    trained parameter has one in every process.

    Args:
        predecessor: an encoder with the head of its task, fine-tuned. Its layers are used as they are and frozen.
        successor: the number of layers of a successor made of the predecessor's first ones (the reference's
            initialisation), or a model of the predecessor's class to start from.
        train_head: whether what lies outside the base model learns too (default: it stays the predecessor's, as in
            the reference).

    Raises:
        TypeError: the predecessor is no model of transformers, or the successor is of another class.
        ValueError: no list of layers, numbers of layers that do not divide, or a successor of another width.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2)
        >>> model = TheseusModel(BertForSequenceClassification(tiny), 2)
        >>> output = model(replacements=[True, False], input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([1]))
        >>> output.loss.requires_grad, model.model.config.num_hidden_layers
        (True, 2)
    """

    def __init__(self, predecessor: Any, successor: Any, *, train_head: bool = False):
        old = find_layers(predecessor)
        if isinstance(successor, nn.Module):
            if type(successor) is not type(predecessor):
                raise TypeError(
                    f"`successor` must be of the predecessor's class {type(predecessor).__name__}, got "
                    f"{type(successor).__name__}."
                )
            widths = [each.config.hidden_size for each in (predecessor, successor)]  # type: ignore[union-attr]
            if widths[0] != widths[1]:
                raise ValueError(
                    f"`successor` must have the predecessor's `hidden_size` of {widths[0]}, got {widths[1]}: its "
                    "layers take the place of the predecessor's."
                )
            _refuse_shared_weights(predecessor, successor)
        else:
            successor = make_successor(predecessor, successor)
        new = find_layers(successor)
        ratio = check_division(len(old), len(new))
        super().__init__(successor)
        streams = STREAMS.get(successor.config.model_type, 1)
        old.requires_grad_(False)
        successor.requires_grad_(False)
        new.requires_grad_(True)
        if train_head:
            below = {id(parameter) for parameter in base_model(successor).parameters()}
            for parameter in successor.parameters():
                if id(parameter) not in below:  # an output layer tied to the embeddings is theirs
                    parameter.requires_grad_(True)
        # In tuples, so that they are no submodules.
        self.blocks = tuple(
            TheseusModule(layer, old[index * ratio : (index + 1) * ratio], streams) for index, layer in enumerate(new)
        )
        self._list_of_layers = (new,)
        parameters = inspect.signature(successor.forward).parameters
        self._takes_target_counts = "target_counts" in parameters
        self._caches = "use_cache" in parameters
        if hasattr(successor, "count_targets"):
            self.count_targets = successor.count_targets
        self.train(successor.training)

    # ---- what a Trainer asks of a model ----

    @property
    def predecessor_layers(self) -> list[nn.Module]:
        """The predecessor's layers, in order."""
        return [layer for block in self.blocks for layer in block.predecessor]

    def train(self, mode: bool = True) -> "TheseusModel":
        """As upstream; the predecessor's layers drop out in training too, as in the reference."""
        super().train(mode)
        for layer in self.predecessor_layers:
            layer.train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "TheseusModel":
        """Moves and casts reach the predecessor's layers."""
        super()._apply(fn, recurse)
        for layer in self.predecessor_layers:
            layer._apply(fn, recurse)
        return self

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: Any = None, **kwargs: Any) -> None:
        """Checkpoint the activations of both, as the successor's own method does."""
        refuse_reentrant(activation_checkpointing_kwargs, REENTRANT)
        with self._replaceable():
            super().activation_checkpointing_enable(activation_checkpointing_kwargs, **kwargs)

    # ---- the forward ----

    @contextmanager
    def _replaceable(self) -> Iterator[None]:
        """The successor's list of layers holds the modules instead."""
        (layers,) = self._list_of_layers
        plain = list(layers)
        try:
            for index, block in enumerate(self.blocks):
                layers[index] = block
            yield
        finally:
            for index, layer in enumerate(plain):
                layers[index] = layer

    @torch.compiler.disable(recursive=False)
    def forward(
        self,
        replacements: Sequence[bool] | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **inputs: Any,
    ) -> Any:
        """Run the successor, with modules of the predecessor in place of some of its layers."""
        if self._takes_target_counts:
            counts = {"num_items_in_batch": num_items_in_batch, "target_counts": target_counts}
            inputs |= {name: value for name, value in counts.items() if value is not None}
        output = self.model(**inputs) if replacements is None else self._partly_replaced(replacements, inputs)
        if num_items_in_batch is not None and not self._takes_target_counts:
            _scale_to_update(output, inputs.get("labels"), num_items_in_batch)
        return output

    def _partly_replaced(self, replacements: Sequence[bool], inputs: dict[str, Any]) -> Any:
        if len(replacements) != len(self.blocks):
            raise ValueError(
                f"`replacements` must have one entry for each of the successor's {len(self.blocks)} layers, got "
                f"{len(replacements)}."
            )
        idle: list[nn.Parameter] = []
        for block, replaced in zip(self.blocks, replacements, strict=True):
            block.replaced = bool(replaced)
            if not replaced:
                idle += [parameter for parameter in block.successor.parameters() if parameter.requires_grad]
        # After the last layer: before it, nothing below the first replaced module needs a graph.
        self.blocks[-1].idle = idle
        if self._caches:  # both keep their keys under the same layer numbers
            inputs = {**inputs, "use_cache": False}
        with self._replaceable():
            return self.model(**inputs)


def _refuse_shared_weights(predecessor: nn.Module, successor: nn.Module) -> None:
    own = {id(parameter) for parameter in predecessor.parameters()}
    if any(id(parameter) in own for parameter in successor.parameters()):
        raise ValueError(
            f"`successor` must share no weights with the predecessor, got a {type(successor).__name__} that does: the "
            "predecessor's layers are frozen. Pass the number of layers, or a copy (copy.deepcopy)."
        )


def _scale_to_update(output: Any, labels: torch.Tensor | None, total: torch.Tensor | int) -> None:
    """Turn the batch's mean loss into its part of the mean over the update."""
    loss = output.get("loss")
    if loss is None or labels is None:
        return
    own = (labels != -100).sum()
    # The mean over no labels is not a number.
    output["loss"] = torch.where(own > 0, loss, torch.zeros_like(loss)) * own / total
