"""A small model learns more of a teacher's relations (MiniLM) than of its attention and hidden states (TinyBERT), and
more of those than of masked words, in as many updates.

Students have 3 layers of the teacher's width and random weights. Pre-trained students are measured by fine-tuning; two
rates of pre-training are shown, as no score before fine-tuning compares the methods.
"""

from typing import Any

from experiment import Job, Lab, main
from s1 import answers, folds, held_out

ABOUT = {
    "id": "M1",
    "order": 6,
    "title": "What a random student learns from: relations, attention, hidden states, words",
    "paper": "Wang et al., 2020, arXiv:2002.10957; 2021, arXiv:2012.15828; Jiao et al., 2020, arXiv:1909.10351",
    "systems": ["MiniLM", "MiniLM v2", "TinyBERT"],
    "metric": "accuracy",
    "columns": "data, score",
    "set_up": "2,500 updates of 128 x 128 on English text of six sources, then fine-tuning at the better of two "
    "rates by the validation data: SST-2 (1,821 test rows), TREC (500), XQuAD (1,190 questions, five "
    "folds by article).",
}
METHODS: dict[str, dict[str, Any]] = {
    "MiniLM v2": {"preset": "minilm-v2"},
    "MiniLM": {"preset": "minilm"},
    "TinyBERT, general stage": {"preset": "tinybert-general"},
    "masked words": {"objectives": {"labels": 1.0}},
}
RATES = ("2e-4", "1e-3")


def untrained(folder: Any, model: Any) -> None:
    """A student of random weights."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.from_pretrained(model, num_hidden_layers=3)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    text = lab.make("text", held_out, lab.data / "pretrain_en")
    made = lab.make("folds", folds, lab.data / "qa_xquad/en.jsonl.gz")
    steps = round(2500 * lab.options.scale)
    students: dict[str, Any] = {}
    for method, stage in METHODS.items():
        for rate in RATES:
            name = f"{method}, {rate}"
            students[name] = lab.job(
                f"student-{len(students)}",
                "distill",
                task="masked-lm",
                teacher_name_or_path=lab.model,
                student_layers=3,
                student_init="none",
                stages={"general": {**stage, "max_steps": steps, "learning_rate": float(rate)}},
                train_file=lab.file(text, "train.txt"),
                validation_file=lab.file(text, "valid.txt"),
                max_eval_rows=256,
                per_device_train_batch_size=128,
                warmup_steps=0.1,
                baseline=False,
                seeds=[0],
                bf16=True,
                language="en",
            )
    students["random weights"] = lab.make("random", untrained, lab.model)
    students["the teacher, 6 layers"] = lab.model
    for number, (arm, model) in enumerate(students.items()):
        for column, folder in (("SST-2, accuracy", "cls_en_sst2"), ("TREC, accuracy", "cls_en_trec")):
            given = {**lab.splits(folder), "num_train_epochs": 5, "bf16": True, "grid": ["learning_rate=5e-5,2e-4"]}
            linear = number == 0
            command = "finetune bert_classification.yaml"
            job = lab.job(f"{folder}-{number}", command, model_name_or_path=model, linear_baseline=linear, **given)
            lab.arm(column, arm, job)
            if linear:
                lab.arm(column, "n-grams, linear", job, "n-grams, linear")
        jobs: list[Job] = answers(lab, str(number), model, made)
        lab.arm("XQuAD, F1", arm, jobs, metric="f1")
    for rate in RATES:
        lab.compare(*(f"{method}, {rate}" for method in METHODS))
        lab.compare(f"TinyBERT, general stage, {rate}", f"masked words, {rate}")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
