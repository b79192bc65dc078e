"""What every Trainer of ours adds to transformers' own.

Loss terms in the log and exact means under gradient accumulation here; exact resume, complete checkpoints, pushes
without secrets and a clear end where a training cannot go on in the modules beside.
"""

import inspect
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.data import Sampler, SequentialSampler

from .manifest import JOB_FILE, CompleteCheckpoints
from .pushes import HubPushes
from .resume import ExactResume
from .stopping import GuardedUpdates

TERM_SUFFIX = "_loss"


class PtmTrainer(GuardedUpdates, HubPushes, ExactResume, CompleteCheckpoints):
    """`transformers.Trainer` with loss terms, exact accumulation and resume, and complete Hub pushes.

    Any model whose output has fields named `<term>_loss` gets each of them logged as the mean over the updates since
    the last log. A model whose `forward` takes `target_counts` is told how many targets each of its label columns has
    over all micro-batches of an update, so that every term is a mean over the update, whatever the row lengths; a
    model with `count_targets(batch)` counts them itself.

    * A resumed run is the uninterrupted one: rows, masks, weights (see `ExactResume`). Checkpoints end with a manifest
      of their files (`last_complete_checkpoint`); a damaged one is refused by name.
    * A loss, a gradient's norm or weights that are not finite end the training before anything is saved over
      the last checkpoint (`NotFinite`); so does a dead worker of the loader (`TrainingStopped`).
    * Pushes are complete, hold no token and no pickle of the arguments, and are told when they fail (`PushFailed`).

    Args:
        args: as `transformers.Trainer`.
        nonfinite: "stop", or "skip" to leave an update out whose loss or gradient is not finite (default: the
            arguments' own `nonfinite`, else "stop").
        kwargs: as `transformers.Trainer`.
    """

    # Label columns other than `labels` whose targets are counted over an update.
    target_columns: ClassVar[tuple[str, ...]] = ("span_labels", "next_sentence_label")

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        self._count_targets_of = getattr(model, "count_targets", self._count_labels)
        self._takes_target_counts = "target_counts" in inspect.signature(model.forward).parameters
        self._target_counts: dict[str, torch.Tensor] = {}
        self._term_sums: dict[str, torch.Tensor] = {}
        self._updates_since_log = 0
        self._means_before: tuple[dict[str, torch.Tensor], int] = ({}, 0)
        self._evaluated_rows = torch.zeros(2)  # with a label, all

    @property
    def saved_model(self) -> nn.Module:
        """The plain model that checkpoints hold."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def _set_signature_columns_if_needed(self) -> None:
        """As upstream; the columns that the collator reads are not dropped either."""
        super()._set_signature_columns_if_needed()
        for name in getattr(self.data_collator, "input_columns", ()):
            if name not in self._signature_columns:
                self._signature_columns.append(name)

    # ---- evaluation ----

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        """Rows in their own order, so that predictions belong to them.

        Upstream draws evaluation rows by length too when `train_sampling_strategy` is "group_by_length": predictions
        then come back in another order than the data set's, and nothing says so.
        """
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

    # ---- exact means over an update ----

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._means_before = dict(self._term_sums), self._updates_since_log
        self._updates_since_log += 1
        # DataParallel scatters its inputs; counts have no rows to scatter, and the model's estimate serves there.
        if self._takes_target_counts and self.args.n_gpu <= 1:
            self._target_counts = self._count_targets(batches, device)
        return batches, num_items_in_batch

    def _count_targets(self, batches: list[dict[str, Any]], device: torch.device) -> dict[str, torch.Tensor]:
        """Number of targets per label column other than `labels`, over all micro-batches and processes."""
        each = [self._count_targets_of(batch) for batch in batches]
        counts = {name: sum(numbers[name] for numbers in each).to(device) for name in (each[0] if each else ())}
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
        for name, value in outputs.items():
            if name.endswith(TERM_SUFFIX) and torch.is_tensor(value) and value.dim() == 0:
                part = value.detach().float() * factor
                self._term_sums[name] = self._term_sums[name] + part if name in self._term_sums else part

    def _forget_update(self) -> None:
        self._term_sums, self._updates_since_log = self._means_before

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream, with the mean of each loss term beside the training loss."""
        if "loss" in logs and self._term_sums:
            for name in sorted(self._term_sums):
                mean = self.accelerator.gather(self._term_sums[name].reshape(1)).mean()
                logs[name] = float(f"{mean.item() / self._updates_since_log:.6g}")
            self._term_sums = {}
            self._updates_since_log = 0
        super().log(logs, *args, **kwargs)


# Exact resume is every Trainer's; the name remains.
ResumableTrainer = PtmTrainer

__all__ = ["JOB_FILE", "PtmTrainer", "ResumableTrainer"]
