"""Three of ERNIE 2.0's tasks in small, on ids: what a masked one follows from, odd ones, which of two is larger.

python -m tests.trainers.multi_task.small_continual FOLDER ACCUMULATION    three updates, printed as JSON
"""

import json
import sys

import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    ErnieConfig,
    TrainingArguments,
)

from hf_ptm_ext.trainers import ContinualMultiTaskTrainer, ContinualSchedule, Task, load_task_models
from tests.trainers.multi_task.small_tasks import PLAIN, SIZES, accuracy, summary

HEADS = {
    "masking": (AutoModelForMaskedLM, ()),
    "odd": (AutoModelForTokenClassification, ("even", "odd")),
    "order": (AutoModelForSequenceClassification, ("first", "second", "even")),
}
SCHEDULE = ContinualSchedule({"masking": [2, 2, 2], "odd": [0, 3, 2], "order": [0, 0, 3]})


def config(**fields):
    return ErnieConfig(vocab_size=40, max_position_embeddings=16, **{**SIZES, **PLAIN, **fields})


def rows(task, number=8, length=6):
    generator = torch.Generator().manual_seed(len(task))
    found = []
    for _ in range(number):
        ids = torch.randint(5, 40, (length,), generator=generator)
        if task == "masking":
            ids[2] = 5 + ids[1] % 2
        labels = {
            "masking": torch.where(torch.arange(length) == 2, ids, -100),
            "odd": ids % 2,
            "order": (ids[1] > ids[4]).long() if ids[1] != ids[4] else torch.tensor(2),
        }[task]
        shown = torch.where(torch.arange(length) == 2, 4, ids) if task == "masking" else ids
        task_ids = torch.full_like(ids, list(HEADS).index(task))
        found.append({"input_ids": shown, "task_type_ids": task_ids, "labels": labels})
    return found


def tasks(names=tuple(HEADS), checkpoint=None, number=8):
    torch.manual_seed(0)
    models = load_task_models(checkpoint or config(), {name: HEADS[name] for name in names}, task_type_ids=len(names))
    return {
        name: Task(model, rows(name, number), rows(name, 4), compute_metrics=None if name == "masking" else accuracy)
        for name, model in models.items()
    }


def trainer(folder, found=None, *, schedule=SCHEDULE, callbacks=None, **arguments):
    settings = {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "save_strategy": "no", "logging_steps": 1}
    args = TrainingArguments(
        output_dir=str(folder), report_to="none", disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
        **{**settings, **arguments},
    )  # fmt: skip
    return ContinualMultiTaskTrainer(found or tasks(), args, schedule=schedule, callbacks=callbacks)


def three_updates(folder, accumulation):
    """Updates of plain gradient descent, one of each task, of four batches each."""
    run = trainer(
        folder,
        schedule=ContinualSchedule({"order": [1, 0, 0], "odd": [0, 1, 0], "masking": [0, 0, 1]}),
        gradient_accumulation_steps=accumulation,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        learning_rate=0.1,
    )
    run.train()
    return run


if __name__ == "__main__":
    finished = three_updates(sys.argv[1], int(sys.argv[2]))
    if finished.is_world_process_zero():
        print("RESULT" + json.dumps(summary(finished)))
