"""Sequence-to-sequence fine-tuning: smoothing counts labels only, accumulation is exact, prompts are cut off."""

import copy

import pytest
import torch
from datasets import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainingArguments,
)
from transformers.trainer_pt_utils import LabelSmoother

from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration
from hf_ptm_ext.cli.finetune_seq2seq import smooth_once
from hf_ptm_ext.collators import DataCollatorForUniLMGeneration, DataCollatorForUniLMSeq2Seq
from hf_ptm_ext.objectives import label_smoothed_loss
from hf_ptm_ext.trainers import PtmSeq2SeqTrainer

WORDS = [f"w{number}" for number in range(20)]
VOCAB = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
# Sources and targets of other lengths in every row.
ROWS = [
    {"input_ids": [2, *range(5, 6 + n), 3], "labels": [2, *range(8, 9 + (3 * n) % 7), 3]} for n in (0, 5, 2, 9, 1, 4)
]


@pytest.fixture
def tokenizer():
    return BertTokenizer(vocab=VOCAB)


def bart():
    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(VOCAB),
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            dropout=0.0,
            max_position_embeddings=40,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=3,
            decoder_start_token_id=3,
            forced_eos_token_id=3,
        )
    )


def unilm():
    torch.manual_seed(0)
    return UniLMForConditionalGeneration(
        UniLMConfig(
            vocab_size=len(VOCAB),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=40,
            mask_token_id=4,
            eos_token_id=3,
        )
    )


def arguments(folder, **values):
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "save_strategy": "no",
        "predict_with_generate": True,
        "per_device_eval_batch_size": 4,
    }
    return Seq2SeqTrainingArguments(**{**defaults, **values})


# ---- label smoothing (transformers issue 10452, pytorch issue 73205) ----


def test_the_loss_is_the_mean_over_labels_of_nll_and_uniform_part():
    logits = torch.randn(2, 3, 11, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[7, 9, 3], [8, 3, -100]])
    log_probabilities = logits.log_softmax(-1)
    parts = []
    for row, column in (labels != -100).nonzero().tolist():
        values = log_probabilities[row, column]
        parts.append(-0.9 * values[labels[row, column]] - 0.1 * values.mean())
    expected = torch.stack(parts).mean()
    assert torch.allclose(label_smoothed_loss(logits, labels, label_smoothing=0.1), expected)
    assert torch.allclose(LabelSmoother(0.1)({"logits": logits}, labels), expected)
    assert torch.allclose(label_smoothed_loss(logits, labels, 10, 0.1), expected * 5 / 10)


def test_ignored_positions_have_no_loss_and_no_gradient():
    labels = torch.tensor([[7, -100], [-100, -100]])
    logits = torch.randn(2, 2, 11, requires_grad=True)
    loss = label_smoothed_loss(logits, labels, label_smoothing=0.1)
    loss.backward()
    assert not logits.grad[labels == -100].any()
    changed = logits.detach().clone()
    changed[labels == -100] += 5
    assert label_smoothed_loss(changed, labels, label_smoothing=0.1) == loss
    assert label_smoothed_loss(logits[:1], labels[:1], label_smoothing=0.1) == loss, "an ignored row adds nothing"
    assert label_smoothed_loss(logits, torch.full_like(labels, -100)) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_accumulation_changes_nothing(tokenizer, tmp_path, smoothing):
    weights = []
    for batch, accumulation in ((6, 1), (2, 3), (1, 6)):
        model = bart()
        args = arguments(
            tmp_path,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            label_smoothing_factor=smoothing,
        )
        trainer = PtmSeq2SeqTrainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list(ROWS),
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
            compute_loss_func=smooth_once(model, args),
        )
        trainer.train()
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-6)
    assert torch.allclose(weights[0], weights[2], atol=1e-6)
    before = torch.cat([value.flatten() for value in bart().state_dict().values()])
    assert (weights[0] - before).abs().max() > 1e-4


# ---- evaluation ----


def unilm_trainer(tokenizer, folder, **values):
    training = DataCollatorForUniLMSeq2Seq(tokenizer, max_len=40, seed=0)
    evaluation = DataCollatorForUniLMGeneration(DataCollatorForUniLMSeq2Seq(tokenizer, max_len=40, seed=1))
    return PtmSeq2SeqTrainer(
        model=unilm(),
        args=arguments(folder, **values),
        train_dataset=Dataset.from_list(ROWS),
        eval_dataset=Dataset.from_list(ROWS),
        data_collator=training,
        eval_collator=evaluation,
        processing_class=tokenizer,
        decoding=lambda prompt: {"max_new_tokens": 6, "num_beams": 2},
    )


def test_predictions_are_the_continuations_of_single_prompts(tokenizer, tmp_path):
    trainer = unilm_trainer(tokenizer, tmp_path)
    output = trainer.predict(trainer.eval_dataset)
    for row, predicted in zip(ROWS, output.predictions, strict=True):
        prompt = torch.tensor([row["input_ids"]])
        alone = trainer.model.generate(prompt, max_new_tokens=6, num_beams=2)[0, prompt.shape[1] :]
        kept = predicted[predicted != -100]
        assert kept[: len(alone)].tolist() == alone.tolist()
        assert not kept[len(alone) :].any(), "padding only"
    assert output.metrics["test_loss"] > 0


def test_every_evaluation_sees_the_same_masks_and_training_goes_on_with_its_own(tokenizer, tmp_path):
    trainer = unilm_trainer(tokenizer, tmp_path)
    kept = copy.deepcopy(trainer.model.generation_config)
    drawn = trainer.data_collator.state_dict()
    losses = [trainer.evaluate()["eval_loss"] for _ in range(2)]
    assert losses[0] == losses[1]
    assert trainer.data_collator.state_dict() == drawn
    assert trainer.model.generation_config.to_dict() == kept.to_dict()


def test_the_loss_alone_needs_no_generation(tokenizer, tmp_path):
    trainer = unilm_trainer(tokenizer, tmp_path, predict_with_generate=False)
    trainer.decoding = None
    trainer.model.generate = None
    assert trainer.evaluate()["eval_loss"] > 0


# ---- the batches of UniLM's evaluation ----


@pytest.mark.parametrize("pseudo_masked", [False, True])
def test_prompts_are_padded_on_the_left_and_cut_as_the_rows_of_the_loss(tokenizer, pseudo_masked):
    loss_collator = DataCollatorForUniLMSeq2Seq(tokenizer, max_len=12, pseudo_masked=pseudo_masked, seed=0)
    batch = DataCollatorForUniLMGeneration(loss_collator)(ROWS)
    for row, mask, length, label in zip(
        batch["input_ids"],
        batch["attention_mask"],
        batch["loss_inputs"]["source_lengths"],
        batch["labels"],
        strict=True,
    ):
        prompt = row[mask.bool()]
        assert len(prompt) == length
        assert row[-1] == 3
        assert prompt[0] == 2
        assert mask.tolist() == sorted(mask.tolist())
        assert label[label != -100].tolist() in [one["labels"] for one in ROWS]
    assert batch["loss_inputs"]["return_logits"] is False


@pytest.mark.parametrize("options", [{"mask_source": True}, {"pseudo_masked": True, "source_mask_prob": 0.1}])
def test_corrupted_sources_are_no_prompts(tokenizer, options):
    with pytest.raises(ValueError, match="mask_source"):
        DataCollatorForUniLMGeneration(DataCollatorForUniLMSeq2Seq(tokenizer, **options))
