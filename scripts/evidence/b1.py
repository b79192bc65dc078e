"""A BiLSTM learns more from a fine-tuned encoder's logits, on variants of the training texts, than from the labels.

As in the paper its embeddings begin with word vectors, and each text has 20 variants (masked words, words of the same
kind). Beside it: the BiLSTM on the labels, without the vectors too, and the logits of the labelled texts alone.
"""

from pathlib import Path
from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "B1",
    "order": 13,
    "title": "Distilled BiLSTM",
    "paper": "Tang et al., 2019, arXiv:1903.12136",
    "systems": ["Distilled BiLSTM"],
    "metric": "accuracy",
    "columns": "test accuracy",
    "set_up": "SST-2, 6,920 sentences, tested on 1,821; vectors of GloVe, 50 numbers; 20 passes over the sentences or "
    "3 over 21 times as many; each arm at the better of two learning rates by the validation data.",
}
STAGES = {"distil": {"preset": "bilstm"}}


def vectors(folder: Path, source: Path) -> None:
    """GloVe's vectors as a file of text."""
    import gzip

    from safetensors.numpy import load_file

    (table,) = load_file(source / "vectors.safetensors").values()
    with gzip.open(source / "words.txt.gz", "rt", encoding="utf-8") as file:
        words = file.read().split("\n")
    lines = (
        f"{word} {' '.join(f'{number:.5g}' for number in row)}\n" for word, row in zip(words, table, strict=False)
    )
    (folder / "vectors.txt").write_text("".join(lines), encoding="utf-8")


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
    glove = lab.file(lab.make("vectors", vectors, lab.data / "vectors_glove50"), "vectors.txt")
    common |= {"teacher_name_or_path": teacher, "stages": STAGES, "grid": ["learning_rate=5e-4,2e-3"]}
    common |= {"num_train_epochs": 20, "baseline_epochs": 20, "per_device_train_batch_size": 64}
    recipe = "distill distill_bilstm.yaml"
    plain = lab.job("plain", recipe, **common, linear_baseline=True)
    both = lab.job("both", recipe, **common, student_vectors_file=glove)
    large = {"augment": 20, "num_train_epochs": 3, "per_device_train_batch_size": 256, "baseline": False}
    variants = lab.job("variants", recipe, **{**common, **large}, student_vectors_file=glove)
    alone = "without the teacher"
    lab.arm("SST-2", "n-grams, linear", plain, "n-grams, linear")
    lab.arm("SST-2", "labels, random embeddings", plain, alone)
    lab.arm("SST-2", "labels, GloVe", both, alone)
    lab.arm("SST-2", "logits, random embeddings", plain)
    lab.arm("SST-2", "logits, GloVe", both)
    lab.arm("SST-2", "logits of 20 variants too, GloVe", variants)
    lab.arm("SST-2", "teacher", both, "teacher")
    lab.compare("logits of 20 variants too, GloVe", "labels, GloVe", "logits, GloVe")
    lab.compare("logits, GloVe", "labels, GloVe")
    lab.compare("labels, GloVe", "labels, random embeddings", "n-grams, linear")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
