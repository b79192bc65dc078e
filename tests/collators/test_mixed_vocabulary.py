"""Words of mixed-vocabulary batches: what a word is, where a text ends, which tokenizers can share words."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from hf_ptm_ext import DataCollatorForMixedVocabulary
from hf_ptm_ext.collators import mixed_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdefgh去北京.", *(f"##{letter}" for letter in "abcdefgh")]


def tokenizer_of(*pieces):
    return BertTokenizerFast(vocab={piece: number for number, piece in enumerate([*SPECIAL, *pieces])})


@pytest.fixture(scope="module")
def pair():
    return tokenizer_of(*LETTERS), tokenizer_of("abc", "def", "gh", *LETTERS)


def draw(batch, row):
    """(piece number, vocabulary) of the teacher's row, special tokens aside."""
    inside = batch["teacher_attention_mask"][row].bool()
    ids, kinds = batch["teacher_input_ids"][row][inside][1:-1], batch["teacher_vocabulary_ids"][row][inside][1:-1]
    return list(zip(ids.tolist(), kinds.tolist(), strict=True))


def test_texts_without_spaces_have_words(pair):
    collator = DataCollatorForMixedVocabulary(*pair, mlm_probability=0.0, max_length=12, seed=0)
    batch = collator([{"text": "去北京" * 20}])
    assert batch["attention_mask"].sum() == 12
    assert batch["teacher_attention_mask"].sum() == 12
    kinds = [kind for _, kind in draw(batch, 0)]
    assert set(kinds) == {0, 1}  # a draw for every character, not one for the text


def test_a_column_of_words_decides(pair):
    collator = DataCollatorForMixedVocabulary(*pair, mlm_probability=0.0, max_length=12, seed=0)
    for _ in range(8):
        kinds = [kind for _, kind in draw(collator([{"words": ["abc", "去北京"]}]), 0)]
        assert len(set(kinds[-3:])) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abcdefgh", min_size=1, max_size=6), max_size=12), st.integers(3, 20), st.integers(0, 99))
def test_both_sides_end_with_the_same_word(words, most, seed):
    tokenizers = tokenizer_of(*LETTERS), tokenizer_of("abc", "def", "gh", *LETTERS)
    collator = DataCollatorForMixedVocabulary(*tokenizers, mlm_probability=0.0, max_length=most, seed=seed)
    batch = collator([{"text": " ".join(words)}, {"text": "a"}])
    assert max(batch["input_ids"].shape[1], batch["teacher_input_ids"].shape[1]) <= most
    length = int(batch["attention_mask"][0].sum())
    student = "".join(tokenizers[0].convert_ids_to_tokens(batch["input_ids"][0, 1 : length - 1]))
    teacher = "".join(tokenizers[1 - kind].convert_ids_to_tokens(index) for index, kind in draw(batch, 0))
    assert student.replace("##", "") == teacher.replace("##", "")
    assert "".join(words).startswith(student.replace("##", ""))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_the_probability_decides_whose_pieces_the_teacher_reads(pair, probability):
    collator = DataCollatorForMixedVocabulary(*pair, student_probability=probability, mlm_probability=0.0)
    batch = collator([{"text": "abc def. gh"}])
    assert {kind for _, kind in draw(batch, 0)} == {int(probability)}
    if probability:
        assert torch.equal(batch["input_ids"], batch["teacher_input_ids"])


def test_forgotten_words_are_cut_again(pair, monkeypatch):
    collator = DataCollatorForMixedVocabulary(*pair, seed=0)
    rows = [{"text": "abc gh"}, {"text": "def a"}]
    expected = collator(rows)
    monkeypatch.setattr(mixed_vocabulary, "REMEMBERED_WORDS", 1)
    collator.load_state_dict({**collator.state_dict(), "calls": 0})
    assert all(torch.equal(expected[name], value) for name, value in collator(rows).items())
    assert len(collator._pieces) == 4
    for other in (copy.deepcopy(collator), pickle.loads(pickle.dumps(collator))):
        other.load_state_dict({**other.state_dict(), "calls": 0})
        assert all(torch.equal(expected[name], value) for name, value in other(rows).items())


def test_empty_texts_are_rows_without_labels(pair):
    batch = DataCollatorForMixedVocabulary(*pair, seed=0)([{"text": ""}, {"text": "  "}])
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 1]]
    assert (batch["labels"] == -100).all()


def test_what_cannot_share_words_is_refused(pair, byte_level, metaspace):
    for other in (byte_level, metaspace):
        with pytest.raises(ValueError, match=r"`teacher_tokenizer` must cut single words into word pieces"):
            DataCollatorForMixedVocabulary(pair[0], other)
    for option, value in (("student_probability", 1.5), ("mlm_probability", -0.1), ("max_length", 2)):
        with pytest.raises(ValueError, match=f"`{option}`"):
            DataCollatorForMixedVocabulary(*pair, **{option: value})
