"""StructBERT's word order: n-grams are shuffled where nothing is masked, and their own tokens are predicted."""

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForWordOrder

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(200))]
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})


def rows(count, length):
    """Every token of a row once, so that a moved one is told from a random one."""
    return [[2, *(5 + np.random.default_rng(row).permutation(180)[:length]).tolist(), 3] for row in range(count)]


def made(collator, texts):
    batch = collator(texts)
    return batch["input_ids"].numpy(), batch["labels"].numpy(), np.array(texts)


def test_shuffled_ngrams_keep_their_tokens_and_are_labelled():
    ids, labels, original = made(DataCollatorForWordOrder(TOKENIZER, mlm_probability=0.0, seed=0), rows(200, 120))
    assert (np.sort(ids, axis=1) == np.sort(original, axis=1)).all(), "nothing comes, nothing goes"
    chosen = labels != -100
    assert (labels[chosen] == original[chosen]).all()
    assert (ids[~chosen] == original[~chosen]).all()
    share = chosen.mean()
    assert 0.10 < share < 0.15, "5 % of the trigrams, less those that overlap"
    assert ((ids != original) & chosen).sum() / chosen.sum() == pytest.approx(2 / 3, abs=0.03), "orders are uniform"
    for row in range(20):
        places = np.flatnonzero(chosen[row])
        where = {token: place for place, token in enumerate(original[row])}
        assert all(abs(where[ids[row, place]] - place) <= 2 for place in places), "within a trigram"


@pytest.mark.parametrize(("length", "most"), [(120, 6), (12, 1)])
def test_each_row_has_the_share_of_its_ngrams(length, most):
    """So that fixed slots for labels hold those of every row; a share below one n-gram is one now and then."""
    collator = DataCollatorForWordOrder(TOKENIZER, mlm_probability=0.0, seed=0)
    _, labels, _ = made(collator, rows(400, length))
    counts = (labels != -100).sum(axis=1)
    assert counts.max() == 3 * most
    if length == 12:
        assert (counts > 0).mean() == pytest.approx(0.05 * 10, abs=0.1)


def test_masked_and_shuffled_tokens_are_apart():
    collator = DataCollatorForWordOrder(TOKENIZER, mask_replace_prob=1.0, random_replace_prob=0.0, seed=0)
    ids, labels, original = made(collator, rows(200, 120))
    chosen, masked = labels != -100, ids == 4
    assert masked[:, 1:-1].mean() == pytest.approx(0.15, abs=0.01)
    assert (chosen & ~masked).any()
    assert (labels[chosen] == original[chosen]).all()
    assert not chosen[:, [0, -1]].any()


def test_sequences_of_a_packed_row_stay_apart():
    collator = DataCollatorForWordOrder(TOKENIZER, mlm_probability=0.0, shuffle_prob=1.0, shuffle_size=2, seed=0)
    row = {"input_ids": [2, 10, 11, 3, 2, 20, 21, 3], "sequence_ids": [1] * 4 + [2] * 4}
    for _ in range(20):
        ids = collator([row])["input_ids"][0].tolist()
        assert sorted(ids[1:3]) == [10, 11]
        assert sorted(ids[5:7]) == [20, 21]
    for text in ([], [2, 3], [2, 5, 3]):
        assert (collator([text, row["input_ids"]])["labels"][0] == -100).all(), "too short for an n-gram"


@pytest.mark.parametrize(
    ("options", "message"), [({"shuffle_size": 1}, "at least 2"), ({"shuffle_prob": 2}, "shuffle_prob")]
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForWordOrder(TOKENIZER, **options)
