"""Curves of the losses over the updates of a job's runs, as a picture."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .tables import new_figure

logger = logging.getLogger(__name__)

CURVE = "loss_curve.png"
LOSS, EVALUATION = "loss", "eval_"


def losses_of(trainer: Any) -> list[dict[str, float]]:
    """The losses in a Trainer's log, each with its update; the mean of a run that was too short for any.

    Of a Trainer of several, `history_before` are those of the others, and `updates_before` are the updates of theirs.
    """
    log_history, made = trainer.state.log_history, getattr(trainer, "updates_before", 0)
    kept = [{name: value for name, value in entry.items() if name.endswith(LOSS)} for entry in log_history]
    if any(LOSS in entry for entry in kept):
        for entry in kept:
            entry.pop("train_loss", None)
    own = [
        {"step": log["step"] + made, **{name.replace("train_", ""): value for name, value in entry.items()}}
        for log, entry in zip(log_history, kept, strict=True)
        if entry
    ]
    return [*getattr(trainer, "history_before", ()), *own]


def draw_curves(
    file: Path,
    runs: Sequence[Mapping[str, Any]],
    before: Mapping[str, float] | None = None,
    baselines: Mapping[str, float] | None = None,
    step: str = "update",
) -> None:
    """Draw the loss of every run, and the terms of the first one's, or say what is missing for it.

    Args:
        file: the picture.
        runs: each with its `variant` and its `history` (see `losses_of`).
        before: name of a loss -> its value in an evaluation before training.
        baselines: name of a loss -> what a simple guess reaches.
        step: what is counted from left to right.
    """
    runs = [run for run in runs if run.get("history")]
    if not runs:
        return
    first, variants = runs[0], list(dict.fromkeys(run["variant"] for run in runs))
    names = {name.removeprefix(EVALUATION) for entry in first["history"] for name in entry}
    terms = sorted(names - {"step", LOSS})
    try:
        figure = new_figure("The loss curve", 12 if terms else 7, 4.2)
    except ImportError as error:
        logger.warning("%s", error)
        return
    whole, *others = figure.subplots(1, 2 if terms else 1, squeeze=False)[0]
    shown = set()
    for run in runs:
        variant, start = run["variant"], before if run is first else None
        label = "" if variant in shown else f"{variant}, " if len(variants) > 1 else " "
        _draw(whole, run["history"], LOSS, f"C{variants.index(variant)}", label, start or {}, baselines or {})
        shown.add(variant)
    for axes in others:
        for number, term in enumerate(terms):
            label = f"{term.removesuffix('_loss')}, "
            _draw(axes, first["history"], term, f"C{number}", label, before or {}, baselines or {})
        axes.set_title(f"terms, {variants[0]}" if len(variants) > 1 else "terms", fontsize=9)
    for axes in (whole, *others):
        axes.set_xlabel(step)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("loss")
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.savefig(file, dpi=140)


def _draw(
    axes: Any,
    history: Sequence[Mapping[str, float]],
    name: str,
    color: str,
    label: str,
    before: Mapping[str, float],
    baselines: Mapping[str, float],
) -> None:
    """One loss in training and evaluation; without a label (a further seed) it is paler."""
    alpha = 1.0 if label else 0.4
    start = [(0, before[name])] if name in before else []
    evaluation = "evaluation" + ", at 0 before training" * len(start)
    for key, style, what in ((name, ".-", "training"), (EVALUATION + name, "o--", evaluation)):
        points = start * (key != name) + [(entry["step"], entry[key]) for entry in history if key in entry]
        if points:
            text = f"{label}{what}".strip() if label else None
            axes.plot(
                *zip(*points, strict=True), style, color=color, alpha=alpha, label=text, markersize=3, linewidth=1.2
            )
    if name in baselines:
        axes.axhline(baselines[name], color=color, linestyle=":", linewidth=1, label=f"{label}simple guess".strip())
