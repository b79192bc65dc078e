"""N-grams of words, and MacBERT's similar words in their place."""

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForMacBertMasking, DataCollatorForNgramMasking
from hf_ptm_ext.data.word_vectors import WordVectors
from hf_ptm_ext.masking import find_segments

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "big", "large", "huge", "cat", "dog", "light", "##house", "##s"]
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})
CHINESE = "大桥很长江水"
CHARACTERS = BertTokenizerFast(
    vocab={piece: number for number, piece in enumerate([*SPECIAL, *sorted(set(CHINESE + "铁路短河"))])}
)
SIMILAR = {"big": ["lighthouse", "large"], "large": ["huge"], "lighthouse": ["dog", "lights"], "cat": ["zebra"]}
ROW = [2, 5, 8, 10, 11, 9, 6, 3]


def test_law_of_sizes():
    collator = DataCollatorForNgramMasking(TOKENIZER, ngram_probabilities=(0, 0, 1), seed=0)
    labels = collator([[2, *[5] * 20, 3]] * 200)["labels"].numpy() != -100
    lengths = find_segments(labels).lengths
    assert lengths.max() == 3
    assert (lengths == 3).mean() > 0.8, "3 of 22 tokens: one n-gram of three words, but for starts near the end"
    with pytest.raises(ValueError, match="`budget` must be 'exact' for n-grams"):
        DataCollatorForNgramMasking(TOKENIZER, budget="bernoulli")
    with pytest.raises(ValueError, match="probabilities that sum to 1"):
        DataCollatorForNgramMasking(TOKENIZER, ngram_probabilities=(1, 1))([ROW])
    with pytest.raises(ValueError, match="`max_ngram_size` must be at least 1, got 0"):
        DataCollatorForNgramMasking(TOKENIZER, max_ngram_size=0)


def test_no_ngram_crosses_a_special_token_or_another_sequence():
    collator = DataCollatorForNgramMasking(TOKENIZER, ngram_probabilities=(0, 0, 0, 1), mlm_probability=0.5, seed=0)
    ids = [2, 5, 5, 3, 2, 6, 6, 6, 6, 3]
    rows = [{"input_ids": ids, "sequence_ids": [1] * 4 + [2] * 6}] * 100
    labels = collator(rows)["labels"].numpy() != -100
    assert not labels[:, [0, 3, 4, 9]].any()
    assert set(labels[:, 1:3].sum(1)) == {2}, "the law is cut to what the sequence has: both of two words"
    assert set(labels[:, 5:9].sum(1)) <= {2, 3}


def test_tokens_may_be_the_words():
    collator = DataCollatorForNgramMasking(
        TOKENIZER, ngram_probabilities=(1,), word_boundaries="token", mlm_probability=0.125, seed=0
    )
    labels = collator([ROW] * 200)["labels"].numpy() != -100
    assert (labels[:, 3] != labels[:, 4]).any(), "pieces of a word apart"


def test_similar_words_have_as_many_pieces():
    collator = DataCollatorForMacBertMasking(
        TOKENIZER,
        similar_words=SIMILAR,
        mlm_probability=1.0,
        mask_replace_prob=1.0,
        random_replace_prob=0.0,
        ngram_probabilities=(1.0,),
        exclude_special_from_random=True,
        seed=0,
    )
    batch = collator([ROW] * 50)
    seen, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
    chosen = labels != -100
    assert set(seen[:, 1][chosen[:, 1]]) == {6}, "big: lighthouse has two pieces, large has one"
    assert set(seen[:, 6][chosen[:, 6]]) == {7}
    assert {tuple(pair) for pair in seen[:, 3:5][chosen[:, 3]]} == {(10, 12)}, "lighthouse: lights"
    assert len(set(seen[:, 2][chosen[:, 2]])) > 3, "cat: zebra is unknown, so random tokens"
    assert 4 not in seen
    assert (labels[chosen] == np.array([ROW] * 50)[chosen]).all()


def test_fates_of_words():
    collator = DataCollatorForMacBertMasking(
        TOKENIZER, similar_words=lambda word: ["large"], exclude_special_from_random=True, seed=0
    )
    batch = collator([[2, *[5] * 98, 3]] * 400)
    seen = batch["input_ids"].numpy()[batch["labels"].numpy() != -100]
    shares = np.bincount(seen, minlength=13) / len(seen)
    assert shares[6] == pytest.approx(0.8 + 0.1 / 8, abs=0.02)
    assert shares[5] == pytest.approx(0.1 + 0.1 / 8, abs=0.02)


def test_chinese_words_from_a_column_and_vectors():
    vectors = WordVectors(["大桥", "铁路", "长", "短"], [[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    collator = DataCollatorForMacBertMasking(
        CHARACTERS, similar_words=vectors, mlm_probability=1.0, mask_replace_prob=1.0, random_replace_prob=0.0, seed=0
    )
    ids = CHARACTERS("大桥很长")["input_ids"]
    batch = collator([{"input_ids": ids, "word_ids": [-1, 0, 0, 1, 2, -1]}] * 20)
    texts = [CHARACTERS.decode(row[1:4]).replace(" ", "") for row in batch["input_ids"]]
    assert {text[:2] for text in texts} <= {"大桥", "铁路"}
    assert "铁路短" in texts
    with pytest.raises(ValueError, match="`word_ids` must be a column of text written without spaces"):
        DataCollatorForMacBertMasking(CHARACTERS, similar_words=vectors)([ids])


@pytest.mark.parametrize("missing", [None, 3])
def test_similar_words_are_needed(missing):
    with pytest.raises(ValueError, match="`similar_words` must be a function"):
        DataCollatorForMacBertMasking(TOKENIZER, similar_words=missing)
