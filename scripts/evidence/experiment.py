"""Run an experiment of the evidence page: jobs in the order of what they need, several side by side, one table.

An experiment is a module beside this one with a docstring (its claim), `ABOUT` (see `main`) and `plan(lab)`, which
names jobs of `hf-ptm-ext` and says which of them stand in which row and column of the table:

    def plan(lab):
        for rows in (50, 100):
            job = lab.job(f"few-{rows}", "finetune bert_classification.yaml", model_name_or_path=lab.model,
                          train_file=lab.data / "cls_en_sst2/train.jsonl.gz", train_sample=rows)
            lab.arm(rows, "fine-tuned", job)
        lab.compare("fine-tuned", "n-grams, linear")

The value of an option may be another job, which stands for its output folder and is run before. What is finished is
not run again, so an experiment that was stopped goes on by the same command. `--publish` writes what came out to
`results/ID.json`, from which the page and `hf-ptm-ext evidence ID` are made:

    python scripts/evidence/experiment.py     write the page anew, with the experiments that were not run
"""

import argparse
import contextlib
import gzip
import importlib
import json
import multiprocessing
import platform
import re
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
WRITTEN = ("verdict", "says")  # of a result, by a person
BEGIN, END = "<!-- begin: experiments -->", "<!-- end: experiments -->"
# What `--smoke true` adds to every job, to see in a minute that an experiment runs.
SMOKE = {"max_steps": 2, "max_eval_rows": 24, "per_device_train_batch_size": 4, "use_cpu": True}
NEED_A_GPU = ("bf16", "weights", "torch_compile")  # left out without one
# The weights of the last update are scored: a grid chooses by the validation data already.
LAST_WEIGHTS = {"save_strategy": "no", "eval_strategy": "no", "load_best_model_at_end": False}


@dataclass
class Job:
    """A command of `hf-ptm-ext`, or a function, that fills a folder."""

    name: str
    folder: Path
    work: Callable[[], Any]
    needs: list["Job"] = field(default_factory=list)
    command: str = ""


@dataclass
class Inside:
    """A file that a job writes."""

    job: Job
    name: str


@dataclass
class Lab:
    """What an experiment's `plan` is given: paths and options of the command line, and what it adds."""

    data: Path
    model: Path | None
    output: Path
    seeds: list[int]
    options: argparse.Namespace
    jobs: dict[str, Job] = field(default_factory=dict)
    arms: dict[tuple[str, str], Callable[[], dict[int, float]]] = field(default_factory=dict)
    comparisons: list[tuple[str, str]] = field(default_factory=list)
    notes: dict[str, Callable[[], Any]] = field(default_factory=dict)
    drawn: tuple[str, Callable[[str, str], tuple[str, str, float]]] | None = None

    def job(self, name: str, command: str, **options: Any) -> Job:
        """A job of `hf-ptm-ext`: its name and recipe, and its options, with `_` at their end for those that are words
        of Python. `seeds` are the experiment's, unless `seeds=None`.
        """
        folder, needs = self.output / name, needed(options.values())
        given: dict[str, Any] = {"seeds": self.seeds, "disable_tqdm": True, **LAST_WEIGHTS, **options}
        given |= {"output_dir": folder, "resume_from_checkpoint": "auto"}
        if self.options.smoke:
            given |= SMOKE | ({"train_sample": 24} if given.get("train_sample") else {})
            if not command.startswith("pretrain"):
                given.setdefault("max_train_rows", 400)
            given |= {"max_test_rows": 24} if command.startswith("finetune-seq2seq") else {}
            given.pop("num_train_epochs", None)
            if command.startswith("multitask"):  # whose tasks have their own
                rows = {one: given.pop(one) for one in list(given) if one.startswith(("max_eval", "max_train"))}
                tasks = dict.fromkeys(one.split(".")[1] for one in given if one.startswith("tasks."))
                given |= {f"tasks.{task}.{one}": value for task in tasks for one, value in rows.items()}
            if given.get("stages"):  # whose own updates go before
                given["stages"] = {name: {**one, "max_steps": 2} for name, one in given["stages"].items()}
            if given.get("grid"):
                given["grid"] = ["learning_rate=1e-5,1e-4"]
        if self.options.smoke or not has_gpu():
            given = {key: value for key, value in given.items() if key not in NEED_A_GPU}
        words = shlex.split(command)
        for option, value in given.items():
            if value is not None:
                words += [f"--{option}", *(as_word(one) for one in (value if isinstance(value, list) else [value]))]
        return self._add(Job(name, folder, partial(run_command, words), needs, self._told(words)))

    def make(self, name: str, function: Callable[..., Any], *given: Any) -> Job:
        """A function of the module that writes into the folder it is given first."""
        paths = [Path(as_word(value)) if isinstance(value, Job | Inside) else value for value in given]
        folder = self.output / name
        return self._add(Job(name, folder, partial(run_function, function, folder, paths), needed(given)))

    def tool(self, name: str, command: str, *given: Any) -> Job:
        """A command without `TrainingArguments`: its words, the last of which is the folder that it fills."""
        words = [*shlex.split(command), *(as_word(value) for value in given), str(self.output / name)]
        return self._add(Job(name, self.output / name, partial(run_command, words), needed(given), self._told(words)))

    def file(self, job: Job, name: str) -> Inside:
        """A file that a job writes, as the value of an option."""
        return Inside(job, name)

    def splits(self, source: str | Job, name: str = "{}.jsonl.gz") -> dict[str, Any]:
        """The files of a folder of the data, or of a job, as options: `train`, `valid`, `test` in `name`."""
        files = {"train_file": "train", "validation_file": "valid", "test_file": "test"}
        folder = (lambda one: Inside(source, one)) if isinstance(source, Job) else (self.data / source).joinpath
        return {option: folder(name.format(split)) for option, split in files.items()}

    def arm(self, column: Any, row: str, job: Any, variant: str | None = None, **more: Any) -> None:
        """A cell of the table: a variant of a job (the first one by default), or of one job a seed, in a list;
        seed -> jobs: of each seed of pre-training the mean over its jobs. `metric`, `task`, `factor` as `scores_of`.
        """
        metric = more.pop("metric", self.options.metric)

        def find(jobs: Iterable[Job]) -> dict[int, float]:
            found = [scores_of(one.folder, metric, variant, **more) for one in jobs]
            return {seed: score for scores in found for seed, score in scores.items()}

        if isinstance(job, Mapping):
            one_each = [(seed, one) for seed, jobs in job.items() for one in jobs]
            self.arms[str(column), row] = lambda: {
                seed: mean(score for other, one in one_each if other == seed for score in find([one]).values())
                for seed in job
            }
        else:
            self.arms[str(column), row] = partial(find, job if isinstance(job, list) else [job])

    def compare(self, *rows: str) -> None:
        """The first row less each other one, paired by seed, with an interval, in every column."""
        self.comparisons += [(rows[0], other) for other in rows[1:]]

    def note(self, name: str, function: Callable[[], Any]) -> None:
        """What is told below the table, found when all jobs are through."""
        self.notes[name] = function

    def figure(self, axis: str, number: Callable[[str, str], float] | None = None, **ends: float) -> None:
        """A drawing beside the result, a line a column: its rows' scores against what `number` says of them there.
        Without `number` a line a row, against the number at a column's end (or what `ends` say), a panel a beginning.
        """

        def place(column: str, row: str) -> tuple[str, str, float]:
            if number is not None:
                return "", column, number(column, row)
            panel, _, end = column.rpartition(", ")
            return panel, row, ends.get(end) or float(end.removesuffix(" %").replace(",", ""))

        self.drawn = axis, place

    def _add(self, job: Job) -> Job:
        if job.name in self.jobs:
            raise SystemExit(f"The experiment has two jobs {job.name!r}.")
        self.jobs[job.name] = job
        return job

    def _told(self, words: list[str]) -> str:
        """A command as it is shown: a path of the machine as its last part."""
        shown = [word.replace(str(self.data), "DATA").replace(str(self.output), "OUT") for word in words]
        return shlex.join(["hf-ptm-ext", *(Path(word).name if word.startswith("/") else word for word in shown)])


def needed(values: Any) -> list[Job]:
    """The jobs that are among values of options."""
    single = [one for value in values for one in (value if isinstance(value, list) else [value])]
    found = [value.job if isinstance(value, Inside) else value for value in single]
    return [value for value in found if isinstance(value, Job)]


def as_word(value: Any) -> str:
    """A value as a word of a command line."""
    if isinstance(value, Inside):
        return str(value.job.folder / value.name)
    if isinstance(value, Job):
        return str(value.folder)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def has_gpu() -> bool:
    """Whether a GPU is there."""
    import torch

    return torch.cuda.is_available()


# ---- data ----


def rows_of(*files: Path) -> list[dict[str, Any]]:
    """The rows of files of JSON lines, `.gz` or plain."""
    found = []
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            found += [json.loads(line) for line in lines]
    return found


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """JSON lines."""
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def letters(row: Mapping[str, Any]) -> str:
    """A row's text or words without blanks, marks and case, by which corpora that split words differently agree."""
    return re.sub(r"[\W_]", "", row["text"] if "text" in row else "".join(row["tokens"])).casefold()


def unseen(rows: Iterable[dict[str, Any]], *others: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose text is not among others, each once."""
    known, kept = {letters(row) for rows_of_one in others for row in rows_of_one}, []
    for row in rows:
        if (text := letters(row)) not in known:
            known.add(text)
            kept.append(row)
    return kept


# ---- running ----


def run_command(words: list[str]) -> None:
    """A job in this process; what fails is an error."""
    from hf_ptm_ext.cli import main as program

    if program([*words, "--debug"]) != 0:
        raise RuntimeError(f"failed: {shlex.join(words)}")


def run_function(function: Callable[..., Any], folder: Path, given: list[Any]) -> None:
    """A function that fills a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    function(folder, *given)


def in_worker(name: str, work: Callable[[], Any], log: Path) -> float:
    """Do a job with its output in a file of its own; gives its seconds."""
    start = time.perf_counter()
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            work()
        except BaseException as error:
            traceback.print_exc(file=file)
            raise RuntimeError(f"{name} failed ({type(error).__name__}): see {log}") from None
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
    return time.perf_counter() - start


def run_all(lab: Lab, processes: int) -> list[str]:
    """Run what is not finished, each job behind those that it needs; gives the failures."""
    done_marker, logs = lab.output / "_done", lab.output / "_logs"
    for folder in (done_marker, logs):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = str(lab.seeds)
    finished = {file.name for file in done_marker.iterdir() if file.read_text(encoding="utf-8") in ("", seeds)}
    waiting = [job for name, job in lab.jobs.items() if name not in finished]
    running: dict[Future[float], Job] = {}
    failures: list[str] = []
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=start, max_tasks_per_child=20) as pool:
        while waiting or running:
            ready = [job for job in waiting if all(one.name in finished for one in job.needs)]
            for job in ready[: processes - len(running)]:
                waiting.remove(job)
                running[pool.submit(in_worker, job.name, job.work, logs / f"{job.name}.txt")] = job
            if not running:
                failures += [f"{job.name} was not run: {', '.join(one.name for one in job.needs)}" for job in waiting]
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                if (error := future.exception()) is not None:
                    failures.append(str(error))
                    continue
                finished.add(job.name)
                (done_marker / job.name).write_text(seeds, encoding="utf-8")  # with others the job goes on
                print(f"{len(finished)}/{len(lab.jobs)} {job.name}: {future.result():.0f} s", flush=True)
    return failures


# ---- what came out ----


def read(file: Path) -> Any:
    """A file of JSON."""
    return json.loads(file.read_text(encoding="utf-8"))


def scores_of(
    folder: Path, metric: str, variant: str | None = None, task: str | None = None, factor: float = 100.0
) -> dict[int, float]:
    """Seed -> score times `factor`, of a variant of a job, on the split that it reports; `task`: of a multi-task run.

    Variants beside those that are trained: `majority`, `teacher`, `linear` (with `--linear_baseline true`).
    """
    results = read(folder / "results.json")
    results = results["tasks"][task] if task is not None else results
    split = results.get("split", "scores")
    runs, linear = results["runs"], results.get("linear_baseline", [])
    wanted = (linear if variant == "linear" else runs)[0]["variant"] if variant in (None, "linear") else variant
    runs = [*runs, *linear]
    found = {run["seed"]: factor * run[split][metric] for run in runs if run["variant"] == wanted}
    if found:
        return found
    alone = results["majority"] if wanted == "majority" else results["summary"].get(wanted, {})
    if metric not in alone:
        raise SystemExit(f"{folder / 'results.json'} has no {wanted!r} with {metric!r}.")
    value = alone[metric]
    return {-1: factor * (value["mean"] if isinstance(value, Mapping) else value)}


def cell(scores: Mapping[int, float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds."""
    values = list(scores.values())
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def difference(first: Mapping[int, float], other: Mapping[int, float]) -> dict[str, float] | None:
    """The mean of paired differences with its 95 % interval, as the jobs tell it."""
    from hf_ptm_ext.cli.results import paired_differences

    runs = [
        {"variant": name, "seed": seed, "scores": {"score": value}}
        for name, scores in (("first", first), ("other", other))
        for seed, value in scores.items()
    ]
    return paired_differences(runs, "scores", ("score",)).get("other", {}).get("score")


def collect(lab: Lab, about: Mapping[str, Any], claim: str) -> dict[str, Any]:
    """The result of an experiment as it is published."""
    import torch
    import transformers

    import hf_ptm_ext

    scores = {place: find() for place, find in lab.arms.items()}
    columns = list(dict.fromkeys(column for column, _ in scores))
    rows = list(dict.fromkeys(row for _, row in scores))
    cells = {place: cell(found, about.get("digits", 1)) for place, found in scores.items()}
    table = [[row, *(cells.get((column, row), "") for column in columns)] for row in rows]
    differences = [
        {"column": column, "first": first, "other": other, **found}
        for first, other in lab.comparisons
        for column in columns
        if (column, first) in scores
        and (column, other) in scores
        and (found := difference(scores[column, first], scores[column, other])) is not None
    ]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    grids = {
        name: read(file)["grid"]
        for name, job in lab.jobs.items()
        if (file := job.folder / "results.json").is_file() and "grid" in read(file)
    }
    return {
        **about,
        "claim": claim,
        "header": [about.get("columns", ""), *columns],
        "rows": table,
        "differences": differences,
        "seeds": lab.seeds,
        "notes": {name: find() for name, find in lab.notes.items()},
        "chosen": {name: {variant: one["point"] for variant, one in found.items()} for name, found in grids.items()},
        "commands": {job.name: job.command for job in lab.jobs.values() if job.command},
        "scores": {f"{row} | {column}": found for (column, row), found in scores.items()},
        "model": lab.options.model_name or (lab.model.name if lab.model else None),
        "device": device,
        "versions": {
            "hf_ptm_ext": hf_ptm_ext.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }


def draw(lab: Lab, target: Path) -> None:
    """The experiment's figure, if it has one."""
    if lab.drawn is None:
        return
    from hf_ptm_ext.cli.tables import new_figure

    axis, place = lab.drawn
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for (column, row), find in lab.arms.items():
        with contextlib.suppress(KeyError):  # a baseline that has no such number
            (panel, line, at), values = place(column, row), list(find().values())
            spread = stdev(values) if len(values) > 1 else 0.0
            panels.setdefault(panel, {}).setdefault(line, []).append((at, mean(values), spread))
    figure = new_figure("The figure", 1 + 5 * len(panels), 4)
    for axes, (panel, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for line, points in lines.items():
            axes.errorbar(*zip(*sorted(points), strict=True), fmt="o-", capsize=3, label=line)
        axes.set(title=panel, xlabel=axis, ylabel="score", xscale="log")
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(target, dpi=120)


def modules() -> dict[str, Any]:
    """Id -> module of every experiment."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        if (name := path.stem) not in ("experiment", "weights"):
            module = importlib.import_module(name)
            found[module.ABOUT["id"]] = module
    return found


def write_page() -> None:
    """Note the experiments that were not run, and write the sections of all into the page of the documentation."""
    from hf_ptm_ext.evidence import experiments, section

    for name, module in modules().items():
        target = RESULTS / f"{name}.json"
        if not target.is_file() or read(target).get("verdict") == "not run":
            write(target, {**module.ABOUT, "claim": claim_of(module.__doc__), "verdict": "not run"})
    page = HERE.parents[1] / "docs/evidence.md"
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    sections = "\n".join(section(one) for one in experiments().values())
    page.write_text(f"{head}{BEGIN}\n\n{sections}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def claim_of(doc: str) -> str:
    """The first paragraph of a module's docstring."""
    return " ".join(doc.strip().split("\n\n")[0].split())


def write(target: Path, result: Mapping[str, Any]) -> None:
    """A file of JSON."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(plan: Callable[[Lab], None], about: Mapping[str, Any], doc: str) -> int:
    """The command line of an experiment.

    `about`: `id`, `title`, `paper`, `systems` (names of `hf-ptm-ext systems`), `metric` of the results, `columns`
    (what they are), `digits` behind the point (default 1), `set_up` (a sentence or two: data, sizes, budgets).
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--model", type=Path, help="folder of the base model (see weights.py)")
    parser.add_argument("--model_name", help="what the table calls it (default: the folder's name)")
    parser.add_argument("--model_zh", type=Path, help="folder of a Chinese model, where the experiment has one")
    parser.add_argument("--graph", type=Path, help="file of a further knowledge graph, where the experiment has one")
    parser.add_argument("--teacher", type=Path, help="folder of a larger model, where the experiment has one")
    parser.add_argument("--output", type=Path, required=True, help="folder of all runs; the same one goes on")
    parser.add_argument("--seeds", type=int, nargs="+", default=about.get("seeds", [0, 1, 2, 3, 4]))
    parser.add_argument("--processes", type=int, default=1, help="jobs side by side (default 1)")
    parser.add_argument("--scale", type=float, default=1.0, help="of pre-training updates (default 1)")
    parser.add_argument("--only", help="regular expression of the jobs that are run; no table is made")
    parser.add_argument("--list", action="store_true", help="print the commands, and run nothing")
    parser.add_argument("--smoke", action="store_true", help="two updates a job on the CPU: does it run?")
    parser.add_argument("--publish", action="store_true", help=f"write {HERE.name}/results/{about['id']}.json")
    options = parser.parse_args()
    if options.smoke and options.publish:
        parser.error("--smoke shows that it runs, no result: leave --publish out")
    options.metric = about["metric"]
    lab = Lab(
        options.data.resolve(),
        options.model and options.model.resolve(),
        (options.output / "smoke" if options.smoke else options.output).resolve(),
        options.seeds,
        options,
    )
    plan(lab)
    if options.list:
        print("\n".join(f"{job.name}: {job.command or 'prepares data'}" for job in lab.jobs.values()))
        return 0
    everything = lab.jobs
    if options.only:
        lab.jobs = {name: job for name, job in everything.items() if re.search(options.only, name)}
    start = time.perf_counter()
    failures = run_all(lab, options.processes)
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures or options.only:
        return int(bool(failures))
    result = collect(lab, about, claim_of(doc))
    result["seconds"] = round(time.perf_counter() - start)
    target = lab.output / f"{about['id']}.json"
    if options.publish:
        target = RESULTS / target.name
        if target.is_file():  # what a person has written about it
            result |= {name: value for name, value in read(target).items() if name in WRITTEN}
    if lab.drawn is not None:
        result["figure"] = f"evidence_{about['id']}.png"
        draw(lab, (HERE.parents[1] / "docs" if options.publish else lab.output) / result["figure"])
    write(target, result)
    from hf_ptm_ext.evidence import section

    print(section(result))
    return 0


if __name__ == "__main__":
    write_page()
