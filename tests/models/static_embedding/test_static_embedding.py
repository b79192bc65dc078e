"""Word vectors as a model: pooling, sub-words, files both ways, resizing, learning."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer

from hf_ptm_ext import (
    StaticEmbeddingConfig,
    StaticEmbeddingForSequenceClassification,
    StaticEmbeddingModel,
    WordVectors,
    export_sentence_transformers,
)
from hf_ptm_ext.cli import main
from hf_ptm_ext.data import word_tokenizer
from hf_ptm_ext.data.word_vectors.subwords import Subwords

WORDS = ["good", "film", "bad", "a"]
TABLE = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
TEXTS = ["a good film", "bad", "a bad unheard film"]


def made(**fields):
    vectors = WordVectors(WORDS, TABLE)
    tokenizer = word_tokenizer(WORDS)
    return StaticEmbeddingModel.from_word_vectors(vectors, tokenizer, **fields), tokenizer


def mean_of(texts):
    rows = [[TABLE[WORDS.index(word)] if word in WORDS else 0 * TABLE[0] for word in text.split()] for text in texts]
    return torch.tensor(np.array([np.mean(row, axis=0) for row in rows]))


@torch.no_grad()
def test_a_text_is_the_mean_of_its_words_whatever_the_padding():
    model, tokenizer = made()
    for side in ("left", "right"):
        tokenizer.padding_side = side
        batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
        torch.testing.assert_close(model(**batch).pooler_output, mean_of(TEXTS))
    assert not model(batch["input_ids"], torch.zeros_like(batch["input_ids"])).pooler_output.any()


@torch.no_grad()
def test_idf_weighs_words_and_stays_when_saved_and_resized(tmp_path):
    model, tokenizer = made(pooling="idf")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    torch.testing.assert_close(model(**batch).pooler_output, mean_of(TEXTS))
    model.fit_idf(tokenizer(TEXTS)["input_ids"])
    idf = {word: np.log(4 / (1 + sum(word in text.split() for text in TEXTS))) + 1 for word in WORDS}
    words = TEXTS[0].split()
    wanted = sum(idf[word] * TABLE[WORDS.index(word)] for word in words) / sum(idf[word] for word in words)
    found = model(**batch).pooler_output
    torch.testing.assert_close(found[0], torch.tensor(wanted).float())
    model.resize_token_embeddings(9)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(AutoModel.from_pretrained(tmp_path)(**batch).pooler_output, found)
    with pytest.raises(ValueError, match="idf"):
        made()[0].fit_idf([[1]])
    with pytest.raises(ValueError, match="pooling"):
        StaticEmbeddingConfig(pooling="max")


@torch.no_grad()
def test_fasttexts_ngrams_make_words_that_have_no_vector():
    vectors = WordVectors(WORDS, TABLE, subwords=Subwords(np.random.default_rng(1).normal(size=(50, 6)), 3, 4, 50))
    tokenizer = word_tokenizer([*WORDS, "goodness"])
    model = StaticEmbeddingModel.from_word_vectors(vectors, tokenizer)
    table = model.get_input_embeddings().weight
    torch.testing.assert_close(table[2:].numpy(), vectors.vectors([*WORDS, "goodness"]), check_dtype=False)
    assert not table[:2].any()


@torch.no_grad()
def test_the_command_takes_vectors_and_writes_for_sentence_transformers_and_back(tmp_path):
    WordVectors(WORDS, TABLE).to_word2vec(tmp_path / "vectors.txt")
    command = ["convert", "static_embedding"]
    assert main([*command, str(tmp_path / "vectors.txt"), str(tmp_path / "new")]) == 0
    model, tokenizer = AutoModel.from_pretrained(tmp_path / "new"), AutoTokenizer.from_pretrained(tmp_path / "new")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    torch.testing.assert_close(model(**batch).pooler_output, mean_of(TEXTS))
    assert main([*command, str(tmp_path / "new"), str(tmp_path / "st"), "--to_original"]) == 0
    export_sentence_transformers(model, tokenizer, tmp_path / "exported")
    for name in ("st", "exported"):
        (module,) = json.loads((tmp_path / name / "modules.json").read_text())
        table = load_file(tmp_path / name / module["path"] / "model.safetensors")["embedding.weight"]
        words = Tokenizer.from_file(str(tmp_path / name / module["path"] / "tokenizer.json"))
        rows = [words.encode(text, add_special_tokens=False).ids for text in TEXTS]
        torch.testing.assert_close(torch.stack([table[row].mean(0) for row in rows]), mean_of(TEXTS))
        assert main([*command, str(tmp_path / name), str(tmp_path / f"{name}-back")]) == 0
        again = AutoTokenizer.from_pretrained(tmp_path / f"{name}-back")
        batch = again(TEXTS, padding=True, return_tensors="pt")
        back = StaticEmbeddingModel.from_pretrained(tmp_path / f"{name}-back")
        torch.testing.assert_close(back(**batch).pooler_output, mean_of(TEXTS))
    if (
        importlib.util.find_spec("sentence_transformers") is not None
    ):  # no requirement: where it is, it reads the folder
        encoder = importlib.import_module("sentence_transformers").SentenceTransformer(
            str(tmp_path / "st"), device="cpu"
        )
        torch.testing.assert_close(torch.tensor(encoder.encode(TEXTS)), mean_of(TEXTS))


def test_it_learns_and_frozen_vectors_stay():
    torch.manual_seed(0)
    rows = torch.randint(2, 30, (128, 6))
    labels = (rows == 5).any(1).long() | (rows == 6).any(1).long()
    losses = {}
    for frozen in (False, True):
        config = StaticEmbeddingConfig(
            vocab_size=30, embedding_size=2, freeze_embeddings=frozen, initializer_range=0.3, classifier_dropout=0.0
        )
        model = StaticEmbeddingForSequenceClassification(config)
        before = model.get_input_embeddings().weight.clone()
        optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=3e-2)
        for _ in range(150):
            optimizer.zero_grad()
            model(rows[32:], labels=labels[32:]).loss.backward()
            optimizer.step()
        losses[frozen] = model(rows[:32], labels=labels[:32]).loss.item()
        assert torch.equal(model.get_input_embeddings().weight, before) == frozen
    assert losses[False] < 0.75 * losses[True]
