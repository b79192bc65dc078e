"""Fine-tune by seeds with a baseline beside, and write one folder with model, scores and the evidence for its card.

Each seed trains the first variant (say, with knowledge) and every other one (without) from the same weights on the
same rows. A finished run leaves its scores in the folder's `_runs`, an unfinished one its checkpoints, so that the
same command with `--resume_from_checkpoint auto` goes on where it stopped, and more seeds can be added later.
"""

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from accelerate import PartialState
from transformers import AutoConfig, TrainingArguments, set_seed

from ..files import read_json
from ..hub.model_card import write_model_card
from ..trainers import check_hub, last_complete_checkpoint, push_folder
from ..trainers.manifest import JOB_FILE
from .runs import BEFORE, RUNS, has_work, is_first_process, refuse_others, write_json, write_whole, written_aside
from .seeded_arguments import SeededArguments
from .signature import refuse_changes, signature_of
from .tables import text_table

logger = logging.getLogger(__name__)

RESULTS = "results.json"
IGNORED_INDEX = -100
# Each run of a job has its own.
OF_A_RUN = ("seed", "data_seed")


@dataclass(frozen=True)
class SeededJob:
    """What is trained and how it is scored.

    Args:
        variants: the first is the one that is kept, the others are baselines.
        splits: predicted after training, and scored if they have labels.
        build: from a variant and the arguments of a run to a Trainer and what is saved beside its model (a tokenizer
            or processor). The random state is set before.
        score: from a trained Trainer, its variant and a split to scores, none for a split without labels.
        options: everything that decides what the runs do, the Trainer's arguments aside (see `signature_of`).
        save: from the output folder, the first run's Trainer and what `build` gave to saved files (default:
            `save_model`).
        repositories: that are pushed to (default: the arguments' own).
        produced: scores that an evaluation in mid-training gives, one of which may choose the best checkpoint.
    """

    variants: tuple[str, ...]
    splits: tuple[str, ...]
    build: Callable[[str, Any], tuple[Any, Any]]
    score: Callable[[Any, str, str], dict[str, float]]
    options: Mapping[str, Any]
    save: Callable[[Path, Any, Any], None] | None = None
    repositories: tuple[str, ...] = ()
    produced: tuple[str, ...] = ("loss",)


def run_seeds(job: SeededJob, args: SeededArguments) -> list[dict[str, Any]]:
    """Run every seed and variant that is not finished, and save the first one's model.

    Args:
        job: what is trained.
        args: how; `seeds`, `overwrite` and `resume_from_checkpoint` are read here.

    Returns:
        One entry a run: `seed`, `variant`, and the scores of each split.

    Raises:
        ValueError: the output folder holds other files, or runs of another job, or the best checkpoint would be
            chosen by a score that there is not.
    """
    check_best(args, job.produced)
    folder = Path(args.output_dir) / RUNS
    _ = args.device  # joins the other processes
    if is_first_process():
        training = signature_of(args)
        own = {name: value for name, value in training.items() if name not in OF_A_RUN}
        prepare_folder(Path(args.output_dir), args, {"variants": list(job.variants), **job.options, **own})
        for name in job.repositories or (args.hub_model_id,):
            asked = copy(args)
            asked.hub_model_id = name
            check_hub(asked)
    PartialState().wait_for_everyone()  # no process may take records that the first one puts aside
    runs = []
    for number, seed in enumerate(args.seeds):
        for place, variant in enumerate(job.variants):
            record = folder / f"seed{seed}_{place}.json"
            if record.is_file():
                runs.append(read_json(record))
                continue
            trainer, processor = _train(job, variant, args, seed, folder / f"seed{seed}_{place}")
            run = {"seed": seed, "variant": variant, **trained(trainer)}
            run |= {split: job.score(trainer, variant, split) for split in job.splits}
            logger.info("seed %d, %s: %s", seed, variant, run[job.splits[-1]])
            if number == 0 and place == 0:
                (job.save or save_model)(Path(args.output_dir), trainer, processor)
            if trainer.is_world_process_zero():
                write_json(record, run)
                shutil.rmtree(folder / f"seed{seed}_{place}", ignore_errors=True)
            trainer.accelerator.wait_for_everyone()
            trainer.accelerator.free_memory()
            runs.append(run)
    return runs


def _train(job: SeededJob, variant: str, args: SeededArguments, seed: int, folder: Path) -> tuple[Any, Any]:
    """One run, from its newest complete checkpoint if it has one."""
    run_args = copy(args)
    run_args.seed = run_args.data_seed = seed
    run_args.output_dir = str(folder)
    run_args.push_to_hub = False  # the folder with the evidence is pushed, not a run
    set_seed(seed)
    trainer, processor = job.build(variant, run_args)
    checkpoint = last_complete_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer, processor


def trained(trainer: Any) -> dict[str, Any]:
    """How long a run was trained, and which checkpoint was taken: what happened, not what was asked for."""
    state = trainer.state
    found: dict[str, Any] = {"epochs": round(state.epoch or 0.0, 4), "updates": state.global_step}
    if getattr(trainer, "updates_before", 0):
        found["updates of earlier stages"] = trainer.updates_before
    if trainer.args.load_best_model_at_end:
        if state.best_model_checkpoint is None:
            logger.warning("No evaluation came with a checkpoint, so the weights are the last ones, not the best.")
        else:
            found["best_update"] = int(str(state.best_model_checkpoint).rpartition("-")[2])
    return found


def check_best(args: TrainingArguments, produced: Sequence[str]) -> None:
    """Refuse to choose the best checkpoint by a score that no evaluation gives.

    Args:
        args: of the job; a default is chosen.
        produced: scores of an evaluation.

    Raises:
        ValueError: `metric_for_best_model` is none of them.
    """
    if not args.load_best_model_at_end and args.metric_for_best_model is None:
        return
    name = (args.metric_for_best_model or produced[0]).removeprefix("eval_")
    if name not in produced:
        raise ValueError(
            f"`metric_for_best_model` must be one of {', '.join(produced)}, which an evaluation of this job gives, "
            f"got {args.metric_for_best_model!r}."
        )
    args.metric_for_best_model = name


def prepare_folder(output: Path, args: SeededArguments, signature: Mapping[str, Any]) -> None:
    """Note what decides the result, or check that the folder's runs belong to this job.

    Args:
        output: the folder.
        args: `overwrite`, `resume_from_checkpoint` and `accept_changes` are read.
        signature: of this job.

    Raises:
        ValueError: see the messages.
    """
    job_file = output / RUNS / JOB_FILE
    if args.resume_from_checkpoint is not None and job_file.is_file() and has_work(output / RUNS):
        refuse_changes(output, read_json(job_file), signature, args.accept_changes)
    else:
        refuse_others(output, args)
        if (output / RUNS).is_dir():
            (output / RUNS).rename(output / BEFORE)  # comes back if this start fails
    write_json(job_file, signature)


def write_lines(file: Path, values: Sequence[Any]) -> None:
    """Write JSON lines that appear whole.

    Args:
        file: its folder is made.
        values: one a line.
    """
    write_whole(file, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def save_model(output: Path, trainer: Any, processor: Any) -> None:
    """Write the model and what prepares its input into the output folder.

    Args:
        output: the folder.
        trainer: has the model; its first process writes.
        processor: tokenizer or processor.
    """
    state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if not trainer.is_world_process_zero():
        return
    with written_aside(output) as partial:
        trainer.saved_model.save_pretrained(partial, state_dict=state_dict)
        processor.save_pretrained(partial)


def summary(runs: Sequence[dict[str, Any]], split: str) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and standard deviation (of a sample) over seeds.

    Args:
        runs: entries with `variant` and the scores under `split`.
        split: which scores.

    Returns:
        Variant -> score -> `mean`, and `std` if there are several seeds.

    Example:
        >>> runs = [{"variant": "a", "test": {"f1": 0.5}}, {"variant": "a", "test": {"f1": 0.7}}]
        >>> {name: round(value, 3) for name, value in summary(runs, "test")["a"]["f1"].items()}
        {'mean': 0.6, 'std': 0.141}
    """
    result: dict[str, dict[str, dict[str, float]]] = {}
    for variant in dict.fromkeys(run["variant"] for run in runs):
        scores = [run[split] for run in runs if run["variant"] == variant]
        result[variant] = {
            name: {
                "mean": mean(one[name] for one in scores),
                **({"std": stdev(one[name] for one in scores)} if len(scores) > 1 else {}),
            }
            for name in scores[0]
        }
    return result


def result_rows(results: Mapping[str, Any], shown: Sequence[str]) -> list[list[str]]:
    """The majority class and each variant, in percent.

    Args:
        results: `majority`, its name in `simple_baseline` if it is another simple guess, and `summary`.
        shown: which scores.
    """
    rows = [
        [results.get("simple_baseline", "majority"), *(f"{100 * results['majority'][name]:.1f}" for name in shown)]
    ]
    for variant, scores in results["summary"].items():
        rows.append([variant, *(percent(scores[name]) for name in shown)])
    return rows


def percent(score: Mapping[str, float], factor: int = 100, digits: int = 1) -> str:
    """A mean, and its spread if there are several seeds.

    Example:
        >>> percent({"mean": 0.5, "std": 0.125}), percent({"mean": 0.5})
        ('50.0 ± 12.5', '50.0')
    """
    spread = f" ± {factor * score['std']:.{digits}f}" if "std" in score else ""
    return f"{factor * score['mean']:.{digits}f}{spread}"


def by_seeds(seeds: int) -> str:
    """What a table of scores shows."""
    return f"mean and standard deviation of {seeds} seeds" if seeds > 1 else "of one seed"


def evidence(results: Mapping[str, Any], shown: Sequence[str], seeds: int, introduction: str, scored: str) -> str:
    """What a card says about this very model: the task, and the evidence by seeds.

    Args:
        results: as `result_rows` takes them.
        shown: which scores.
        seeds: how many.
        introduction: a sentence on what it was fine-tuned for.
        scored: the data that were scored.
    """
    first = f"{introduction} The weights are those of the first seed."
    if results["split"] is None:
        return f"{first} The data that it was given for evaluation have no labels, so nothing was scored."
    lines = [
        first,
        "",
        "## Evidence",
        "",
        f"On {scored}, in percent, {by_seeds(seeds)}; the same weights to begin with and the same data in each row.",
        "",
        f"| | {' | '.join(shown)} |",
        f"| --- | {' | '.join('---' for _ in shown)} |",
        *(f"| {' | '.join(row)} |" for row in result_rows(results, shown)),
    ]
    return "\n".join(lines)


def write_results(
    output: Path,
    results: Mapping[str, Any],
    shown: Sequence[str],
    args: SeededArguments,
    introduction: str,
    training: Mapping[str, Any] | None = None,
    *,
    data: Mapping[str, Any],
    scored_data: str | None = None,
    writer: Callable[..., Any] = write_model_card,
    family: str | None = None,
    **card: Any,
) -> None:
    """Write `results.json` and the model card.

    Args:
        output: the folder with the model.
        results: see `Splits.results`.
        shown: which scores the card shows.
        args: how it was trained.
        introduction: a sentence on the task.
        training: further options for the card.
        data: what it was trained on, for the card.
        scored_data: name of the data that were scored.
        writer: what writes the card (default `write_model_card`).
        family: `model_type` of the model (default: the one in the folder).
        card: further fields of the writer.
    """
    if args.process_index != 0:
        return
    write_json(output / RESULTS, results)
    trained, split = results["trained"][0], results["split"]
    metrics = {name: results["runs"][0][split][name] for name in shown} if split else {}
    others = {
        f"{name} ({variant})": scores[name]["mean"]
        for variant, scores in list(results["summary"].items())[1:]
        for name in shown
        if split
    }
    scored = f"the {split} data" + (f" ({scored_data})" if scored_data else "")
    tuned = results["runs"][0][split].get("null_threshold") if split else None
    writer(
        output,
        family=family or AutoConfig.from_pretrained(output).model_type,
        metrics=metrics,
        baselines={name: results["majority"][name] for name in shown} | others if split else {},
        scored=(scored_data or "", split) if split else None,
        data={**data, **notes_of_data(results.get("data", {}))},
        training={
            "seeds": args.seeds,
            **{name: value for name, value in trained.items() if name not in ("seed", "variant")},
            "rows per update": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            "learning rate": args.learning_rate,
            **({} if tuned is None else {"null_score_diff_threshold, from the validation data": tuned}),
            **(training or {}),
        },
        title=output.name,
        repo_id=args.hub_model_id or f"your-name/{output.name}",
        description=evidence(results, shown, len(args.seeds), introduction, scored),
        **card,
    )


def notes_of_data(notes: Mapping[str, Any]) -> dict[str, Any]:
    """What a card says about the data beside their number.

    Args:
        notes: see `Splits`.

    Example:
        >>> notes_of_data({"rows_left_out": {"train.tsv": 3}, "unseen_classes": {"test": {"rows": 2, "B-PER": 2}}})
        {'unusable rows, left out': {'train.tsv': 3}, 'test rows of classes that the training data lack': 2}
    """
    plain = {
        "rows_left_out": "unusable rows, left out",
        "without_labels": "rows without labels, not scored",
        "mentions_behind_the_cut": "rows with a mention behind the cut",
    }
    found = {said: notes[name] for name, said in plain.items() if name in notes}
    for split, note in notes.get("unseen_classes", {}).items():
        found[f"{split} rows of classes that the training data lack"] = note["rows"]
    for split, note in notes.get("in_training_data", {}).items():
        out = f", left out of {note['left_out_of']}" if "left_out_of" in note else ""
        found[f"{split} rows that are in the training data"] = f"{note['rows']} of {note['of']}{out}"
    return found


def push_results(output: Path, args: SeededArguments) -> None:
    """Push a finished folder as one commit, if asked.

    Args:
        output: the folder.
        args: `push_to_hub`, `hub_model_id` (default: the folder's name), `hub_token`, `hub_private_repo` and
            `hub_revision`.

    Raises:
        PushFailed: it did not arrive; everything else is done.
    """
    if args.push_to_hub and args.process_index == 0:
        push_folder(output, args, "Fine-tuned by seeds with hf-ptm-ext", ["_*", "*/_*"])


def print_results(results: Mapping[str, Any], shown: Sequence[str], output: Path, hint: str | None = None) -> None:
    """Print mean and spread of each variant beside the majority class.

    Args:
        results: `runs`, `split`, `summary` and `majority`.
        shown: which scores.
        output: the folder.
        hint: what to do next (default: verify the folder).
    """
    if results["split"] is None:
        print(f"\nNothing was scored: the data have no labels. The predictions are in {output}.")
    else:
        seeds = len({run["seed"] for run in results["runs"]})
        print(f"\n{results['split']}, in percent, {by_seeds(seeds)}")
        print(text_table(["", *shown], result_rows(results, shown)))
    print(f"\n{hint or f'Saved to {output}. Check that it loads anywhere: hf-ptm-ext verify {output}'}")


def update_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None, *, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Cross-entropy as the mean over all labels of an update.

    Upstream's classifiers return the mean of a micro-batch, and the Trainer adds it up undivided when gradients are
    accumulated.

    Args:
        outputs: with `logits` `(..., num_labels)`.
        labels: `(...)`, -100 where there is none.
        num_items_in_batch: labels of the whole update; `None` in evaluation.
        label_smoothing: share of the target that is spread over all classes.

    Returns:
        The loss.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
        >>> round(update_loss({"logits": logits}, torch.tensor([0, -100])).item(), 4)
        0.6931
    """
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    labels = labels.to(logits.device)
    total = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORED_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    count = (labels != IGNORED_INDEX).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    return total / count
