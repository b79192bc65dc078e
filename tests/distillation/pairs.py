"""Tiny students and teachers, rows to distil on, and one update as one process or several.

python -m tests.distillation.pairs FOLDER ROWS_PER_PROCESS ACCUMULATION PRESET ...
"""

import json
import sys

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
)

from hf_ptm_ext.distillation import PRESET_NAMES, DistillationArguments, DistillationTrainer
from tests.processes import leave_the_others

LENGTHS = (12, 9, 7, 11, 3, 12, 1, 8)
VOCAB = 40
CLASSES = 3


def config(layers, hidden=16, heads=4, **fields):
    defaults = {"num_labels": CLASSES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    # Far from the uniform distributions that a new model gives.
    defaults |= {"vocab_size": VOCAB, "max_position_embeddings": 16, "initializer_range": 0.3}
    return BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * hidden,
        **{**defaults, **fields},
    )


def model(model_class, seed, *sizes, **fields):
    """A model whose LayerNorms are not those of a new one, after which every state has mean 0 and variance 1."""
    torch.manual_seed(seed)
    made = model_class(config(*sizes, **fields))
    for name, parameter in made.named_parameters():
        if "LayerNorm" in name:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return made


def pair(preset, **fields):
    """Student and teacher (or teachers) such as the preset is for."""
    if preset == "distilbert":
        torch.manual_seed(0)
        drop = fields.get("hidden_dropout_prob", 0.0)
        sizes = {"vocab_size": VOCAB, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 32}
        small = DistilBertConfig(
            **sizes, initializer_range=0.3, max_position_embeddings=16, dropout=drop, attention_dropout=drop
        )
        return DistilBertForMaskedLM(small), model(BertForMaskedLM, 1, 4, 24)
    if preset == "dualtrain":
        large = {"vocab_size": 60}
        return model(BertForMaskedLM, 0, 2, 16, **fields), model(BertForMaskedLM, 1, 2, 24, **large)
    if preset in ("tinybert-general", "minilm", "minilm-v2"):
        heads = 2 if preset == "minilm-v2" else 4
        return model(BertModel, 0, 2, 16, heads, **fields), model(BertModel, 1, 4, 24)
    if preset == "mobilebert":
        return model(BertModel, 0, 2, 24, **fields), model(BertModel, 1, 2, 24)
    if preset == "pkd":
        return model(BertForSequenceClassification, 0, 2, 24, **fields), model(BertForSequenceClassification, 1, 4, 24)
    student = model(BertForSequenceClassification, 0, 2, 16, **fields)
    if preset == "ensemble":
        return student, [model(BertForSequenceClassification, seed, 2, 24) for seed in (1, 2)]
    return student, model(BertForSequenceClassification, 1, 4, 24)


def rows(preset, width=12):
    """Eight rows of different length, padded to one; labels for tokens or for rows."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(5, VOCAB, (width,), generator=generator)
        mask = (torch.arange(width) < length).long()
        labels = torch.tensor(number % CLASSES)
        if preset in ("distilbert", "dualtrain"):
            labels = torch.full((width,), -100)
            labels[1 : 2 + length // 4] = ids[1 : 2 + length // 4]
        row = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        made.append({**row, "labels": labels})
        if preset == "dualtrain":
            mixed = {name: value.roll(1, 0) for name, value in made[-1].items() if name != "token_type_ids"}
            mixed["vocabulary_ids"] = torch.randint(0, 2, (width,), generator=generator)
            made[-1] |= {f"teacher_{name}": value for name, value in mixed.items()}
    return made


def trainer(folder, preset, batch=8, accumulation=1, *, models=None, data=None, trainer_class=None, **arguments):
    student, teacher = pair(preset) if models is None else models
    data = rows(preset) if data is None else data
    collator = arguments.pop("data_collator", torch.utils.data.default_collate)
    options = {
        name: arguments.pop(name)
        for name in ("compute_metrics", "callbacks", "eval_dataset", "processing_class", "teacher_processing_class")
        if name in arguments
    }
    defaults = {
        "max_steps": 3 if preset == "mobilebert" else 1,
        "optim": "sgd",
        "learning_rate": 0.1,
        "max_grad_norm": 0.0,
        "weight_decay": 0.0,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "teacher_check_rows": 0,
    }
    if preset in PRESET_NAMES:
        defaults["preset"] = preset
    if preset == "mobilebert":
        defaults["progressive_steps"] = 4
    args = DistillationArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=True,
        **{**defaults, **arguments},
    )
    return (trainer_class or DistillationTrainer)(
        model=student, teacher=teacher, args=args, train_dataset=data, data_collator=collator, **options
    )


def one_update(folder, preset, batch, accumulation, **arguments):
    """One update of SGD on the eight rows; returns weights before it, the run."""
    run = trainer(folder, preset, batch, accumulation, **arguments)
    before = {name: value.clone() for name, value in run.wrapper.state_dict().items()}
    run.train()
    return before, run


def moved(before, run):
    """By how much each parameter has moved."""
    return {name: value - before[name] for name, value in run.wrapper.state_dict().items()}


def logged(run):
    return {name: value for name, value in run.state.log_history[0].items() if name.endswith("loss")}


if __name__ == "__main__":
    folder, size, accumulation, *presets = sys.argv[1:]
    found = {}
    for preset in presets:
        before, run = one_update(f"{folder}/{preset}", preset, int(size), int(accumulation))
        weights = {name: value.flatten()[:50].tolist() for name, value in moved(before, run).items()}
        found[preset] = {"logged": logged(run), "moved": weights}
    if run.is_world_process_zero():
        print("RESULT" + json.dumps(found))
    del run
    leave_the_others()
