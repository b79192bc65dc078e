"""Transformer-XL's tokenizer: its files, transformers 4's pickles, lower case, delimiters, Moses' rules."""

import collections
import json
import os
import pickle
import sys
import types

import pytest
import torch
from transformers import AutoTokenizer

from hf_ptm_ext import TransfoXLTokenizer

WORDS = ["<eos>", "<unk>", "the", "cat", ",", "1", "@,@", "000"]


def pickled(**more):
    """The vocabulary of transformers 4."""
    numbers = collections.OrderedDict((word, number) for number, word in enumerate(WORDS))
    counts = collections.Counter(WORDS)
    options = {"special": ["<eos>"], "min_freq": 0, "max_size": None, "lower_case": False, "delimiter": None}
    return {"counter": counts, "idx2sym": WORDS, "sym2idx": numbers, **options, **more}


def write(folder, form, content):
    if form == "vocab.txt":
        (folder / form).write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    elif form == "vocab.pkl":
        (folder / form).write_bytes(pickle.dumps(content))
    else:
        torch.save(content, folder / "vocab.bin", _use_new_zipfile_serialization=form == "archive")


@pytest.mark.parametrize("form", ["vocab.txt", "vocab.pkl", "archive", "older"])
def test_every_vocabulary_of_transformers_4_is_read_and_saved_as_json(form, tmp_path):
    write(tmp_path, form, pickled())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "transfo-xl", "vocab_size": 8}), encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, moses=False)
    assert type(tokenizer) is TransfoXLTokenizer
    assert len(tokenizer) == 8
    assert tokenizer("the cat , dog <eos>").input_ids == [2, 3, 4, 1, 0]
    assert (tokenizer.unk_token, tokenizer.eos_token) == ("<unk>", "<eos>")
    tokenizer.save_pretrained(tmp_path / "saved")
    assert not list((tmp_path / "saved").glob("vocab*"))
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again("the cat , dog <eos>").input_ids == [2, 3, 4, 1, 0]
    assert again.decode([2, 3]) == "the cat"


@pytest.mark.parametrize("form", ["vocab.pkl", "older"])
def test_nothing_in_a_pickle_is_run(form, tmp_path):
    write(tmp_path, form, pickled(moses_tokenizer=os.getcwd))
    with pytest.raises(ValueError, match="must be a vocabulary of transformers 4"):
        TransfoXLTokenizer.from_pretrained(tmp_path)


def test_a_word_twice_and_a_folder_without_words_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no vocabulary"):
        TransfoXLTokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("<unk>\nthe\nthe\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocab.txt, word 3: 'the' is there twice, first as word 2"):
        TransfoXLTokenizer.from_pretrained(tmp_path)


def test_cases_and_delimiters():
    vocab = {word: number for number, word in enumerate(WORDS)}
    assert TransfoXLTokenizer(vocab, lower_case=True)("  THE  Cat ").input_ids == [2, 3]
    assert TransfoXLTokenizer(vocab)("THE cat").input_ids == [1, 3]
    assert TransfoXLTokenizer(vocab, delimiter="|")("the|cat|, x").input_ids == [2, 3, 1]
    letters = TransfoXLTokenizer({"<unk>": 0, "a": 1, "b": 2, " ": 3}, delimiter="")
    assert letters("ab b").input_ids == [1, 2, 3, 2]
    assert letters.decode([1, 2, 3, 2]) == "ab b"


def test_a_vocabulary_is_counted():
    made = TransfoXLTokenizer(lower_case=True).train_new_from_iterator(["The cat", "the dog , the end"], vocab_size=4)
    assert type(made) is TransfoXLTokenizer
    assert set(made.get_vocab()) > {"<unk>", "<eos>", "the"}
    assert made("THE zebra").input_ids == [made.get_vocab()["the"], made.unk_token_id]


def test_pickled_vocabularies_go_by_moses_rules(tmp_path, monkeypatch):
    write(tmp_path, "vocab.pkl", pickled())
    tokenizer = TransfoXLTokenizer.from_pretrained(tmp_path)
    assert tokenizer.moses
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ImportError, match="pip install sacremoses"):
        tokenizer("the cat")

    class Rules:
        """Stands for sacremoses: a comma behind a word stands apart."""

        def __init__(self, lang):
            assert lang == "en"

        def normalize(self, text):
            return text

        def tokenize(self, text, aggressive_dash_splits, return_str, escape, protected_patterns):
            assert (aggressive_dash_splits, return_str, escape) == (True, True, False)
            return text.replace(", ", " , ")

        def detokenize(self, words):
            return " ".join(words).replace(" , ", ", ")

    moses = types.ModuleType("sacremoses")
    moses.MosesPunctNormalizer = moses.MosesTokenizer = moses.MosesDetokenizer = Rules
    monkeypatch.setitem(sys.modules, "sacremoses", moses)
    ids = tokenizer(["the cat, 1,000", "cat"]).input_ids
    assert ids == [[2, 3, 4, 5, 6, 7], [3]]
    assert tokenizer.decode(ids[0]) == "the cat, 1,000"
    with pytest.raises(ValueError, match="return_offsets_mapping"):
        tokenizer("the cat", return_offsets_mapping=True)
