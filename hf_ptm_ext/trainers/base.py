"""What every Trainer of ours adds to transformers' own: loss terms and exact means here, all else beside."""

import copy
import importlib
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import AutoConfig, AutoProcessor

from .collator_state import restart
from .manifest import CompleteCheckpoints
from .master_weights import HalfWeights
from .pushes import HubPushes
from .resume import ExactResume
from .sharding import ShardedModels
from .stopping import GuardedUpdates
from .transfer import TransferSchedules

TERM_SUFFIX = "_loss"


@dataclass
class LossTerms:
    """Sums of the terms of the loss since the last log, how many parts each has, and how many updates they are of."""

    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    updates: int = 0

    def add(self, outputs: Mapping[str, Any], factor: float) -> None:
        """Add a micro-batch's part of each term."""
        for name, value in outputs.items():
            if name.endswith(TERM_SUFFIX) and torch.is_tensor(value) and value.dim() == 0:
                part = value.detach().float() * factor
                self.sums[name] = self.sums[name] + part if name in self.sums else part
                self.counts[name] = self.counts.get(name, 0) + 1

    def copy(self) -> "LossTerms":
        """What is remembered while an update is made that may be left out."""
        return LossTerms(dict(self.sums), dict(self.counts), self.updates)


def from_checkpoint(model: Any, argument: str = "model") -> Any:
    """The model that a folder or a repository of the Hub holds, under its own class; a model stays as it is.

    Weights are read in float32, in which updates are not lost. Code that a checkpoint carries is never run.
    """
    if not isinstance(model, str | PathLike):
        return model
    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    name = (getattr(config, "architectures", None) or [None])[0]
    modeling = type(config).__module__.replace(".configuration_", ".modeling_")
    found: Any = getattr(importlib.import_module(modeling), str(name), None)
    if found is None:
        raise ValueError(
            f"`{argument}` = {model} names no model class that is installed in its config (`architectures` = {name}): "
            "load it by the Auto class of your task and pass the model."
        )
    return found.from_pretrained(model, config=config, dtype=torch.float32)


def processing_of(model: Any) -> Any:
    """The processor or tokenizer that lies with a model's checkpoint; none if there is none, or for a model."""
    if not isinstance(model, str | PathLike):
        return None
    try:
        return AutoProcessor.from_pretrained(model, trust_remote_code=False)
    except (OSError, ValueError):
        return None


class PtmTrainer(
    TransferSchedules, HalfWeights, GuardedUpdates, HubPushes, ExactResume, CompleteCheckpoints, ShardedModels
):
    """`transformers.Trainer` with loss terms, exact accumulation and resume, and complete Hub pushes.

    Any model whose output has fields named `<term>_loss` gets each of them logged as the mean over the updates since
    the last log. A model whose `forward` takes `target_counts` is told how many targets each of its label columns has
    over all micro-batches of an update, so that every term is a mean over the update, whatever the row lengths; a
    model with `count_targets(batch)` counts them itself.

    * A resumed run is the uninterrupted one: rows, masks, weights (see `ExactResume`). Checkpoints end with a manifest
      of their files (`last_complete_checkpoint`); a damaged one is refused by name.
    * A loss, a gradient's norm or weights that are not finite end the training before anything is saved over
      the last checkpoint (`NotFinite`); so does a dead worker of the loader (`TrainingStopped`).
    * ULMFiT's ways are arguments: `lr_schedule`, `layer_decay`, `gradual_unfreezing` (`TransferSchedules`).
    * Pushes are complete, hold no token and no pickle of the arguments, and are told when they fail (`PushFailed`).

    Args:
        model: as `transformers.Trainer`, or a folder or repository of the Hub, whose class and tokenizer are taken.
        args: as `transformers.Trainer`.
        nonfinite: "stop", or "skip" to leave an update out whose loss or gradient is not finite (default: the
            arguments' own `nonfinite`, else "stop").
        kwargs: as `transformers.Trainer`.
    """

    # Label columns other than `labels` whose targets are counted over an update.
    target_columns: ClassVar[tuple[str, ...]] = ("span_labels", "next_sentence_label")

    def __init__(self, model: Any = None, *args: Any, **kwargs: Any):
        if kwargs.get("processing_class") is None and (processing_class := processing_of(model)) is not None:
            kwargs["processing_class"] = processing_class
        super().__init__(from_checkpoint(model), *args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        self._count_targets_of = getattr(model, "count_targets", self._count_labels)
        self._takes_target_counts = "target_counts" in inspect.signature(model.forward).parameters
        self._target_counts: dict[str, torch.Tensor] = {}
        self._terms = self._terms_before = LossTerms()
        self._evaluated_rows = torch.zeros(2)  # with a label, all
        self._weights_of: tuple[Any, int] | None = None

    def _set_signature_columns_if_needed(self) -> None:
        """As upstream; the columns that the collator reads are not dropped either."""
        super()._set_signature_columns_if_needed()
        for name in getattr(self.data_collator, "input_columns", ()):
            if name not in self._signature_columns:
                self._signature_columns.append(name)

    # ---- evaluation ----

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        """Rows in their own order, to which predictions belong: upstream may draw them by their length."""
        if eval_dataset is None or not hasattr(eval_dataset, "__len__") or self.args.world_size > 1:
            return None  # of several processes each is dealt its share in order
        return SequentialSampler(eval_dataset)

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """As upstream; rows without a label (-100) have no part in the mean of the loss."""
        self._evaluated_rows = torch.zeros(2, device=self.args.device)
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        labelled, rows = self.accelerator.reduce(self._evaluated_rows, reduction="sum").tolist()
        if labelled < rows and f"{metric_key_prefix}_loss" in output.metrics:
            output.metrics[f"{metric_key_prefix}_loss"] *= rows / labelled if labelled else math.nan
        return output

    def _share_of_labelled(self, loss: torch.Tensor, labels: Any) -> torch.Tensor:
        """A batch's loss, a mean over its labelled rows, as its part of a mean over all rows."""
        if loss is None or not torch.is_tensor(labels) or labels.dim() != 1 or labels.is_floating_point():
            return loss
        labelled = (labels != -100).sum()
        self._evaluated_rows += torch.stack([labelled, torch.tensor(len(labels), device=labels.device)])
        return torch.where(labelled > 0, loss * labelled / len(labels), torch.zeros_like(loss))

    # ---- what a step costs on the host ----

    def create_accelerator_and_postprocess(self) -> None:
        """As upstream; batches are copied from pinned memory while the device computes."""
        if self.args.dataloader_pin_memory and self.args.device.type == "cuda":
            self.args.accelerator_config.non_blocking = True
        super().create_accelerator_and_postprocess()

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """As upstream, which walks over all modules at every step to count the same weights."""
        name = getattr(self.model, "main_input_name", "input_ids")
        if name not in inputs or not hasattr(self.model, "num_parameters"):
            return 0
        if self._weights_of is None or self._weights_of[0] is not self.model:
            self._weights_of = self.model, self.model.num_parameters(exclude_embeddings=True)
        return 6 * inputs[name].numel() * self._weights_of[1]

    # ---- exact means over an update ----

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._terms_before = self._terms.copy()
        self._terms.updates += 1
        # DataParallel scatters its inputs; counts have no rows to scatter, and the model's estimate serves there.
        if self._takes_target_counts and self.args.n_gpu <= 1:
            self._target_counts = self._count_targets(batches, device)
        return batches, num_items_in_batch

    def _count_targets(self, batches: list[dict[str, Any]], device: torch.device) -> dict[str, torch.Tensor]:
        """Number of targets per label column other than `labels`, over all micro-batches and processes."""
        each = [self._count_targets_of(batch) for batch in batches]
        sums = {name: sum(numbers[name] for numbers in each) for name in (each[0] if each else ())}
        counts = {name: torch.as_tensor(count, device=device) for name, count in sums.items()}
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            counts = {name: self.accelerator.reduce(count, reduction="sum") for name, count in counts.items()}
        return counts

    def _count_labels(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Entries of each of the `target_columns` that are not -100."""
        return {name: (batch[name] != -100).sum() for name in self.target_columns if name in batch}

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """As upstream; also hands over the target counts and remembers the terms of the loss."""
        if model.training and self._target_counts:
            inputs = {**inputs, "target_counts": self._target_counts}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        scaled = num_items_in_batch is not None and self.args.average_tokens_across_devices
        if scaled and self.compute_loss_func is not None and self.args.n_gpu > 1:
            # DataParallel gathers the outputs before this loss is taken: it is the whole batch's, not a replica's
            # part, and upstream's factor is one too many.
            loss = loss / self.args.n_gpu
        if model.training and isinstance(outputs, dict):
            self._remember_terms(outputs, num_items_in_batch)
        elif not model.training:
            loss = self._share_of_labelled(loss, inputs.get("labels"))
        return (loss, outputs) if return_outputs else loss

    # ---- loss terms in the log ----

    def _remember_terms(self, outputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None) -> None:
        """Add this micro-batch's part of each term's mean over the update."""
        if num_items_in_batch is None:
            factor = 1.0 / self.current_gradient_accumulation_steps
        else:
            # Divided by the count of all processes already: the mean over processes must be their sum.
            factor = float(self.args.world_size) if self.args.average_tokens_across_devices else 1.0
        self._terms.add(outputs, factor)

    def _forget_update(self) -> None:
        self._terms = self._terms_before

    def _term_means(self) -> dict[str, float]:
        """The mean of each term over the updates since the last log, of all processes."""
        means = {
            name: self.accelerator.gather(total.reshape(1)).mean() for name, total in sorted(self._terms.sums.items())
        }
        return {name: float(f"{mean.item() / self._terms.updates:.6g}") for name, mean in means.items()}

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream, with the mean of each loss term beside the training loss."""
        if "loss" in logs and self._terms.updates:
            logs.update(self._term_means())
            self._terms = LossTerms()
        super().log(logs, *args, **kwargs)


class OwnEvaluationCollator(PtmTrainer):
    """`PtmTrainer` with a collator for evaluation, so that every evaluation sees the same masks and takes none away.

    Args:
        args: as `PtmTrainer`.
        eval_collator: makes evaluation batches (default: a copy of `data_collator`); reset before each evaluation.
        kwargs: as `PtmTrainer`.
    """

    def __init__(self, *args: Any, eval_collator: Any = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.eval_collator = copy.deepcopy(self.data_collator) if eval_collator is None else eval_collator

    @contextmanager
    def _evaluation_collator(self) -> Iterator[None]:
        """Loaders that are made in the block use the evaluation collator, from its first draw on."""
        training, self.data_collator = self.data_collator, self.eval_collator
        restart(self.eval_collator)
        try:
            yield
        finally:
            self.data_collator = training

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """As upstream, with the evaluation collator."""
        with self._evaluation_collator():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        """As upstream, with the evaluation collator."""
        with self._evaluation_collator():
            return super().get_test_dataloader(test_dataset)


# Exact resume is every Trainer's; the name remains.
ResumableTrainer = PtmTrainer
