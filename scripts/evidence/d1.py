"""Text without labels, told by a large teacher, makes a small student better than its few labels alone.

The unlabelled texts are SST-2's training sentences and those of the movie reviews (MR) from which SST-2 was made; MR's
sentences that are in SST-2's validation or test data are left out, however they are split into words. The teacher
knows all of SST-2's training labels: what is asked is what text adds to a student, not what labels the teacher saves.
"""

from pathlib import Path
from typing import Any

from experiment import Lab, main, rows_of, unseen, write_rows

ABOUT = {
    "id": "D1",
    "order": 11,
    "title": "Distillation with unlabelled text",
    "paper": "Hinton et al., 2015, arXiv:1503.02531; Sun et al., 2019, arXiv:1908.09355",
    "systems": ["BERT-PKD"],
    "metric": "accuracy",
    "columns": "SST-2, labelled rows",
    "set_up": "Students are the first 3 layers of the pre-trained encoder, the teacher is all of it fine-tuned on all "
    "6,920 rows; 9,498 texts without labels; accuracy on the 1,821 test sentences; each arm at the better of two "
    "learning rates by the validation data.",
}
ROWS = (500, 1000)
LAYERS = [0, 1, 2]
SOFT = {"distil": {"preset": "soft-labels", "preset_options": {"alpha": 0.5, "temperature": 2.0}}}
PKD = {"distil": {"preset": "pkd", "preset_options": {"alpha": 0.7, "beta": 100, "temperature": 10}}}
UPDATES = 950  # about those of six passes over all texts


def texts(folder: Path, data: Path) -> None:
    """All texts of the domain but those that are evaluated, without their labels."""
    train = rows_of(data / "cls_en_sst2/train.jsonl.gz", data / "cls_en_mr/train.jsonl.gz")
    evaluated = rows_of(data / "cls_en_sst2/valid.jsonl.gz", data / "cls_en_sst2/test.jsonl.gz")
    write_rows(folder / "texts.jsonl", ({"text": row["text"]} for row in unseen(train, evaluated)))


def cut(folder: Path, model: Path) -> None:
    """The first layers of a pre-trained encoder."""
    from transformers import AutoModel, AutoTokenizer

    from hf_ptm_ext.compression import keep_layers

    keep_layers(AutoModel.from_pretrained(model), LAYERS).float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    common: dict[str, Any] = {
        **lab.splits("cls_en_sst2"),
        "bf16": True,
        "language": "en",
    }
    teacher = lab.job(
        "teacher", "finetune bert_classification.yaml", **common, model_name_or_path=lab.model, seeds=[0]
    )
    more, student = lab.make("texts", texts, lab.data), lab.make("student", cut, lab.model)
    common |= {"grid": ["learning_rate=5e-5,1e-4"]}
    few = {"num_train_epochs": 20}
    many = {"num_train_epochs": 6, "per_device_train_batch_size": 64, "unlabelled_file": lab.file(more, "texts.jsonl")}
    arms = {
        "soft labels, labelled rows": ("distill_soft_labels.yaml", SOFT, few),
        "soft labels, all texts": ("distill_soft_labels.yaml", SOFT, many),
        "PKD, all texts": ("distill_pkd.yaml", PKD, many),
    }
    for rows in ROWS:
        plain = {**common, "model_name_or_path": student, "train_sample": rows, "linear_baseline": True}
        labels = lab.job(f"labels-{rows}", "finetune bert_classification.yaml", **plain, **few)
        long = lab.job(f"long-{rows}", "finetune bert_classification.yaml", **plain, max_steps=UPDATES)
        lab.arm(rows, "n-grams, linear", labels, "n-grams, linear")
        lab.arm(rows, "labels alone", labels)
        lab.arm(rows, "labels alone, as many updates", long)
        for place, (arm, (recipe, stages, options)) in enumerate(arms.items()):
            models = {"teacher_name_or_path": teacher, "student_name_or_path": student}
            told = {**common, **models, **options, "train_sample": rows, "baseline": False, "stages": stages}
            job = lab.job(f"distilled-{rows}-{place}", f"distill {recipe}", **told)
            lab.arm(rows, arm, job)
        lab.arm(rows, "teacher, all labels", job, "teacher")
    lab.compare(
        "soft labels, all texts", "labels alone", "labels alone, as many updates", "soft labels, labelled rows"
    )
    lab.compare("PKD, all texts", "labels alone", "soft labels, all texts")
    lab.figure("rows to train on")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
