"""One update on eight fixed rows, as one process or as several; prints the weights' sums as JSON.

python -m tests.trainers.fixed_rows FOLDER ROWS_PER_PROCESS ACCUMULATION
"""

import json
import sys

import torch

from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.cli.pretrain_arguments import PretrainingArguments
from hf_ptm_ext.trainers import PtmTrainer
from tests.processes import leave_the_others

LENGTHS = (12, 30, 7, 20, 16, 26, 9, 18)


def fixed_rows(width=30, vocab_size=60):
    """Rows of different length and label number; two of them have no span pair."""
    generator = torch.Generator().manual_seed(3)
    rows = []
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(5, vocab_size, (width,), generator=generator)
        mask = (torch.arange(width) < length).long()
        labels, targets = torch.full((width,), -100), torch.full((2, 4), -100)
        boundaries = torch.zeros(2, 2, dtype=torch.long)
        labels[2 : 3 + length // 5] = ids[2 : 3 + length // 5]
        if number not in (2, 5):
            boundaries[0] = torch.tensor([1, 4])
            targets[0, : 1 + number % 3] = ids[2 : 3 + number % 3]
        rows.append(
            {
                "input_ids": ids * mask,
                "attention_mask": mask,
                "labels": labels,
                "span_boundaries": boundaries,
                "span_labels": targets,
            }
        )
    return rows


def one_update(folder, batch, accumulation, model=None, rows=None, trainer_class=PtmTrainer, **options):
    """Train for one update of SGD; by default SpanBERT on the fixed rows."""
    torch.manual_seed(0)
    config = SpanBertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        max_pair_targets=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    args = PretrainingArguments(
        output_dir=str(folder),
        max_steps=1,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        optim="sgd",
        learning_rate=0.1,
        max_grad_norm=0.0,
        weight_decay=0.0,
        lr_scheduler_type="constant",
        warmup_steps=0,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=True,
    )
    trainer = trainer_class(
        model=SpanBertForPreTraining(config) if model is None else model,
        args=args,
        train_dataset=fixed_rows() if rows is None else rows,
        data_collator=torch.utils.data.default_collate,
        **options,
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    run = one_update(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    if run.is_world_process_zero():
        model = run.accelerator.unwrap_model(run.model)
        logged = {name: value for name, value in run.state.log_history[0].items() if name.endswith("loss")}
        weights = {name: value.flatten()[:50].tolist() for name, value in model.named_parameters()}
        print("RESULT" + json.dumps({"logged": logged, "weights": weights}))
    del run
    leave_the_others()
