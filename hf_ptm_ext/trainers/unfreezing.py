"""Freezing schedules for any Trainer: ULMFiT's gradual (section 3.3) and SiATL's sequential unfreezing.

What is trained now is a function of the epoch alone, so a resumed run needs nothing from the checkpoint.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .parameter_groups import encoder_layers, parameter_depths

logger = logging.getLogger(__name__)


def trainable_layers(epoch: int, layers: int, layers_per_epoch: int = 1) -> list[int]:
    """Layers that are trained in an epoch of gradual unfreezing.

    Args:
        epoch: from 0.
        layers: number of layers.
        layers_per_epoch: how many are added in each epoch (paper: 1).

    Returns:
        Layer numbers, 0 at the bottom. The head is always trained.

    Examples:
        >>> [trainable_layers(epoch, 4) for epoch in (0, 1, 9)]
        [[3], [2, 3], [0, 1, 2, 3]]
    """
    return list(range(max(layers - layers_per_epoch * (epoch + 1), 0), layers))


def gradual_start_epochs(layers: int, layers_per_epoch: int = 1) -> dict[int, int]:
    """Epoch from which each depth is trained in gradual unfreezing; embeddings come last.

    Returns:
        Depth (see `parameter_depths`) -> first epoch.

    Examples:
        >>> gradual_start_epochs(2)
        {0: 2, 1: 1, 2: 0, 3: 0}
    """
    return {depth: max(layers - depth, 0) // layers_per_epoch for depth in range(layers + 2)}


class UnfreezingCallback(TrainerCallback):
    """Trains each depth of the model from an epoch of its own on.

    The optimizer has every parameter from the start; a frozen one gets no gradient and is not touched by it, weight
    decay included. After training every parameter needs a gradient again that did before.

    Args:
        start_epochs: function of the number of layers: depth (see `parameter_depths`) -> first epoch in which it is
            trained.

    Examples:
        >>> callback = UnfreezingCallback(lambda layers: {0: 2} | {depth: 1 for depth in range(1, layers + 1)})
        >>> # Trainer(..., callbacks=[callback])
    """

    def __init__(self, start_epochs: Callable[[int], Mapping[int, float]]):
        self.start_epochs = start_epochs
        self._trained: list[tuple[nn.Parameter, float]] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Freeze what is not to be trained yet."""
        model = kwargs["model"]
        epochs = self.start_epochs(len(encoder_layers(model)))
        depths = parameter_depths(model)
        if state.num_train_epochs <= max(epochs.values()):
            logger.warning(
                "What is unfrozen in epoch %g is not trained: the run has %d.",
                max(epochs.values()) + 1,
                state.num_train_epochs,
            )
        self._trained = [
            (parameter, float(epochs.get(depths[name], 0)))
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        ]
        self._apply(state)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Train what this epoch adds."""
        self._apply(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model as it was found."""
        for parameter, _ in self._trained:
            parameter.requires_grad_(True)
        self._trained = []

    def _apply(self, state: TrainerState) -> None:
        # The state counts updates; its epoch is a quotient that may lie a hair under a whole number.
        epoch = int((state.epoch or 0.0) + 1e-6)
        for parameter, start in self._trained:
            parameter.requires_grad_(epoch >= start)


class GradualUnfreezingCallback(UnfreezingCallback):
    """ULMFiT's gradual unfreezing for any Trainer.

    Args:
        layers_per_epoch: how many layers are added in each epoch (paper: 1). Twelve layers need twelve epochs at 1.

    Raises:
        ValueError: `layers_per_epoch` is not positive.

    Examples:
        >>> callback = GradualUnfreezingCallback(layers_per_epoch=4)  # Trainer(..., callbacks=[callback])
    """

    def __init__(self, layers_per_epoch: int = 1):
        if layers_per_epoch < 1:
            raise ValueError(f"`layers_per_epoch` must be at least 1, got {layers_per_epoch}.")
        super().__init__(lambda layers: gradual_start_epochs(layers, layers_per_epoch))


class SequentialUnfreezingCallback(UnfreezingCallback):
    """SiATL's sequential unfreezing for any Trainer: head, then layers, then embeddings.

    Args:
        unfreeze_layers: epoch, counted from 1, from which the layers are trained (reference: the 2nd).
        unfreeze_embeddings: epoch, counted from 1, from which the embeddings are trained (reference: the 5th).

    Raises:
        ValueError: an epoch is below 1, or embeddings come before the layers.

    Examples:
        >>> callback = SequentialUnfreezingCallback(unfreeze_layers=2, unfreeze_embeddings=3)
    """

    def __init__(self, unfreeze_layers: int = 2, unfreeze_embeddings: int = 5):
        if not 1 <= unfreeze_layers <= unfreeze_embeddings:
            raise ValueError(
                "`unfreeze_layers` must be at least 1 and not above `unfreeze_embeddings`, got "
                f"{unfreeze_layers} and {unfreeze_embeddings}. Epochs are counted from 1."
            )
        super().__init__(
            lambda layers: {0: unfreeze_embeddings - 1} | dict.fromkeys(range(1, layers + 1), unfreeze_layers - 1)
        )
