"""ERNIE 2.0's continual multi-task learning (Sun et al. 2020, https://arxiv.org/abs/1907.12412, section 3.2).

Tasks come one after the other, and those that were learnt before are trained along: 1; 1 and 2; 1, 2 and 3; ... Every
update is of one task. Which one is a function of the number of the update and the seed alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import Sampler
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, TrainingArguments
from transformers.utils import SAFE_WEIGHTS_NAME, cached_file

from ...files import file_aside
from ..auxiliary import AUXILIARY_FILE
from .model import MultiTaskModel
from .trainer import MultiTaskTrainer, Task


@dataclass(frozen=True)
class ContinualSchedule:
    """How many updates each task gets in each stage, and in which order.

    Within a stage updates are shuffled by the seed.

    Args:
        allotments: task -> updates in each stage, 0 where it does not train; all of one length.

    Raises:
        ValueError: there are no tasks, they differ in their number of stages, or a stage has no updates.

    Examples:
        >>> schedule = ContinualSchedule({"masking": [4, 2], "order": [0, 6]})
        >>> schedule.updates, schedule.task(0), schedule.stage(4)
        (12, 'masking', 1)
    """

    allotments: Mapping[str, Sequence[int]]

    def __post_init__(self) -> None:
        table = {name: list(counts) for name, counts in self.allotments.items()}
        stages = {len(counts) for counts in table.values()}
        wrong = len(stages) != 1 or any(count < 0 for counts in table.values() for count in counts)
        if wrong or not all(map(sum, zip(*table.values(), strict=True))) or not all(map(sum, table.values())):
            raise ValueError(
                "`allotments` must give every task its updates in each stage, none negative, some in every stage and "
                f"for every task, got {table}."
            )

    @classmethod
    def automatic(cls, tasks: Sequence[str], updates: int, learnt: int = 0) -> "ContinualSchedule":
        """Allot the same number of updates to each task: in every stage behind its own, 1 / (n + 1) of them.

        What is left is the part of the stage in which the task comes. With four tasks of 50,000 updates this is the
        paper's table: 20,000, 30,000, 40,000 and 50,000, and 10,000 in each later stage.

        Args:
            tasks: names in the order in which they come.
            updates: of each task (paper's study: 50,000).
            learnt: how many of the first tasks a checkpoint has learnt already: their stages are left out.

        Examples:
            >>> ContinualSchedule.automatic(["a", "b", "c", "d"], 50_000).allotments["b"]
            [0, 30000, 10000, 10000]
            >>> ContinualSchedule.automatic(["a", "b", "c"], 8, learnt=2).allotments
            {'a': [2], 'b': [2], 'c': [8]}
        """
        number = len(tasks)
        later = updates // (number + 1)
        if later < 1 or len(set(tasks)) < number or not 0 <= learnt < number:
            raise ValueError(
                f"`tasks` must be different, `updates` at least one more than their number and `learnt` less than it, "
                f"got {list(tasks)}, {updates} and {learnt}."
            )
        table = {}
        for place, name in enumerate(tasks):
            own = updates - (number - 1 - place) * later
            table[name] = [own if stage == place else later * (stage > place) for stage in range(number)][learnt:]
        return cls(table)

    @property
    def tasks(self) -> list[str]:
        """The tasks in their order."""
        return list(self.allotments)

    @property
    def stages(self) -> list[int]:
        """Number of updates of each stage."""
        return [sum(counts) for counts in zip(*self.allotments.values(), strict=True)]

    @property
    def updates(self) -> int:
        """Number of updates in all."""
        return sum(self.stages)

    def stage(self, step: int) -> int:
        """The stage, from 0, of an update, from 0."""
        return int(np.searchsorted(np.cumsum(self.stages), self._checked(step), side="right"))

    def order(self, seed: int = 0) -> np.ndarray:
        """The number of the task of every update, `(updates,)`."""
        parts = []
        for stage, counts in enumerate(zip(*self.allotments.values(), strict=True)):
            part = np.repeat(np.arange(len(counts), dtype=np.int16), counts)
            parts.append(np.random.default_rng([seed, stage]).permutation(part))
        return np.concatenate(parts)

    def task(self, step: int, seed: int = 0) -> str:
        """The task of an update, from 0."""
        return self.tasks[int(self.order(seed)[self._checked(step)])]

    def _checked(self, step: int) -> int:
        if not 0 <= step < self.updates:
            raise ValueError(f"`step` must be in [0, {self.updates}), got {step}.")
        return step


class ContinualBatchSampler(Sampler[list[int]]):
    """Batches of row numbers in the order of a `ContinualSchedule`; all batches of an update are of one task.

    A task's rows come in passes, each in an order of its own; a batch may end one pass and begin the next, so that all
    have the same size. What a task sees does not depend on the other tasks.

    Args:
        lengths: rows of each task, in the order of the data set.
        batch_size: rows of a batch.
        schedule: which task each update is of.
        seed: of all draws.
        accumulation: batches of an update on each process.
        process_index: this process.
        num_processes: number of processes.

    Raises:
        ValueError: a task of the schedule has no rows.

    Examples:
        >>> schedule = ContinualSchedule({"a": [1, 1], "b": [0, 1]})
        >>> [sorted(batch) for batch in ContinualBatchSampler({"a": 2, "b": 2}, 2, schedule)]
        [[0, 1], [0, 1], [2, 3]]
    """

    def __init__(
        self,
        lengths: Mapping[str, int],
        batch_size: int,
        schedule: ContinualSchedule,
        seed: int = 0,
        accumulation: int = 1,
        process_index: int = 0,
        num_processes: int = 1,
    ):
        missing = [name for name in schedule.tasks if not lengths.get(name)]
        if missing:
            raise ValueError(f"Every task of `schedule` must have training rows, got none for {missing}.")
        self.lengths, self.batch_size, self.schedule, self.seed = dict(lengths), batch_size, schedule, seed
        self.accumulation, self.process_index, self.num_processes = accumulation, process_index, num_processes

    def __len__(self) -> int:
        return self.schedule.updates * self.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        names = self.schedule.tasks
        starts = dict(zip(self.lengths, np.cumsum([0, *self.lengths.values()]).tolist(), strict=False))
        used = dict.fromkeys(names, 0)
        self._passes: dict[str, tuple[int, np.ndarray]] = {}
        for number in self.schedule.order(self.seed).tolist():
            name = names[number]
            for _ in range(self.accumulation):
                batch = used[name] * self.num_processes + self.process_index
                used[name] += 1
                places = np.arange(batch * self.batch_size, (batch + 1) * self.batch_size)
                yield [starts[name] + self._row(name, int(place)) for place in places]

    def _row(self, name: str, place: int) -> int:
        """The row at a place of a task's passes one behind the other."""
        turn, place = divmod(place, self.lengths[name])
        if self._passes.get(name, (-1,))[0] != turn:
            draws = np.random.default_rng([self.seed, crc32(name.encode()), turn])
            self._passes[name] = turn, draws.permutation(self.lengths[name])
        return int(self._passes[name][1][place])


class ContinualMultiTaskTrainer(MultiTaskTrainer):
    """`MultiTaskTrainer` whose tasks come one after the other, as in ERNIE 2.0.

    What it saves is the plain encoder (`ErnieModel`), which loads with `AutoModel`, and the heads of all tasks beside
    it; `load_task_models` loads them again, with new tasks among them, to continue with another schedule. A resumed
    run goes on with the update that would have come next.

    Args:
        tasks: name -> `Task`; see `load_task_models` for their models.
        args: as `transformers.Trainer`; `max_steps` is the schedule's unless it is given, and then ends it early.
        schedule: which task each update is of (default: `ContinualSchedule.automatic` of all tasks with training rows,
            of `max_steps` updates together).
        kwargs: as `MultiTaskTrainer`, without `mixing`.

    Raises:
        ValueError: the schedule's tasks are not those with training rows, or `max_steps` is more than it has.

    Examples:
        >>> from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, ErnieConfig
        >>> config = ErnieConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> models = load_task_models(config, {
        ...     "masking": (AutoModelForMaskedLM, ()), "order": (AutoModelForSequenceClassification, ("ab", "ba"))
        ... })
        >>> rows = {"masking": [{"input_ids": [2, 5, 3], "labels": [-100, 5, -100]}],
        ...         "order": [{"input_ids": [2, 6, 3], "labels": 1}]}
        >>> trainer = ContinualMultiTaskTrainer(
        ...     {name: Task(model, rows[name]) for name, model in models.items()},
        ...     TrainingArguments("ernie2", report_to="none"), schedule=ContinualSchedule.automatic(list(models), 30),
        ... )
        >>> trainer.args.max_steps, trainer.schedule.stages
        (60, [20, 40])
    """

    auxiliary_file: ClassVar[str] = AUXILIARY_FILE

    def __init__(
        self,
        tasks: Mapping[str, Task],
        args: TrainingArguments | None = None,
        *,
        schedule: ContinualSchedule | None = None,
        **kwargs: Any,
    ):
        if "mixing" in kwargs:
            raise ValueError(
                f"`mixing` must not be given, got {kwargs['mixing']}: `schedule` says which task is next."
            )
        args = TrainingArguments("tmp_trainer") if args is None else args
        trained = [name for name, task in tasks.items() if task.train_rows is not None]
        if schedule is None:
            schedule = ContinualSchedule.automatic(trained, max(args.max_steps, 0) // max(len(trained), 1))
            args.max_steps = schedule.updates
        if set(schedule.tasks) != set(trained):
            raise ValueError(f"`schedule` must have the tasks with training rows, {trained}, got {schedule.tasks}.")
        if args.max_steps > schedule.updates:
            raise ValueError(f"`max_steps` must be at most the schedule's {schedule.updates}, got {args.max_steps}.")
        if args.max_steps <= 0:
            args.max_steps = schedule.updates
        self.schedule = schedule
        super().__init__(tasks, args, **kwargs)

    def _batch_sampler(self, seed: int) -> Sampler[list[int]]:
        return ContinualBatchSampler(
            self.train_dataset.lengths,
            self.args.train_batch_size,
            self.schedule,
            seed,
            self.args.gradient_accumulation_steps,
            self.args.process_index,
            self.args.world_size,
        )

    # ---- checkpoints ----

    @property
    def saved_model(self) -> Any:
        """The plain encoder."""
        return super().saved_model.encoder

    def _write_weights(self, folder: Path, model: MultiTaskModel) -> None:
        """The plain encoder, and the heads beside it."""
        encoder: Any = model.encoder
        inside, state = _encoder_prefix(model), model.unique_state_dict()
        encoder.save_pretrained(
            folder, state_dict={name.removeprefix(inside): v for name, v in state.items() if name.startswith(inside)}
        )
        # The classes of a task are none of the encoder's.
        config = AutoConfig.from_pretrained(folder)
        config.id2label, config.problem_type = PreTrainedConfig().id2label, None
        config.label2id = {label: number for number, label in config.id2label.items()}
        config.save_pretrained(folder)
        with file_aside(folder / AUXILIARY_FILE) as heads:
            outside = {name.removeprefix("models."): v for name, v in state.items() if not name.startswith(inside)}
            save_file(outside, str(heads), metadata={"format": "pt"})

    def _read_weights(self, folder: Path, model: MultiTaskModel) -> None:
        inside = _encoder_prefix(model)
        state = {f"{inside}{name}": value for name, value in load_file(folder / SAFE_WEIGHTS_NAME).items()}
        heads = load_file(folder / AUXILIARY_FILE)
        model.load_unique_state_dict(state | {f"models.{name}": value for name, value in heads.items()})


def _encoder_prefix(model: MultiTaskModel) -> str:
    """What the names of the shared encoder's weights begin with."""
    name, first = next(iter(model.models.items()))
    return f"models.{name}.{first.base_model_prefix}."


def load_task_models(
    checkpoint: str | Path | PreTrainedConfig | PreTrainedModel,
    heads: Mapping[str, tuple[Any, Sequence[str]]],
    task_type_ids: int | None = None,
) -> dict[str, Any]:
    """Load an encoder under upstream's classes, one for each task, for `Task.model`.

    A head that lies beside the encoder under the task's name (`ContinualMultiTaskTrainer` saves them so) is taken, and
    likewise one that the checkpoint itself has (a masked language model's); others are new.

    Args:
        checkpoint: a folder or repository of the Hub, a model that was loaded from one (with its pre-training heads,
            say), or the configuration of a new model.
        heads: task -> an Auto class with a head and the names of its classes: `AutoModelForMaskedLM` and none,
            `AutoModelForTokenClassification` for classes of tokens, `AutoModelForSequenceClassification` for those of
            texts, which in ERNIE and BERT reads the tanh pooler.
        task_type_ids: number of task ids that the encoder must know (ERNIE 2.0's task embedding). A new one begins as
            the mean of those that are there, or 0 in a checkpoint without any, which changes no output.

    Raises:
        ValueError: the encoder has no task embedding and should, or a head was saved for other classes.

    Examples:
        >>> from transformers import AutoModelForTokenClassification, ErnieConfig
        >>> config = ErnieConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> heads = {"capitalization": (AutoModelForTokenClassification, ("lower", "capital"))}
        >>> model = load_task_models(config, heads, task_type_ids=7)["capitalization"]
        >>> type(model).__name__, model.config.id2label, model.config.task_type_vocab_size
        ('ErnieForTokenClassification', {0: 'lower', 1: 'capital'}, 7)
    """
    state, models = saved_heads(checkpoint), {}
    for name, (auto_class, labels) in heads.items():
        model = _new_model(checkpoint, auto_class, labels)
        if task_type_ids is not None:
            _grow_task_embedding(model, task_type_ids)
        own = {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
        have = model.state_dict()
        wrong = [key for key, value in own.items() if key not in have or have[key].shape != value.shape]
        if wrong:
            raise ValueError(
                f"`heads` must give `{name}` the class and the labels that it was saved with; wrong are {wrong[:3]}, "
                f"got {type(model).__name__} with {len(labels)} labels."
            )
        model.load_state_dict(own, strict=False)
        models[name] = model
    return models


def saved_heads(checkpoint: Any) -> dict[str, torch.Tensor]:
    """The heads that lie beside an encoder, as `<task>.<name>`; none where there are none."""
    source: Any = checkpoint.name_or_path if isinstance(checkpoint, PreTrainedModel) else checkpoint
    if isinstance(checkpoint, PreTrainedConfig) or not str(source):
        return {}
    missing_is_none = {f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors")}
    saved = cached_file(source, AUXILIARY_FILE, **missing_is_none)
    return load_file(saved) if saved else {}


def _new_model(checkpoint: Any, auto_class: Any, labels: Sequence[str]) -> Any:
    """A model with the head of one task."""
    named = isinstance(checkpoint, str | PathLike)
    config = AutoConfig.from_pretrained(checkpoint) if named else deepcopy(getattr(checkpoint, "config", checkpoint))
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in config.id2label.items()}
        config.problem_type = "single_label_classification"
    if named:
        return auto_class.from_pretrained(checkpoint, config=config, dtype=torch.float32)
    model = auto_class.from_config(config)
    if isinstance(checkpoint, PreTrainedModel):
        model.load_state_dict(checkpoint.state_dict(), strict=False)
    return model


def _grow_task_embedding(model: Any, number: int) -> None:
    """Give the encoder so many task ids at least."""
    config: Any = model.config
    if not hasattr(config, "use_task_id"):
        raise ValueError(
            f"`task_type_ids` = {number} needs an encoder with task embeddings (ERNIE), got {config.model_type}. "
            "Leave them out."
        )
    embeddings: Any = model.base_model.embeddings
    old = embeddings.task_type_embeddings.weight.data if config.use_task_id else torch.zeros(0, config.hidden_size)
    if len(old) < number:
        fresh = old.mean(0) if len(old) else torch.zeros(config.hidden_size)
        weight = torch.cat([old, fresh.expand(number - len(old), -1)])
        embeddings.task_type_embeddings = nn.Embedding(number, config.hidden_size, _weight=weight)
        config.use_task_id = embeddings.use_task_id = True
        config.task_type_vocab_size = number
