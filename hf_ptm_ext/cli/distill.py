"""`hf-ptm-ext distill`: a student from a fine-tuned teacher, by seeds, beside it and the same student alone."""

import logging
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..data.bad_rows import BadRows
from ..distillation import DistillationTrainer, TheseusTrainer
from ..files import read_json
from ..hub.model_card import check_card_fields
from ..trainers import ResumableTrainer, last_complete_checkpoint
from .distill_arguments import THESEUS, DistillArguments, StudentArguments, parse, reads_predictions, stage_arguments
from .distill_models import Pair, costs
from .evaluation import Splits
from .finetune_arguments import TaskDataArguments, data_name
from .finetune_tasks import read_splits
from .loading import check_positions
from .masked_lm_task import MaskedLMTask, read_texts
from .runs import configure_logging, in_its_folder, write_json
from .seeded_runs import (
    SeededJob,
    print_results,
    push_results,
    run_seeds,
    write_results,
)
from .signature import digest_of, digest_of_files, signature_of
from .tables import text_table

logger = logging.getLogger(__name__)

DISTILLED, ALONE, TEACHER = "distilled", "without the teacher", "teacher"
COSTS = ("parameters", "rows_per_second")
FINISHED = "finished.json"


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `distill`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    distill(*parse(arguments))
    return 0


@in_its_folder
def distill(
    student_args: StudentArguments, data_args: TaskDataArguments, training_args: DistillArguments
) -> dict[str, Any]:
    """Distil and measure by seeds; save the first seed's student, its predictions, its card and all results.

    Args:
        student_args: teachers and student, see `distill_arguments` for all three.
        data_args: the task and its data.
        training_args: the stages and how they are trained.

    Returns:
        `runs` (one entry a seed and variant), `summary` (variant, the teacher among them -> metric -> mean and
        standard deviation, `COSTS` among the metrics), `majority` and `labels`.

    Raises:
        ValueError: data, teacher and stages do not fit each other, or the output folder has files.
    """
    source = {"revision": student_args.teacher_revision, "trust_remote_code": student_args.trust_remote_code}
    for name in student_args.teacher_name_or_path:
        check_positions(name, data_args, argument="teacher_name_or_path", **source)
    if student_args.student_name_or_path is not None:
        check_positions(student_args.student_name_or_path, data_args, argument="student_name_or_path")
    reader = read_texts if data_args.task == MaskedLMTask.name else read_splits
    with BadRows(data_args.on_bad_rows) as bad:
        examples, task = reader(data_args)
    check_card_fields(data_args.language, student_args.license or "unknown", pipeline_tag=task.pipeline_tag)
    configure_logging(training_args)
    pair = Pair(task, student_args, reads_predictions(training_args))
    task = pair.task
    splits = Splits(
        task,
        examples,
        lambda found: task.encode(found, pair.tokenizer, data_args.max_seq_length),
        data_args,
        bad,
    )

    def common(args: Any) -> dict[str, Any]:
        """What every Trainer of the job is given."""
        if pair.headless:
            args.teacher_check_rows = 0
        return splits.trainer_options(args, pair.tokenizer)

    def staged(args: DistillArguments) -> Any:
        """Run all stages but the last, and give its Trainer."""
        student = pair.student(args.seed)
        *earlier, (name, options) = training_args.stages.items()
        made = sum(_stage(name_of, its, args, student, pair, common) for name_of, its in earlier)
        set_seed(args.seed)
        stage_args = stage_arguments(args, options, args.output_dir, last=True)
        logger.info("stage %s", name)
        if options.get("preset") == THESEUS:
            predecessor = pair._teacher(student_args.teacher_name_or_path[0])
            return TheseusTrainer(predecessor, successor=student, **common(stage_args))
        trainer = DistillationTrainer(student, pair.teachers, **common(stage_args))
        trainer.updates_before = made
        return trainer

    def build(variant: str, args: DistillArguments) -> tuple[Any, Any]:
        if variant == DISTILLED:
            return staged(args), task.saved(pair.tokenizer)
        alone = copy(args)
        alone.num_train_epochs, alone.learning_rate = epochs_alone(training_args), args.baseline_learning_rate
        loss = partial(task.loss, label_smoothing=args.label_smoothing_factor)
        return (
            ResumableTrainer(model=pair.student(args.seed), compute_loss_func=loss, **common(alone)),
            task.saved(pair.tokenizer),
        )

    def score(trainer: Any, variant: str, split: str) -> dict[str, float]:
        kept = (variant, trainer.args.seed) == (DISTILLED, training_args.seeds[0])
        scores = splits.score(trainer, split, Path(training_args.output_dir) if kept else None)
        if split != (splits.reported or splits.evaluated[-1]):
            return scores
        if isinstance(trainer, DistillationTrainer):
            trainer.wrapper.close()  # with hooks on it a model is slower than the one that is saved
        return {**scores, **costs(trainer.saved_model, splits.rows(split).inputs, task.collator(pair.tokenizer))}

    options = signature_of(student_args, data_args, data=digest_of(splits.examples))
    options |= {"stages": training_args.stages, "baseline_epochs": training_args.baseline_epochs}
    variants = (DISTILLED, ALONE) if training_args.baseline else (DISTILLED,)
    job = SeededJob(variants, splits.evaluated, build, score, options, produced=splits.produced())
    results = splits.results(run_seeds(job, training_args))
    of_teacher = teacher_scores(pair, common, training_args, splits)
    results["teacher_costs"] = {name: of_teacher[name] for name in COSTS}
    if not pair.headless:
        results["summary"][TEACHER] = {name: {"mean": value} for name, value in of_teacher.items()}
    finish(task, student_args, data_args, training_args, splits, results)
    if training_args.process_index == 0:
        print_results(results, task.shown, Path(training_args.output_dir))
        header = ["", "parameters", "to the teacher's", "rows a second", "to the teacher's"]
        print(text_table(header, cost_rows(results)))
    push_results(Path(training_args.output_dir), training_args)
    return results


def _stage(name: str, options: dict[str, Any], args: Any, student: Any, pair: Pair, common: Any) -> int:
    """Run a stage that is not the last, or read what it made if it is finished; the student is changed in place.

    Returns:
        Its updates.
    """
    from safetensors.torch import load_model

    folder = Path(args.output_dir) / f"stage-{name}"
    finished = folder / FINISHED
    weights = folder / "model.safetensors"
    if finished.is_file():
        if weights.is_file() and read_json(finished).get("weights") == digest_of_files([weights]):
            load_model(student, str(weights))
            return int(read_json(finished).get("updates", 0))
        logger.warning("%s is not what stage %s wrote: the stage is run again.", weights, name)
    set_seed(args.seed)
    logger.info("stage %s", name)
    trainer = DistillationTrainer(
        student, pair.teachers, **common(stage_arguments(args, options, str(folder), last=False))
    )
    checkpoint = last_complete_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    trainer.save_model(str(folder))
    if trainer.is_world_process_zero():
        updates = trainer.state.global_step
        write_json(finished, {"stage": name, "weights": digest_of_files([weights]), "updates": updates})
    trainer.accelerator.wait_for_everyone()
    trainer.wrapper.close()
    trainer.accelerator.free_memory()
    student.to("cpu")
    return trainer.state.global_step


def epochs_alone(args: DistillArguments) -> float:
    """Passes over the data of the student without a teacher: as told, or those of all stages together.

    Args:
        args: has the stages.
    """
    if args.baseline_epochs is not None:
        return args.baseline_epochs
    return sum(float(stage.get("num_train_epochs", args.num_train_epochs)) for stage in args.stages.values())


def teacher_scores(pair: Pair, common: Any, args: DistillArguments, splits: Splits) -> dict[str, float]:
    """Scores of the first teacher on the data that is reported, if its head is trained, and its `COSTS`."""
    split = splits.reported or splits.evaluated[-1]
    spent = costs(pair.teachers[0], splits.rows(split).inputs, splits.task.collator(pair.tokenizer))
    if pair.headless:
        return spent
    arguments = stage_arguments(args, {"objectives": {"labels": 1.0}}, f"{args.output_dir}/_runs/teacher", last=False)
    arguments.push_to_hub = False  # a teacher is only scored
    trainer = ResumableTrainer(model=pair.teachers[0], **common(arguments))
    return {**splits.score(trainer, split, None), **spent}


def cost_rows(results: dict[str, Any]) -> list[list[str]]:
    """Size and speed of each variant, means over seeds, beside the teacher's.

    Args:
        results: with `summary` and `teacher_costs`.

    Returns:
        Rows of text.
    """
    means = {variant: [scores[name]["mean"] for name in COSTS] for variant, scores in results["summary"].items()}
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


def finish(
    task: Any,
    student_args: StudentArguments,
    data_args: TaskDataArguments,
    training_args: DistillArguments,
    splits: Splits,
    results: dict[str, Any],
) -> None:
    """Write the results and the student's card."""
    stages = {
        f"stage {name}": ", ".join(f"{option} {value}" for option, value in options.items())
        for name, options in training_args.stages.items()
    }
    spent = {
        f"size and speed, {row[0]}": f"{row[1]} parameters, {row[4]} of the teacher's rows a second"
        for row in cost_rows(results)
    }
    write_results(
        Path(training_args.output_dir),
        results,
        task.shown,
        training_args,
        f"A student for {task.kind}, distilled from {', '.join(student_args.teacher_name_or_path)}.",
        {"max_seq_length": data_args.max_seq_length, **stages, **spent},
        data={
            "name": data_name(data_args),
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in splits.examples.items()},
        },
        scored_data=results["split"] and data_name(data_args, results["split"]),
        language=data_args.language,
        license=student_args.license or "unknown",
        pipeline_tag=task.pipeline_tag,
        template=task.template,
    )


__all__ = ["cost_rows", "distill", "run"]
