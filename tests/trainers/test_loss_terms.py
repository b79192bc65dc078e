"""Loss terms in the log, and evaluation in running sums."""

import pytest
import torch
from datasets import Dataset
from transformers import TrainingArguments

from hf_ptm_ext import DataCollatorForWholeWordMasking
from hf_ptm_ext.data import pretraining_dataset
from hf_ptm_ext.trainers import PtmTrainer
from tests.trainers.runs import small_model, trainer


def test_the_logged_loss_is_the_weighted_sum_of_its_terms(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:4], tokenizer, max_seq_length=32)
    run = trainer(tmp_path, rows, tokenizer, max_steps=2, gradient_accumulation_steps=2)
    run.train()
    entry = run.state.log_history[0]
    assert entry["loss"] == pytest.approx(entry["mlm_loss"] + entry["sbo_loss"], rel=1e-3)


def test_evaluation_sums_equal_the_loss_of_the_model(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:4], tokenizer, max_seq_length=32)
    run = trainer(tmp_path, rows, tokenizer, max_steps=1, per_device_eval_batch_size=256)
    run.eval_dataset = rows
    metrics = run.evaluate()
    batch = next(iter(run.get_eval_dataloader()))
    with torch.no_grad():
        output = run.model.eval()(**batch)
    targets = metrics["eval_sbo_targets"]
    assert metrics["eval_mlm_loss"] == pytest.approx(output.mlm_loss.item(), rel=1e-5)
    assert metrics["eval_sbo_loss"] == pytest.approx(output.sbo_loss.item() * (targets + 1) / targets, rel=1e-5)
    again = run.evaluate()
    assert again["eval_loss"] == metrics["eval_loss"], "every evaluation has the same masks"
    correct = (output.prediction_logits.argmax(-1) == batch["labels"]).sum().item()
    assert metrics["eval_mlm_accuracy"] == pytest.approx(correct / metrics["eval_mlm_targets"])


def test_columns_that_only_the_collator_reads_are_kept(tmp_path, tokenizer):
    """Case G08: a plain Trainer drops `word_ids`, this one does not."""
    rows = Dataset.from_list([{"input_ids": [2, *range(20, 30), 3], "word_ids": [-1, *[0] * 5, *[1] * 5, -1]}] * 8)
    collator = DataCollatorForWholeWordMasking(tokenizer, word_boundaries="column", mlm_probability=0.4, seed=0)
    args = TrainingArguments(output_dir=str(tmp_path), max_steps=1, use_cpu=True, disable_tqdm=True, report_to="none")
    run = PtmTrainer(model=small_model(tokenizer), args=args, train_dataset=rows, data_collator=collator)
    labels = next(iter(run.get_train_dataloader()))["labels"]
    for row in (labels != -100).tolist():
        assert len(set(row[1:6])) == len(set(row[6:11])) == 1, "words are selected whole"
