"""What `hf-ptm-ext distill` can be told beside the data."""

import inspect
import math
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, get_type_hints

from transformers import TrainingArguments

from ..distillation import PRESET_NAMES, DistillationArguments, TheseusArguments
from ..distillation.presets import DUALTRAIN, PRESETS
from ..distillation.registry import OBJECTIVES, as_list, objective_options, unknown_name
from .finetune_arguments import KnowledgeGraphArguments, TaskDataArguments, check
from .options import checked, kinds_of, of_kind
from .ranges import check_ranges
from .recipes import check_folder_name, mapping
from .seeded_arguments import SeededArguments, parse_groups

THESEUS = "theseus"
BILSTM = "distilled_bilstm"
STAGE_PRESETS = (*(name for name in PRESET_NAMES if name != DUALTRAIN), THESEUS)
TASKS = ("classification", "tagging", "masked-lm")


@dataclass
class StudentArguments:
    """Who teaches, who learns, and what it begins from."""

    teacher_name_or_path: list[str] = field(
        metadata={"help": "Fine-tuned teacher, a folder or a hub id; several are averaged."}
    )
    teacher_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of a hub id."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code that a checkpoint carries."})
    student_layers: int | None = field(default=None, metadata={"help": "Layers of the student (default: as init)."})
    student_hidden_size: int | None = field(default=None, metadata={"help": "Its width (default: the teacher's)."})
    student_intermediate_size: int | None = field(
        default=None, metadata={"help": "Its feed-forward width (default: in the teacher's proportion)."}
    )
    student_num_attention_heads: int | None = field(default=None, metadata={"help": "Its heads (the teacher's)."})
    student_size: str | None = field(default=None, metadata={"help": "tinybert-4l-312d or tinybert-6l-768d."})
    student_init: str = field(
        default="every-other",
        metadata={"help": "every-other, first, last, none, or teacher layers by number: 0,5,11."},
    )
    student_class: str | None = field(
        default=None, metadata={"help": f"distilbert, mobilebert or {BILSTM} (default: the teacher's class)."}
    )
    student_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Begin with this checkpoint instead, of the teacher's vocabulary (a general student)."},
    )
    license: str | None = field(
        default=None, metadata={"help": "Licence of the student's weights, as the Hub spells it, for the card."}
    )


@dataclass
class DistillArguments(SeededArguments):
    """Arguments of training; each stage may have its own."""

    output_dir: str = field(default="outputs/distilled", metadata={"help": "Where results and the student go."})
    stages: dict | str | None = field(
        default=None,
        metadata={
            "help": "Mapping name -> `preset` (or `objectives`), `preset_options` and training arguments of its own, "
            f"one after the other, or JSON; presets: {', '.join(STAGE_PRESETS)}."
        },
    )
    baseline: bool = field(
        default=True, metadata={"help": "Also train the same student without the teacher, with each seed."}
    )
    baseline_epochs: float | None = field(
        default=None, metadata={"help": "Its passes over the data (default: those of all stages together)."}
    )
    baseline_learning_rate: float = field(default=5e-5, metadata={"help": "Its learning rate."})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stages = mapping("stages", self.stages)


GROUPS = (StudentArguments, TaskDataArguments, DistillArguments)


def parse(arguments: list[str]) -> tuple[StudentArguments, TaskDataArguments, DistillArguments]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The three groups of arguments.

    Raises:
        ValueError: an unknown recipe key, or values that contradict each other.
    """
    description = "Distil a student from a fine-tuned teacher, by seeds, beside the same student without it."
    student, data, training = parse_groups(arguments, GROUPS, "distill", description)
    if data.task not in TASKS:
        raise ValueError(f"`task` must be one of {', '.join(TASKS)}, got {data.task!r}.")
    if data.task != "masked-lm":
        check(data, KnowledgeGraphArguments(), training)
    elif not data.train_file or not (data.validation_file or data.test_file):
        raise ValueError("`train_file` and `validation_file` or `test_file` must be named for masked-lm.")
    check_student(student)
    check_stages(training)
    return student, data, training


def check_stages(training: DistillArguments) -> None:
    """Refuse stages that cannot be, before anything is read.

    Args:
        training: has them.

    Raises:
        ValueError: see the messages.
    """
    stages = training.stages
    if not isinstance(stages, dict) or not stages or not all(isinstance(one, dict) for one in stages.values()):
        raise ValueError(
            "`stages` must name at least one stage and its options, such as {distil: {preset: pkd}}, got "
            f"{stages!r}. The recipes distill_*.yaml have them."
        )
    for name, options in stages.items():
        check_folder_name("A stage of `stages`", name)
        preset = options.get("preset")
        theseus = preset == THESEUS
        if preset == DUALTRAIN:
            raise ValueError(
                f"`preset` = {DUALTRAIN} of stage `{name}` trains the teacher too, on rows in two vocabularies: it is "
                "no stage of this job. Use DistillationTrainer with DataCollatorForMixedVocabulary."
            )
        if preset is not None and preset not in STAGE_PRESETS:
            raise unknown_name("preset", preset, STAGE_PRESETS)
        where = f"Stage `{name}` of `stages`: "
        known = {f.name for f in fields(TheseusArguments if theseus else DistillationArguments)} | {"preset"}
        unknown = sorted(str(option) for option in options if option not in known)
        if unknown:
            raise ValueError(f"Stage `{name}` of `stages` has unknown options: {', '.join(unknown)}.")
        if theseus and len(stages) > 1:
            raise ValueError("`preset` = theseus makes its own student: it must be the only stage.")
        own = {option: value for option, value in options.items() if option != "preset"}
        stages[name] = {**options, **checked(own, (TheseusArguments if theseus else DistillationArguments,), where)}
        try:
            found = stage_arguments(training, stages[name], training.output_dir, last=name == list(stages)[-1])
            if not theseus:
                check_objectives(found)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}{error}") from error


def check_objectives(args: DistillationArguments) -> None:
    """Refuse options of a preset or of objectives that cannot be, before a model is there.

    Args:
        args: of a stage.

    Raises:
        ValueError: an unknown name, or a value of another kind or out of range.
    """
    if args.preset is not None:
        preset = PRESETS[args.preset]
        parts = [("preset", args.preset, preset, list(inspect.signature(preset).parameters)[1:])]
        given = [mapping("preset_options", args.preset_options)]
    else:
        listed = as_list(args.objectives)
        unknown = [one["objective"] for one in listed if one["objective"] not in OBJECTIVES]
        if unknown:
            raise unknown_name("objective", unknown[0], OBJECTIVES)
        names = [one.pop("objective") for one in listed]
        parts = [("objective", name, OBJECTIVES[name].__init__, objective_options(OBJECTIVES[name])) for name in names]
        given = listed
    for (kind, name, function, known), options in zip(parts, given, strict=True):
        hints = get_type_hints(function)
        for option, value in options.items():
            if option not in known:
                raise unknown_name(f"option of {kind} {name}", option, known)
            plain = hints.get(option, Any) if option != "weight" else float
            if kinds_of(plain).keys() <= {bool, int, float, str, type(None)}:
                value = of_kind(f"{kind} {name}: ", option, value, plain)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{kind} {name}: `{option}` must be a finite number, got {value}.")
            check_ranges({option: value}, f"{kind} {name}: ")


def check_student(args: StudentArguments) -> None:
    """Refuse options of a student that what is asked for has not.

    Args:
        args: the options.

    Raises:
        ValueError: see the messages.
    """
    if args.student_class != BILSTM:
        return
    plain = StudentArguments([])
    unread = [
        name
        for name in ("student_layers", "student_num_attention_heads", "student_size", "student_init")
        if getattr(args, name) != getattr(plain, name)
    ]
    if unread:
        raise ValueError(
            f"`{unread[0]}` is no option of `student_class` = {BILSTM}, which has one layer and nothing of the "
            "teacher's, but `student_hidden_size` (both directions) and `student_intermediate_size` (the "
            "classifier's). Begin with the recipe distill_bilstm.yaml."
        )
    if args.student_hidden_size is not None and args.student_hidden_size % 2:
        raise ValueError(
            f"`student_hidden_size` must be even for `student_class` = {BILSTM}, half for each direction, got "
            f"{args.student_hidden_size}."
        )


def reads_predictions(args: DistillArguments) -> bool:
    """Whether a stage compares the teachers' predictions, for which they need a trained head.

    Args:
        args: with stages that were checked.
    """
    shape: Any = SimpleNamespace(is_regression=False)
    for options in args.stages.values():
        found = stage_arguments(args, options, args.output_dir, last=True)
        if options.get("preset") == THESEUS:
            return True
        preset, given = found.preset, found.preset_options or {}
        listed = as_list(found.objectives) if preset is None else PRESETS[preset](shape, **given)
        if any(each["objective"] == "soft_labels" for each in listed):
            return True
    return False


def stage_arguments(args: DistillArguments, options: dict[str, Any], folder: str, last: bool) -> Any:
    """The arguments of one stage: those of the job, and its own.

    Args:
        args: of the run.
        options: of the stage.
        folder: where its checkpoints go.
        last: whether it is the one that is evaluated.

    Returns:
        `DistillationArguments`, or `TheseusArguments` for its preset.
    """
    values = {f.name: getattr(args, f.name) for f in fields(TrainingArguments) if f.init}
    if not last:
        values |= {"eval_strategy": "no", "load_best_model_at_end": False, "metric_for_best_model": None}
        values |= {"save_strategy": "no"} if args.save_strategy == "best" else {}
    values |= {"resume_from_checkpoint": None, **options, "output_dir": folder}
    cls: Any = DistillationArguments
    if options.get("preset") == THESEUS:
        values.pop("preset")
        cls = TheseusArguments
    return cls(**values)


__all__ = [
    "BILSTM",
    "GROUPS",
    "THESEUS",
    "DistillArguments",
    "StudentArguments",
    "parse",
    "reads_predictions",
    "stage_arguments",
]
