"""ELECTRA's draws with replacement: how many are distinct, a slot for each, packed rows apart, degenerate rows."""

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import (
    DataCollatorForInfoWord,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForTranslationLanguageModeling,
    DataCollatorForWordOrder,
)
from hf_ptm_ext.masking import drawn_tokens

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(5, 200)))
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})


def make(**options):
    given = {"budget": "electra", "mask_replace_prob": 0.85, "random_replace_prob": 0.0, "seed": 0}
    return DataCollatorForMaskedLanguageModeling(TOKENIZER, **{**given, **options})


@pytest.mark.parametrize(("length", "draws", "distinct"), [(128, 19, 17.7), (512, 77, 71.5)])
def test_the_number_of_distinct_tokens_is_the_reference_s(length, draws, distinct):
    """Expected values of specs of the released code: n (1 - (1 - 1/n)^k)."""
    row = [2, *(5 + number % 190 for number in range(length - 2)), 3]
    batch = make()([row] * 400, return_tensors="np")
    assert batch["label_positions"].shape == (400, draws)
    found = (batch["labels"] != -100).sum(axis=1)
    assert found.mean() == pytest.approx(distinct, abs=4 * found.std() / 20 + 0.05)
    for labels, places in zip(batch["labels"], batch["label_positions"], strict=True):
        assert set(places) == set(np.flatnonzero(labels != -100)), "every label has a slot, every slot a label"
    hits = np.bincount(batch["label_positions"].ravel(), minlength=length)
    assert hits[[0, length - 1]].sum() == 0
    expected = 400 * draws / (length - 2)
    assert ((hits[1:-1] - expected) ** 2 / expected).sum() < (length - 2) + 6 * (2 * (length - 2)) ** 0.5  # chi square


def test_slots_without_a_draw_point_at_no_label_and_originals_come_back():
    rows = [[2, *range(5, 60), 3], [2, 7, 3], [2, 3]]
    batch = make(label_budget=16)(rows, return_tensors="np")
    assert batch["label_positions"].shape == (3, 16)
    slots = np.take_along_axis(batch["labels"], batch["label_positions"], axis=1) != -100
    assert slots.sum(axis=1).tolist() == [9, 1, 0]
    restored = np.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
    assert [line[: len(row)].tolist() for line, row in zip(restored, rows, strict=True)] == rows


def test_sequences_of_a_packed_row_have_draws_of_their_own():
    row = {"input_ids": [2, *range(5, 25), 3, 2, *range(30, 50), 3, 0], "sequence_ids": [1] * 22 + [2] * 22 + [0]}
    places = make()([row] * 50, return_tensors="np")["label_positions"]
    assert ((places < 22).sum(axis=1) == 3).all()
    assert places.shape == (50, 6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`label_budget` must hold the 28 draws"):
        make(mlm_probability=0.5, label_budget=26)([[2, *range(5, 60), 3]])
    with pytest.raises(ValueError, match="`sample_alpha` must be 0 with budget='electra'"):
        make(sample_alpha=0.5, token_counts=[1] * 200)
    for other in (DataCollatorForWordOrder, DataCollatorForInfoWord, DataCollatorForTranslationLanguageModeling):
        with pytest.raises(ValueError, match=r"`budget` must be one of .*, got 'electra'"):
            other(TOKENIZER, budget="electra")
    assert drawn_tokens(np.zeros((2, 3), dtype=bool), np.array([2, 2]), np.random.default_rng(0)).size == 0
