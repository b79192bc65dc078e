"""The loss curve of a run as a picture."""

from pathlib import Path
from typing import Any


def plot_loss_curve(log_history: list[dict[str, Any]], path: str | Path, baselines: dict[str, float]) -> Path:
    """Draw every loss of a Trainer's log over the steps.

    Args:
        log_history: `trainer.state.log_history`.
        path: the PNG to write.
        baselines: label -> cross entropy, drawn as horizontal lines.

    Returns:
        The path.

    Raises:
        ImportError: matplotlib is missing (`pip install hf-ptm-ext[viz]`).
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("The loss curve needs matplotlib: pip install hf-ptm-ext[viz]") from error

    names = sorted({name for entry in log_history for name in entry if name.endswith("loss") and name != "train_loss"})
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name in names:
        points = [(entry["step"], entry[name]) for entry in log_history if name in entry]
        style = "o--" if name.startswith("eval_") else "-"
        axes.plot(*zip(*points, strict=True), style, label=name, markersize=3, linewidth=1.2)
    for number, (label, value) in enumerate(baselines.items()):
        axes.axhline(value, color="grey", linestyle=(":", "--")[number % 2], linewidth=1, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("nats")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=140)
    return Path(path)
