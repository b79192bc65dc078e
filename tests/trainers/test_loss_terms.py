"""Loss terms in the log, and evaluation in running sums."""

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForMaskedLM, DistilBertForMaskedLM, RobertaForMaskedLM, TrainingArguments

from hf_ptm_ext import DataCollatorForMaskedLanguageModeling, DataCollatorForWholeWordMasking
from hf_ptm_ext.data import pretraining_dataset
from hf_ptm_ext.objectives.token_losses import update_loss
from hf_ptm_ext.trainers import PreTrainingTrainer, PtmTrainer
from hf_ptm_ext.trainers.pretraining import sums_of_batch
from tests.trainers.fixed_rows import fixed_rows, one_update
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


@pytest.mark.parametrize("model_class", [BertForMaskedLM, RobertaForMaskedLM, DistilBertForMaskedLM])
def test_any_masked_language_model_is_evaluated_at_its_labels(documents, tokenizer, model_class):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if model_class is DistilBertForMaskedLM:
        sizes = {"vocab_size": len(tokenizer), "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
    model = model_class(model_class.config_class(**sizes)).eval()
    rows = pretraining_dataset(documents[:4], tokenizer, max_seq_length=32)
    collator = DataCollatorForMaskedLanguageModeling(tokenizer, budget="exact", label_budget=16, seed=0)
    batch = collator([{"input_ids": row["input_ids"]} for row in rows])
    labels = batch["labels"]
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        sums = sums_of_batch(model, dict(batch))["mlm"]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    assert sums.tolist() == pytest.approx(
        [loss.item(), (logits.argmax(-1) == labels).sum().item(), (labels != -100).sum().item()], rel=1e-5
    )
    assert not model.get_output_embeddings()._forward_pre_hooks, "nothing is left on the model"


@pytest.mark.parametrize(
    "options", [{"compute_loss_func": update_loss}, {"trainer_class": PreTrainingTrainer}], ids=["job", "trainer"]
)
@pytest.mark.parametrize(("batch", "accumulation"), [(2, 4), (1, 8)])
def test_upstream_classes_accumulate_exactly(tmp_path, batch, accumulation, options):
    """Case G07 for `mlm` and `wwm`: upstream's forward returns the mean of a micro-batch."""
    rows = [{name: row[name] for name in ("input_ids", "attention_mask", "labels")} for row in fixed_rows()]

    def update(folder, *sizes):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=60,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return one_update(folder, *sizes, BertForMaskedLM(config), rows, **options)

    whole, pieces = update(tmp_path / "whole", 8, 1), update(tmp_path / "pieces", batch, accumulation)
    assert pieces.state.log_history[0]["loss"] == pytest.approx(whole.state.log_history[0]["loss"], rel=1e-5)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(pieces.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_evaluation_does_not_touch_the_training_masks(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32)
    plain = trainer(tmp_path / "plain", rows, tokenizer, max_steps=6)
    plain.train()
    evaluated = trainer(
        tmp_path / "evaluated", rows, tokenizer, max_steps=6, eval_strategy="steps", eval_steps=2, eval_dataset=rows
    )
    evaluated.train()
    assert evaluated.seen == plain.seen


def test_columns_that_only_the_collator_reads_are_kept(tmp_path, tokenizer):
    """Case G08: a plain Trainer drops `word_ids`, this one does not."""
    rows = Dataset.from_list([{"input_ids": [2, *range(20, 30), 3], "word_ids": [-1, *[0] * 5, *[1] * 5, -1]}] * 8)
    collator = DataCollatorForWholeWordMasking(tokenizer, word_boundaries="column", mlm_probability=0.4, seed=0)
    args = TrainingArguments(output_dir=str(tmp_path), max_steps=1, use_cpu=True, disable_tqdm=True, report_to="none")
    run = PtmTrainer(model=small_model(tokenizer), args=args, train_dataset=rows, data_collator=collator)
    labels = next(iter(run.get_train_dataloader()))["labels"]
    for row in (labels != -100).tolist():
        assert len(set(row[1:6])) == len(set(row[6:11])) == 1, "words are selected whole"


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_loss_of_gathered_outputs_is_not_multiplied_by_the_number_of_gpus(tmp_path, documents, tokenizer, gpus):
    rows = pretraining_dataset(documents[:4], tokenizer, max_seq_length=32)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **shape)).eval()
    collator = DataCollatorForMaskedLanguageModeling(tokenizer, seed=0)
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    run = PtmTrainer(model=model, args=args, data_collator=collator, compute_loss_func=update_loss)
    batch = collator([{"input_ids": row["input_ids"]} for row in rows])
    args._n_gpu = gpus  # what DataParallel leaves to the loss: whole outputs, and this number
    count = (batch["labels"] != -100).sum()
    with torch.no_grad():
        loss = run.compute_loss(model, dict(batch), num_items_in_batch=count)
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
