"""Transformer-XL trained with its memory carried from batch to batch, on text that repeats what a segment has not."""

import numpy as np
import pytest
import torch
from transformers import TrainingArguments

from hf_ptm_ext import (
    BpttTrainer,
    ContiguousStreams,
    DataCollatorForBackpropagationThroughTime,
    TransfoXLConfig,
    TransfoXLLMHeadModel,
)

WORDS, PERIOD, SEGMENT, ROWS = 20, 12, 6, 16


def streams(seed, documents):
    """Documents that say twelve words over and over; a segment has six."""
    drawn = np.random.default_rng(seed).integers(WORDS, size=(documents, PERIOD))
    return ContiguousStreams(np.tile(drawn, 10), ROWS, SEGMENT)


@pytest.mark.slow
def test_the_memory_repeats_what_the_segment_has_not_seen(tmp_path):
    losses = {}
    for mem_len in (18, 0):
        torch.manual_seed(0)
        sizes = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "mem_len": mem_len, "clamp_len": -1}
        config = TransfoXLConfig(vocab_size=WORDS, cutoffs=[10], div_val=1, init_std=0.1, dropout=0.0, **sizes)
        config.initial_memory = "empty"
        arguments = TrainingArguments(
            str(tmp_path / str(mem_len)),
            per_device_train_batch_size=ROWS,
            per_device_eval_batch_size=ROWS,
            learning_rate=3e-3,
            max_steps=250,
            report_to=[],
            save_strategy="no",
            logging_steps=50,
            disable_tqdm=True,
        )
        trainer = BpttTrainer(
            model=TransfoXLLMHeadModel(config),
            args=arguments,
            train_dataset=streams(0, 200),
            eval_dataset=streams(1, 32),
            data_collator=DataCollatorForBackpropagationThroughTime(),
        )
        trainer.train()
        losses[mem_len] = trainer.evaluate()["eval_lm_loss"]
    unknown = np.log(WORDS)
    assert losses[0] > 0.9 * unknown
    assert losses[18] < 0.5 * unknown
