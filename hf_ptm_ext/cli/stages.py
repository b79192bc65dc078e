"""`hf-ptm-ext stages`: two-stage fine-tuning and longer chains, each job from the model of the one before it.

Further pre-training on text of the domain, then an intermediate task, then the target (Sun et al., 2019; Phang et al.,
2018; Gururangan et al., 2020), with the target trained without the earlier stages beside it. A finished stage leaves a
marker and is not run again; an interrupted one goes on by the job's own resume.
"""

import gc
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..data import expand_files
from ..files import read_json
from ..trainers import PushFailed
from .recipes import write_recipe
from .results import RESULTS, percent, scores_among
from .runs import ALL_RESULTS, begin_folder, has_work, is_first_process, own_folder, write_json, write_whole
from .signature import changes
from .stages_arguments import ALONE, MULTITASK, PRETRAIN, Stage, StagesArguments, parse
from .tables import markdown_table

logger = logging.getLogger(__name__)

MARKERS = "_stages"  # leading underscore: never pushed
REPORT = "stages"
# What may change after a stage is finished: the job adds the seeds that are new.
GROWING = ("seeds",)
Scores = dict[str, dict[str, dict[str, float]]]


def run(arguments: list[str]) -> int:
    """Run the job."""
    run_stages(*parse(arguments))
    return 0


def run_stages(args: StagesArguments, stages: Sequence[Stage]) -> dict[str, Any]:
    """Run the stages that are not finished, and write the report."""
    with own_folder(Path(args.output_dir)):
        return _run_stages(args, stages, Path(args.output_dir))


def _run_stages(args: StagesArguments, stages: Sequence[Stage], output: Path) -> dict[str, Any]:
    """`run_stages` in a folder that no other job writes to."""
    first_process = is_first_process()
    if args.overwrite and first_process:
        # Later stages are not to be taken for finished if this call does not reach them.
        for stage in stages:
            if _marker(stage, output).is_file():
                shutil.rmtree(output / stage.name, ignore_errors=True)
                _marker(stage, output).unlink()
    if first_process:
        begin_folder(output, args, anew=False)
    finished = [not args.overwrite and is_finished(stage, output) for stage in stages]  # before any of them is run
    for stage, done in zip(stages, finished, strict=True):
        if not done:
            _check_files(stage)
    not_pushed = []
    for stage, done in zip(stages, finished, strict=True):
        if done:
            logger.info("stage %s is finished", stage.name)
            continue
        print(f"\n== stage {stage.name}: {stage.job} ==", flush=True)
        if first_process:
            write_json(_marker(stage, output), {"finished": False, "arguments": stage.signature(output)})
        try:
            stage.module.run(stage.words(output, args.overwrite))
        except PushFailed as error:  # the last thing that a job does
            not_pushed.append(f"Stage {stage.name}: {error}")
        except ValueError as error:
            raise ValueError(f"Stage {stage.name}: {error}") from error
        if first_process:
            write_json(_marker(stage, output), {"finished": True, "arguments": stage.signature(output)})
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    report = report_of(stages, output)
    if first_process:
        write_recipe(output, args)
        write_json(output / f"{REPORT}.json", report)
        text = report_text(report)
        write_whole(output / f"{REPORT}.md", text)
        print(f"\n{text}\nSaved to {output / REPORT}.md and .json.")
    if not_pushed:
        raise PushFailed(" ".join(not_pushed))
    return report


def _check_files(stage: Stage) -> None:
    """Refuse data files that are not there before the first stage trains."""
    for name, value in stage.values.items():
        if name.endswith("_file") and value and not str(value).startswith("["):
            try:
                expand_files(value)
            except (OSError, ValueError) as error:
                raise ValueError(f"Stage {stage.name}: `{name}`: {error}") from error


def _marker(stage: Stage, output: Path) -> Path:
    return output / MARKERS / f"{stage.name}.json"


def is_finished(stage: Stage, output: Path) -> bool:
    """Whether a stage need not be run again."""
    marker = _marker(stage, output)
    if not marker.is_file() or not has_work(output / stage.name):
        return False
    before, now = read_json(marker), stage.signature(output)
    if changed := changes(before["arguments"], now, GROWING):
        raise ValueError(
            f"Stage {stage.name} of `output_dir` = {output} was begun with other arguments: {changed}. Give the same "
            "ones, pass --overwrite true to run all stages anew, or name another folder."
        )
    return before["finished"] and before["arguments"] == now


def scores_of(stage: Stage, output: Path) -> Scores:
    """What a finished stage reached: variant -> metric -> mean and standard deviation over seeds."""
    folder = output / stage.name
    if stage.job == PRETRAIN:
        if (folder / RESULTS).is_file():  # by seeds
            means = next(iter(read_json(folder / RESULTS)["summary"].values()))
        else:
            means = {name: {"mean": value} for name, value in scores_among(read_json(folder / ALL_RESULTS)).items()}
        return {
            label: found
            for label, prefix in (("unigram", "baseline_"), ("before", "before_"), ("after", "eval_"))
            if (found := {name.removeprefix(prefix): one for name, one in means.items() if name.startswith(prefix)})
        }
    results = read_json(folder / RESULTS)
    if stage.job != MULTITASK:
        return _seeded(results)
    return {
        f"{task}: {label}": found for task, one in results["tasks"].items() for label, found in _seeded(one).items()
    }


def _seeded(results: dict[str, Any]) -> Scores:
    """The simple guess and each variant of a job by seeds; costs are no scores."""
    guess = results.get("majority", {})  # none without labels
    rows = {
        variant: {name: score for name, score in scores.items() if name in guess}
        for variant, scores in results["summary"].items()
    }
    return {results.get("simple_baseline", "simple"): {name: {"mean": value} for name, value in guess.items()}, **rows}


def report_of(stages: Sequence[Stage], output: Path) -> dict[str, Any]:
    """The report as data."""

    def entry(stage: Stage) -> dict[str, Any]:
        source = stage.source
        names = [source] if isinstance(source, str) else list(source or ())
        return {
            "name": stage.name,
            "job": stage.job,
            "recipe": stage.recipe,
            # A folder of this run is named as such; of any other its last part says as much as a reader can use.
            "from": [_shown(name, output) for name in names],
            "scores": scores_of(stage, output),
        }

    found = [entry(stage) for stage in stages]
    report: dict[str, Any] = {"stages": [one for one in found if not one["name"].endswith(ALONE)]}
    alone = [one for one in found if one["name"].endswith(ALONE)]
    if alone:
        report["baseline"] = alone[0]
    return report


def _shown(name: str, output: Path) -> str:
    path = Path(name)
    if path.is_relative_to(output):
        return path.relative_to(output).as_posix()
    return path.name if path.is_dir() else name


def report_text(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = ["# Stages", "", "Scores of fine-tuning in percent, mean and, of several seeds, standard deviation.", ""]
    for stage in report["stages"]:
        recipe = f", recipe {stage['recipe']}" if stage["recipe"] else ""
        origin = f" from {', '.join(stage['from'])}" if stage["from"] else " from nothing"
        lines += [f"## {stage['name']}", "", f"`{stage['job']}`{origin}{recipe}", ""]
        lines += [*_table(stage["scores"], stage["job"] != PRETRAIN), ""]
    if "baseline" in report:
        target, alone = report["stages"][-1], report["baseline"]
        earlier = ", ".join(stage["name"] for stage in report["stages"][:-1])
        rows: Scores = {}
        for label, scores in target["scores"].items():
            if scores == alone["scores"].get(label):
                rows[label] = scores  # a simple guess knows of no stages
                continue
            rows[f"{label}, after {earlier}"] = scores
            rows[f"{label}, without"] = alone["scores"].get(label, {})
        lines += [f"## {target['name']} with and without the earlier stages", ""]
        lines += [*_table(rows, target["job"] != PRETRAIN), ""]
    return "\n".join(lines)


def _table(scores: Scores, in_percent: bool) -> list[str]:
    """A Markdown table, one row a variant."""
    names = list(dict.fromkeys(name for found in scores.values() for name in found))
    rows = [[label, *(_cell(found.get(name), in_percent) for name in names)] for label, found in scores.items()]
    return markdown_table(names, rows)


def _cell(score: dict[str, float] | None, in_percent: bool) -> str:
    return "-" if score is None else percent(score) if in_percent else percent(score, 1, 4)
