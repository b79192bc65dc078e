"""Rare tokens are predicted more often (XLM's `sample_alpha`), and RoBERTa's number of predictions."""

import pickle
from itertools import permutations

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForMaskedLanguageModeling

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(95))]
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})
COUNTS = np.zeros(100, dtype=int)
COUNTS[5:10] = [1000, 300, 40, 7, 1]
ROW = [2, 5, 6, 7, 8, 9, 3]


def inclusion(weights, draws):
    """Probability of each item to be among the first draws, each in proportion to the weights that are left."""
    shares = np.zeros(len(weights))
    for order in permutations(range(len(weights)), draws):
        left, probability = weights.sum(), 1.0
        for item in order:
            probability *= weights[item] / left
            left -= weights[item]
        shares[list(order)] += probability
    return shares


def chosen(rows, **options):
    batch = DataCollatorForMaskedLanguageModeling(
        TOKENIZER, token_counts=COUNTS, seed=0, return_tensors="np", **options
    )(rows)
    return batch["labels"] != -100, batch


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0])
@pytest.mark.parametrize(("budget", "share", "draws"), [("exact", 0.3, 2), ("exact", 0.45, 3)])
def test_positions_follow_the_law_of_successive_draws(alpha, budget, share, draws):
    rows = 20_000
    where, _ = chosen([ROW] * rows, budget=budget, mlm_probability=share, sample_alpha=alpha)
    assert (where.sum(axis=1) == draws).all()
    assert not where[:, [0, -1]].any()
    expected = inclusion(COUNTS[5:10].astype(float) ** -alpha, draws)
    errors = (where[:, 1:-1].mean(axis=0) - expected) / np.sqrt(expected * (1 - expected) / rows)
    assert np.abs(errors).max() < 4.5


def test_xlm_draws_over_the_whole_batch():
    """One row a batch: ceil(0.3 * 7) = 3 of its five tokens, by the same law."""
    collator = DataCollatorForMaskedLanguageModeling(
        TOKENIZER, mlm_probability=0.3, sample_alpha=0.5, token_counts=COUNTS, seed=0, return_tensors="np"
    )
    where = np.stack([collator([ROW])["labels"][0] != -100 for _ in range(6000)])
    assert (where.sum(axis=1) == 3).all()
    expected = inclusion(COUNTS[5:10] ** -0.5, 3)
    errors = (where[:, 1:-1].mean(axis=0) - expected) / np.sqrt(expected * (1 - expected) / 6000)
    assert np.abs(errors).max() < 4.5


def test_each_sequence_of_a_packed_row_has_its_own_number():
    row = {"input_ids": ROW * 2, "sequence_ids": [1] * 7 + [2] * 7}
    where, batch = chosen([row] * 50, budget="exact", mlm_probability=0.3, sample_alpha=0.5)
    assert (where[:, :7].sum(axis=1) == 2).all()
    assert (where[:, 7:].sum(axis=1) == 2).all()
    original = np.tile(ROW * 2, (50, 1))
    assert (batch["labels"][where] == original[where]).all()
    assert (batch["input_ids"][~where] == original[~where]).all()


def test_tokens_that_were_not_counted_stay():
    where, _ = chosen([[2, 5, 50, 51, 3]], budget="exact", mlm_probability=1.0, sample_alpha=0.5)
    assert where.tolist() == [[False, True, False, False, False]]
    for text in ([], [2, 3], [2, 50, 3]):
        assert not chosen([text, ROW], budget="exact", sample_alpha=0.5)[0][0].any()


def test_rare_tokens_again_by_the_seed():
    collators = [
        DataCollatorForMaskedLanguageModeling(
            TOKENIZER, budget="roberta", sample_alpha=0.5, token_counts=COUNTS, seed=seed
        )
        for seed in (0, 0, 1)
    ]
    collators[1] = pickle.loads(pickle.dumps(collators[1]))
    same, again, other = (collator([ROW] * 30)["labels"] for collator in collators)
    assert (same == again).all()
    assert (same != other).any()


@pytest.mark.parametrize("tokens", [10, 61, 126])
def test_the_number_of_roberta_is_one_of_two_and_right_in_the_mean(tokens):
    rows = 20_000
    row = [2, *([5] * tokens), 3]
    collator = DataCollatorForMaskedLanguageModeling(TOKENIZER, budget="roberta", seed=0, return_tensors="np")
    counts = np.concatenate([(collator([row] * 1000)["labels"] != -100).sum(axis=1) for _ in range(rows // 1000)])
    expected = 0.15 * (tokens + 2)
    assert set(counts) <= {int(expected), int(expected) + 1}
    part = expected % 1
    assert counts.mean() == pytest.approx(expected, abs=4.5 * np.sqrt(part * (1 - part) / rows) + 1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_alpha": -1.0}, "`sample_alpha` must not be negative, got -1.0"),
        ({"sample_alpha": 0.5, "token_counts": None}, "`token_counts` must be given with `sample_alpha` = 0.5"),
        ({"sample_alpha": 0.5, "token_counts": [1, 2]}, "one count per id, 100"),
        ({"sample_alpha": 0.5, "at_least_one": True}, "`at_least_one` must be False with `sample_alpha`, got True"),
        ({"budget": "roberta", "max_predictions": 5}, "must be None when `budget` is 'roberta', got 5"),
        ({"budget": "some"}, "`budget`"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForMaskedLanguageModeling(TOKENIZER, **{"token_counts": COUNTS, **options})
