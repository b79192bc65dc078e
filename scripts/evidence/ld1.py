"""A model trained with LayerDrop keeps its accuracy without every other layer; one trained normally does not.

Beside both: the model whose layers are taken away before it is fine-tuned, which is what a user would otherwise do.
"""

from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "LD1",
    "order": 40,
    "title": "LayerDrop",
    "paper": "Fan et al., 2020, arXiv:1909.11556",
    "systems": ["LayerDrop"],
    "metric": "accuracy",
    "columns": "test accuracy",
    "set_up": "Every other layer of a fine-tuned encoder; each arm after 5 epochs over all rows, at the better "
    "of two rates by the validation data.",
}
SETS = {"SST-2": "cls_en_sst2", "TREC": "cls_en_trec"}


def options_of(lab: Lab, folder: str) -> dict[str, Any]:
    """What every job of a compressed classifier is told."""
    return {
        **lab.splits(folder),
        "model_name_or_path": lab.model,
        "task": "classification",
        "max_seq_length": 64,
        "num_train_epochs": 5,
        "grid": ["learning_rate=5e-5,1e-4"],
        "bf16": True,
        "repeats": 1,  # times are no part of the tables
    }


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    for name, folder in SETS.items():
        common = options_of(lab, folder)
        normal = lab.job(f"{folder}-normal", "compress", methods=["layers-after"], **common)
        shorter = {**common, "repeats": None, "layer_keep": "every-other", "linear_baseline": True}
        cut = lab.job(f"{folder}-cut", "finetune", **shorter)
        lab.arm(name, "all layers", normal, "uncompressed")
        for rate in (0.2, 0.5):
            dropped = {"methods": ["layers"], "layer_drop": [rate], "baseline": False}
            arm = f"LayerDrop {rate}, then every other layer"
            lab.arm(name, arm, lab.job(f"{folder}-{rate}", "compress", **dropped, **common))
        lab.arm(name, "trained normally, then every other layer", normal)
        lab.arm(name, "every other layer, then fine-tuned", cut)
        lab.arm(name, "n-grams, linear", cut, "n-grams, linear")
    first = "LayerDrop 0.5, then every other layer"
    lab.compare(first, "trained normally, then every other layer", "every other layer, then fine-tuned")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
