"""Losses per word are the same for vocabularies that cut words alike, and what they say they are."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from hf_ptm_ext.data.vocabulary_extension import extend_vocabulary
from hf_ptm_ext.trainers.word_loss import hidden_word_loss, tokens_per_word
from hf_ptm_ext.weights import extend_embeddings

DOCUMENTS = embedded_corpus("en")[:40]
TEXTS = [sentence for document in DOCUMENTS for sentence in document][:30]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(DOCUMENTS, 300)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **SIZES)).eval()


def slow_loss(model, tokenizer, text, seed, number):
    """The definition, word by word and piece by piece."""
    encoded = tokenizer(text)
    ids, words = encoded["input_ids"], encoded.word_ids()
    found = sorted({word for word in words if word is not None})
    hidden = np.random.default_rng([seed, number]).permutation(len(found))[: max(round(0.15 * len(found)), 1)]
    total = 0.0
    for word in hidden:
        places = [place for place, one in enumerate(words) if one == word]
        for step, place in enumerate(places):
            shown = list(ids)
            for other in hidden:
                pieces = [at for at, one in enumerate(words) if one == other]
                for at in pieces[step:]:
                    shown[at] = tokenizer.mask_token_id
            logits = model(input_ids=torch.tensor([shown])).logits[0, place, : len(tokenizer)]
            total -= float(logits.log_softmax(-1)[ids[place]])
    return total, len(hidden)


def test_it_is_what_the_definition_says(model, tokenizer):
    with torch.no_grad():
        expected = [slow_loss(model, tokenizer, text, 3, number) for number, text in enumerate(TEXTS[:8])]
    found = hidden_word_loss(model, tokenizer, TEXTS[:8], seed=3, batch_size=3)
    assert found["words"] == sum(words for _, words in expected)
    assert found["loss"] == pytest.approx(sum(loss for loss, _ in expected) / found["words"], rel=1e-5)


def test_a_model_of_nothing_pays_for_each_piece(tokenizer):
    """Without any knowledge a word costs ln V for each piece: fewer pieces, fewer nats, and the same words."""
    extension = extend_vocabulary(tokenizer, DOCUMENTS, 100)
    found = {}
    for name, one in (("old", tokenizer), ("new", extension.tokenizer)):
        model = BertForMaskedLM(BertConfig(vocab_size=len(one), **SIZES))
        torch.nn.init.zeros_(model.get_output_embeddings().weight)
        found[name] = hidden_word_loss(model, one, TEXTS)
        pieces = found[name]["loss"] / np.log(len(one))
        assert 1 <= pieces <= 4
        assert found[name]["tokens_per_word"] == pytest.approx(tokens_per_word(one, TEXTS), abs=0.15)
    assert found["new"]["words"] == found["old"]["words"]
    assert found["new"]["tokens_per_word"] < found["old"]["tokens_per_word"]


def test_an_extended_model_is_the_old_one_to_the_old_tokenizer(model, tokenizer):
    before = hidden_word_loss(model, tokenizer, TEXTS)
    extension = extend_vocabulary(tokenizer, DOCUMENTS, 50)
    extend_embeddings(model, extension.first_id, extension.sources)
    after = hidden_word_loss(model, tokenizer, TEXTS)
    assert after["loss"] == pytest.approx(before["loss"], rel=1e-6)
    assert {**after, "loss": 0} == {**before, "loss": 0}


def test_the_mode_of_the_model_stays_and_long_texts_are_cut(model, tokenizer):
    model.train()
    long = " ".join(TEXTS)
    found = hidden_word_loss(model, tokenizer, [long, "", long], max_words=20)
    assert found["words"] == 2 * 3
    assert model.training


def test_nothing_to_measure_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="at least one word, got 0 words"):
        hidden_word_loss(model, tokenizer, ["", " "])
    with pytest.raises(ValueError, match="fast one with a mask token, got object"):
        hidden_word_loss(model, object(), TEXTS)
