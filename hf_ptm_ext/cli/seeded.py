"""The jobs by seeds: train with a baseline beside, and write one folder with model, scores and a card's evidence.

Each seed trains the first variant (say, with knowledge) and every other one (without) from the same weights on the
same rows. A finished run leaves its scores in the folder's `_runs`, an unfinished one its checkpoints, so that the
same command with `--resume_from_checkpoint auto` goes on where it stopped, and more seeds can be added later.
"""

import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import Any, ClassVar

from accelerate import PartialState
from transformers import set_seed

from ..data.bad_rows import BadRows
from ..files import read_json
from ..hub.model_card import check_card_fields
from ..trainers import ResumableTrainer, check_hub, checkpoints, last_complete_checkpoint, push_folder
from ..trainers.manifest import JOB_FILE
from ..trainers.pushes import NEVER_PUSHED
from ..trainers.stopping import NotFinite
from .arguments import check_best
from .checkpoint_names import check_names
from .console import headline, phase
from .curves import CURVE, draw_curves, losses_of
from .evaluation import VALIDATION, Splits
from .loading import check_positions
from .recipes import write_recipe
from .results import print_results, trained, write_results
from .runs import (
    RUNS,
    begin_folder,
    configure_logging,
    has_work,
    is_first_process,
    own_folder,
    refuse_others,
    save_trained,
    write_json,
)
from .signature import digest_of, refuse_changes, signature_of
from .tasks import read_splits
from .training_summary import TrainingSummary

logger = logging.getLogger(__name__)

# Each run of a job has its own.
OF_A_RUN = ("seed", "data_seed")
CHOOSING = 2  # seeds by which a point of the grid is chosen


class SeededJob(ABC):
    """A job by seeds; a subclass says what it reads, what a run trains, how it is scored and what is written.

    Args:
        groups: its dataclasses of arguments, those of training last.

    Its attributes, of a subclass or set by `prepare`: `variants`, the first of which is kept while the others are
    baselines; `evaluated`, splits that are predicted after training; `repositories`, that are pushed to;
    `why_attention`, what is said of the attention path.
    """

    variants: Sequence[str]
    evaluated: Sequence[str]
    why_attention = "rows are not packed"
    choosing = False  # while points of the grid are tried, of which nothing is kept

    def __init__(self, *groups: Any):
        self.groups, self.training_args = groups, groups[-1]
        self.output = Path(self.training_args.output_dir)
        self.repositories = [self.training_args.hub_model_id]

    def run(self) -> dict[str, Any]:
        """Train and measure by seeds; save the first seed's model, its predictions, its card and all results."""
        with own_folder(self.output):
            configure_logging(self.training_args)
            self.prepare()
            runs = self.run_seeds()
            results = self.results(runs)
            if self.training_args.grid:
                results["grid"] = self.chosen
                self.training_args = self.at_best(self.variants[0])
            if is_first_process():
                write_recipe(self.output, self.training_args)
                for folder, drawn in self.drawn(runs).items():
                    draw_curves(folder / CURVE, drawn)
            self.finish(results)
        return results

    @abstractmethod
    def prepare(self) -> None:
        """Read the data, and refuse what does not fit before anything is trained."""

    @abstractmethod
    def signature(self) -> dict[str, Any]:
        """Everything that decides what the runs do, the Trainer's arguments aside."""

    @abstractmethod
    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        """The Trainer of a run and what is saved beside its model; the random state is set before."""

    def train_and_score(self, trainer: Any, variant: str, checkpoint: str | None) -> dict[str, Any]:
        """Train, and score each of `evaluated`."""
        with phase("training"):
            trainer.train(resume_from_checkpoint=checkpoint)
        return {split: self.score(trainer, variant, split) for split in self.evaluated}

    def score(self, trainer: Any, variant: str, split: str) -> dict[str, float]:
        """Predict a split, and score it if it has labels."""
        return {}

    def save(self, trainer: Any, processor: Any) -> None:
        """Save what the first run has trained."""
        save_trained(self.output, trainer, processor)

    @abstractmethod
    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says."""

    def drawn(self, runs: Sequence[dict[str, Any]]) -> dict[Path, Sequence[dict[str, Any]]]:
        """Folder -> the runs whose curves are drawn there."""
        return {self.output: runs}

    @abstractmethod
    def finish(self, results: dict[str, Any]) -> None:
        """Write results and cards, print them, push them if asked."""

    def is_kept(self, trainer: Any, variant: str) -> bool:
        """Whether a run is the one whose model and predictions are kept."""
        return not self.choosing and (variant, trainer.args.seed) == (self.variants[0], self.training_args.seeds[0])

    @abstractmethod
    def merit(self, run: dict[str, Any], variant: str) -> float:
        """How good a run of the grid is, by the validation data."""

    def at(self, point: dict[str, Any], variant: str) -> Any:
        """The arguments of training at a point of the grid."""
        args = copy(self.training_args)
        for name, value in point.items():
            setattr(args, name, value)
        return args

    def at_best(self, variant: str) -> Any:
        """The arguments of training at the point of the grid that a variant has chosen."""
        return self.at(self.chosen.get(variant, {"point": {}})["point"], variant)

    def run_seeds(self) -> list[dict[str, Any]]:
        """Run every seed and variant that is not finished, and save the first one's model."""
        args = self.training_args
        _ = args.device  # joins the other processes
        if is_first_process():
            training = {name: value for name, value in signature_of(args).items() if name not in OF_A_RUN}
            with phase("reading what decides the result"):
                decides = {"variants": list(self.variants), **self.signature(), **training}
            decides["first_seed"] = args.seeds[0]  # whose model the folder holds
            prepare_folder(self.output, args, decides)
            for name in self.repositories:
                asked = copy(args)
                asked.hub_model_id = name
                check_hub(asked)
        PartialState().wait_for_everyone()  # no process may take records that the first one puts aside
        self.chosen = {variant: self._choose(variant) for variant in self.variants} if args.grid else {}
        runs = [(seed, variant) for seed in args.seeds for variant in self.variants]
        results = []
        for number, (seed, variant) in enumerate(runs, start=1):
            headline("[%d/%d] seed %d, %s", number, len(runs), seed, variant)
            results.append(self._run(seed, variant, self.chosen[variant]["point"] if args.grid else {}))
        return results

    def _choose(self, variant: str) -> dict[str, Any]:
        """The point of the grid whose runs are best on the validation data, and how good each one was."""
        args, tried = self.training_args, []
        self.choosing = True
        for point in args.points:
            told = ", ".join(f"{name} {value:g}" for name, value in point.items())
            merits = []
            for seed in args.seeds[:CHOOSING]:
                headline("grid, seed %d, %s: %s", seed, variant, told)
                try:
                    merits.append(self.merit(self._run(seed, variant, point), variant))
                except NotFinite as error:  # of this point alone
                    logger.warning("%s is not chosen: %s", told, error)
                    merits.append(nan)
            tried.append({**point, "merit": sum(merits) / len(merits)})
        self.choosing = False
        # Of one that gave NaN nothing is known.
        best = max(range(len(tried)), key=lambda place: (not isnan(tried[place]["merit"]), tried[place]["merit"]))
        return {"point": args.points[best], "tried": tried}

    def _run(self, seed: int, variant: str, point: dict[str, Any]) -> dict[str, Any]:
        """One run, from its newest complete checkpoint if it has one, or the record of a finished one."""
        args, place = self.training_args, self.variants.index(variant)
        kept = not self.choosing and (place, seed) == (0, args.seeds[0])
        name, told = f"seed{seed}_{place}", "".join(f"_{option}{value}" for option, value in point.items())
        folder = self.output / RUNS / f"{name}{told}"
        # What the grid has run at the chosen point is not run again, but for the model that is kept.
        record = self.output / RUNS / (f"{name}.json" if kept else f"{name}{told}.json")
        if record.is_file():
            run = read_json(record)
            if run.pop("point", point) == point:  # with more seeds another one may be chosen
                logger.info("finished before")
                return run
        run_args = self.at(point, variant)
        run_args.seed = run_args.data_seed = seed
        run_args.output_dir = str(folder)
        run_args.push_to_hub = False  # the folder with the evidence is pushed, not a run
        set_seed(seed)
        trainer, processor = self.build(variant, run_args)
        trainer.add_callback(TrainingSummary(trainer, self.why_attention))
        checkpoint = last_complete_checkpoint(folder)
        found = self.train_and_score(trainer, variant, None if checkpoint is None else str(checkpoint))
        self.state = trainer.state  # by which `errors.told` knows that something has been trained
        run = {"seed": seed, "variant": variant, "history": losses_of(trainer), **trained(trainer), **found}
        scores = (f"{name} {value:.4g}" for name, value in run[self.evaluated[-1]].items())
        logger.info("seed %d, %s: %s", seed, variant, ", ".join(scores))
        if self.is_kept(trainer, variant):
            with phase("saving"):
                self.save(trainer, processor)
        if trainer.is_world_process_zero():
            write_json(record, {**run, "point": point})
            shutil.rmtree(folder, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        trainer.accelerator.free_memory()
        return run


class TaskJob(SeededJob):
    """A job by seeds on one task: the sequence from the data to the card, with what a method says in between.

    Its attributes: `own_rows`, whether each variant has rows of its own; `positions_of`, the arguments that name
    models which rows must fit; `card`, more of the model card.
    """

    own_rows: ClassVar[bool] = False
    task: Any
    tokenizer: Any

    def __init__(self, model_args: Any, data_args: Any, *others: Any):
        super().__init__(model_args, data_args, *others)
        self.model_args, self.data_args = model_args, data_args

    # ---- what a method says ----

    def check_models(self) -> None:
        """Refuse names of models that are none, and rows that they cannot take."""
        check_names(self.model_args)
        check_positions(self.model_args.model_name_or_path, self.data_args, **self.model_args.source)

    def read(self) -> tuple[dict[str, list[Any]], Any]:
        """The examples of each split, and the task that they set."""
        return read_splits(self.data_args.task, self.data_args)

    @abstractmethod
    def load(self, task: Any) -> Any:
        """The task with its labels in the order of the checkpoint, whose config is read."""

    def look(self) -> None:
        """Look at the examples before they are trained on."""

    def encode(self, examples: Sequence[Any], variant: str = "") -> Any:
        """Examples as model inputs."""
        return self.task.encode(examples, self.tokenizer, self.data_args.max_seq_length)

    @abstractmethod
    def model(self, variant: str, args: Any) -> Any:
        """What a run trains."""

    def trainer(self, model: Any, variant: str, args: Any) -> Any:
        """The Trainer of a run."""
        return self.plain_trainer(model, variant, args)

    def introduction(self) -> str:
        """The first sentence of the card."""
        return f"Fine-tuned for {self.task.kind}."

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        """What the card says beside the task: `training` and `data`, and other arguments of its writer."""
        return {"training": {}, "base_model": self.model_args.model_name_or_path, "template": self.task.template}

    def print(self, results: dict[str, Any]) -> None:
        """Print the scores."""
        print_results(results, self.task.shown, self.output)

    # ---- the sequence ----

    def prepare(self) -> None:
        self.check_models()
        with BadRows(self.data_args.on_bad_rows) as bad, phase("reading the data"):
            examples, task = self.read()
        licence = self.model_args.license or "unknown"
        check_card_fields(self.data_args.language, licence, pipeline_tag=task.pipeline_tag)
        self.task = self.load(task)
        with phase("comparing the splits"):
            self.splits = Splits(self.task, examples, self.encode, self.data_args, bad)
        self.evaluated = self.splits.evaluated
        if self.training_args.grid and VALIDATION not in self.splits.scored:
            raise ValueError(
                f"`grid` = {self.training_args.grid} chooses by labelled validation data: name a `validation_file`."
            )
        check_best(self.training_args, self.splits.produced())
        self.look()

    def signature(self) -> dict[str, Any]:
        """The arguments, and the examples by content."""
        return signature_of(*self.groups[:-1], data=digest_of(self.splits.examples))

    def rows_of(self, variant: str) -> tuple[str, ...]:
        """What `Splits` is told of a variant."""
        return (variant,) if self.own_rows else ()

    def trainer_options(self, variant: str, args: Any) -> dict[str, Any]:
        """What every Trainer of the job is given."""
        return self.splits.trainer_options(args, self.tokenizer, *self.rows_of(variant))

    def plain_trainer(self, model: Any, variant: str, args: Any, cls: Any = ResumableTrainer, **more: Any) -> Any:
        """A Trainer with the loss of the task."""
        loss = self.task.loss and partial(self.task.loss, label_smoothing=args.label_smoothing_factor)
        return cls(model=model, compute_loss_func=loss, **more, **self.trainer_options(variant, args))

    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        return self.trainer(self.model(variant, args), variant, args), self.task.saved(self.tokenizer)

    def merit(self, run: dict[str, Any], variant: str) -> float:
        return run[VALIDATION][self.task.shown[0]]

    def score(self, trainer: Any, variant: str, split: str) -> dict[str, float]:
        folder = self.output if self.is_kept(trainer, variant) else None
        return self.splits.score(trainer, split, folder, *self.rows_of(variant))

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return self.splits.results(runs)

    def finish(self, results: dict[str, Any]) -> None:
        """Write the results and the card, print the scores, push the folder if asked."""
        write_results(
            self.output,
            results,
            self.splits,
            self.training_args,
            self.introduction(),
            license=self.model_args.license or "unknown",
            **self.card(results),
        )
        if self.training_args.process_index == 0:
            self.print(results)
        push_results(self.output, self.training_args)


def prepare_folder(output: Path, args: Any, signature: dict[str, Any]) -> None:
    """Note what decides the result, or check that the folder's runs belong to this job."""
    job_file = output / RUNS / JOB_FILE
    anew = False
    if args.resume_from_checkpoint is not None and job_file.is_file() and has_work(output / RUNS):
        refuse_changes(output, read_json(job_file), signature, args.accept_changes)
    else:
        refuse_others(output, args)
        for folder in checkpoints(output):  # of a run without `seeds`
            shutil.rmtree(folder)
        anew = True
    begin_folder(output, args, anew)
    write_json(job_file, signature)


def push_results(output: Path, args: Any) -> None:
    """Push a finished folder as one commit, if asked."""
    if args.push_to_hub and args.process_index == 0:
        with phase("pushing"):
            push_folder(output, args, "Fine-tuned by seeds with hf-ptm-ext", [*NEVER_PUSHED, "*/_*"])
