"""Runs of two processes under FSDP2, dropout included; prints what the test compares.

python -m tests.trainers.sharded_runs FOLDER, under a launcher
"""

import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM, TrainingArguments

from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.distillation import DistillationArguments, DistillationTrainer
from hf_ptm_ext.trainers import PreTrainingTrainer
from hf_ptm_ext.trainers.stopping import NotFinite
from tests.processes import leave_the_others
from tests.trainers.fixed_rows import fixed_rows
from tests.trainers.sharded_on_cpu import shard_on_cpu

COMMON = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32, "vocab_size": 60}
SIZES = {**COMMON, "hidden_size": 16, "intermediate_size": 32}
PATIENT = {"preset": "tinybert-intermediate"}  # its projections are auxiliary parameters
collate = torch.utils.data.default_collate


def settings(folder, state_dict_type="SHARDED_STATE_DICT", **options):
    """Arguments of a short run."""
    common = {"max_steps": 4, "save_steps": 2, "logging_steps": 1, "learning_rate": 1e-2, "use_cpu": True}
    common |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "disable_tqdm": True}
    common |= {"remove_unused_columns": False, "dataloader_pin_memory": False}
    shards = {"version": 2, "state_dict_type": state_dict_type}
    return {"output_dir": str(folder), **common, "fsdp": True, "fsdp_config": shards, **options}


def pretrainer(folder, **options):
    """SpanBERT's."""
    torch.manual_seed(0)
    model = SpanBertForPreTraining(SpanBertConfig(max_pair_targets=4, attention_probs_dropout_prob=0.0, **SIZES))
    args = TrainingArguments(**settings(folder, **options))
    rows = fixed_rows()
    return PreTrainingTrainer(model, args, train_dataset=rows, eval_dataset=rows[:5], data_collator=collate)


def distiller(folder, **options):
    """A wider teacher's."""
    torch.manual_seed(0)
    wider = {**COMMON, "hidden_size": 32, "intermediate_size": 64}
    student, teacher = (BertForMaskedLM(BertConfig(**sizes)) for sizes in (SIZES, wider))
    args = DistillationArguments(**settings(folder, **PATIENT, **options))
    rows = [{name: row[name] for name in ("input_ids", "attention_mask", "labels")} for row in fixed_rows()]
    return DistillationTrainer(student, teacher, args, train_dataset=rows, data_collator=collate)


def run(folder, build, resume=None, **options):
    """Train, and give all weights in the first process."""
    trainer = build(folder, **options)
    trainer.train(resume_from_checkpoint=resume)
    state = trainer.whole_state()
    trainer.accelerator.free_memory()
    return state


def same(first, second):
    """Whether two runs ended with the same bits."""
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def tell(name, value):
    """Say what was found, once."""
    if torch.distributed.get_rank() == 0:
        print("FOUND", name, value, flush=True)


def main(folder):
    """All runs."""
    whole = run(folder / "whole", pretrainer)
    tell("sharded", same(whole, run(folder / "again", pretrainer, str(folder / "whole" / "checkpoint-2"))))
    kind = {"state_dict_type": "FULL_STATE_DICT"}
    full = run(folder / "full", pretrainer, **kind)
    tell("full", same(full, run(folder / "full_again", pretrainer, str(folder / "full" / "checkpoint-2"), **kind)))
    tell("checkpointing", same(whole, run(folder / "less_memory", pretrainer, gradient_checkpointing=True)))
    wrapped = run(folder / "distilled", distiller)
    tell("distilled", same(wrapped, run(folder / "further", distiller, str(folder / "distilled" / "checkpoint-2"))))

    often = {"eval_on_start": True, "eval_strategy": "steps", "eval_steps": 1}
    trainer = pretrainer(folder / "evaluated", **often)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    logged = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    tell("before", before == logged[0] > logged[-1])
    trainer.save_model(str(folder / "saved"))
    losses = trainer.evaluate()
    if torch.distributed.get_rank() == 0:
        saved = SpanBertForPreTraining.from_pretrained(folder / "saved").eval()
        sums = [saved.evaluation_sums(**collate([row])) for row in fixed_rows()[:5]]
        mean = sum(one["mlm"][0] for one in sums) / sum(one["mlm"][2] for one in sums)
        tell("evaluated", abs(losses["eval_mlm_loss"] - mean.item()) < 1e-6)

    trainer = pretrainer(folder / "ruined")
    rows = trainer.train_dataset
    with torch.no_grad():
        trainer.model.cls.predictions.bias[3] = float("nan")
    try:
        trainer.train()
    except NotFinite:
        tell("refused", len(rows) == 8 and not list((folder / "ruined").glob("checkpoint-*")))


if __name__ == "__main__":
    shard_on_cpu()
    main(Path(sys.argv[1]))
    leave_the_others()
