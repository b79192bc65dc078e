"""`hf-ptm-ext distill`: a student from a fine-tuned teacher, by seeds, beside it and the same student alone."""

import logging
import shutil
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..distillation import DistillationTrainer, TheseusTrainer
from ..files import read_json
from ..hub.model_card import hub_id_of
from ..trainers import ResumableTrainer, last_complete_checkpoint
from ..trainers.auxiliary import PROJECTIONS_FILE, load_beside
from .checkpoint_names import check_name
from .console import headline, phase
from .curves import losses_of
from .distill_arguments import THESEUS, parse, reads_predictions, stage_arguments
from .distill_models import COSTS, Pair, costs
from .distill_rows import variants_of
from .evaluation import TRAIN, overlaps
from .loading import check_positions
from .results import print_results
from .runs import RUNS, save_trained, write_json
from .seeded import TaskJob
from .signature import digest_of, digest_of_files
from .tasks.base import IGNORED
from .training_summary import TrainingSummary

logger = logging.getLogger(__name__)

DISTILLED, ALONE, TEACHER = "distilled", "without the teacher", "teacher"
FINISHED = "finished.json"


def run(arguments: list[str]) -> int:
    """Run the job."""
    Distill(*parse(arguments)).run()
    return 0


class Distill(TaskJob):
    """Distillation in stages, beside the same student without a teacher."""

    def __init__(self, *groups: Any):
        super().__init__(*groups)
        self.stages = self.training_args.stages
        self._augmented: dict[int | None, list[dict[str, Any]]] = {}
        self.variants = (DISTILLED, ALONE) if self.training_args.baseline else (DISTILLED,)

    def check_models(self) -> None:
        """Refuse rows that a teacher or the student cannot take."""
        for name in self.model_args.teacher_name_or_path:
            check_positions(name, self.data_args, argument="teacher_name_or_path", **self.model_args.source)
        args = self.model_args
        named = {"student_name_or_path": args.student_name_or_path, "baseline_init": args.baseline_checkpoint}
        for argument, name in named.items():
            if name is not None:
                check_name(argument, name)
                check_positions(name, self.data_args, argument=argument, trust_remote_code=args.trust_remote_code)

    def load(self, task: Any) -> Any:
        """The task with its labels in the order of the first teacher."""
        self.pair = Pair(task, self.model_args, reads_predictions(self.training_args))
        return self.pair.task

    def look(self) -> None:
        """Make the student without a teacher once, lest a mistake in its checkpoint be told after hours."""
        if self.model_args.baseline_checkpoint is not None:
            self.pair.check_baseline(self.training_args.seeds[0])

    @property
    def tokenizer(self) -> Any:
        """The first teacher's."""
        return self.pair.tokenizer

    def signature(self) -> dict[str, Any]:
        more = {"stages": self.stages, "baseline_epochs": self.training_args.baseline_epochs}
        return super().signature() | more | (digest_of({"unlabelled": self.unlabelled}) if self.unlabelled else {})

    def model(self, variant: str, args: Any) -> Any:
        """A student as it is before training."""
        return self.pair.student(args.seed) if variant == DISTILLED else self.pair.baseline(args.seed)

    def trainer_options(self, variant: str, args: Any) -> dict[str, Any]:
        if self.pair.headless:
            args.teacher_check_rows = 0
        given = super().trainer_options(variant, args)
        if variant == DISTILLED:
            more = self.augmented(args.seed) if self.data_args.augment else []
            given["train_dataset"] = [*given["train_dataset"], *self.unlabelled, *more]
        return given

    @cached_property
    def unlabelled(self) -> list[dict[str, Any]]:
        """Rows without labels, which the teacher alone tells something of; none that are evaluated."""
        data = self.data_args
        if not data.unlabelled_file:
            return []
        with phase("reading the rows without labels"):
            found = self.task.prepare(list(type(self.task).read(data, data.unlabelled_file, None, unlabelled=True)))
            kept = self._not_among(found, self.evaluated)
        if len(kept) < len(found):
            logger.warning(
                "%d of %d rows of `unlabelled_file` are evaluation rows too, and are left out.",
                len(found) - len(kept),
                len(found),
            )
        if not kept:
            raise ValueError(f"`unlabelled_file` = {data.unlabelled_file} has no row beside those that are evaluated.")
        self.splits.notes["unlabelled"] = {"rows": len(kept), "left_out": len(found) - len(kept)}
        return self._without_labels(kept)

    def augmented(self, seed: int) -> list[dict[str, Any]]:
        """Variants of a seed's training rows that are no row of the data; one draw for all seeds of the same rows."""
        chosen, train = self.splits.sample(seed), self.splits.examples[TRAIN]
        key = None if chosen is None else seed
        if key not in self._augmented:
            with phase("making variants of the training rows"):
                rows = train if chosen is None else [train[place] for place in chosen]
                made = variants_of(rows, self.data_args, self.tokenizer, key or 0, self.training_args.device)
                kept = self._not_among(made, (TRAIN, *self.evaluated))
            self.splits.notes["augmented"] = {"rows": len(kept)}
            self._augmented[key] = self._without_labels(kept)
        return self._augmented[key]

    def _not_among(self, found: list[Any], splits: Sequence[str]) -> list[Any]:
        """The examples that are not in some splits."""
        known = [self.task.text_of(one) for split in splits for one in self.splits.examples[split]]
        there = overlaps(known, [self.task.text_of(one) for one in found])
        return [one for one, out in zip(found, there, strict=True) if not out]

    def _without_labels(self, examples: list[Any]) -> list[dict[str, Any]]:
        """Examples as rows that terms on the labels pass over."""
        rows = self.encode(examples).inputs if examples else []
        hidden = (IGNORED if self.task.name == "classification" else [IGNORED] * len(row["input_ids"]) for row in rows)
        return [{**row, "labels": label} for row, label in zip(rows, hidden, strict=True)]

    def at(self, point: dict[str, Any], variant: str) -> Any:
        """Of the student alone its own options; of the distilled one those of all stages."""
        args = super().at(point, variant)
        if variant == ALONE:
            args.baseline_learning_rate = point.get("learning_rate", args.baseline_learning_rate)
            args.baseline_epochs = point.get("num_train_epochs", args.baseline_epochs)
        return args

    def trainer(self, model: Any, variant: str, args: Any) -> Any:
        """The Trainer of the last stage behind the others, or of the student alone."""
        if variant == DISTILLED:
            return self._last_stage(model, args)
        alone = copy(args)
        alone.num_train_epochs, alone.learning_rate = args.epochs_alone(), args.baseline_learning_rate
        return self.plain_trainer(model, variant, alone)

    def _last_stage(self, student: Any, args: Any) -> Any:
        """Run all stages but the last, and give its Trainer."""
        *earlier, (name, options) = self.stages.items()
        made, history = 0, list[Any]()
        for name_of, its in earlier:
            student, made, history = self._stage(name_of, its, args, student, made, history)
        set_seed(args.seed)
        stage_args = stage_arguments(args, options, args.output_dir, last=True)
        headline("stage %s", name)
        given = self.trainer_options(DISTILLED, stage_args)
        if options.get("preset") == THESEUS:
            predecessor = self.pair.teacher(self.model_args.teacher_name_or_path[0])
            return TheseusTrainer(predecessor, successor=student, **given)
        trainer = self._distillation(student, given, args, name)
        trainer.updates_before, trainer.history_before = made, history
        return trainer

    def _distillation(self, student: Any, given: dict[str, Any], args: Any, stage: str) -> Any:
        """A stage's Trainer; its projections go on from those before it, where they fit."""
        trainer: Any = DistillationTrainer(student, self.pair.teachers, **given)
        if trainer.args.projections_from is None:
            for name in self._projections(args.output_dir, stage):
                if load_beside(trainer.wrapper, name, file_name=PROJECTIONS_FILE):
                    logger.info("The projections go on from those of %s.", name)
                    break
        return trainer

    def _projections(self, folder: str, stage: str | None = None) -> list[str]:
        """Where projections may lie that the stages before one leave, all if none is named; the last first."""
        names = list(self.stages)
        names = names if stage is None else names[: names.index(stage)]
        origin = self.model_args.student_name_or_path
        return [*(str(Path(folder) / f"stage-{name}") for name in reversed(names)), *([origin] if origin else [])]

    def save(self, trainer: Any, processor: Any) -> None:
        """Save the student and, beside it, the projections that its last stage with any has trained."""

        def also(folder: Path) -> None:
            files = (Path(name) / PROJECTIONS_FILE for name in self._projections(trainer.args.output_dir))
            found = next(filter(Path.is_file, [folder / PROJECTIONS_FILE, *files]), None)
            if found is not None and found.parent != folder:
                shutil.copyfile(found, folder / PROJECTIONS_FILE)

        save_trained(self.output, trainer, processor, also=also)

    def _stage(
        self, name: str, options: dict[str, Any], args: Any, student: Any, made: int, history: list[Any]
    ) -> tuple[Any, int, list[Any]]:
        """Run a stage that is not the last, or read what a finished one made.

        Gives the student, and the updates and the losses so far, with those `made` before.
        """
        from safetensors.torch import load_model

        folder = Path(args.output_dir) / f"stage-{name}"
        finished, weights = folder / FINISHED, folder / "model.safetensors"
        if finished.is_file():
            found = read_json(finished)
            if weights.is_file() and found.get("weights") == digest_of_files([weights]):
                load_model(student, str(weights))
                return student, made + int(found.get("updates", 0)), found.get("history", history)
            logger.warning("%s is not what stage %s wrote: the stage is run again.", weights, name)
        set_seed(args.seed)
        headline("stage %s", name)
        stage_args = stage_arguments(args, options, str(folder), last=False)
        trainer = self._distillation(student, self.trainer_options(DISTILLED, stage_args), args, name)
        trainer.updates_before, trainer.history_before = made, history
        trainer.add_callback(TrainingSummary(trainer, self.why_attention))
        checkpoint = last_complete_checkpoint(folder)
        with phase(f"stage {name}"):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        trainer.save_model(str(folder))
        updates, history = trainer.state.global_step, losses_of(trainer)
        if trainer.is_world_process_zero():
            told = {"stage": name, "weights": digest_of_files([weights]), "updates": updates, "history": history}
            write_json(finished, told)
        trainer.accelerator.wait_for_everyone()
        trainer.wrapper.close()
        trainer.accelerator.free_memory()
        if trainer.is_fsdp_enabled:  # this one stays sharded
            student = self.pair.student(args.seed)
            load_model(student, str(weights))
        return student.to("cpu"), made + updates, history

    @property
    def measured(self) -> str:
        """The split on which speed is measured."""
        return self.splits.reported or self.evaluated[-1]

    def score(self, trainer: Any, variant: str, split: str) -> dict[str, float]:
        """Scores, and on the reported data `COSTS`."""
        scores = super().score(trainer, variant, split)
        if split != self.measured:
            return scores
        if isinstance(trainer, DistillationTrainer):
            trainer.wrapper.close()  # with hooks on it a model is slower than the one that is saved
        # What is sharded is slower than what is saved.
        model = trainer.saved_model
        if trainer.is_fsdp_enabled:
            model = self.pair.student(trainer.args.seed).to(trainer.args.device)
        return {**scores, **self._costs(model)}

    def _costs(self, model: Any) -> dict[str, float]:
        with phase("measuring the speed"):
            return costs(model, self.splits.rows(self.measured).inputs, self.task.collator(self.tokenizer))

    def results(self, runs: Any) -> dict[str, Any]:
        """What `results.json` says, the first teacher among the variants if its head is trained."""
        found, teacher = super().results(runs), self.pair.teachers[0]
        spent = self._costs(teacher)
        found["teacher_costs"] = {name: spent[name] for name in COSTS}
        if not self.pair.headless:
            options, folder = {"objectives": {"labels": 1.0}}, self.output / RUNS / "teacher"
            args = stage_arguments(self.training_args, options, str(folder), last=False)
            args.push_to_hub = False  # a teacher is only scored
            trainer = ResumableTrainer(model=teacher, **self.trainer_options(TEACHER, args))
            scores = {**self.splits.score(trainer, self.measured, None), **spent}
            found["summary"][TEACHER] = {name: {"mean": value} for name, value in scores.items()}
        return found

    def introduction(self) -> str:
        teachers = [hub_id_of(name) or Path(name).name for name in self.model_args.teacher_name_or_path]
        return f"A student for {self.task.kind}, distilled from {', '.join(teachers)}."

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        stages = {
            f"stage {name}": ", ".join(f"{option} {value}" for option, value in options.items())
            for name, options in self.stages.items()
        }
        if self.training_args.baseline:
            stages["passes over the data without the teacher"] = f"{self.at_best(ALONE).epochs_alone():g}"
            start = self.model_args.baseline_init
            stages["start of the student without the teacher"] = hub_id_of(start) or Path(start).name
        spent = {
            f"size and speed, {row[0]}": f"{row[1]} parameters, {row[4]} of the teacher's rows a second"
            for row in cost_rows(results)
        }
        base = self.model_args.student_name_or_path or self.model_args.teacher_name_or_path[0]
        training = {"training": {**stages, **spent}, "template": self.task.template}
        return {**training, "base_model": base, "page": "how-to/distil"}

    def print(self, results: dict[str, Any]) -> None:
        """Print the scores, sizes and speeds."""
        names = ("parameters", "to the teacher's", "rows a second", "to the teacher's")
        print_results(results, self.task.shown, self.output, costs=(names, cost_rows(results)))


def cost_rows(results: dict[str, Any]) -> list[list[str]]:
    """Size and speed of each variant, means over seeds, beside the teacher's."""
    summaries = {variant: scores for variant, scores in results["summary"].items() if COSTS[0] in scores}
    means = {variant: [scores[name]["mean"] for name in COSTS] for variant, scores in summaries.items()}
    of_teacher = means[TEACHER] = [results["teacher_costs"][name] for name in COSTS]
    return [
        [
            variant,
            f"{size:,.0f}",
            f"{size / of_teacher[0]:.2f}",
            f"{speed:,.0f}",
            f"{speed / of_teacher[1]:.2f}",
        ]
        for variant, (size, speed) in means.items()
    ]
