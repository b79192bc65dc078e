"""ULMFiT's three stages help a classifier of few labelled rows: general text, the task's text, then the classes.

Beside them: the same network from random weights, the language model of the task's text alone, and the fine-tuning of
the last stage done plainly (one rate, all layers at once).
"""

from pathlib import Path
from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "UL1",
    "order": 30,
    "title": "ULMFiT's stages",
    "paper": "Howard and Ruder, 2018, arXiv:1801.06146",
    "systems": ["AWD-LSTM, ULMFiT", "ULMFiT's fine-tuning"],
    "metric": "accuracy",
    "columns": "test accuracy, rows",
    "seeds": [0, 1, 2],
    "models": (),
    "set_up": "AWD-LSTM of 400 x 1,152; 16 passes over English text of six sources, 20 over the task's "
    "texts (labels unread), 15 over the labelled rows; each arm at the better of two rates by the validation data.",
}
SIZES = {"embedding_size": 400, "lstm_size": 1152}
SETS = {"SST-2": "cls_en_sst2", "TREC": "cls_en_trec"}
ROWS = (100, 500)


def untrained(folder: Path, language_model: Path) -> None:
    """A language model's folder with random weights."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from hf_ptm_ext import AwdLstmForCausalLM

    torch.manual_seed(0)
    AwdLstmForCausalLM(AutoConfig.from_pretrained(language_model)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(language_model).save_pretrained(folder)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    passes = lab.options.scale
    fields = ",".join(f"{name}={value}" for name, value in SIZES.items())
    training: dict[str, Any] = {"seeds": None, "seed": 0, "bf16": True}
    general = lab.job(
        "general",
        "pretrain awd_lstm.yaml",
        train_file=[lab.data / "pretrain_en/*.txt.gz"],
        config_overrides=fields,
        vocab_size=30000,
        num_train_epochs=16 * passes,
        **training,
    )
    for name, folder in SETS.items():
        text = lab.data / folder
        task: dict[str, Any] = {"train_file": text / "train.jsonl.gz", "document_separator": "line", **training}
        task |= {"num_train_epochs": 20 * passes, "learning_rate": 4e-3}
        triangle = {"lr_scheduler_type": "linear", "lr_schedule": "slanted_triangular", "layer_decay": 2.6}
        words = {"model_name_or_path": general, "transfer_vocabulary": True}
        target = lab.job(f"target-{folder}", "pretrain awd_lstm.yaml", **task, **triangle, **words)
        alone = lab.job(f"alone-{folder}", "pretrain awd_lstm.yaml", config_overrides=fields, vocab_size=30000, **task)
        random = lab.make(f"random-{folder}", untrained, target)
        for rows in ROWS:
            classifier: dict[str, Any] = {
                **lab.splits(folder),
                "task": "classification",
                "config_overrides": "output_p=0.4,hidden_p=0.3,input_p=0.4,embed_p=0.05,weight_p=0.5",
                "max_seq_length": 128,
                "num_train_epochs": 15,
                "per_device_train_batch_size": 16,
                "train_sample": rows,
                "linear_baseline": True,
                "bf16": True,
            }
            gradual = {"lr_schedule": "slanted_triangular", "layer_decay": 2.6, "gradual_unfreezing": 1}
            arms = {
                "three stages": {"model_name_or_path": target, **gradual, "grid": ["learning_rate=3e-3,1e-2"]},
                "three stages, fine-tuned plainly": {"model_name_or_path": target},
                "two stages (the task's text, classes)": {"model_name_or_path": alone, **gradual},
                "classes alone, from random weights": {"model_name_or_path": random},
            }
            for place, (arm, options) in enumerate(arms.items()):
                rates = ["learning_rate=3e-3,1e-2"] if "gradual_unfreezing" in options else ["learning_rate=3e-4,1e-3"]
                job = lab.job(f"{folder}-{rows}-{place}", "finetune", **{**classifier, "grid": rates, **options})
                lab.arm(f"{name}, {rows}", arm, job)
            lab.arm(f"{name}, {rows}", "n-grams, linear", job, "n-grams, linear")
    lab.compare("three stages", *list(arms)[1:], "n-grams, linear")
    lab.figure("rows to train on")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
