"""Three small tasks on one encoder: a class and a tag from the ids themselves, and a number.

python -m tests.trainers.multi_task.small_tasks FOLDER    one update, printed as JSON
"""

import json
import sys

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    TrainingArguments,
)

from hf_ptm_ext.trainers import Mixing, MultiTaskTrainer, Task

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def config(**fields):
    return BertConfig(vocab_size=40, max_position_embeddings=16, **{**SIZES, **PLAIN, **fields})


def models():
    torch.manual_seed(0)
    return {
        "tags": BertForTokenClassification(config(num_labels=3)),
        "topic": BertForSequenceClassification(config(num_labels=2)),
        "score": BertForSequenceClassification(config(num_labels=1, problem_type="regression")),
    }


def rows(task, number=8, length=6):
    generator = torch.Generator().manual_seed(len(task))
    found = []
    for _ in range(number):
        ids = torch.randint(5, 40, (length,), generator=generator)
        labels = {
            "tags": torch.where(ids % 4 == 3, -100, ids % 4),
            "topic": (ids[1] % 2).long(),
            "score": ids[2].float() / 40,
        }
        found.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels[task]})
    return found


def accuracy(prediction):
    logits, labels = prediction.predictions, prediction.label_ids
    kept = labels != -100
    return {"accuracy": float((logits.argmax(-1)[kept] == labels[kept]).mean())}


def error(prediction):
    return {"negative_error": -float(((prediction.predictions[:, 0] - prediction.label_ids) ** 2).mean())}


def tasks(number=8, **options):
    metrics = {"tags": accuracy, "topic": accuracy, "score": error}
    return {
        name: Task(
            model,
            train_rows=rows(name, number),
            eval_rows=rows(name, 4),
            compute_metrics=metrics[name],
            **options.get(name, {}),
        )
        for name, model in models().items()
    }


def trainer(folder, found=None, *, mixing=None, smart=None, callbacks=None, **arguments):
    settings = {"per_device_train_batch_size": 4, "max_steps": 1, "learning_rate": 1e-2, "save_strategy": "no"}
    settings["logging_steps"] = 1
    args = TrainingArguments(
        output_dir=str(folder),
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **{**settings, **arguments},
    )
    return MultiTaskTrainer(found or tasks(), args, mixing=mixing, smart=smart, callbacks=callbacks)


def one_update(folder, accumulation):
    """One update of plain gradient descent on four batches."""
    run = trainer(
        folder,
        mixing=Mixing(shuffle_rows=False),
        gradient_accumulation_steps=accumulation,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        learning_rate=0.1,
    )
    run.train()
    return run


def summary(run):
    model = run.accelerator.unwrap_model(run.model)
    logged = {name: value for name, value in run.state.log_history[0].items() if name.endswith("loss")}
    return {
        "logged": logged,
        "weights": {name: value.flatten()[:20].tolist() for name, value in model.named_parameters()},
    }


if __name__ == "__main__":
    finished = one_update(sys.argv[1], int(sys.argv[2]))
    if finished.is_world_process_zero():
        print("RESULT" + json.dumps(summary(finished)))
