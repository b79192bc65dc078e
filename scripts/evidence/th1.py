"""A model whose modules are replaced one by one by smaller ones is better than its first half fine-tuned.

The paper's ratio and schedule: twelve layers become six in 15 passes, half of them with modules replaced at random.
All arms see the same rows, the predecessor too.
"""

import random
from pathlib import Path
from typing import Any

from experiment import Lab, main, rows_of, write_rows

ABOUT = {
    "id": "TH1",
    "order": 12,
    "title": "BERT-of-Theseus, 12 layers to 6",
    "paper": "Xu et al., 2020, arXiv:2002.02925",
    "systems": ["BERT-of-Theseus"],
    "metric": "accuracy",
    "columns": "test accuracy",
    "set_up": "TREC: 2,000 rows, tested on 500; RTE: 1,767, tested on 2,000 (400 others choose); SST-2: 4,000, tested "
    "on 1,821; 15 passes in batches of 64, each arm at the better of two learning rates by the validation data.",
}
LAYERS = 6
SETS = {"TREC": ("cls_en_trec", 2000), "RTE": ("nli_en_rte", None), "SST-2": ("cls_en_sst2", 4000)}
REPLACE = {"preset": "theseus", "steps_for_replacing": 0.5}
STAGES = {
    "Theseus, linear": {"replace": {**REPLACE, "replacing_scheduler": "linear", "replacing_rate": 0.3}},
    "Theseus, constant": {"replace": {**REPLACE, "replacing_scheduler": "constant", "replacing_rate": 0.5}},
}
SOFT = {"distil": {"preset": "soft-labels"}}


def drawn(folder: Path, source: Path, rows: int | None) -> None:
    """Rows of a set drawn once, for all arms and seeds; of a set without validation data 400 of the test's."""
    train, test = rows_of(source / "train.jsonl.gz"), rows_of(source / "test.jsonl.gz")
    shuffle = random.Random(0)
    shuffle.shuffle(train)
    valid = source / "valid.jsonl.gz"
    if not valid.is_file():
        shuffle.shuffle(test)
    splits = {
        "train": train[:rows],
        "valid": rows_of(valid) if valid.is_file() else test[:400],
        "test": test if valid.is_file() else test[400:],
    }
    for split, found in splits.items():
        write_rows(folder / f"{split}.jsonl", found)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    for column, (folder, rows) in SETS.items():
        data = lab.make(f"rows-{column}", drawn, lab.data / folder, rows)
        recipe = "pair_classification.yaml" if column == "RTE" else "bert_classification.yaml"
        common: dict[str, Any] = {
            **lab.splits(data, "{}.jsonl"),
            "per_device_train_batch_size": 64,
            "num_train_epochs": 15,
            "bf16": True,
            "language": "en",
        }
        pairs = {"text_column": "premise", "pair_column": "hypothesis"} if column == "RTE" else {}
        teacher = lab.job(
            f"predecessor-{column}",
            f"finetune {recipe}",
            **{**common, "num_train_epochs": 5, "learning_rate": 5e-5, "seeds": [0]},
            model_name_or_path=lab.model,
        )
        common |= {"grid": ["learning_rate=2e-5,5e-5"]}
        half = {"model_name_or_path": lab.model, "layer_keep": ",".join(map(str, range(LAYERS)))}
        labels = lab.job(f"half-{column}", f"finetune {recipe}", **common, **half, linear_baseline=True)
        lab.arm(column, "n-grams, linear", labels, "n-grams, linear")
        lab.arm(column, "first half, labels", labels)
        told = {**common, **pairs, "teacher_name_or_path": teacher, "baseline": False}
        told |= {"student_layers": LAYERS, "student_init": "first"}
        soft = lab.job(f"soft-{column}", "distill distill_soft_labels.yaml", **told, stages=SOFT)
        lab.arm(column, "first half, soft labels", soft)
        for place, (arm, stages) in enumerate(STAGES.items()):
            job = lab.job(f"theseus-{column}-{place}", "distill distill_theseus.yaml", **told, stages=stages)
            lab.arm(column, arm, job)
        lab.arm(column, "predecessor, all layers", soft, "teacher")
    lab.compare("Theseus, linear", "first half, labels", "first half, soft labels", "Theseus, constant")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
