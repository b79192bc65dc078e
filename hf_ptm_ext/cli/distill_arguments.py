"""What `hf-ptm-ext distill` can be told beside the data, and its stages."""

import inspect
import math
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, ClassVar, get_type_hints

from transformers import TrainingArguments

from ..distillation import PRESET_NAMES, DistillationArguments, TheseusArguments
from ..distillation.presets import DUALTRAIN, PRESETS, weighted_objectives
from ..distillation.registry import OBJECTIVES, as_list, check_known, objective_options
from ..distillation.students import SIZES, TEACHERS_OF
from ..trainers.master_weights import BF16
from .arguments import SeededArguments, TaskDataArguments, parse_seeded
from .options import REQUIRED, checked, kinds_of, naming, of_kind, option
from .ranges import Size, Weight, check_ranges
from .recipes import mapping

THESEUS = "theseus"
BILSTM = "distilled_bilstm"
STAGE_PRESETS = (*(name for name in PRESET_NAMES if name != DUALTRAIN), THESEUS)
TASKS = ("classification", "tagging", "masked-lm")
STARTS = ("student", "none")  # of the student without a teacher, beside names


@dataclass
class StudentArguments:
    """Who teaches, who learns, and what it begins from."""

    teacher_name_or_path: list[str] = option(
        REQUIRED, "Fine-tuned teacher, a folder or a hub id; several are averaged."
    )
    teacher_revision: str = option("main", "Branch, tag or commit of a hub id.")
    trust_remote_code: bool = option(False, "Run code that a checkpoint carries.")
    student_layers: Size | None = option(None, "Layers of the student (default: as init).")
    student_hidden_size: Size | None = option(None, "Its width (default: the teacher's).")
    student_intermediate_size: Size | None = option(
        None, "Its feed-forward width (default: in the teacher's proportion)."
    )
    student_num_attention_heads: Size | None = option(None, "Its heads (the teacher's).")
    student_size: str | None = option(None, "TinyBERT's sizes, by name.", choices=tuple(SIZES))
    student_init: str = option("every-other", "every-other, first, last, none, or teacher layers by number: 0,5,11.")
    student_class: str | None = option(
        None, "Family of the student (default: the teacher's class).", choices=(*TEACHERS_OF, BILSTM)
    )
    student_name_or_path: str | None = option(
        None, "Begin with this checkpoint instead, of the teacher's vocabulary (a general student)."
    )
    baseline_init: str = option("student", "Start of the student alone: student, none (random) or a checkpoint.")
    student_vectors_file: str | None = option(None, "Word vectors that a BiLSTM begins with, of their width.")
    license: str | None = option(None, "Licence of the student's weights, as the Hub spells it, for the card.")

    @property
    def source(self) -> dict[str, Any]:
        """What `from_pretrained` is told of a teacher beside the name."""
        return {"revision": self.teacher_revision, "trust_remote_code": self.trust_remote_code}

    @property
    def baseline_checkpoint(self) -> str | None:
        """The checkpoint that the student without a teacher begins with, if one is named."""
        return None if self.baseline_init in STARTS else self.baseline_init

    def check(self, training: Any) -> None:
        """Refuse options of a student that what is asked for has not."""
        if self.baseline_init != "student" and not training.baseline:
            raise ValueError(
                f"`baseline_init` = {self.baseline_init} goes with `baseline`, which is off: leave it out."
            )
        if self.student_class != BILSTM:
            if self.student_vectors_file:
                raise ValueError(
                    f"`student_vectors_file` = {self.student_vectors_file} is for `student_class` = {BILSTM}, got "
                    f"{self.student_class}: other students begin with the teacher's embeddings."
                )
            return
        if self.baseline_checkpoint is not None:
            raise ValueError(
                f"`baseline_init` must be student or none for `student_class` = {BILSTM}, which has nothing of a "
                f"pre-trained model's, got {self.baseline_init}."
            )
        names = ("student_layers", "student_num_attention_heads", "student_size", "student_init")
        unread = [name for name in names if getattr(self, name) != type(self).__dataclass_fields__[name].default]
        if unread:
            raise ValueError(
                f"`{unread[0]}` is no option of `student_class` = {BILSTM}, which has one layer and nothing of the "
                "teacher's, but `student_hidden_size` (both directions) and `student_intermediate_size` (the "
                "classifier's). Begin with the recipe distill_bilstm.yaml."
            )
        if self.student_hidden_size is not None and self.student_hidden_size % 2:
            raise ValueError(
                f"`student_hidden_size` must be even for `student_class` = {BILSTM}, half for each direction, got "
                f"{self.student_hidden_size}."
            )


@dataclass
class DistillDataArguments(TaskDataArguments):
    """What is distilled on, and for which task."""

    task: str = option(REQUIRED, "What the teacher has learnt.", choices=TASKS)
    unlabelled_file: list[str] | None = option(
        None, "More rows of the task, which the teacher alone labels; labels in them are not read."
    )
    augment: Size | None = option(None, "Variants of each training text, which the teacher alone labels (papers: 20).")
    augment_model: str | None = option(
        None, "Masked LM that proposes their words, as TinyBERT's; else Distilled BiLSTM's way."
    )
    augment_vectors_file: str | None = option(None, "With it: word vectors, for words of several pieces.")

    def check(self, training: Any) -> None:
        """Refuse values that contradict each other; text needs no labels."""
        self.check_rows()
        if self.unlabelled_file and self.task == "masked-lm":
            raise ValueError(
                f"`unlabelled_file` = {self.unlabelled_file} goes with classification and tagging: plain text has no "
                "labels, name all of it as `train_file`."
            )
        if self.augment and self.task != "classification":
            raise ValueError(
                f"`augment` = {self.augment} changes words of classified texts, got `task` = {self.task}."
            )
        for name, wanted in (("augment_model", "augment"), ("augment_vectors_file", "augment_model")):
            if getattr(self, name) and not getattr(self, wanted):
                raise ValueError(f"`{name}` = {getattr(self, name)} goes with `{wanted}`, got none: name both.")
        for name in ("unlabelled_file", "augment"):
            if getattr(self, name) and not reads_teacher(training):
                raise ValueError(
                    f"`{name}` = {getattr(self, name)} teaches nothing by `stages` that read labels alone. Take a "
                    "preset such as soft-labels or pkd, or leave it out."
                )
        if self.task != "masked-lm":
            super().check(training)
        elif not self.train_file or not (self.validation_file or self.test_file):
            given = {name: getattr(self, name) for name in ("train_file", "validation_file", "test_file")}
            raise ValueError(
                f"`train_file` and `validation_file` or `test_file` must be named for masked-lm, got {given}."
            )


@dataclass
class DistillArguments(SeededArguments):
    """Arguments of training; each stage may have its own."""

    output_dir: str = option("outputs/distilled", "Where results and the student go.")
    stages: dict | str | None = option(
        None,
        "Name -> `preset` (or `objectives`), `preset_options` and training arguments of the stage, one after the "
        "other, as YAML or JSON. One argument of one stage: --stages.NAME.ARGUMENT VALUE. Presets: "
        f"{', '.join(STAGE_PRESETS)}.",
    )
    baseline: bool = option(True, "Also train the same student without the teacher, with each seed.")
    baseline_epochs: Weight | None = option(None, "Its passes over the data (default: those of all stages together).")
    baseline_learning_rate: Weight = option(5e-5, "Its learning rate.")

    long: ClassVar[bool] = True

    def epochs_alone(self) -> float:
        """Passes over the data of the student without a teacher: as told, or those of all stages together."""
        if self.baseline_epochs is not None:
            return self.baseline_epochs
        stages: Any = self.stages
        return sum(float(stage.get("num_train_epochs", self.num_train_epochs)) for stage in stages.values())

    def check(self, training: Any) -> None:
        """Refuse stages that cannot be, before anything is read."""
        stages: Any = self.stages
        for name in ("lr_schedule", "layer_decay", "gradual_unfreezing"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is nothing of a distillation, got {getattr(self, name)}: leave it out.")
        for name in stages:
            with naming(f"Stage `{name}` of `stages`"):
                stages[name] = self._checked(stages[name], last=name == list(stages)[-1], alone=len(stages) == 1)
                if twice := self.points[0].keys() & stages[name].keys():
                    raise ValueError(f"it sets {', '.join(sorted(twice))}, which `grid` = {self.grid} tries, itself.")

    def _checked(self, options: dict[str, Any], last: bool, alone: bool) -> dict[str, Any]:
        """The options of a stage, each of its kind."""
        preset = options.get("preset")
        if preset == DUALTRAIN:
            raise ValueError(
                f"`preset` = {DUALTRAIN} trains the teacher too, on rows in two vocabularies: it is no stage of this "
                "job. Use DistillationTrainer with DataCollatorForMixedVocabulary."
            )
        if preset is not None:
            check_known("preset", preset, STAGE_PRESETS)
        if preset == THESEUS and not alone:
            raise ValueError(f"`preset` = {preset} makes its own student: it must be the only stage, got others.")
        cls = TheseusArguments if preset == THESEUS else DistillationArguments
        unknown = sorted({str(option) for option in options} - {one.name for one in fields(cls)} - {"preset"})
        if unknown:
            raise ValueError(f"unknown options: {', '.join(unknown)}.")
        own = {option: value for option, value in options.items() if option != "preset"}
        found = {**options, **checked(own, (cls,), "")}
        try:
            arguments = stage_arguments(self, found, self.output_dir, last)
        except TypeError as error:  # upstream's arguments compare what they are given
            raise ValueError(f"options of a kind that cannot be: {error}") from error
        if preset != THESEUS:
            check_objectives(arguments)
        return found


GROUPS = (StudentArguments, DistillDataArguments, DistillArguments)


def parse(arguments: list[str]) -> tuple[Any, ...]:
    """Read the options."""
    return parse_seeded(arguments, GROUPS, "distill", members="stages")


def check_objectives(args: Any) -> None:
    """Refuse options of a preset or of objectives that cannot be, before a model is there."""
    if args.preset is not None:
        preset = PRESETS[args.preset]
        known = list(inspect.signature(preset).parameters)[1:]
        check_options(f"preset {args.preset}", preset, known, mapping("preset_options", args.preset_options))
        return
    for one in as_list(args.objectives):
        name = one.pop("objective")
        check_known("objective", name, OBJECTIVES)
        check_options(f"objective {name}", OBJECTIVES[name].__init__, objective_options(OBJECTIVES[name]), one)


def check_options(what: str, function: Any, known: list[str], options: dict[str, Any]) -> None:
    """Refuse options that a preset's or objective's function does not take."""
    hints = get_type_hints(function)
    for name, value in options.items():
        check_known(f"option of {what}", name, known)
        plain = hints.get(name, Any) if name != "weight" else float
        if kinds_of(plain).keys() <= {bool, int, float, str, type(None)}:
            value = of_kind(f"{what}: ", name, value, plain)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{what}: `{name}` must be a finite number, got {value}.")
        check_ranges({name: value}, f"{what}: ")


def reads_predictions(args: Any) -> bool:
    """Whether a stage compares the teachers' predictions, for which they need a trained head."""
    return not {THESEUS, "soft_labels"}.isdisjoint(terms_of(args))


def reads_teacher(args: Any) -> bool:
    """Whether a stage has a term that the teacher is asked for."""
    return bool(terms_of(args) - {THESEUS, "labels"})


def terms_of(args: Any) -> set[str]:
    """The objectives of all stages; module replacing is its own."""
    shape, found = SimpleNamespace(is_regression=False), set[str]()
    for options in args.stages.values():
        if options.get("preset") == THESEUS:
            found.add(THESEUS)
            continue
        stage = stage_arguments(args, options, args.output_dir, last=True)
        preset, given = stage.preset, stage.preset_options or {}
        listed = as_list(stage.objectives) if preset is None else weighted_objectives(preset, shape, given)
        found |= {each["objective"] for each in listed}
    return found


def stage_arguments(args: DistillArguments, options: dict[str, Any], folder: str, last: bool) -> Any:
    """The arguments of one stage: those of the job, and its own."""
    values = {one.name: getattr(args, one.name) for one in fields(TrainingArguments) if one.init}
    if not last:
        values |= {"eval_strategy": "no", "load_best_model_at_end": False, "metric_for_best_model": None}
        values |= {"save_strategy": "no"} if args.save_strategy == "best" else {}
    values |= {"resume_from_checkpoint": None, **options, "output_dir": folder}
    if options.get("preset") == THESEUS:
        values.pop("preset")
        made: Any = TheseusArguments(**values)
    else:
        teachers = {"teacher_dtype": "bfloat16"} if args.weights == BF16 else {}
        made = DistillationArguments(**{**teachers, **values})
    made.weights, made.nonfinite = args.weights, args.nonfinite
    return made
