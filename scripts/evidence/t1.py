"""TinyBERT's general stage, its stages on the task and its augmented texts each make a small model better.

Every arm begins with the same random model of 3 layers and 312 numbers. The general stage is beside as many updates of
masked language modelling; the task stages see the teacher of the task, which is the pre-trained encoder fine-tuned.
"""

from pathlib import Path
from typing import Any

from b1 import vectors
from experiment import Lab, main

ABOUT = {
    "id": "T1",
    "order": 10,
    "title": "TinyBERT, stage by stage",
    "paper": "Jiao et al., 2020, arXiv:1909.10351",
    "systems": ["TinyBERT"],
    "metric": "accuracy",
    "columns": "test accuracy",
    "set_up": "SST-2, 6,920 sentences, tested on 1,821; 3,000 updates of 128 x 128 tokens on English text of five "
    "sources, 10 passes over the labels or 1,000 and 500 updates of 128 rows in the task stages; each arm at the "
    "better of two learning rates by the validation data.",
}
UPDATES = 3000
SOURCES = ("addresses", "masc", "scitldr_abstracts", "shakespeare", "wikipedia_sentences")
SIZES = {"num_hidden_layers": 3, "hidden_size": 312, "intermediate_size": 1200, "num_attention_heads": 12}
GENERAL = {"general": {"preset": "tinybert-general"}}
STAGES = {
    "intermediate": {
        "preset": "tinybert-intermediate",
        "max_steps": 1000,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
    },
    "prediction": {"preset": "tinybert-prediction", "max_steps": 500},
}


def untrained(folder: Path, model: Path) -> None:
    """A small model of the encoder's kind and vocabulary, with random weights."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.from_pretrained(model, **SIZES)).float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    task: dict[str, Any] = {
        **lab.splits("cls_en_sst2"),
        "bf16": True,
        "language": "en",
    }
    text: dict[str, Any] = {
        "train_file": [lab.data / f"pretrain_en/{source}.txt.gz" for source in SOURCES],
        "validation_file": lab.data / "pretrain_en/debian_handbook.txt.gz",
        "max_seq_length": 128,
        "max_steps": round(UPDATES * lab.options.scale),
        "per_device_train_batch_size": 128,
        "max_eval_rows": 500,
        "learning_rate": 5e-4,
        "bf16": True,
    }
    teacher = lab.job("teacher", "finetune bert_classification.yaml", **task, model_name_or_path=lab.model, seeds=[0])
    student = lab.make("student", untrained, lab.model)
    told: dict[str, Any] = {**text, "seeds": None, "seed": 0}
    masked = lab.job("masked", "pretrain --objective mlm", **told, model_name_or_path=student)
    proposer = lab.job(
        "proposer", "pretrain --objective mlm", **{**told, "learning_rate": 1e-4}, model_name_or_path=lab.model
    )
    pair = {"teacher_name_or_path": lab.model, "student_name_or_path": student, "baseline": False, "stages": GENERAL}
    general = lab.job("general", "distill distill_tinybert_general.yaml", **text, **pair, seeds=[0])
    glove = lab.file(lab.make("vectors", vectors, lab.data / "vectors_glove50"), "vectors.txt")
    task |= {"grid": ["learning_rate=1e-4,3e-4"], "per_device_train_batch_size": 64}
    arms = {"labels alone": student, "masked LM, labels": masked, "general stage, labels": general}
    for place, (arm, model) in enumerate(arms.items()):
        options = {"model_name_or_path": model, "num_train_epochs": 10, "linear_baseline": True}
        job = lab.job(f"labels-{place}", "finetune bert_classification.yaml", **task, **options)
        lab.arm("SST-2", arm, job)
    lab.arm("SST-2", "n-grams, linear", job, "n-grams, linear")
    task |= {"teacher_name_or_path": teacher, "student_name_or_path": general, "baseline": False, "stages": STAGES}
    task |= {"per_device_train_batch_size": 128}
    staged = lab.job("staged", "distill distill_tinybert.yaml", **task)
    more = {"augment": 20, "augment_model": proposer, "augment_vectors_file": glove}
    augmented = lab.job("augmented", "distill distill_tinybert.yaml", **task, **more)
    lab.arm("SST-2", "general and task stages", staged)
    lab.arm("SST-2", "general and task stages, 20 variants", augmented)
    lab.arm("SST-2", "teacher", staged, "teacher")
    lab.compare("masked LM, labels", "labels alone")
    lab.compare("general stage, labels", "masked LM, labels", "labels alone")
    lab.compare("general and task stages", "general stage, labels")
    lab.compare("general and task stages, 20 variants", "general and task stages", "general stage, labels")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
