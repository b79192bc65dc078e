"""What `hf-ptm-ext multitask` can be told: the model, the tasks, how they share the updates, and how it is trained."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from torch import nn

from ..data.bad_rows import ERROR
from ..objectives.smart import NORMS, RULES
from ..trainers import Mixing, Smart
from ..trainers.multi_task.mixing import STRATEGIES
from .arguments import BAD_ROWS, TASK_NAMES, CheckpointArguments, SeededArguments, TaskDataArguments, parse_seeded
from .options import OptionParser, checked, naming, option
from .ranges import Below1, Positive, RowLength, Size, Weight
from .recipes import as_flags

PLAIN, SAN = "plain", "san"
# Arguments of the run that every task takes over unless it has its own.
COMMON = ("max_seq_length", "on_bad_rows", "language", "data_license")


@dataclass
class TasksArguments:
    """The tasks, and how they share the updates."""

    tasks: dict | str | None = option(
        None,
        "Name -> arguments of the task, as YAML or JSON: those of `finetune`'s data (task, train_file, "
        "test_file, text_column...), and loss_weight, dropout, head. One argument of one task: "
        "--tasks.NAME.ARGUMENT VALUE.",
    )
    max_seq_length: RowLength = option(128, "Most tokens of a row, unless a task says otherwise.")
    on_bad_rows: str = option(ERROR, **BAD_ROWS)
    language: str = option("und", "Language of the texts, for the model cards: en, zh...")
    data_license: str | None = option(None, "Licence of the data, for the model cards.")
    mixing: str = option(
        "proportional",
        "proportional: all batches of all tasks (MT-DNN's); main: the main task's and some of the others.",
        choices=STRATEGIES,
    )
    main_task: str | None = option(None, "Mixing main, or main_last: this task (default: the first).")
    main_last: bool = option(False, "In each epoch the other tasks first, then the main one (MT-DNN's mix_opt 1).")
    extra_task_ratio: Weight = option(
        0.0, "Mixing main: batches of the others over the main task's (MT-DNN's ratio); 0 = all."
    )
    temperature: Positive = option(2.0, "Mixing temperature: 1 = proportional, more = equal.")
    smart_weight: Weight = option(0.0, "Weight of SMART's smoothness term (MT-DNN: 1); 0 = none.")
    smart_rule: str = option(
        "paper", "SMART: a step normalised and projected (paper), or as in MT-DNN's code.", choices=RULES
    )
    smart_step_size: Weight = option(1e-3, "SMART: step of the ascent (paper: 1e-3; MT-DNN's command line: 1e-5).")
    smart_noise_std: Weight = option(1e-5, "SMART: spread of the first noise (1e-5).")
    smart_radius: Weight = option(1e-5, "SMART: of the ball that is searched (paper: 1e-5).")
    smart_steps: Size = option(1, "SMART: steps of the ascent (1).")
    smart_norm: str = option("inf", "SMART: its norm.", choices=NORMS)
    smart_stable: bool = option(True, "SMART: MT-DNN's clamped form in the ascent, not the symmetric divergence.")
    baseline: bool = option(True, "Also train each task alone, for as many updates, with each seed.")

    def mixing_options(self) -> Mixing:
        """Which task each update trains."""
        return Mixing(self.mixing, self.main_task, self.extra_task_ratio, self.temperature, main_last=self.main_last)

    def smart_options(self) -> Smart | None:
        """SMART's options, or none."""
        if not self.smart_weight:
            return None
        return Smart(**{one.name: getattr(self, f"smart_{one.name}") for one in fields(Smart)})

    def check(self, training: Any) -> None:
        """Refuse values that contradict each other."""
        names: Any = self.tasks
        has_main = self.mixing == "main" or self.main_last
        if self.main_task is not None and (not has_main or self.main_task not in names):
            raise ValueError(
                f"`main_task` must be one of {', '.join(names)}, with mixing main or main_last; got "
                f"{self.main_task!r} with mixing {self.mixing}."
            )
        if self.extra_task_ratio and self.mixing != "main":
            raise ValueError(
                f"`extra_task_ratio` must be 0 without mixing main, got {self.extra_task_ratio} with {self.mixing}."
            )
        self.mixing_options()
        tried = [point.get("label_smoothing_factor", 0) for point in training.points]
        if smoothing := max(training.label_smoothing_factor, *tried):
            raise ValueError(
                f"`label_smoothing_factor` must be 0, got {smoothing}: each task has its head's own loss."
            )


@dataclass
class TaskOptions:
    """What a task of several has beside its data."""

    loss_weight: Positive = option(1.0, "Weight of its loss (MT-DNN: 1).")
    dropout: Below1 | None = option(
        None, "Dropout of its head (default: the model's; MT-DNN: 0.1, MNLI 0.3, CoLA 0.05)."
    )
    head: str = option(PLAIN, "san is for pairs of texts: MT-DNN's answer network.", choices=(PLAIN, SAN))


@dataclass
class MultitaskArguments(SeededArguments):
    """Arguments of training, with MT-DNN's values (batches of 32, learning rate 5e-5, 5 epochs, 10 % warm-up)."""

    output_dir: str = option("outputs/multitask", "Where results and the models go.")
    num_train_epochs: float = option(5.0, "Passes over the mixed batches (MT-DNN: 5).")
    learning_rate: float = option(5e-5, "Peak learning rate of AdamW (MT-DNN: 5e-5).")
    best_by: ClassVar[str] = "score"  # the mean of the tasks' main scores


GROUPS = (CheckpointArguments, TasksArguments, MultitaskArguments)
Tasks = dict[str, tuple[TaskDataArguments, TaskOptions]]


def parse(arguments: list[str]) -> tuple[CheckpointArguments, TasksArguments, Tasks, MultitaskArguments]:
    """Read the options; `tasks` of the second group becomes what each task was told in full."""
    model, shared, training = parse_seeded(arguments, GROUPS, "multitask", members="tasks")
    tasks: Tasks = {}
    for name, values in shared.tasks.items():
        if hasattr(nn.ModuleDict(), name):
            raise ValueError(f"A task must be named by what is no method of ModuleDict, got {name!r}.")
        if not values.get("task"):
            raise ValueError(f"Task {name} must say its `task`, one of {', '.join(TASK_NAMES)}.")
        with naming(f"Task {name}"):
            tasks[name] = read_task(values, shared)
            tasks[name][0].check(training)
    shared.tasks = {name: {**asdict(data), **asdict(options)} for name, (data, options) in tasks.items()}
    return model, shared, tasks, training


def read_task(values: Mapping[str, Any], shared: TasksArguments) -> tuple[TaskDataArguments, TaskOptions]:
    """Read the arguments of one task."""
    groups = (TaskDataArguments, TaskOptions)
    found = {**{one: getattr(shared, one) for one in COMMON}, **checked(values, groups, "")}
    parser = OptionParser(groups, prog="hf-ptm-ext multitask", usage="--tasks.NAME.ARGUMENT VALUE")
    data, options = parser.read(as_flags(found))
    if options.head == SAN and (data.task != "classification" or data.pair_column is None):
        raise ValueError(
            f"`head` = {SAN} is for classification with a `pair_column`, got {data.task} with {data.pair_column}."
        )
    if data.task not in ("classification", "tagging") and shared.smart_weight:
        raise ValueError(
            f"`smart_weight` must be 0, got {shared.smart_weight}: the smoothness term is for classification and "
            f"tagging, not for {data.task}."
        )
    return data, options
