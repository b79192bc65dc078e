"""Adapters of a few per cent of the weights come within 0.4 points of full fine-tuning.

Bottlenecks of three widths and full fine-tuning each choose learning rate and passes among as many by the validation
data.
"""

from typing import Any

from experiment import Lab, main, read

ABOUT = {
    "id": "A1",
    "order": 14,
    "title": "Adapters and full fine-tuning",
    "paper": "Houlsby et al., 2019, arXiv:1902.00751",
    "systems": ["Houlsby adapters"],
    "metric": "f1",
    "columns": "score",
    "set_up": "Entity F1 on WikiGold (1,186 sentences, tested on 340) and WNUT 2017 (3,394 and 1,287), accuracy on "
    "SST-2 (4,000 and 1,821); batches of 64; two rates by two numbers of passes for each arm. Linear: n-grams, of "
    "entities words.",
}
# Column -> folder, task, metric, rows, passes.
SETS: dict[str, tuple[str, str, str, int | None, str]] = {
    "WikiGold": ("ner_en_wikigold", "tagging", "f1", None, "8,16"),
    "WNUT": ("ner_en_wnut17", "tagging", "f1", None, "4,8"),
    "SST-2": ("cls_en_sst2", "classification", "accuracy", 4000, "3,6"),
}
WIDTHS = (24, 64, 128)
HOULSBY, FULL = "adapters, {}", "full fine-tuning"


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    jobs: dict[tuple[str, str], Any] = {}
    for column, (folder, task, metric, rows, passes) in SETS.items():
        common: dict[str, Any] = {
            **lab.splits(folder),
            "model_name_or_path": lab.model,
            "per_device_train_batch_size": 64,
            "train_sample": rows,
            "bf16": True,
            "language": "en",
        }
        recipe = "tagging.yaml" if task == "tagging" else "bert_classification.yaml"
        grid = ["learning_rate=3e-5,1e-4", f"num_train_epochs={passes}"]
        full = lab.job(f"full-{column}", f"finetune {recipe}", **common, linear_baseline=True, grid=grid)
        lab.arm(column, "most frequent", full, "majority", metric=metric)
        lab.arm(column, "linear", full, "linear", metric=metric)
        grid = ["learning_rate=3e-4,1e-3", f"num_train_epochs={passes}"]
        for width in WIDTHS:
            told = {**common, "methods": ["houlsby"], "bottleneck_size": width, "grid": grid}
            jobs[column, HOULSBY.format(width)] = job = lab.job(
                f"{width}-{column}", f"adapt adapt_{task}.yaml", **told
            )
            lab.arm(column, HOULSBY.format(width), job, metric=metric)
        lab.arm(column, FULL, full, metric=metric)

    def share(column: str, row: str) -> float:
        """The trained share in per cent; of a baseline there is none."""
        if row == FULL:
            return 100.0
        summary = read(jobs[column, row].folder / "results.json")["summary"]
        return 100 * summary["houlsby"]["trained_share"]["mean"]

    def shares() -> str:
        column = next(iter(SETS))
        each = ((width, share(column, HOULSBY.format(width))) for width in WIDTHS)
        return ", ".join(f"{found:.2f} % of the weights at width {width}" for width, found in each)

    lab.figure("trained share of the weights, %", share)
    lab.note("Trained", shares)
    for width in WIDTHS:
        lab.compare(HOULSBY.format(width), FULL)


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
