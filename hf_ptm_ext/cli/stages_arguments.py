"""What `hf-ptm-ext stages` can be told: jobs in their order, and what each is told."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..redaction import redacted
from .options import OptionParser, checked, with_recipe
from .recipes import as_flags, mapping, nested, recipe_file, split_nested
from .signature import content_of, digest_of_files

PRETRAIN, ADAPT, MULTITASK, DISTILL = "pretrain", "adapt", "multitask", "distill"
# Job -> the argument that takes the model of the stage before.
JOBS = {
    PRETRAIN: "model_name_or_path",
    "finetune": "model_name_or_path",
    MULTITASK: "model_name_or_path",
    ADAPT: "model_name_or_path",
    DISTILL: "teacher_name_or_path",
}
# The runner says these itself.
OWN = ("output_dir", "resume_from_checkpoint", "overwrite")
ALONE = "-alone"


@dataclass
class StagesArguments:
    """The stages and where they go."""

    stages: dict | str | None = field(
        default=None,
        metadata={
            "help": "Name -> job (pretrain, finetune, multitask, adapt, distill), recipe (a file, may be left out) "
            "and arguments of the job, as a mapping or JSON. One argument of one stage: --stages.NAME.ARGUMENT VALUE."
        },
    )
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "What the first stage starts from, a folder or a hub id."}
    )
    common: dict | str | None = field(
        default=None, metadata={"help": "Arguments of every stage that does not say otherwise, such as bf16."}
    )
    output_dir: str = field(default="outputs/stages", metadata={"help": "Each stage has a folder of its name there."})
    baseline: bool = field(
        default=False,
        metadata={"help": "Also run the last stage from what the first one started from, without those between."},
    )
    overwrite: bool = field(default=False, metadata={"help": "Run all stages anew in a folder that has files."})


GROUPS = (StagesArguments,)


@dataclass(frozen=True)
class Stage:
    """One job of the run.

    Args:
        name: of the stage, and of its folder.
        job: a sub-command.
        recipe: its recipe.
        values: its arguments, with the model that it starts from.
    """

    name: str
    job: str
    recipe: str | None
    values: Mapping[str, Any]

    @property
    def source(self) -> Any:
        """What it starts from."""
        return self.values.get(JOBS[self.job])

    @property
    def module(self) -> Any:
        """The job's module."""
        return importlib.import_module(f"{__package__}.{self.job}")

    def words(self, output: Path, overwrite: bool) -> list[str]:
        """The job's command line.

        Args:
            output: folder of all stages.
            overwrite: train anew, instead of going on with what is there.
        """
        how = {"overwrite": True} if overwrite else {"resume_from_checkpoint": "auto"}
        recipe = [] if self.recipe is None else [self.recipe]
        return recipe + as_flags({**self.values, "output_dir": str(output / self.name), **how})

    def signature(self, output: Path) -> dict[str, Any]:
        """What must be the same for a finished stage to count: job, recipe's text, arguments and what they name.

        Args:
            output: folder of all stages, which may be moved.
        """
        recipe = None if self.recipe is None else digest_of_files([recipe_file(self.recipe)])
        values = {name: _plain(value) for name, value in self.values.items()}
        source = values.pop(JOBS[self.job], None)
        values = {name: content_of(name, value) for name, value in values.items()}
        if isinstance(source, str) and Path(source).is_relative_to(output):
            source = Path(source).relative_to(output).as_posix()
        else:
            source = content_of(JOBS[self.job], source)
        return redacted({"job": self.job, "recipe": recipe, JOBS[self.job]: source, **values})


def _plain(value: Any) -> Any:
    """A value as the command line spells it, whether it came from a recipe or from there."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [str(one) for one in value] if len(value) != 1 else str(value[0])
    return str(value)


def parse(arguments: list[str]) -> tuple[StagesArguments, list[Stage]]:
    """Parse `[RECIPE] [--flag value ...] [--stages.NAME.ARGUMENT value ...] [--overrides name=value ...]`.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The arguments; the stages in order, the baseline of the last one behind it if it is asked for.

    Raises:
        ValueError: an unknown job or argument of the run or of a stage, or stages that do not go together.
    """
    parser = OptionParser(
        GROUPS,
        prog="hf-ptm-ext stages",
        usage="hf-ptm-ext stages [RECIPE.yaml|RECIPE.json] [--argument value ...] [--stages.NAME.ARGUMENT value ...]",
        description="Run jobs one after the other, each from the model before it, with one report.",
    )
    words, changes = split_nested(with_recipe(arguments, GROUPS, "stages"), "stages")
    (args,) = parser.read(words)
    common = mapping("common", args.common)
    stages: list[Stage] = []
    for name, values in nested("stages", args.stages, changes).items():
        stages.append(_stage(name, {**common, **values}, stages, args))
    if args.baseline:
        stages.append(_baseline(stages))
    for stage in stages:
        check_stage(stage, Path(args.output_dir))
    return args, stages


def _stage(name: str, values: dict[str, Any], before: list[Stage], args: StagesArguments) -> Stage:
    """One stage, from the model before it unless it names its own."""
    if name.endswith(ALONE):
        raise ValueError(f"A stage must be named by what does not end in `{ALONE}`, got {name!r}.")
    job, recipe = values.pop("job", None), values.pop("recipe", None)
    if not isinstance(job, str) or job not in JOBS:
        raise ValueError(f"Stage {name}: `job` must be one of {', '.join(JOBS)}, got {job!r}.")
    if recipe is not None and not isinstance(recipe, str):
        raise ValueError(f"Stage {name}: `recipe` must be the name of a file, got {recipe!r}.")
    groups = importlib.import_module(f"{__package__}.{job}_arguments").GROUPS
    checked({one: value for one, value in values.items() if "." not in one}, groups, f"Stage {name}: ")
    own = [one for one in OWN if one in values]
    if own:
        raise ValueError(f"Stage {name}: `{own[0]}` must be left to the run of all stages.")
    wanted = JOBS[job]
    if values.get(wanted) is None:
        found = _model_of(before[-1], args, name) if before else args.model_name_or_path
        if found is not None:
            values[wanted] = found
        elif job != PRETRAIN:
            raise ValueError(f"Stage {name}: `{wanted}` must be named, or `model_name_or_path` of the whole run.")
    return Stage(name, job, recipe, values)


def _model_of(stage: Stage, args: StagesArguments, following: str) -> str:
    """The folder that a following stage starts from."""
    folder = Path(args.output_dir) / stage.name
    if stage.job == ADAPT:
        raise ValueError(
            f"Stage {following}: name the model that it starts from. The stage before it, {stage.name}, trains an "
            "adapter, which is no model of its own."
        )
    if stage.job == MULTITASK:
        # One encoder in all of them.
        _, _, tasks, _ = stage.module.parse(stage.words(Path(args.output_dir), overwrite=False))
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
    return Stage(target.name + ALONE, target.job, target.recipe, {**target.values, JOBS[target.job]: first.source})


def check_stage(stage: Stage, output: Path) -> None:
    """Let the job read its command line, so that a mistake in the last stage shows before the first one is run.

    Args:
        stage: one of the run.
        output: folder of all stages.

    Raises:
        ValueError: what the job says, with the stage's name.
    """
    try:
        stage.module.parse(stage.words(output, overwrite=False))
    except ValueError as error:
        raise ValueError(f"Stage {stage.name}: {error}") from error


__all__ = ["ALONE", "JOBS", "MULTITASK", "PRETRAIN", "Stage", "StagesArguments", "parse"]
