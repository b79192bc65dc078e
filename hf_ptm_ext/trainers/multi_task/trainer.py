"""Several tasks and their Trainer: one task a batch, its own loss, metrics and collator."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers.data.data_collator import default_data_collator
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.utils import SAFE_WEIGHTS_NAME
from transformers.utils.generic import find_labels

from ...files import file_aside, write_json
from ...redaction import hide_secrets
from ..base import TERM_SUFFIX, PtmTrainer, from_checkpoint
from .mixing import MixedBatchSampler, Mixing
from .model import TEACHER_COLUMNS, MultiTaskModel, Smart

TASKS_FILE = "multi_task.json"
TASK = "task"


@dataclass
class Task:
    """One task of a `MultiTaskModel`.

    Args:
        model: a model with the task's head, such as `AutoModelForSequenceClassification.from_pretrained(...)`, or the
            folder or repository of one; its encoder is replaced by the one that all tasks share.
        train_rows: training rows, as a `Trainer` takes them; `None` for a task that is only evaluated.
        eval_rows: evaluation rows.
        data_collator: makes a batch of rows (default: the Trainer's).
        compute_metrics: as a `Trainer`'s, for this task.
        loss_weight: weight of its loss (reference: 1).
        main_metric: name of the metric that counts in `eval_score` (default: the first one).
        preprocess_logits_for_metrics: as a `Trainer`'s, for this task: what an evaluation keeps of the logits.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> Task(BertForSequenceClassification(config), train_rows=[{"input_ids": [5], "labels": 0}]).loss_weight
        1.0
    """

    model: Any
    train_rows: Any = None
    eval_rows: Any = None
    data_collator: Callable[[list[Any]], dict[str, Any]] | None = None
    compute_metrics: Callable[[Any], dict[str, float]] | None = None
    loss_weight: float = 1.0
    main_metric: str | None = None
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        self.model = from_checkpoint(self.model)


class TaskRows(Dataset):
    """The rows of several tasks one after the other, each with the name of its task.

    Args:
        rows: task -> rows.

    Examples:
        >>> rows = TaskRows({"a": [{"input_ids": [1]}], "b": [{"input_ids": [2]}, {"input_ids": [3]}]})
        >>> len(rows), rows[2], rows.lengths
        (3, {'input_ids': [3], 'task': 'b'}, {'a': 1, 'b': 2})
    """

    def __init__(self, rows: Mapping[str, Sequence[Any]]):
        self.rows = dict(rows)

    @property
    def lengths(self) -> dict[str, int]:
        """Number of rows of each task."""
        return {name: len(rows) for name, rows in self.rows.items()}

    def __len__(self) -> int:
        return sum(self.lengths.values())

    def __getitem__(self, index: int) -> dict[str, Any]:
        for name, rows in self.rows.items():
            if index < len(rows):
                return {**rows[index], TASK: name}
            index -= len(rows)
        raise IndexError(f"there are {len(self)} rows")


@dataclass
class TaskCollator:
    """Makes a batch of rows of one task with that task's collator, and names the task.

    Args:
        collators: task -> its collator.
    """

    collators: dict[str, Callable[[list[Any]], dict[str, Any]]]

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        names = {row[TASK] for row in rows}
        if len(names) != 1:
            raise ValueError(f"A batch must have rows of one task, got those of {sorted(names)}.")
        (name,) = names
        plain = [{column: value for column, value in row.items() if column != TASK} for row in rows]
        return {**self.collators[name](plain), TASK: name}


class MixedBatches(PtmTrainer):
    """Trains on `TaskRows`, batches of one task each, as `mixing` says."""

    mixing: Mixing

    def get_train_dataloader(self) -> DataLoader:
        """Batches of one task each, this process's share."""
        if self.train_dataset is None:
            raise ValueError(
                f"`train_dataset` must be given, or one with `train_rows` be a task, got {self.train_dataset}."
            )
        sampler = self._batch_sampler(self.args.data_seed if self.args.data_seed is not None else self.args.seed)
        with self._recorded_collator():
            collator = self.data_collator
            if self.args.remove_unused_columns:
                collator = self._get_collator_with_removed_columns(collator, description="training")
            return DataLoader(
                self.train_dataset,
                batch_sampler=sampler,
                collate_fn=collator,
                num_workers=self.args.dataloader_num_workers,
                pin_memory=self.args.dataloader_pin_memory,
            )

    def _batch_sampler(self, seed: int) -> Sampler[list[int]]:
        """This process's share of the batches, as row numbers."""
        return MixedBatchSampler(
            self.train_dataset.lengths,
            self.args.train_batch_size,
            self.mixing,
            seed,
            self.args.process_index,
            self.args.world_size,
            self.args.gradient_accumulation_steps,
        )


class MultiTaskTrainer(MixedBatches):
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

    # ---- rows ----

    def _set_signature_columns_if_needed(self) -> None:
        """What any of the tasks' models takes."""
        if self._signature_columns is None:
            names = {TASK, "label", "label_ids", *TEACHER_COLUMNS, *getattr(self.data_collator, "input_columns", ())}
            for task in self.tasks.values():
                names.update(inspect.signature(task.model.forward).parameters)
                names.update(getattr(task.data_collator, "input_columns", ()))
            self._signature_columns = sorted(names)

    # ---- evaluation ----

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics."""
        if isinstance(eval_dataset, TaskRows):  # upstream's loop over a dictionary comes here with one of them
            (name,) = eval_dataset.rows
            return self._evaluate_task(name, eval_dataset, ignore_keys, metric_key_prefix)
        given = self.eval_dataset if eval_dataset is None else eval_dataset
        if not given:
            raise ValueError(
                f"One of `tasks` = {list(self.tasks)} must have `eval_rows`, or give `eval_dataset`, got {given}."
            )
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
            main = f"{prefix}_{self._main_metric(name, found, prefix)}"
            scores += [found[main]] if main in found else []
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
        """Predict rows of one task."""
        if not isinstance(test_dataset, TaskRows) or len(test_dataset.rows) != 1:
            raise ValueError(
                f'`test_dataset` must be the rows of one task, `TaskRows({{"name": rows}})`, got {type(test_dataset)}.'
            )
        (name,) = test_dataset.rows
        with self._one_task(name, ignore_keys) as ignored:
            return super().predict(test_dataset, ignored, metric_key_prefix)

    # ---- loss terms in the log ----

    def _remember_terms(self, outputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None) -> None:
        """As they are: a task's mean is over its own batches."""
        self._terms.add(outputs, 1.0)

    def _term_means(self) -> dict[str, float]:
        """The mean of each task's loss over its batches since the last log, of all processes."""
        # Every process has the same names in the same order, whatever tasks it saw.
        names = [*(f"{name}{TERM_SUFFIX}" for name in self.tasks), "distillation_loss", "smoothness_loss"]
        zero = torch.zeros((), device=self.args.device)
        sums = torch.stack([self._terms.sums.get(name, zero).to(zero.device) for name in names])
        counts = torch.tensor([float(self._terms.counts.get(name, 0)) for name in names], device=zero.device)
        sums, counts = self.accelerator.reduce(torch.stack([sums, counts]), reduction="sum")
        totals = zip(names, sums.tolist(), counts.tolist(), strict=True)
        return {name: round(total / count, 6) for name, total, count in totals if count}

    # ---- checkpoints ----

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """The weights with the encoder once, and what tasks they are of."""
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        self._write_whole(folder, model)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)
        hide_secrets(self.args)
        torch.save(self.args, folder / TRAINING_ARGS_NAME)

    def save_whole(self, folder: str | Path, state: dict[str, torch.Tensor] | None) -> None:
        """Write the weights and what tasks they are of; for the first process alone."""
        self._write_whole(Path(folder), self.accelerator.unwrap_model(self.model, keep_torch_compile=False))

    def _write_whole(self, folder: Path, model: Any) -> None:
        self._write_weights(folder, model)
        tasks = {
            name: {"class": type(task).__name__, "config": task.config.to_diff_dict(), "labels": _labels(task)}
            for name, task in model.models.items()
        }
        write_json(folder / TASKS_FILE, tasks, ensure_ascii=False)

    def _write_weights(self, folder: Path, model: MultiTaskModel) -> None:
        """All weights in one file, the encoder once."""
        with file_aside(folder / SAFE_WEIGHTS_NAME) as weights:
            save_file(model.unique_state_dict(), str(weights), metadata={"format": "pt"})

    def _read_weights(self, folder: Path, model: MultiTaskModel) -> None:
        """Load what `_write_weights` wrote."""
        model.load_unique_state_dict(load_file(str(folder / SAFE_WEIGHTS_NAME)))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        path = Path(resume_from_checkpoint) / SAFE_WEIGHTS_NAME
        if not path.is_file() or not (path.parent / TASKS_FILE).is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} has no {SAFE_WEIGHTS_NAME} and {TASKS_FILE}: it "
                "was not written by a `MultiTaskTrainer`."
            )
        wrapper = self.accelerator.unwrap_model(self.model if model is None else model, keep_torch_compile=False)
        self._read_weights(path.parent, wrapper)

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
