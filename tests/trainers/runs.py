"""Small runs of the pre-training Trainer that a test can stop, resume and compare."""

import torch
from transformers import TrainerCallback

from hf_ptm_ext import DataCollatorForSpanMasking, SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.cli.pretrain_arguments import PretrainingArguments
from hf_ptm_ext.trainers import PreTrainingTrainer


def small_model(tokenizer, **fields):
    """A SpanBERT of one layer, the same each time."""
    torch.manual_seed(0)
    config = SpanBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        max_pair_targets=4,
        **fields,
    )
    return SpanBertForPreTraining(config)


class RecordingTrainer(PreTrainingTrainer):
    """Keeps the ids and masks of every training batch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = []

    def compute_loss(self, model, inputs, *args, **kwargs):
        if model.training:
            self.seen.append((self.state.global_step, originals(inputs), inputs["input_ids"].tolist()))
        return super().compute_loss(model, inputs, *args, **kwargs)


def originals(inputs):
    """The ids before masking."""
    labels = inputs["labels"]
    return torch.where(labels != -100, labels, inputs["input_ids"]).tolist()


class StopAfter(TrainerCallback):
    """Stops training after a step, as an interruption would, once the checkpoint is written."""

    def __init__(self, step):
        self.step = step

    def on_save(self, args, state, control, **kwargs):
        control.should_training_stop = control.should_training_stop or state.global_step >= self.step


def trainer(folder, dataset, tokenizer, *, stop=None, max_steps=6, batch=4, eval_dataset=None, **arguments):
    """A recording Trainer that saves a checkpoint every second step."""
    args = PretrainingArguments(
        output_dir=str(folder),
        max_steps=max_steps,
        per_device_train_batch_size=batch,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=2,
        save_total_limit=None,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        use_cpu=True,
        **arguments,
    )
    return RecordingTrainer(
        model=small_model(tokenizer),
        args=args,
        train_dataset=dataset,
        eval_dataset=eval_dataset,
        data_collator=DataCollatorForSpanMasking(tokenizer, max_pair_targets=4, seed=5),
        callbacks=[StopAfter(stop)] if stop else [],
    )
