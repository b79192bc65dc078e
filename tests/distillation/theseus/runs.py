"""A tiny predecessor, rows to compress it on, and one update as one process or several.

python -m tests.distillation.theseus.runs FOLDER ROWS_PER_PROCESS ACCUMULATION
"""

import json
import sys

import torch
from transformers import BertForSequenceClassification

from hf_ptm_ext.distillation import TheseusArguments, TheseusTrainer
from tests.distillation.pairs import model, rows

ROWS = "tinybert-prediction"


def predecessor(layers=4, **fields):
    return model(BertForSequenceClassification, 1, layers, 16, **fields)


def trainer(folder, batch=8, accumulation=1, *, old=None, data=None, **arguments):
    options = {
        name: arguments.pop(name)
        for name in ("callbacks", "eval_dataset", "compute_metrics", "successor", "processing_class")
        if name in arguments
    }
    defaults = {
        "max_steps": 1,
        "optim": "sgd",
        "learning_rate": 0.1,
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "successor_layers": None if "successor" in options else 2,
        "steps_for_replacing": None,
        "seed": 2,  # the first update replaces one of two modules
        "predecessor_check_rows": 0,
    }
    args = TheseusArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=True,
        **{**defaults, **arguments},
    )
    return TheseusTrainer(
        model=predecessor() if old is None else old,
        args=args,
        train_dataset=rows(ROWS) if data is None else data,
        data_collator=torch.utils.data.default_collate,
        **options,
    )


def one_update(folder, batch, accumulation, **arguments):
    """One update of SGD on the eight rows; returns weights before it, the run."""
    run = trainer(folder, batch, accumulation, **arguments)
    before = {name: value.clone() for name, value in run.wrapper.state_dict().items()}
    run.train()
    return before, run


if __name__ == "__main__":
    before, run = one_update(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), max_steps=3)
    if run.is_world_process_zero():
        weights = {name: (v - before[name]).flatten()[:50].tolist() for name, v in run.wrapper.state_dict().items()}
        losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
        print("RESULT" + json.dumps({"losses": losses, "moved": weights}))
