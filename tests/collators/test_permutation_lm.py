"""Permutation language modelling: what XLNet reads, who sees whom in the real model, and that it learns."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertTokenizerFast, Trainer, TrainingArguments, XLNetConfig, XLNetLMHeadModel

from hf_ptm_ext.collators import DataCollatorForPermutationLanguageModeling
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = {piece: number for number, piece in enumerate([*SPECIAL, *(f"w{n}" for n in range(30)), "##x", "##y"])}
SEP, CLS = PIECES["[SEP]"], PIECES["[CLS]"]


@pytest.fixture(params=["left", "right"])
def tokenizer(request):
    return BertTokenizerFast(vocab=PIECES, padding_side=request.param)


def rows(*lengths):
    rng = np.random.default_rng(0)
    return [[*rng.integers(5, len(PIECES), length).tolist(), SEP, CLS] for length in lengths]


def small_model(vocab_size=37, d_model=32):
    torch.manual_seed(0)
    return XLNetLMHeadModel(
        XLNetConfig(
            vocab_size=vocab_size,
            d_model=d_model,
            n_layer=2,
            n_head=4,
            d_inner=2 * d_model,
            dropout=0.0,
            pad_token_id=0,
        )
    )


def test_the_text_stays_and_targets_are_mapped(tokenizer):
    texts = rows(43, 20, 7)  # odd lengths, ragged
    collator = DataCollatorForPermutationLanguageModeling(tokenizer, seed=0)
    for _ in range(20):
        batch = collator(texts)
        ids, mask = batch["input_ids"].numpy(), batch["attention_mask"].numpy().astype(bool)
        for row, text in enumerate(texts):
            assert ids[row][mask[row]].tolist() == text, "the content stream is the text"
        labels, mapping = batch["labels"].numpy(), batch["target_mapping"].numpy()
        assert (mapping.sum(axis=2) == 1).all()
        real = labels != -100
        assert real.sum(axis=1).tolist() == [round(len(text) / 6) for text in texts]
        places = mapping.argmax(axis=2)
        for row in range(3):
            chosen = places[row][real[row]]
            assert len(set(chosen)) == len(chosen)
            assert (ids[row][chosen] == labels[row][real[row]]).all()
            assert not np.isin(ids[row][chosen], [SEP, CLS, 0]).any()


@torch.no_grad()
def test_a_prediction_depends_on_what_comes_before_it_alone(tokenizer):
    """In upstream's model: other tokens in the place of a target move no target before it, and not itself."""
    model = small_model().eval()
    collator = DataCollatorForPermutationLanguageModeling(tokenizer, mlm_probability=0.4, seed=0)
    batch = collator(rows(24, 15))
    names = ("input_ids", "attention_mask", "perm_mask", "target_mapping")
    inputs = {name: batch[name] for name in names}
    expected = model(**inputs).logits
    places, real = batch["target_mapping"].argmax(-1), batch["labels"] != -100
    seen = 0
    for row in range(2):
        for slot in torch.nonzero(real[row]).flatten().tolist():
            place = places[row, slot].item()
            changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
            changed["input_ids"][row, place] = 5 + (changed["input_ids"][row, place] - 4) % 30
            moved = (model(**changed).logits - expected).abs().amax(-1) > 1e-6
            hidden = batch["perm_mask"][row, places[row], place]
            assert not moved[row, slot]
            assert not (moved[row] & real[row] & hidden).any()
            assert not moved[1 - row].any()
            seen += (moved[row] & real[row]).sum().item()
    assert seen > 20, "later targets see earlier ones, which the mask token of upstream's collator hides"


def test_shapes_are_fixed_where_they_are_asked_for(tokenizer):
    collator = DataCollatorForPermutationLanguageModeling(tokenizer, label_budget=8, pad_to_multiple_of=48, seed=0)
    for texts in (rows(43, 20), rows(5, 9)):
        batch = collator(texts)
        assert batch["target_mapping"].shape == (2, 8, 48)
        assert batch["perm_mask"].shape == (2, 48, 48)
        loss = small_model()(**batch).loss
        assert loss.isfinite()


@pytest.mark.parametrize("text", [[], [CLS], [5], [5, SEP, CLS]])
def test_degenerate_rows(tokenizer, text):
    batch = DataCollatorForPermutationLanguageModeling(tokenizer, seed=0)([text, *rows(10)])
    assert (batch["labels"][0] != -100).sum() == 0
    assert batch["perm_mask"].shape[1:] == (12, 12)


def test_packed_rows_are_refused(tokenizer):
    with pytest.raises(ValueError, match="`sequence_ids` must not be given for permutation language modelling"):
        DataCollatorForPermutationLanguageModeling(tokenizer)([{"input_ids": [5, 6], "sequence_ids": [1, 2]}])


@pytest.mark.slow
def test_xlnet_learns(tmp_path):
    documents = embedded_corpus("en")[:300]
    tokenizer = train_wordpiece(documents, 800, lowercase=True, model_max_length=64)
    data: Dataset = pretraining_dataset(documents, tokenizer, max_seq_length=64)
    args = TrainingArguments(
        output_dir=tmp_path, max_steps=900, per_device_train_batch_size=16, learning_rate=3e-3, logging_steps=50,
        report_to=[], save_strategy="no", use_cpu=True, seed=0, remove_unused_columns=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model=small_model(len(tokenizer), 64),
        args=args,
        train_dataset=data,
        data_collator=DataCollatorForPermutationLanguageModeling(tokenizer, seed=0),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    counts = np.bincount([token for row in data["input_ids"] for token in row if token > 4])
    shares = counts[counts > 0] / counts.sum()
    unigrams = -(shares * np.log(shares)).sum()
    assert losses[-1] < unigrams - 0.2, (losses, unigrams)
