"""ULMFiT's ways to fine-tune, as arguments of training that every Trainer here follows."""

from typing import Any

import torch

from .manifest import TypedTrainer
from .parameter_groups import layerwise_parameter_groups
from .schedules import get_slanted_triangular_schedule
from .unfreezing import GradualUnfreezingCallback

# Of the argument `lr_schedule`.
SLANTED_TRIANGULAR = "slanted_triangular"
SCHEDULES = (SLANTED_TRIANGULAR,)


class TransferSchedules(TypedTrainer):
    """`transformers.Trainer` that follows its arguments `lr_schedule`, `layer_decay` and `gradual_unfreezing`, if any.

    A rate per layer that falls downwards is meant whether it is given as 2.6 (ULMFiT) or as 0.9 (decay of a layer).
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if layers := getattr(self.args, "gradual_unfreezing", None):
            self.add_callback(GradualUnfreezingCallback(layers))

    def optimizer_of(self, groups: list[dict[str, Any]], model: Any) -> torch.optim.Optimizer:
        """The optimizer of the arguments over groups of parameters."""
        optimizer_class, options = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, model)
        return optimizer_class(groups, **options)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """As upstream; with `layer_decay` each layer has a rate of its own."""
        factor = getattr(self.args, "layer_decay", None)
        if factor is None or self.optimizer is not None:
            return super().create_optimizer(model)
        model = self.model if model is None else model
        rates = {"factor": max(factor, 1 / factor), "weight_decay": self.args.weight_decay}
        self.optimizer = self.optimizer_of(layerwise_parameter_groups(model, self.args.learning_rate, **rates), model)
        return self.optimizer

    def _get_learning_rate(self) -> float:
        """As upstream; with `layer_decay` the head's, which is the last group's."""
        if getattr(self.args, "layer_decay", None) is None:
            return super()._get_learning_rate()
        schedule: Any = self.lr_scheduler
        return float(schedule.get_last_lr()[-1])

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As upstream; ULMFiT's slanted triangle rises in `warmup_steps`."""
        if getattr(self.args, "lr_schedule", None) is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        given: Any = self.optimizer if optimizer is None else optimizer
        rise = self.args.warmup_steps
        share = rise if rise < 1 else rise / num_training_steps
        if share >= 1:
            raise ValueError(f"`warmup_steps` = {rise} must be less than the {num_training_steps} updates.")
        self.lr_scheduler = get_slanted_triangular_schedule(
            getattr(given, "optimizer", given), num_training_steps, share
        )
        self._created_lr_scheduler = True
        return self.lr_scheduler
