"""A Trainer for several tasks: one task a batch, its own loss, metrics and collator."""

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader
from transformers.data.data_collator import default_data_collator
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.utils import SAFE_WEIGHTS_NAME
from transformers.utils.generic import find_labels

from ...redaction import hide_secrets
from ..base import TERM_SUFFIX, PtmTrainer
from .mixing import MixedBatchSampler, Mixing
from .model import TEACHER_COLUMNS, MultiTaskModel, Smart
from .tasks import TASK, Task, TaskCollator, TaskRows

TASKS_FILE = "multi_task.json"


class MultiTaskTrainer(PtmTrainer):
    """Trains a `MultiTaskModel`; everything else is `PtmTrainer`.

    Each task's loss is logged as `<task>_loss`, the mean over that task's batches. `evaluate` gives each task's
    metrics under `eval_<task>_...` and the mean of their main metrics as `eval_score`, which
    `metric_for_best_model="score"` keeps the best checkpoint by. Checkpoints have the encoder once; plain checkpoints
    of every task come from `trainer.model.save_tasks(folder)`. A resumed run continues with the batch that would have
    come next.

    Args:
        tasks: name -> `Task`.
        args: as `transformers.Trainer`.
        mixing: which task each batch is of (default: MT-DNN's, all batches shuffled).
        smart: options of the smoothness term (default: none).
        data_collator: of tasks that have none of their own (default: as `transformers.Trainer`'s).
        kwargs: as `transformers.Trainer`.

    Raises:
        ValueError: no task has training rows, or see `MultiTaskModel`.
    """

    # Every batch's loss is a mean of its own.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        tasks: Mapping[str, Task],
        args: Any = None,
        *,
        mixing: Mixing | None = None,
        smart: Smart | None = None,
        data_collator: Any = None,
        **kwargs: Any,
    ):
        model = MultiTaskModel(
            {name: task.model for name, task in tasks.items()},
            {name: task.loss_weight for name, task in tasks.items()},
            smart,
        )
        self.tasks, self.mixing = dict(tasks), mixing or Mixing()
        train = {name: task.train_rows for name, task in tasks.items() if task.train_rows is not None}
        evaluation = {
            name: TaskRows({name: task.eval_rows}) for name, task in tasks.items() if task.eval_rows is not None
        }
        default = data_collator or default_data_collator
        super().__init__(
            model=model,
            args=args,
            train_dataset=TaskRows(train) if train else None,
            eval_dataset=evaluation or None,
            data_collator=TaskCollator({name: task.data_collator or default for name, task in tasks.items()}),
            **kwargs,
        )
        # Losses are means over batches: upstream must not rescale them by counts of labels.
        self.model_accepts_loss_kwargs = False
        self._batches: dict[str, int] = {}
        self._batches_before: dict[str, int] = {}

    # ---- rows ----

    def _set_signature_columns_if_needed(self) -> None:
        """What any of the tasks' models takes."""
        if self._signature_columns is None:
            names = {TASK, "label", "label_ids", *TEACHER_COLUMNS, *getattr(self.data_collator, "input_columns", ())}
            for task in self.tasks.values():
                names.update(inspect.signature(task.model.forward).parameters)
                names.update(getattr(task.data_collator, "input_columns", ()))
            self._signature_columns = sorted(names)

    def get_train_dataloader(self) -> DataLoader:
        """Batches of one task each, this process's share.

        Raises:
            ValueError: no task has training rows.
        """
        if self.train_dataset is None:
            raise ValueError("`tasks` must have one with `train_rows`, got none.")
        sampler = MixedBatchSampler(
            self.train_dataset.lengths,
            self.args.train_batch_size,
            self.mixing,
            self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            self.args.process_index,
            self.args.world_size,
        )
        with self._recorded_collator():
            return DataLoader(
                self.train_dataset,
                batch_sampler=sampler,
                collate_fn=self._get_collator_with_removed_columns(self.data_collator, description="training")
                if self.args.remove_unused_columns
                else self.data_collator,
                num_workers=self.args.dataloader_num_workers,
                pin_memory=self.args.dataloader_pin_memory,
            )

    # ---- evaluation ----

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics.

        Args:
            eval_dataset: task -> rows (default: those of the tasks).
            ignore_keys: as upstream.
            metric_key_prefix: put before every metric.

        Returns:
            `<prefix>_<task>_<metric>` of each task, and `<prefix>_score`, the mean of the main metrics.

        Raises:
            ValueError: no task has evaluation rows, or a task is unknown.
        """
        if isinstance(eval_dataset, TaskRows):  # upstream's loop over a dictionary comes here with one of them
            (name,) = eval_dataset.rows
            return self._evaluate_task(name, eval_dataset, ignore_keys, metric_key_prefix)
        given = self.eval_dataset if eval_dataset is None else eval_dataset
        if not given:
            raise ValueError("`tasks` must have one with `eval_rows`, or give `eval_dataset`, got neither.")
        unknown = sorted(given.keys() - self.tasks.keys())
        if unknown:
            raise ValueError(f"`eval_dataset` must have rows of {sorted(self.tasks)}, got those of {unknown}.")
        metrics: dict[str, float] = {}
        scores = []
        for name, rows in given.items():
            prefix = f"{metric_key_prefix}_{name}"
            task_rows = rows if isinstance(rows, TaskRows) else TaskRows({name: rows})
            found = self._evaluate_task(name, task_rows, ignore_keys, prefix)
            metrics.update(found)
            if f"{prefix}_{self._main_metric(name, found, prefix)}" in found:
                scores.append(found[f"{prefix}_{self._main_metric(name, found, prefix)}"])
        if scores:
            score = {f"{metric_key_prefix}_score": sum(scores) / len(scores)}
            self.log(score)
            metrics.update(score)
        return metrics

    def _evaluate_task(
        self, name: str, rows: TaskRows, ignore_keys: list[str] | None, prefix: str
    ) -> dict[str, float]:
        with self._one_task(name, ignore_keys) as ignored:
            return super().evaluate(rows, ignored, prefix)

    @contextmanager
    def _one_task(self, name: str, ignore_keys: list[str] | None) -> Iterator[list[str]]:
        """Metrics and labels of one task; gives the outputs not to gather: the loss is the metric, not its terms."""
        before = self.compute_metrics, self.label_names, self.preprocess_logits_for_metrics
        task = self.tasks[name]
        self.compute_metrics, self.label_names = task.compute_metrics, _label_names(type(task.model))
        self.preprocess_logits_for_metrics = task.preprocess_logits_for_metrics or before[2]
        try:
            yield [*(ignore_keys or ()), f"{name}_loss", "distillation_loss", "smoothness_loss"]
        finally:
            self.compute_metrics, self.label_names, self.preprocess_logits_for_metrics = before

    def _main_metric(self, name: str, found: dict[str, float], prefix: str) -> str:
        """The metric that counts in the score: the named one, else the first that the task's function gives."""
        if self.tasks[name].main_metric is not None:
            return str(self.tasks[name].main_metric)
        own = [key.removeprefix(f"{prefix}_") for key in found if key.startswith(f"{prefix}_")]
        upstream = ("loss", "runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
        return next((key for key in own if key not in upstream), "")

    def predict(self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test") -> Any:
        """Predict rows of one task.

        Args:
            test_dataset: `TaskRows` of one task.
            ignore_keys: as upstream.
            metric_key_prefix: put before every metric.

        Returns:
            As upstream.

        Raises:
            ValueError: the rows are not those of one task.
        """
        if not isinstance(test_dataset, TaskRows) or len(test_dataset.rows) != 1:
            raise ValueError('`test_dataset` must be the rows of one task: `TaskRows({"name": rows})`.')
        (name,) = test_dataset.rows
        with self._one_task(name, ignore_keys) as ignored:
            return super().predict(test_dataset, ignored, metric_key_prefix)

    # ---- loss terms in the log ----

    def _remember_terms(self, outputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None) -> None:
        """Sums of the terms and the number of batches that had them: a task's mean is over its own batches."""
        for name, value in outputs.items():
            if name.endswith(TERM_SUFFIX) and torch.is_tensor(value) and value.dim() == 0:
                part = value.detach().float()
                self._term_sums[name] = self._term_sums[name] + part if name in self._term_sums else part
                self._batches[name] = self._batches.get(name, 0) + 1

    def _forget_update(self) -> None:
        super()._forget_update()
        self._batches = dict(self._batches_before)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        self._batches_before = dict(self._batches)
        return super().get_batch_samples(*args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream, with the mean of each task's loss since the last log."""
        if "loss" in logs and self._updates_since_log:
            # Every process has the same names in the same order, whatever tasks it saw.
            names = [*(f"{name}{TERM_SUFFIX}" for name in self.tasks), "distillation_loss", "smoothness_loss"]
            zero = torch.zeros((), device=self.args.device)
            sums = torch.stack([self._term_sums.get(name, zero).to(zero.device) for name in names])
            counts = torch.tensor([float(self._batches.get(name, 0)) for name in names], device=zero.device)
            sums, counts = self.accelerator.reduce(torch.stack([sums, counts]), reduction="sum")
            for name, total, count in zip(names, sums.tolist(), counts.tolist(), strict=True):
                if count:
                    logs[name] = round(total / count, 6)
            self._term_sums, self._batches, self._updates_since_log = {}, {}, 0
        super().log(logs, *args, **kwargs)

    # ---- checkpoints ----

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """The weights with the encoder once, and what tasks they are of."""
        if not self.args.should_save:
            return
        folder = Path(output_dir if output_dir is not None else self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        weights = folder / f"{SAFE_WEIGHTS_NAME}.partial"
        save_file(model.unique_state_dict(), str(weights), metadata={"format": "pt"})
        weights.replace(folder / SAFE_WEIGHTS_NAME)
        tasks = {
            name: {"class": type(task).__name__, "config": task.config.to_diff_dict(), "labels": _labels(task)}
            for name, task in model.models.items()
        }
        (folder / TASKS_FILE).write_text(json.dumps(tasks, ensure_ascii=False, indent=2), encoding="utf-8")
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)
        hide_secrets(self.args)
        torch.save(self.args, folder / TRAINING_ARGS_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        path = Path(resume_from_checkpoint) / SAFE_WEIGHTS_NAME
        if not path.is_file() or not (path.parent / TASKS_FILE).is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} has no {SAFE_WEIGHTS_NAME} and {TASKS_FILE}: it "
                "was not written by a `MultiTaskTrainer`."
            )
        wrapper = self.accelerator.unwrap_model(self.model if model is None else model, keep_torch_compile=False)
        wrapper.load_unique_state_dict(load_file(str(path)))

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))


def _label_names(cls: type) -> list[str]:
    """What a task's batches must have to have labels; fields that only go with labels are none."""
    found = find_labels(cls)
    return next(
        (wanted for wanted in (["labels"], ["start_positions", "end_positions"]) if {*wanted} <= {*found}), found
    )


def _labels(model: nn.Module) -> dict[str, str]:
    """The names of a task's classes."""
    return {str(number): str(label) for number, label in getattr(model.config, "id2label", {}).items()}


__all__ = ["TASKS_FILE", "MultiTaskTrainer"]
