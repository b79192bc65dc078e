"""What `hf-ptm-ext multitask` can be told: the model, the tasks, how they share the updates, and how it is trained."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from torch import nn

from ..data.bad_rows import ERROR
from ..objectives.smart import NORMS, RULES
from ..trainers import Mixing, Smart
from ..trainers.multi_task.mixing import STRATEGIES
from .finetune_arguments import FinetuneModelArguments, KnowledgeGraphArguments, TaskDataArguments, check
from .job_arguments import BAD_ROWS
from .options import OptionParser, checked, with_recipe
from .recipes import as_flags, nested, split_nested
from .seeded_arguments import SeededArguments, parse_groups

PLAIN, SAN = "plain", "san"
# Arguments of the run that every task takes over unless it has its own.
COMMON = ("max_seq_length", "on_bad_rows", "language", "data_license")


@dataclass
class TasksArguments:
    """The tasks, and how they share the updates."""

    tasks: dict | str | None = field(
        default=None,
        metadata={
            "help": "Name -> arguments of the task, as a mapping or JSON: those of `finetune`'s data (task, "
            "train_file, test_file, text_column...), and loss_weight, dropout, head. One argument of one task: "
            "--tasks.NAME.ARGUMENT VALUE."
        },
    )
    max_seq_length: int = field(default=128, metadata={"help": "Most tokens of a row, unless a task says otherwise."})
    on_bad_rows: str = field(default=ERROR, metadata=BAD_ROWS)
    language: str = field(default="und", metadata={"help": "Language of the texts, for the model cards: en, zh..."})
    data_license: str | None = field(default=None, metadata={"help": "Licence of the data, for the model cards."})
    mixing: str = field(
        default="proportional",
        metadata={
            "help": "proportional (all batches of all tasks, MT-DNN's), main (the main task's and some of the "
            "others), equal, or temperature."
        },
    )
    main_task: str | None = field(
        default=None, metadata={"help": "Mixing main, or main_last: this task (default: the first)."}
    )
    main_last: bool = field(
        default=False,
        metadata={"help": "In each epoch the other tasks first, then the main one (MT-DNN's mix_opt 1)."},
    )
    extra_task_ratio: float = field(
        default=0.0,
        metadata={"help": "Mixing main: batches of the others over the main task's (MT-DNN's ratio); 0 = all."},
    )
    temperature: float = field(default=2.0, metadata={"help": "Mixing temperature: 1 = proportional, more = equal."})
    smart_weight: float = field(
        default=0.0, metadata={"help": "Weight of SMART's smoothness term (MT-DNN: 1); 0 = none."}
    )
    smart_rule: str = field(
        default="paper",
        metadata={"help": "SMART: a step normalised and projected (paper), or as in MT-DNN's code.", "choices": RULES},
    )
    smart_step_size: float = field(
        default=1e-3, metadata={"help": "SMART: step of the ascent (paper: 1e-3; MT-DNN's command line: 1e-5)."}
    )
    smart_noise_std: float = field(default=1e-5, metadata={"help": "SMART: spread of the first noise (1e-5)."})
    smart_radius: float = field(default=1e-5, metadata={"help": "SMART: of the ball that is searched (paper: 1e-5)."})
    smart_steps: int = field(default=1, metadata={"help": "SMART: steps of the ascent (1)."})
    smart_norm: str = field(default="inf", metadata={"help": "SMART: its norm.", "choices": NORMS})
    smart_stable: bool = field(
        default=True, metadata={"help": "SMART: MT-DNN's clamped form in the ascent, not the symmetric divergence."}
    )
    baseline: bool = field(
        default=True, metadata={"help": "Also train each task alone, for as many updates, with each seed."}
    )

    def mixing_options(self) -> Mixing:
        """Which task each update trains.

        Raises:
            ValueError: see `Mixing`.
        """
        return Mixing(self.mixing, self.main_task, self.extra_task_ratio, self.temperature, main_last=self.main_last)

    def smart_options(self) -> Smart | None:
        """SMART's options, or none."""
        if not self.smart_weight:
            return None
        return Smart(**{option.name: getattr(self, f"smart_{option.name}") for option in fields(Smart)})


@dataclass
class TaskOptions:
    """What a task of several has beside its data."""

    loss_weight: float = field(default=1.0, metadata={"help": "Weight of its loss (MT-DNN: 1)."})
    dropout: float | None = field(
        default=None,
        metadata={"help": "Dropout of its head (default: the model's; MT-DNN: 0.1, MNLI 0.3, CoLA 0.05)."},
    )
    head: str = field(default=PLAIN, metadata={"help": "plain, or san (pairs of texts: MT-DNN's answer network)."})


@dataclass
class MultitaskArguments(SeededArguments):
    """Arguments of training, with MT-DNN's values (batches of 32, learning rate 5e-5, 5 epochs, 10 % warm-up)."""

    output_dir: str = field(default="outputs/multitask", metadata={"help": "Where results and the models go."})
    num_train_epochs: float = field(default=5.0, metadata={"help": "Passes over the mixed batches (MT-DNN: 5)."})
    learning_rate: float = field(default=5e-5, metadata={"help": "Peak learning rate of AdamW (MT-DNN: 5e-5)."})
    best_by: ClassVar[str] = "score"  # the mean of the tasks' main scores


GROUPS = (FinetuneModelArguments, TasksArguments, MultitaskArguments)
Tasks = dict[str, tuple[TaskDataArguments, TaskOptions]]


def parse(arguments: list[str]) -> tuple[FinetuneModelArguments, TasksArguments, Tasks, MultitaskArguments]:
    """Parse `[RECIPE] [--flag value ...] [--tasks.NAME.ARGUMENT value ...] [--overrides name=value ...]`.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The arguments of the model, of all tasks together, of each task, and of training.

    Raises:
        ValueError: an unknown argument, or values that contradict each other.
    """
    description = "Fine-tune one encoder on several tasks at once, by seeds, beside each task alone."
    words, changes = split_nested(with_recipe(arguments, GROUPS, "multitask"), "tasks")
    model, shared, training = parse_groups(words, GROUPS, "multitask", description)
    tasks = {name: parse_task(name, values, shared) for name, values in nested("tasks", shared.tasks, changes).items()}
    shared.tasks = {name: {**asdict(data), **asdict(options)} for name, (data, options) in tasks.items()}
    if training.label_smoothing_factor:
        raise ValueError(
            f"`label_smoothing_factor` must be 0, got {training.label_smoothing_factor}: each task has its head's own "
            "loss."
        )
    if shared.mixing not in STRATEGIES:
        raise ValueError(f"`mixing` must be one of {', '.join(STRATEGIES)}, got {shared.mixing!r}.")
    has_main = shared.mixing == "main" or shared.main_last
    if shared.main_task is not None and (not has_main or shared.main_task not in tasks):
        raise ValueError(
            f"`main_task` must be one of {', '.join(tasks)}, with mixing main or main_last; got {shared.main_task!r} "
            f"with mixing {shared.mixing}."
        )
    if shared.extra_task_ratio and shared.mixing != "main":
        raise ValueError(
            f"`extra_task_ratio` must be 0 without mixing main, got {shared.extra_task_ratio} with {shared.mixing}."
        )
    shared.mixing_options()
    for name, (data, _) in tasks.items():
        try:
            check(data, KnowledgeGraphArguments(), training)
        except ValueError as error:
            raise ValueError(f"Task {name}: {error}") from error
        if data.task not in ("classification", "tagging") and shared.smart_weight:
            raise ValueError(
                f"`smart_weight` must be 0 with task {name}: the smoothness term is for classification and tagging, "
                f"got {data.task}."
            )
    return model, shared, tasks, training


def parse_task(name: str, values: Mapping[str, Any], shared: TasksArguments) -> tuple[TaskDataArguments, TaskOptions]:
    """Read the arguments of one task.

    Args:
        name: of the task; a folder is named after it.
        values: argument -> value, or the words of the command line.
        shared: has what the task does not say itself.

    Returns:
        Its data, and its options.

    Raises:
        ValueError: the name cannot be a folder, an argument is unknown, or a value is none.
    """
    if hasattr(nn.ModuleDict(), name):
        raise ValueError(f"A task must be named by what is no method of ModuleDict, got {name!r}.")
    groups = (TaskDataArguments, TaskOptions)
    known = {one.name for group in groups for one in fields(group)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(
            f"Task {name} has unknown arguments: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
        )
    if not values.get("task"):
        raise ValueError(f"Task {name} must say its `task`: classification, tagging, question-answering, extraction.")
    common = {one: getattr(shared, one) for one in COMMON}
    parser = OptionParser(groups, prog=f"hf-ptm-ext multitask, task {name}", usage="--tasks.NAME.ARGUMENT VALUE")
    try:
        data, options = parser.read(as_flags({**common, **checked(values, groups, "")}))
    except ValueError as error:
        raise ValueError(f"Task {name}: {error}") from error
    if options.head not in (PLAIN, SAN):
        raise ValueError(f"Task {name}: `head` must be {PLAIN} or {SAN}, got {options.head!r}.")
    if options.head == SAN and (data.task != "classification" or data.pair_column is None):
        raise ValueError(
            f"Task {name}: `head` = {SAN} is for classification with a `pair_column`, got {data.task} with "
            f"{data.pair_column}."
        )
    return data, options


__all__ = ["GROUPS", "PLAIN", "SAN", "MultitaskArguments", "TaskOptions", "Tasks", "TasksArguments", "parse"]
