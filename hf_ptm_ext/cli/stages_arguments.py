"""What `hf-ptm-ext stages` can be told: jobs in their order, and what each is told."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..redaction import redacted
from . import check_choice
from .options import checked, naming, option, read_options
from .recipes import as_flags, mapping, recipe_file
from .signature import content_of, digest_of_files

PRETRAIN, ADAPT, MULTITASK, DISTILL = "pretrain", "adapt", "multitask", "distill"
# Job -> the module of its arguments, and the one that takes the model of the stage before.
JOBS = {
    PRETRAIN: ("pretrain_arguments", "model_name_or_path"),
    "finetune": ("finetune", "model_name_or_path"),
    MULTITASK: ("multitask_arguments", "model_name_or_path"),
    ADAPT: ("adapt", "model_name_or_path"),
    DISTILL: ("distill_arguments", "teacher_name_or_path"),
}
# The runner says these itself.
OWN = ("output_dir", "resume_from_checkpoint", "overwrite")
ALONE = "-alone"


@dataclass
class StagesArguments:
    """The stages and where they go."""

    stages: dict | str | None = option(
        None,
        "Name -> job (pretrain, finetune, multitask, adapt, distill), recipe (a file, may be left out) and arguments "
        "of the job, as YAML or JSON. One argument of one stage: --stages.NAME.ARGUMENT VALUE.",
    )
    model_name_or_path: str | None = option(None, "What the first stage starts from, a folder or a hub id.")
    common: dict | str | None = option(None, "Arguments of every stage that does not say otherwise, such as bf16.")
    output_dir: str = option("outputs/stages", "Each stage has a folder of its name there.")
    baseline: bool = option(
        False, "Also run the last stage from what the first one started from, without those between."
    )
    overwrite: bool = option(False, "Run all stages anew in a folder that has files.")


GROUPS = (StagesArguments,)


@dataclass(frozen=True)
class Stage:
    """One job of the run: its name, the sub-command, its recipe, and its arguments with the model it starts from."""

    name: str
    job: str
    recipe: str | None
    values: Mapping[str, Any]

    @property
    def model_argument(self) -> str:
        """The argument that names what it starts from."""
        return JOBS[self.job][1]

    @property
    def source(self) -> Any:
        """What it starts from."""
        return self.values.get(self.model_argument)

    @property
    def module(self) -> Any:
        """The job's module."""
        return importlib.import_module(f"{__package__}.{self.job}")

    def words(self, output: Path, overwrite: bool) -> list[str]:
        """The job's command line."""
        how = {"overwrite": True} if overwrite else {"resume_from_checkpoint": "auto"}
        recipe = [] if self.recipe is None else [self.recipe]
        return recipe + as_flags({**self.values, "output_dir": str(output / self.name), **how})

    def signature(self, output: Path) -> dict[str, Any]:
        """What must be the same for a finished stage to count: job, recipe's text, arguments and what they name."""
        recipe = None if self.recipe is None else digest_of_files([recipe_file(self.recipe)])
        values = {name: _plain(value) for name, value in self.values.items()}
        source = values.pop(self.model_argument, None)
        values = {name: content_of(name, value) for name, value in values.items()}
        if isinstance(source, str) and Path(source).is_relative_to(output):
            source = Path(source).relative_to(output).as_posix()
        else:
            source = content_of(self.model_argument, source)
        return redacted({"job": self.job, "recipe": recipe, self.model_argument: source, **values})


def _plain(value: Any) -> Any:
    """A value as the command line spells it, whether it came from a recipe or from there."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [str(one) for one in value] if len(value) != 1 else str(value[0])
    return str(value)


def parse(arguments: list[str]) -> tuple[StagesArguments, list[Stage]]:
    """Read the options, and let each job read its own, so that a mistake in the last one shows before the first."""
    (args,) = read_options(arguments, GROUPS, "stages", members="stages")
    common = mapping("common", args.common)
    stages: list[Stage] = []
    for name, values in args.stages.items():
        if name.endswith(ALONE):
            raise ValueError(f"A stage must be named by what does not end in `{ALONE}`, got {name!r}.")
        with naming(f"Stage {name}"):
            stages.append(_stage(name, {**common, **values}, stages, args))
    if args.baseline:
        stages.append(_baseline(stages))
    for stage in stages:
        with naming(f"Stage {stage.name}"):
            stage.module.parse(stage.words(Path(args.output_dir), overwrite=False))
    return args, stages


def _stage(name: str, values: dict[str, Any], before: list[Stage], args: StagesArguments) -> Stage:
    """One stage, from the model before it unless it names its own."""
    job, recipe = values.pop("job", None), values.pop("recipe", None)
    check_choice("job", job, tuple(JOBS))
    if recipe is not None and not isinstance(recipe, str):
        raise ValueError(f"`recipe` must be the name of a file, got {recipe!r}.")
    plain = {one: value for one, value in values.items() if "." not in one}
    checked(plain, importlib.import_module(f"{__package__}.{JOBS[job][0]}").GROUPS, "")
    own = [one for one in OWN if one in values]
    if own:
        raise ValueError(f"`{own[0]}` must be left to the run of all stages, got {values[own[0]]!r}.")
    wanted = JOBS[job][1]
    if values.get(wanted) is None:
        found = _model_of(before[-1], Path(args.output_dir)) if before else args.model_name_or_path
        if found is not None:
            values[wanted] = found
        elif job != PRETRAIN:
            raise ValueError(f"`{wanted}` must be named, or `model_name_or_path` of the whole run.")
    return Stage(name, job, recipe, values)


def _model_of(stage: Stage, output: Path) -> str:
    """The folder that a following stage starts from."""
    folder = output / stage.name
    if stage.job == ADAPT:
        raise ValueError(
            f"name the model that it starts from. The stage before it, {stage.name}, trains an adapter, which is no "
            "model of its own."
        )
    if stage.job == MULTITASK:
        # One encoder in all of them.
        _, _, tasks, _ = stage.module.parse(stage.words(output, overwrite=False))
        folder /= next(iter(tasks))
    return str(folder)


def _baseline(stages: list[Stage]) -> Stage:
    """The last stage from what the first one starts from."""
    first, target = stages[0], stages[-1]
    if len(stages) < 2 or target.job == DISTILL:
        raise ValueError(
            f"`baseline` needs a stage before the last one, which is no distillation (it has a baseline of its own); "
            f"got {', '.join(f'{stage.name} ({stage.job})' for stage in stages)}."
        )
    if first.source is None or first.job == DISTILL:
        raise ValueError(
            f"`baseline` needs a model that the first stage starts from: stage {first.name} makes its own. Name "
            "`model_name_or_path`, or leave `baseline` out."
        )
    return Stage(
        target.name + ALONE, target.job, target.recipe, {**target.values, target.model_argument: first.source}
    )
