"""What the Trainers of distillation and of BERT-of-Theseus share: a wrapper around the plain model that is saved."""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import nn
from transformers import TrainingArguments
from transformers.utils import find_labels

from ..trainers.auxiliary import PlainModelCheckpoints
from ..trainers.base import OwnEvaluationCollator, from_checkpoint, processing_of
from ..trainers.rows import is_resumable
from .layouts import ModelShape


def refuse_reentrant(checkpointing: Any, reason: str) -> None:
    """Refuse reentrant activation checkpointing, under which gradients are lost."""
    if checkpointing is not None and checkpointing.get("use_reentrant", True):
        raise ValueError(
            f'`activation_checkpointing_kwargs` must have "use_reentrant": False, got {dict(checkpointing)}: {reason}'
        )


class CompressionTrainer(PlainModelCheckpoints, OwnEvaluationCollator):
    """Trains a wrapper that `_wrapped` puts around a model; what is evaluated and saved is the wrapper's `model`."""

    arguments_class: ClassVar[type[TrainingArguments]]
    reentrant_reason: ClassVar[str]

    def __init__(self, model: Any, args: Any, **kwargs: Any):
        if not isinstance(args, self.arguments_class):
            raise TypeError(f"`args` must be {self.arguments_class.__name__}, got {type(args).__name__}.")
        if args.n_gpu > 1:
            raise ValueError(
                f"`n_gpu` is {args.n_gpu}: one process on several GPUs (DataParallel) has the frozen model on the "
                "first alone. Start one process per GPU: `accelerate launch`."
            )
        if args.activation_checkpointing:
            refuse_reentrant(args.activation_checkpointing_kwargs, self.reentrant_reason)
        self.args = args
        kwargs["processing_class"] = kwargs.get("processing_class") or processing_of(model)
        super().__init__(model=None if model is None else self._wrapped(from_checkpoint(model)), args=args, **kwargs)
        if args.label_names is None:
            self.label_names = find_labels(type(ModelShape.of(self.wrapper.model).model))

    def _wrapped(self, model: nn.Module) -> Any:
        """The module that is trained, around what the user gave."""
        raise NotImplementedError(f"`{type(self).__name__}._wrapped` must wrap the model. Subclasses define it.")

    def call_model_init(self, trial: Any = None) -> Any:
        """As upstream, wrapped."""
        return self._wrapped(super().call_model_init(trial))

    @property
    def wrapper(self) -> Any:
        """The module that is trained."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def _input_columns(self) -> list[str]:
        """Columns that the wrapper reads, labels aside."""
        return list(ModelShape.of(self.wrapper.model).inputs)

    def _set_signature_columns_if_needed(self) -> None:
        """What the models inside read is kept, not what the wrapper's forward names."""
        if self._signature_columns is None:
            names = [*self._input_columns(), *self.label_names, "label", "label_ids"]
            self._signature_columns = list(dict.fromkeys(names))
        super()._set_signature_columns_if_needed()

    def _some_rows(self, dataset: Any, number: int) -> Iterator[dict[str, Any]]:
        """Batches of rows from all over a data set, without a draw from any generator."""
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset)
        picked = range(0, len(dataset), max(len(dataset) // number, 1))
        size = self.args.per_device_eval_batch_size
        with self._evaluation_collator():
            collate = self._get_collator_with_removed_columns(self.data_collator)
            for start in range(0, len(picked), size):
                yield self._prepare_inputs(collate([dataset[row] for row in picked[start : start + size]]))

    def _rows_to_check(self, number: int) -> Iterator[dict[str, Any]]:
        """Batches on which a model is compared with chance; none where rows cannot be read twice."""
        several = self.eval_dataset is None or isinstance(self.eval_dataset, dict)
        dataset = self.train_dataset if several else self.eval_dataset
        if number and not is_resumable(dataset) and hasattr(dataset, "__len__") and self.is_world_process_zero():
            yield from self._some_rows(dataset, number)
