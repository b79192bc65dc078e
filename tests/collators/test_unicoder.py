"""Unicoder's columns: what is recovered, hard negatives, documents in two languages."""

import pickle

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForTranslationLanguageModeling, DataCollatorForUnicoder
from hf_ptm_ext.data import unicoder_rows

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK} | {f"w{i}": i for i in range(5, 200)}


def documents():
    """Sources have ids below 100, their translations the same + 100."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(6):
        sentences = [rng.integers(5, 100, rng.integers(1, 9)).tolist() for _ in range(rng.integers(1, 7))]
        found.append([(ids, [token + 100 for token in ids]) for ids in sentences])
    return found


ROWS = unicoder_rows(documents(), 200, 32, np.random.default_rng(0))


def collator_of(side="right", **options):
    options = {"languages": (3, 7), "seed": 0, "return_tensors": "np", **options}
    return DataCollatorForUnicoder(BertTokenizerFast(vocab=VOCAB, padding_side=side), **options)


@pytest.mark.parametrize("side", ["right", "left"])
def test_pairs_are_those_of_translation_language_modelling(side):
    batch = collator_of(side)(ROWS)
    plain = DataCollatorForTranslationLanguageModeling(
        BertTokenizerFast(vocab=VOCAB, padding_side=side), languages=(3, 7), seed=0, return_tensors="np"
    )([{name: row[name] for name in ("source_ids", "target_ids")} for row in ROWS])
    assert all((batch[name] == values).all() for name, values in plain.items())
    alone = collator_of(side, tasks=())(ROWS)
    assert set(alone) == set(plain)


@pytest.mark.parametrize("side", ["right", "left"])
def test_one_sentence_of_each_pair_is_recovered_from_the_other(side):
    batch = collator_of(side)(ROWS)
    sides = []
    for number, row in enumerate(ROWS):
        real = batch["recovery_attention_mask"][number].astype(bool)
        ids, labels = batch["recovery_input_ids"][number][real], batch["recovery_labels"][number][real]
        other = batch["recovery_source_ids"][number][batch["recovery_source_mask"][number].astype(bool)].tolist()
        recovered = row["target_ids"] if other == row["source_ids"] else row["source_ids"]
        sides.append(other == row["source_ids"])
        assert other == (row["source_ids"] if sides[-1] else row["target_ids"])
        assert ids.tolist() == [CLS, *recovered, SEP]
        assert labels.tolist() == [-100, *recovered, -100]
        assert set(batch["recovery_langs"][number][real]) == {7 if sides[-1] else 3}
        assert (batch["recovery_labels"][number][~real] == -100).all()
    assert 0 < sum(sides) < len(sides)


def test_paraphrases_are_translations_or_the_negatives():
    batches = [collator_of(seed=seed)(ROWS) for seed in range(40)]
    for batch in batches:
        for number, row in enumerate(ROWS):
            real = batch["paraphrase_attention_mask"][number].astype(bool)
            second = row["target_ids"] if batch["paraphrase_labels"][number] else row["negative_ids"]
            ids = batch["paraphrase_input_ids"][number][real].tolist()
            assert ids == [CLS, *row["source_ids"], SEP, CLS, *second, SEP]
            places = batch["paraphrase_position_ids"][number][real].tolist()
            assert places == [*range(len(row["source_ids"]) + 2), *range(len(second) + 2)]
    share = np.mean([batch["paraphrase_labels"].mean() for batch in batches])
    assert share == pytest.approx(0.5, abs=4.5 * 0.5 / np.sqrt(40 * len(ROWS)))
    without = [{**row, "negative_ids": []} for row in ROWS]
    assert collator_of(negative_probability=1.0)(without)["paraphrase_labels"].all()


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_documents_in_two_languages_are_masked(alpha):
    counts = {"sample_alpha": alpha, "token_counts": [1] * 200} if alpha else {}
    batch = collator_of(**counts, budget="exact")(ROWS)
    chosen = batch["mixed_labels"] != -100
    for number, row in enumerate(ROWS):
        real = batch["mixed_attention_mask"][number].astype(bool)
        text = np.array([CLS, *row["mixed_ids"], SEP])
        ids, labels = batch["mixed_input_ids"][number][real], batch["mixed_labels"][number][real]
        assert (np.where(labels != -100, labels, ids) == text).all()
        assert labels[0] == labels[-1] == -100
        assert chosen[number].sum() == max(1, round(0.15 * len(text)))
        langs = batch["mixed_langs"][number][real][1:-1]
        assert langs.tolist() == [7 if token >= 105 else 3 for token in row["mixed_ids"]]
    assert not chosen[batch["mixed_attention_mask"] == 0].any()


def test_seeds_copies_epochs_and_shapes():
    first, again, other = collator_of(), pickle.loads(pickle.dumps(collator_of())), collator_of(seed=1)
    one, two, three = first(ROWS), again(ROWS), other(ROWS)
    assert all((one[name] == two[name]).all() for name in one)
    for name in ("recovery_input_ids", "paraphrase_labels", "mixed_labels"):
        assert one[name].shape != three[name].shape or (one[name] != three[name]).any()
    state = first.state_dict()
    after = first(ROWS)
    again.load_state_dict(state)
    assert all((values == after[name]).all() for name, values in again(ROWS).items())
    shapes = {
        tuple(values.shape for values in collator_of(pad_to_multiple_of=64)(ROWS[begin : begin + 4]).values())
        for begin in range(0, 16, 4)
    }
    assert len(shapes) == 1


def test_empty_sentences():
    empty = {"source_ids": [], "target_ids": [], "negative_ids": [], "mixed_ids": [], "mixed_sides": []}
    half = {**empty, "source_ids": [5], "negative_ids": [6]}
    batch = collator_of(mlm_probability=1.0)([empty, half])
    assert (batch["recovery_labels"] == -100).all(), "nothing to recover from, or nothing to recover"
    assert (batch["mixed_labels"] == -100).all()


@pytest.mark.parametrize(
    ("options", "row", "message"),
    [
        ({"tasks": ("some",)}, None, "`tasks`"),
        ({"negative_probability": 2}, None, "`negative_probability`"),
        ({}, {"source_ids": [5], "target_ids": [6]}, "`negative_ids` must be in every feature, row 0 has the columns"),
        ({"tasks": ("mixed",)}, {"source_ids": [5], "target_ids": [6]}, "`mixed_ids` must be in every feature"),
        (
            {"tasks": ("mixed",)},
            {"source_ids": [5], "target_ids": [6], "mixed_ids": [5, 6], "mixed_sides": [2, 0]},
            "`mixed_sides` must be 0 or 1 for each of 2 `mixed_ids`, got 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, row, message):
    with pytest.raises(ValueError, match=message):
        collator_of(**options)([row])
