"""Unicoder's terms on upstream's models: what word recovery reads, plain checkpoints, resume, learning."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    TrainingArguments,
    XLMConfig,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMWithLMHeadModel,
)

from hf_ptm_ext import DataCollatorForUnicoder, UnicoderTrainer
from hf_ptm_ext.data import encode_documents, train_wordpiece, unicoder_rows
from hf_ptm_ext.trainers import UnicoderModel

PAIRS = Path(__file__).parents[1] / "fixtures" / "xquad_pairs_240.jsonl"
TERMS = ("mlm", "recovery", "paraphrase", "mixed")


@pytest.fixture(scope="module")
def text():
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    lines = [[pair["en"], pair["zh"]] for pair in pairs]
    tokenizer = train_wordpiece(lines, 1200, lowercase=True, model_max_length=64)
    encoded = [[tuple(pair) for pair in encode_documents(lines, tokenizer)]]
    return tokenizer, Dataset.from_list(unicoder_rows(encoded, len(tokenizer), 48, np.random.default_rng(0)))


def xlm(size, dim=32):
    torch.manual_seed(0)
    return XLMWithLMHeadModel(
        XLMConfig(
            vocab_size=size, emb_dim=dim, n_layers=2, n_heads=4, n_langs=2, max_position_embeddings=64, pad_index=0,
            dropout=0.0, attention_dropout=0.0, embed_init_std=0.02,
        )
    )  # fmt: skip


def others(size):
    torch.manual_seed(0)
    small = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"intermediate_size": 64, "max_position_embeddings": 66, "pad_token_id": 0}
    return XLMRobertaForMaskedLM(XLMRobertaConfig(**small)), BertForMaskedLM(BertConfig(**small))


def batch_of(text, count=8, **options):
    tokenizer, rows = text
    return dict(
        DataCollatorForUnicoder(tokenizer, languages=(0, 1), seed=0, **options)([rows[i] for i in range(count)])
    )


def test_words_are_read_off_the_translation_alone(text):
    torch.manual_seed(0)
    model = UnicoderModel(xlm(len(text[0]))).eval()
    batch = batch_of(text)
    words = batch["recovery_labels"] != -100
    with torch.no_grad():
        model.word_attention.weight.zero_()
        blind = model.recovery_logits(batch)
        changed = {**batch, "recovery_input_ids": batch["recovery_input_ids"].masked_fill(words, 77)}
        torch.testing.assert_close(model.recovery_logits(changed), blind)
        moved = {**batch, "recovery_source_ids": batch["recovery_source_ids"].flip(0)}
        assert not torch.allclose(model.recovery_logits(moved), blind)
        padded = {
            **batch,
            "recovery_source_ids": torch.nn.functional.pad(batch["recovery_source_ids"], (0, 3), value=9),
            "recovery_source_mask": torch.nn.functional.pad(batch["recovery_source_mask"], (0, 3)),
        }
        torch.testing.assert_close(model.recovery_logits(padded), blind)


def test_attention_is_that_of_the_paper(text):
    model = UnicoderModel(xlm(len(text[0])))
    words, sources, weight = torch.randn(2, 3, 32), torch.randn(2, 5, 32), model.word_attention.weight[0]
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    found = model.word_weights(words, sources, mask)
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        for i in range(3):
            x = words[row, i]
            scores = torch.stack([weight @ torch.cat([x, y, x * y]) for y in sources[row, :length]])
            torch.testing.assert_close(found[row, i, :length], scores.softmax(0))
    assert not found[1, :, 3:].any()


def test_every_kind_of_model_reads_what_it_takes(text):
    batch = batch_of(text)
    for model in (xlm(len(text[0])), *others(len(text[0]))):
        output = UnicoderModel(model, 2.0, 3.0, 4.0)(**batch)
        weights = dict(zip(TERMS, (1.0, 2.0, 3.0, 4.0), strict=True))
        total = sum(weight * output[f"{name}_loss"] for name, weight in weights.items())
        torch.testing.assert_close(output.loss, total)
        output.loss.backward()
    some = UnicoderModel(xlm(len(text[0])))(**batch_of(text, tasks=("paraphrase",)))
    assert {name for name in some if name.endswith("_loss")} == {"mlm_loss", "paraphrase_loss"}


def test_what_does_not_fit_is_refused(text):
    with pytest.raises(ValueError, match="`labels` or those of a task must be given"):
        UnicoderModel(xlm(20))(torch.tensor([[5]]))
    model = T5ForConditionalGeneration(T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    model.forward = lambda input_ids: input_ids
    with pytest.raises(ValueError, match="`model` must take `inputs_embeds`, T5ForConditionalGeneration does not"):
        UnicoderModel(model)


def trainer_of(folder, text, steps, weights=(1.0, 1.0, 1.0), dim=32, **options):
    tokenizer, rows = text
    tasks = options.pop("tasks", ("recovery", "paraphrase", "mixed"))
    options = {"per_device_train_batch_size": 16, "save_strategy": "no", "learning_rate": 2e-3, **options}
    args = TrainingArguments(
        output_dir=str(folder), max_steps=steps, report_to=[], use_cpu=True, seed=0,
        per_device_eval_batch_size=40, disable_tqdm=True, logging_steps=1, warmup_steps=10, **options,
    )  # fmt: skip
    return UnicoderTrainer(
        model=UnicoderModel(xlm(len(tokenizer), dim), *weights),
        args=args,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=DataCollatorForUnicoder(tokenizer, languages=(0, 1), tasks=tasks, seed=0),
        processing_class=tokenizer,
    )


def test_checkpoints_are_plain_and_a_resumed_run_is_the_same(tmp_path, text):
    whole = trainer_of(tmp_path / "whole", text, 4, gradient_accumulation_steps=2)
    whole.train()
    parts = {"save_strategy": "steps", "save_steps": 2, "gradient_accumulation_steps": 2}
    first = trainer_of(tmp_path / "parts", text, 4, **parts)
    first.args.max_steps = 2
    first.train()
    again = trainer_of(tmp_path / "parts", text, 4, **parts)
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    for (name, one), (_, other) in zip(whole.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    assert {f"{name}_loss" for name in TERMS} <= set(again.state.log_history[-2])
    again.save_model(str(tmp_path / "saved"))
    ids = torch.tensor([[2, 9, 10, 3]])
    plain = XLMWithLMHeadModel.from_pretrained(tmp_path / "saved").eval()
    assert torch.equal(plain(ids).logits, again.model.model.eval()(ids).logits)
    assert (tmp_path / "saved" / "auxiliary_heads.safetensors").is_file()


@pytest.mark.slow
def test_words_and_documents_are_learnt_and_an_ablated_term_is_not(tmp_path, text):
    options = {"dim": 64, "learning_rate": 5e-3}
    trainer = trainer_of(tmp_path, text, 120, (1.0, 0.0, 1.0), **options)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    for term in ("mlm", "recovery", "mixed"):
        assert after[f"eval_{term}_loss"] < before[f"eval_{term}_loss"] - 0.8, term
    ablated = trainer_of(tmp_path, text, 120, (0.0, 0.0, 1.0), **options)
    ablated.train()
    assert ablated.evaluate()["eval_recovery_loss"] > after["eval_recovery_loss"] + 0.5


@pytest.mark.slow
def test_translations_are_told_from_similar_sentences_and_an_ablated_model_guesses(tmp_path, text):
    options = {"tasks": ("paraphrase",), "learning_rate": 1e-3, "lr_scheduler_type": "constant_with_warmup", "dim": 64}
    trainer = trainer_of(tmp_path, text, 400, (0.0, 1.0, 0.0), **options)
    trainer.train()
    ablated = trainer_of(tmp_path, text, 100, (0.0, 0.0, 0.0), **options)
    ablated.train()
    assert trainer.evaluate()["eval_paraphrase_loss"] < 0.6
    assert ablated.evaluate()["eval_paraphrase_loss"] > 0.67
