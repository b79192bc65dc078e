"""Upstream's own classes under the plain Trainer, on real text: BART, T5 and XLM learn; so does our MASS.

Also what the Trainer does to the columns (case G08): it drops those that the model's forward does not name.
"""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
    XLMConfig,
    XLMWithLMHeadModel,
)

from hf_ptm_ext import MassConfig, MassForConditionalGeneration
from hf_ptm_ext.collators import (
    DataCollatorForMassPreTraining,
    DataCollatorForSpanCorruption,
    DataCollatorForTextInfilling,
    DataCollatorForTranslationLanguageModeling,
)
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece
from hf_ptm_ext.trainers import PtmTrainer

PAIRS = Path(__file__).parents[1] / "fixtures" / "xquad_pairs_240.jsonl"
PAD, CLS, SEP = 0, 2, 3
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "dropout": 0.0,
}


@pytest.fixture(scope="module")
def english():
    """A tokenizer with sentinels, and rows of 48 tokens of the embedded corpus."""
    documents = embedded_corpus("en")[:150]
    tokenizer = train_wordpiece(documents, vocab_size=300)
    tokenizer.add_tokens([f"<extra_id_{i}>" for i in range(20)], special_tokens=True)
    rows = pretraining_dataset(documents, tokenizer, max_seq_length=48)
    return tokenizer, rows.filter(lambda row: len(row["input_ids"]) > 8)


@pytest.fixture(scope="module")
def pairs():
    lines = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    texts = [[row["en"], row["zh"]] for row in lines]
    tokenizer = train_wordpiece(texts, vocab_size=600)
    return tokenizer, Dataset.from_list(
        [
            {
                "input_ids": tokenizer(en)["input_ids"],
                "labels": tokenizer(zh)["input_ids"],
                "langs": [0, 1],
                "en": en,
                "zh": zh,
            }
            for en, zh in texts
        ]
    )


def losses(folder, model, rows, collator, trainer_class=Trainer, steps=40, **options):
    """Mean loss of the first and the last ten updates."""
    args = TrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=16,
        learning_rate=4e-3,
        lr_scheduler_type="constant",
        logging_steps=min(10, steps),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
        **options,
    )
    trainer = trainer_class(model=model, args=args, train_dataset=rows, data_collator=collator)
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return float(logged[0]), float(logged[-1])


def bart(tokenizer):
    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=64,
            pad_token_id=PAD,
            bos_token_id=CLS,
            eos_token_id=SEP,
            decoder_start_token_id=SEP,
            forced_eos_token_id=None,
            **SIZES,
        )
    )


def test_bart_learns_from_text_infilling(tmp_path, english):
    tokenizer, rows = english
    first, last = losses(tmp_path, bart(tokenizer), rows, DataCollatorForTextInfilling(tokenizer, seed=0))
    assert last < first - 0.4


def test_t5_learns_from_span_corruption(tmp_path, english):
    tokenizer, rows = english
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        pad_token_id=PAD,
        eos_token_id=SEP,
        decoder_start_token_id=PAD,
        dropout_rate=0.0,
    )
    collator = DataCollatorForSpanCorruption(tokenizer, seed=0)
    first, last = losses(tmp_path, T5ForConditionalGeneration(config), rows, collator)
    assert last < first - 0.5


def test_xlm_learns_from_pairs(tmp_path, pairs):
    """The rows survive the Trainer's default: `input_ids`, `labels` and `langs` are names of XLM's forward."""
    tokenizer, rows = pairs
    torch.manual_seed(0)
    config = XLMConfig(
        vocab_size=len(tokenizer),
        emb_dim=32,
        n_layers=2,
        n_heads=2,
        n_langs=2,
        max_position_embeddings=128,
        dropout=0.0,
        attention_dropout=0.0,
        pad_token_id=PAD,
        mask_token_id=tokenizer.mask_token_id,
    )
    collator = DataCollatorForTranslationLanguageModeling(tokenizer, seed=0)
    first, last = losses(tmp_path, XLMWithLMHeadModel(config), rows, collator)
    assert last < first - 0.4


def test_mass_learns_from_fragments(tmp_path, english):
    tokenizer, rows = english
    torch.manual_seed(0)
    config = MassConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        pad_token_id=PAD,
        bos_token_id=CLS,
        eos_token_id=SEP,
        decoder_start_token_id=SEP,
        **SIZES,
    )
    collator = DataCollatorForMassPreTraining(tokenizer, mask_prob=0.5, seed=0)
    first, last = losses(tmp_path, MassForConditionalGeneration(config), rows, collator)
    assert last < first - 0.4


def test_the_trainers_label_smoothing_needs_no_labels_in_the_forward(tmp_path, english):
    """It takes the labels away before the forward; `decoder_input_ids` are there all the same."""
    tokenizer, rows = english
    collator = DataCollatorForTextInfilling(tokenizer, seed=0)
    first, last = losses(tmp_path, bart(tokenizer), rows, collator, steps=20, label_smoothing_factor=0.1)
    assert last < first


class TestDroppedColumns:
    def test_source_and_target_need_the_switch(self, tmp_path, pairs):
        tokenizer, rows = pairs
        renamed = rows.map(
            lambda row: {"source_ids": row["input_ids"][1:-1], "target_ids": row["labels"][1:-1]},
            remove_columns=["input_ids", "labels", "en", "zh"],
        )
        config = XLMConfig(vocab_size=len(tokenizer), emb_dim=32, n_layers=1, n_heads=2, n_langs=2)
        collator = DataCollatorForTranslationLanguageModeling(tokenizer, seed=0)
        with pytest.raises(ValueError, match=r"`source_ids`|`input_ids`.*remove_unused_columns=False"):
            losses(tmp_path, XLMWithLMHeadModel(config), renamed, collator, steps=1)
        losses(tmp_path, XLMWithLMHeadModel(config), renamed, collator, steps=1, remove_unused_columns=False)
        losses(tmp_path, XLMWithLMHeadModel(config), renamed, collator, PtmTrainer, steps=1)

    def test_a_word_column_is_missed_and_not_replaced_by_tokens(self, tmp_path, english):
        tokenizer, rows = english
        rows = rows.select(range(32)).map(lambda row: {"word_ids": [-1, *range(len(row["input_ids"]) - 2), -1]})
        collator = DataCollatorForTextInfilling(tokenizer, word_boundaries="column", seed=0)
        with pytest.raises(ValueError, match=r"`word_ids` must be a column.*remove_unused_columns=False"):
            losses(tmp_path, bart(tokenizer), rows, collator, steps=1)
        losses(tmp_path, bart(tokenizer), rows, collator, PtmTrainer, steps=1)
