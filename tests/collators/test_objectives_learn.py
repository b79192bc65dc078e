"""What the further maskings ask for is learnt on real text, and not by a model that was never asked."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

from hf_ptm_ext.collators import (
    DataCollatorForErnieMasking,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForWordOrder,
)
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text():
    documents = embedded_corpus("en")[:300]
    tokenizer = train_wordpiece(documents, 800, lowercase=True, model_max_length=48)
    continues = np.array([piece.startswith("##") for piece in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])

    def add_units(row):
        return {"phrase_ids": np.cumsum(~continues[row["input_ids"]]).tolist()}

    rows = pretraining_dataset(documents, tokenizer, max_seq_length=48).map(add_units)
    return tokenizer, rows.select(range(len(rows) - 200)), rows.select(range(len(rows) - 200, len(rows)))


def trained(folder, text, collator):
    tokenizer, rows, _ = text
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    args = TrainingArguments(
        str(folder), max_steps=800, per_device_train_batch_size=16, learning_rate=2e-3, report_to=[],
        save_strategy="no", use_cpu=True, seed=0, remove_unused_columns=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model=BertForMaskedLM(config), args=args, train_dataset=rows, data_collator=collator)
    trainer.train()
    return trainer.model.eval()


@torch.no_grad()
def loss_of(model, collator, rows):
    batch = collator([rows[number] for number in range(len(rows))])
    return model(**{name: value for name, value in batch.items() if name != "phrase_ids"}).loss.item()


def test_the_order_of_words_is_learnt_where_it_is_shuffled(tmp_path, text):
    tokenizer, _, held_out = text
    asked = trained(tmp_path, text, DataCollatorForWordOrder(tokenizer, budget="exact", seed=0))
    never = trained(tmp_path, text, DataCollatorForMaskedLanguageModeling(tokenizer, budget="exact", seed=0))
    order = DataCollatorForWordOrder(tokenizer, mlm_probability=0.0, shuffle_prob=0.05, seed=1)
    assert loss_of(asked, order, held_out) < loss_of(never, order, held_out) - 0.5


def test_whole_units_are_learnt(tmp_path, text):
    tokenizer, rows, held_out = text
    options = {"levels": {"phrase": "phrase_ids"}, "level_weights": {"phrase": 1}}
    model = trained(tmp_path, text, DataCollatorForErnieMasking(tokenizer, seed=0, **options))
    counts = np.bincount([token for row in rows["input_ids"] for token in row if token > 4])
    shares = counts[counts > 0] / counts.sum()
    unigrams = -(shares * np.log(shares)).sum()
    assert loss_of(model, DataCollatorForErnieMasking(tokenizer, seed=1, **options), held_out) < unigrams - 0.2
