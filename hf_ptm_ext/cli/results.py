"""What a job leaves beside its model: results, predictions, tables and the model card."""

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from transformers import AutoConfig

from ..hub.model_card import write_model_card
from ..trainers.master_weights import BF16, PRECISION
from .arguments import SeededArguments, data_name, hub_data
from .curves import CURVE
from .runs import write_json, write_whole
from .tables import highest, markdown_table, print_table

logger = logging.getLogger(__name__)

RESULTS = "results.json"
# How the metrics of a text job begin, and how those end that are no scores.
MEASURED = ("baseline_", "before_", "eval_", "test_")
NO_SCORES = ("runtime", "_per_second", "model_preparation_time", "rows_in_training_data")


def write_lines(file: Path, values: Sequence[Any]) -> None:
    """Write JSON lines that appear whole."""
    write_whole(file, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


# ---- numbers ----


def summary(runs: Sequence[dict[str, Any]], split: str) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and standard deviation (of a sample) over seeds."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for variant in dict.fromkeys(run["variant"] for run in runs):
        scores = [run[split] for run in runs if run["variant"] == variant]
        result[variant] = {}
        for name in scores[0]:
            values = [one[name] for one in scores]
            result[variant][name] = {"mean": mean(values)} | ({"std": stdev(values)} if len(values) > 1 else {})
    return result


def paired_differences(
    runs: Sequence[dict[str, Any]], split: str, names: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """The first variant less each other one, over the seeds of both: mean and 95 % interval by Student's t.

    A run of one seed alone, such as a baseline that has none, stands for all seeds.
    """
    variants = dict.fromkeys(run["variant"] for run in runs)
    by_seed = {one: {run["seed"]: run[split] for run in runs if run["variant"] == one} for one in variants}
    first, *others = by_seed
    found: dict[str, dict[str, dict[str, float]]] = {}
    for other in others:
        theirs = by_seed[other]
        if len(theirs) == 1:
            theirs = dict.fromkeys(by_seed[first], next(iter(theirs.values())))
        seeds = [seed for seed in by_seed[first] if seed in theirs]
        if len(seeds) < 2:
            continue
        found[other] = {}
        for name in (one for one in names if one in theirs[seeds[0]]):
            values = [by_seed[first][seed][name] - theirs[seed][name] for seed in seeds]
            reach = student_t(len(seeds) - 1) * stdev(values) / math.sqrt(len(seeds))
            middle = mean(values)
            found[other][name] = {"mean": middle, "low": middle - reach, "high": middle + reach, "seeds": len(seeds)}
    return found


def student_t(freedom: int, level: float = 0.95) -> float:
    """What |t| stays below in 95 % of all draws.

    t is sqrt(freedom) tan(angle), and angles have the density cos^(freedom - 1).

    Examples:
        >>> round(student_t(2), 3), round(student_t(4), 3)
        (4.303, 2.776)
    """
    angles = np.linspace(0, np.pi / 2, 400_001)
    mass = np.cumsum(np.cos((angles[1:] + angles[:-1]) / 2) ** (freedom - 1))
    return float(math.sqrt(freedom) * np.tan(np.interp(level * mass[-1], mass, angles[1:])))


def told_differences(results: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """Each paired difference of the first score as a line."""
    first, name = next(iter(results["summary"])), shown[0]
    return [
        f"{first} less {other}: {name} {100 * one[name]['mean']:+.1f} ({100 * one[name]['low']:+.1f} .. "
        f"{100 * one[name]['high']:+.1f}; 95 %, paired over {one[name]['seeds']} seeds)"
        for other, one in results.get("differences", {}).items()
        if name in one
    ]


def scores_among(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What a text job has measured, without texts and times."""
    return {
        name: value
        for name, value in metrics.items()
        if name.startswith(MEASURED) and isinstance(value, int | float) and not name.endswith(NO_SCORES)
    }


def percent(score: Mapping[str, float], factor: int = 100, digits: int = 1) -> str:
    """A mean, and its spread if there are several seeds."""
    spread = f" ± {factor * score['std']:.{digits}f}" if "std" in score else ""
    return f"{factor * score['mean']:.{digits}f}{spread}"


def by_seeds(seeds: int) -> str:
    """What a table of scores shows."""
    return f"mean and standard deviation of {seeds} seeds" if seeds > 1 else "of one seed"


def result_rows(results: Mapping[str, Any], shown: Sequence[str]) -> list[list[str]]:
    """The simple guess and each variant, in percent."""
    guess = [f"{100 * results['majority'][name]:.1f}" for name in shown]
    rows = [[results.get("simple_baseline", "majority"), *guess]]
    for variant, scores in results["summary"].items():
        rows.append([variant, *(percent(scores[name]) for name in shown)])
    return rows


def print_results(
    results: Mapping[str, Any],
    shown: Sequence[str],
    output: Path,
    hint: str | None = None,
    costs: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ()),
) -> None:
    """Print mean and spread of each variant beside the simple guess, and its costs (names, and a row a variant)."""
    scored = results["split"] is not None
    if not scored:
        print(f"\nNothing was scored: the data have no labels. The predictions are in {output}.")
        shown = ()
    if scored or costs[0]:
        names, spent = costs
        found = {name: cells for name, *cells in (result_rows(results, shown) if scored else ())}
        spends: dict[str, Sequence[str]] = {name: cells for name, *cells in spent}
        rows = [
            [name, *found.get(name, ["-"] * len(shown)), *spends.get(name, ["-"] * len(names))]
            for name in dict.fromkeys([*found, *spends])
        ]
        means = [results["majority"] if scored else {}, *results["summary"].values()]
        best = set()
        for column, metric in enumerate(shown, start=1):
            values = [one[metric] if isinstance(one[metric], float) else one[metric]["mean"] for one in means]
            best |= {(row, column) for row in highest(values)}
        seeds = by_seeds(len({run["seed"] for run in results["runs"]}))
        title = f"{results['split']}, in percent, {seeds}" if scored else f"Costs, {seeds}"
        print_table(title, ["", *shown, *names], rows, best)
        for line in told_differences(results, shown) if scored else ():
            print(line)
    print(f"\n{hint or f'Saved to {output}. Check that it loads anywhere: hf-ptm-ext verify {output}'}")


# ---- cards ----


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


def write_card(
    output: Path,
    args: Any,
    run: Mapping[str, Any],
    *,
    training: Mapping[str, Any],
    data: Mapping[str, Any],
    notes: Mapping[str, Any],
    writer: Callable[..., Any] = write_model_card,
    family: str | None = None,
    **card: Any,
) -> None:
    """Write the model card of a job, with how long its run was trained and the `notes` of its data."""
    writer(
        output,
        family=family or AutoConfig.from_pretrained(output).model_type,
        training={**run, **hyper_parameters(args), **training},
        data={**data, **notes_of_data(notes)},
        title=output.name,
        **{"repo_id": args.hub_model_id or f"your-name/{output.name}", "figure": CURVE, **card},
    )


def hyper_parameters(args: Any) -> dict[str, Any]:
    """What a card says of the Trainer's arguments."""
    half = "bfloat16, mixed" if args.bf16 else "float16, mixed" if args.fp16 else "float32"
    grid = f"{' '.join(args.grid)}, chosen by the validation data" if args.grid else ""
    found = {
        **({"grid": grid} if grid else {}),
        "rows per update": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "learning rate": args.learning_rate,
        "schedule": args.lr_scheduler_type.value,
        "warm-up": args.warmup_steps,
        "optimizer": args.optim.value if hasattr(args.optim, "value") else args.optim,
        "betas": (args.adam_beta1, args.adam_beta2),
        "epsilon": args.adam_epsilon,
        "weight decay": args.weight_decay,
        "largest gradient norm": args.max_grad_norm,
        "precision": PRECISION if args.weights == BF16 else half,
    }
    return found | ({"label smoothing": args.label_smoothing_factor} if args.label_smoothing_factor else {})


def write_results(
    output: Path,
    results: Mapping[str, Any],
    splits: Any,
    args: SeededArguments,
    introduction: str,
    *,
    training: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    **card: Any,
) -> None:
    """Write `results.json` and the model card of a job by seeds."""
    if args.process_index != 0:
        return
    write_json(output / RESULTS, results)
    task, options, split = splits.task, splits.options, results["split"]
    _, *others = results["summary"]
    scored = data_name(options, split) if split else ""
    metrics, baselines = {}, {}
    if split:
        metrics = {name: results["runs"][0][split][name] for name in task.shown}
        baselines = {name: results["majority"][name] for name in task.shown}
        # Of the same seed, as the metrics are these weights'; a teacher has no seeds.
        seed, means = results["runs"][0]["seed"], results["summary"]
        beside = {run["variant"]: run[split] for run in results["runs"] if run["seed"] == seed}
        for variant in others:
            scores = beside.get(variant) or {name: means[variant][name]["mean"] for name in task.shown}
            baselines |= {f"{name} ({variant})": scores[name] for name in task.shown}
    run = {name: value for name, value in results["trained"][0].items() if name not in ("seed", "variant")}
    told = (
        f"On the {split} data ({scored}), in percent, {by_seeds(len(args.seeds))}; the same weights to begin with "
        "and the same data in each row."
        if split
        else "The data that it was given for evaluation have no labels, so nothing was scored."
    )
    tuned = results["runs"][0][split].get("null_threshold") if split else None
    write_card(
        output,
        args,
        {"seeds": args.seeds, **run},
        metrics=metrics,
        baselines=baselines,
        scored=(scored, split) if split else None,
        data={
            "name": data_name(options),
            "license": options.data_license or "unknown",
            **hub_data(options),
            "examples": {name: len(found) for name, found in splits.examples.items()},
            **({"training rows of each seed": options.train_sample} if options.train_sample else {}),
            **(data or {}),
        },
        notes=results.get("data", {}),
        training={
            **({} if tuned is None else {"null_score_diff_threshold, from the validation data": tuned}),
            "max_seq_length": options.max_seq_length,
            **training,
        },
        language=options.language,
        pipeline_tag=task.pipeline_tag,
        description="\n".join(
            [
                evidence(introduction, told, task.shown, result_rows(results, task.shown) if split else ()),
                *(f"\n* {line}" for line in (told_differences(results, task.shown) if split else ())),
            ]
        ),
        **{"page": task.page, **card},
    )


def evidence(introduction: str, told: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """What a card says about this very model: the task, and the evidence by seeds."""
    first = f"{introduction} The weights are those of the first seed."
    if not rows:
        return f"{first} {told}"
    return "\n".join([first, "", "## Evidence", "", told, "", *markdown_table(header, rows)])


def notes_of_data(notes: Mapping[str, Any]) -> dict[str, Any]:
    """What a card says about the data beside their number."""
    plain = {
        "rows_left_out": "unusable rows, left out",
        "without_labels": "rows without labels, not scored",
        "new_pieces": "pieces added to the vocabulary",
        "tokens_per_word_before": "tokens a word, with the checkpoint's vocabulary",
        "tokens_per_word": "tokens a word",
        "mentions_behind_the_cut": "rows with a mention behind the cut",
    }
    found = {said: notes[name] for name, said in plain.items() if name in notes}
    for split, note in notes.get("unseen_classes", {}).items():
        found[f"{split} rows of classes that the training data lack"] = note["rows"]
    for split, note in notes.get("in_training_data", {}).items():
        out = f", left out of {note['left_out_of']}" if "left_out_of" in note else ""
        found[f"{split} rows that are in the training data"] = f"{note['rows']} of {note['of']}{out}"
    return found
