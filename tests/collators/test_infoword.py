"""InfoWord's views: a sentence without one n-gram, and the n-gram alone."""

import pickle

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForInfoWord, DataCollatorForMaskedLanguageModeling
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece

PAD, UNK, CLS, SEP, MASK = range(5)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(200))]
VOCAB = {piece: number for number, piece in enumerate(PIECES)}


def collator_of(side="right", **options):
    options = {"seed": 0, "return_tensors": "np", **options}
    return DataCollatorForInfoWord(BertTokenizerFast(vocab=VOCAB, padding_side=side), **options)


def texts(count=40, longest=40):
    """Rows of 1 to 40 tokens, each token once, and some of two segments."""
    rng = np.random.default_rng(0)
    rows = [[CLS, *(5 + rng.permutation(200)[: rng.integers(1, longest)]).tolist(), SEP] for _ in range(count)]
    return [*rows, [CLS, 5, 6, 7, SEP, 8, 9, SEP], [CLS, 10, SEP, 11, SEP]]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("ngrams", [1, 3])
def test_the_views_make_the_text_again(side, ngrams):
    rows = texts()
    batch = collator_of(side, ngrams_per_row=ngrams, max_ngram_length=6)(rows)
    assert batch["ngram_input_ids"].shape == batch["ngram_attention_mask"].shape == (len(rows), ngrams, 8)
    for row, text in enumerate(rows):
        kept = batch["sentence_input_ids"][row][batch["attention_mask"][row].astype(bool)]
        ngram, mask = batch["ngram_input_ids"][row, 0], batch["ngram_attention_mask"][row, 0].astype(bool)
        assert ngram[mask][0] == CLS
        assert ngram[mask][-1] == SEP
        assert (ngram[~mask] == PAD).all()
        gone = np.flatnonzero(kept == MASK)
        if batch["ngram_labels"][row] == -100:
            assert len(text) == 3, "one token has no n-gram that leaves anything"
            assert kept.tolist() == text
            assert not len(gone)
            continue
        assert batch["ngram_labels"][row] == row * ngrams
        assert (np.diff(gone) == 1).all(), "one run"
        assert 1 <= len(gone) <= min(6, len(text) - 3)
        kept[gone] = ngram[mask][1:-1]
        assert kept.tolist() == text
        for other, seen in zip(batch["ngram_input_ids"][row], batch["ngram_attention_mask"][row], strict=True):
            inside = other[seen.astype(bool)][1:-1].tolist()
            assert any(text[at : at + len(inside)] == inside for at in range(len(text))), "from the same row"
            assert not set(inside) & {CLS, SEP, PAD, MASK}


def test_masked_tokens_are_those_of_the_masked_language_model_and_untouched_by_the_views():
    rows = texts()
    batch = collator_of()(rows)
    chosen = batch["labels"] != -100
    original = np.full(chosen.shape, PAD)
    for row, text in enumerate(rows):
        original[row, : len(text)] = text
    assert (batch["labels"][chosen] == original[chosen]).all()
    assert (batch["input_ids"][~chosen] == original[~chosen]).all()
    plain = set(
        DataCollatorForMaskedLanguageModeling(BertTokenizerFast(vocab=VOCAB), return_tensors="np", seed=0)(rows)
    )
    added = {"sentence_input_ids", "ngram_input_ids", "ngram_attention_mask", "ngram_labels"}
    assert set(batch) == plain | added


@pytest.mark.parametrize(("low", "high", "weights"), [(1, 10, None), (2, 4, None), (1, 3, (6, 3, 2))])
def test_lengths_and_places_follow_their_law(low, high, weights):
    rows, repeats = 2000, 10
    text = [CLS, *range(5, 35), SEP]
    collator = collator_of(min_ngram_length=low, max_ngram_length=high, ngram_length_weights=weights)
    batches = [collator([text] * rows) for _ in range(repeats)]
    gone = np.concatenate([batch["sentence_input_ids"] == MASK for batch in batches])
    lengths, starts = gone.sum(axis=1), gone.argmax(axis=1)
    law = np.ones(high - low + 1) if weights is None else np.array(weights, dtype=float)
    law /= law.sum()
    for number, share in enumerate(law):
        got = (lengths == low + number).mean()
        assert got == pytest.approx(share, abs=4.5 * np.sqrt(share * (1 - share) / len(lengths)) + 1e-12)
    of_two = starts[lengths == 2]
    shares = np.bincount(of_two, minlength=32)[1:30] / len(of_two)
    assert np.abs(shares - 1 / 29).max() < 4.5 * np.sqrt(1 / 29 / len(of_two))
    assert set(of_two) == set(range(1, 30))


def test_seeds_epochs_and_copies():
    rows = texts()

    def views(collator):
        batch = collator(rows)
        return batch["sentence_input_ids"], batch["ngram_input_ids"]

    first, again, other = collator_of(), pickle.loads(pickle.dumps(collator_of())), collator_of(seed=1)
    one, two, three = views(first), views(again), views(other)
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    assert any((a != b).any() for a, b in zip(one, three, strict=True))
    again.set_epoch(1)
    assert (views(again)[0] != one[0]).any()


def test_shapes_depend_on_options_alone():
    for rows in ([[CLS, SEP]] * 2, [[]] * 2, texts()[:2], [[CLS, *[5] * 30, SEP]] * 2):
        batch = collator_of(pad_to_multiple_of=64)(rows)
        assert batch["sentence_input_ids"].shape == (2, 64)
        assert batch["ngram_input_ids"].shape == (2, 1, 12)
    assert (collator_of()([[CLS, SEP], [], [CLS, 5, SEP]])["ngram_labels"] == -100).all()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_real_text(language):
    documents = embedded_corpus(language)[:20]
    tokenizer = train_wordpiece(documents, 600)
    rows = pretraining_dataset(documents, tokenizer, max_seq_length=32)
    batch = DataCollatorForInfoWord(tokenizer, seed=0, return_tensors="np")([rows[i] for i in range(16)])
    gone = batch["sentence_input_ids"] == tokenizer.mask_token_id
    found = np.sort(batch["ngram_input_ids"][:, 0, 1:-1], axis=1)
    for row in range(16):
        taken = np.sort(np.array(rows[row]["input_ids"])[gone[row][: len(rows[row]["input_ids"])]])
        inside = found[row][found[row] != tokenizer.pad_token_id]
        assert taken.tolist() == inside[inside != tokenizer.sep_token_id].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_ngram_length": 5, "max_ngram_length": 3}, "`min_ngram_length` must not exceed `max_ngram_length` = 3"),
        ({"ngram_length_weights": (1, 2)}, "`ngram_length_weights` must be 10 numbers"),
        ({"ngram_length_weights": [0] * 10}, "not all 0"),
        ({"ngrams_per_row": 0}, "`ngrams_per_row` must be a positive integer"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        collator_of(**options)
    with pytest.raises(ValueError, match="`sequence_ids` must not be in the rows"):
        collator_of()([{"input_ids": [CLS, 5, SEP], "sequence_ids": [1, 1, 1]}])
