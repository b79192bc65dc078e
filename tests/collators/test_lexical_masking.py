"""Batches of SentiLARE and SenseBERT, and the columns of lexicons: words by polarity and senses."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from hf_ptm_ext.collators import (
    DataCollatorForSentimentMasking,
    DataCollatorForSupersenseMasking,
    LexiconColumns,
    token_supersenses,
)
from hf_ptm_ext.data import SentimentWords, SupersenseTable, WordIds
from hf_ptm_ext.masking import find_segments
from tests.collators.test_randomness import all_different

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "good",
    "bad",
    "##ly",
    "##ness",
    "film",
    "swim",
    "bass",
    "très",
]
PIECES += [f"w{number}" for number in range(40)] + list("好电影很坏，")
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})
GOOD, BAD, LY, NESS, FILM, SWIM, BASS = range(5, 12)
FIRST = PIECES.index("w0")
TABLE = SupersenseTable.of(
    {
        "film": ["noun.artifact"],
        "swim": ["verb.motion"],
        "bass": ["noun.food", "noun.animal"],
        "goodness": ["noun.attribute"],
    }
)
SENTIMENT = LexiconColumns(TOKENIZER, SentimentWords({"good": 1, "badly": 0, "goodness": 1}))
SENSES = LexiconColumns(TOKENIZER, TABLE)
BYTE_BPE = PreTrainedTokenizerFast(
    tokenizer_file=str(Path(__file__).parents[1] / "fixtures" / "byte_bpe.json"),
    mask_token="<mask>",
    pad_token="<pad>",
)
ids = st.lists(st.integers(5, len(PIECES) - 7), max_size=30).map(lambda row: [2, *row, 3])


def sentiment(**options):
    return DataCollatorForSentimentMasking(TOKENIZER, **{"seed": 0, **options})


def supersenses(**options):
    return DataCollatorForSupersenseMasking(TOKENIZER, **{"table": TABLE, "seed": 0, **options})


# ---- columns ----


def test_every_piece_has_what_its_word_has():
    row = SENTIMENT({"input_ids": [2, GOOD, NESS, BAD, LY, BAD, 3, GOOD, 3], "other": 1})
    assert row["word_polarity_ids"] == [2, 1, 1, 0, 0, 2, 2, 1, 2]
    assert row["pos_tag_ids"] == [4] * 9
    assert row["other"] == 1
    assert SENSES({"input_ids": [2, GOOD, NESS, BASS, 3]})["supersenses"] == [
        *(0, TABLE.bits("goodness"), TABLE.bits("goodness"), TABLE.bits("bass"), 0)
    ]
    for empty in ([], [2], [2, 3], [0, 0]):
        assert SENTIMENT({"input_ids": empty})["word_polarity_ids"] == [2] * len(empty)


def test_a_tagger_sees_the_words_of_a_text_and_no_others():
    seen = []
    columns = LexiconColumns(
        TOKENIZER, SentimentWords({}, tagger=lambda words: seen.append(words) or ["NN"] * len(words))
    )
    row = columns({"input_ids": [2, GOOD, NESS, FILM, 3, BAD, FILM, 3], "sequence_ids": [1, 1, 1, 1, 1, 2, 2, 2]})
    assert seen == [["goodness", "film"], ["bad", "film"]]
    assert row["pos_tag_ids"] == [4, 3, 3, 3, 4, 3, 3, 4]


def test_chinese_words_come_from_a_column_and_bytes_from_their_marks():
    add = WordIds(TOKENIZER, segmenter=lambda text: ["好", "电影", "很坏", "，", "电影"], add_special_tokens=True)
    row = LexiconColumns(TOKENIZER, SentimentWords({"很 坏": 0, "很坏": 0}))(add({"text": "好电影很坏，电影"}))
    assert row["word_polarity_ids"] == [2, 2, 2, 2, 0, 0, 2, 2, 2, 2]
    text = BYTE_BPE("the good light", add_special_tokens=False)
    row = LexiconColumns(BYTE_BPE, SentimentWords({"light": 1}))(text)
    pieces = BYTE_BPE.convert_ids_to_tokens(text["input_ids"])
    begin = max(place for place, piece in enumerate(pieces) if piece.startswith("Ġ"))
    assert row["word_polarity_ids"] == [2] * begin + [1] * (len(pieces) - begin)


def test_what_is_no_lexicon_is_refused():
    with pytest.raises(TypeError, match="`lexicon` must be a function with an attribute `unknown`, got dict"):
        LexiconColumns(TOKENIZER, {})


def test_only_whole_words_of_the_vocabulary_have_senses():
    senses = token_supersenses(TOKENIZER, SupersenseTable.of({"film": ["noun.artifact"], "ness": ["noun.object"]}))
    assert np.flatnonzero(senses).tolist() == [FILM]


# ---- SentiLARE ----


@settings(max_examples=60, deadline=None)
@given(st.lists(ids, min_size=1, max_size=6), st.integers(0, 3))
def test_batches_of_sentiment(rows, seed):
    features = [{**SENTIMENT({"input_ids": row}), "sentence_polarity": len(row) % 5} for row in rows]
    batch = sentiment(seed=seed, mlm_probability=0.4, sentiment_probability=0.8, task_ratio=0.5)(features)
    batch = {name: values.numpy() for name, values in batch.items()}
    text, labels = batch["attention_mask"] == 1, batch["labels"]
    chosen = labels != -100
    known = {name: np.full(labels.shape, none) for name, none in (("pos_tag_ids", 4), ("word_polarity_ids", 2))}
    for number, row in enumerate(features):
        original = np.where(chosen[number], labels[number], batch["input_ids"][number])[: len(rows[number])]
        assert original.tolist() == rows[number], "rebuilt from inputs and labels"
        for name, values in known.items():
            values[number, : len(rows[number])] = row[name]
    special = np.isin(np.where(chosen, labels, batch["input_ids"]), (0, 2, 3))
    assert not (chosen & special).any()
    assert (batch["input_ids"][~chosen & text] != 4).all()
    asked = chosen & (known["word_polarity_ids"] != 2)  # no tagger: a neutral word is not asked for
    assert ((batch["word_polarity_labels"] != -100) == asked).all()
    assert (batch["pos_tag_labels"] == -100).all(), "unknown ones are not asked for"
    assert (batch["word_polarity_labels"][asked] == known["word_polarity_ids"][asked]).all()
    hidden = batch["word_polarity_ids"] != known["word_polarity_ids"]
    assert (batch["word_polarity_ids"][hidden] == 2).all()
    assert not (hidden & ~chosen).any()
    late = batch["sentence_polarity_labels"] != -100
    rating = np.array([row["sentence_polarity"] for row in features])
    assert (batch["sentence_polarity_labels"][late] == rating[late]).all()
    expected = np.where(~late[:, None] & text & ~special, rating[:, None], 5)
    assert (batch["sentence_polarity_ids"] == expected).all()


def test_words_are_chosen_by_their_polarity_and_share_one_fate():
    row = SENTIMENT({"input_ids": [2, *[GOOD, NESS, FILM, BAD] * 30, 3]})
    batch = sentiment()([row] * 400)
    labels = batch["labels"].numpy()[:, 1:-1].reshape(400, 30, 4) != -100
    assert (labels[..., 0] == labels[..., 1]).all(), "whole words"
    assert labels[..., 0].mean() == pytest.approx(0.30, abs=0.01)
    assert labels[..., 2:].mean() == pytest.approx(0.15, abs=0.01)
    seen = batch["input_ids"].numpy()[:, 1:-1].reshape(400, 30, 4)[..., :2][labels[..., 0]]
    masked, kept = (seen == 4).all(axis=1), (seen == [GOOD, NESS]).all(axis=1)
    # A random word is one of the batch: of three one has two pieces, and is the same; the others are filled up.
    assert masked.mean() == pytest.approx(0.8, abs=0.02)
    assert kept.mean() == pytest.approx(0.1 + 0.1 / 3, abs=0.02)
    others = seen[~masked & ~kept]
    assert set(map(tuple, others)) == {(FILM, 4), (BAD, 4)}


def test_what_is_hidden_is_hidden_from_the_other_columns_too():
    row = SENTIMENT({"input_ids": [2, *[GOOD] * 50, 3]})
    batch = sentiment(sentiment_probability=1.0)([row] * 100)
    shown = batch["word_polarity_ids"][:, 1:-1] == 1
    assert shown.float().mean() == pytest.approx(0.1, abs=0.02), "where the word stays"
    assert (batch["input_ids"][:, 1:-1][shown] == GOOD).all()
    late = sentiment(task_ratio=0.2)([{**row, "sentence_polarity": 3}] * 4000)["sentence_polarity_labels"] == 3
    assert late.float().mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pos_tag_ids": None}, "`pos_tag_ids` must be"),
        ({"word_polarity_ids": [3, 2]}, "`word_polarity_ids` must be in 0 to 2, got 2 to 3"),
        ({"sentence_polarity": 5}, "`sentence_polarity` must be 0 to 4"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change, message):
    row = {**SENTIMENT({"input_ids": [2, 3]}), **change}
    with pytest.raises(ValueError, match=message):
        sentiment()([{name: value for name, value in row.items() if value is not None}])


def test_rows_without_ratings_and_options():
    batch = sentiment()([SENTIMENT({"input_ids": [2, GOOD, 3]})])
    assert batch["sentence_polarity_ids"].tolist() == [[5, 5, 5]]
    assert batch["sentence_polarity_labels"].tolist() == [-100]
    with pytest.raises(ValueError, match="`replacement_unit` must be 'word'"):
        sentiment(replacement_unit="token")
    with pytest.raises(ValueError, match="task_ratio"):
        sentiment(task_ratio=1.5)
    at_least = sentiment(mlm_probability=0.0, at_least_one=True)([SENTIMENT({"input_ids": [2, FILM, 3]})])
    assert at_least["labels"].tolist() == [[-100, FILM, -100]]


# ---- SenseBERT ----


@settings(max_examples=60, deadline=None)
@given(st.lists(ids, min_size=1, max_size=6), st.integers(0, 3), st.booleans(), st.booleans())
def test_batches_of_supersenses(rows, seed, tokens, column):
    collator = supersenses(seed=seed, word_boundaries="token" if tokens else "auto", mlm_probability=0.3)
    batch = collator([SENSES({"input_ids": row}) if column else {"input_ids": row} for row in rows])
    batch = {name: values.numpy() for name, values in batch.items()}
    chosen = batch["labels"] != -100
    original = np.where(chosen, batch["labels"], batch["input_ids"])
    assert not (chosen & np.isin(original, (0, 2, 3))).any()
    assert set(batch["input_ids"][chosen & (batch["input_ids"] != original)]) <= {4}, "no random tokens"
    for number, row in enumerate(rows):
        assert original[number, : len(row)].tolist() == row
        assert chosen[number].sum() <= max(1, np.rint(0.3 * len(row)))
        at = np.flatnonzero(batch["supersense_labels"][number] != -100)
        for place in at:
            length = batch["supersense_lengths"][number, place]
            assert chosen[number, place : place + length].all(), "of words that are hidden whole"
            word = TOKENIZER.decode(original[number, place : place + length])
            assert batch["supersense_labels"][number, place] == TABLE.bits(word) > 0
            assert column or length == 1
        assert (batch["supersense_lengths"][number] > 0).sum() == sum(
            PIECES[token][:2] != "##" for token in row[2:-1]
        ) + (len(row) > 2)


def test_words_with_one_sense_come_first_up_to_their_share():
    row = [2, *[SWIM, BASS, FIRST, FIRST + 1, FIRST + 2] * 19, 3]  # 97 tokens, budget 15, at most 6 of them
    chosen = supersenses(word_boundaries="token")([row] * 2000)["labels"].numpy() == SWIM
    # 19 words with one sense, each taken with 0.5: nearly always 6; of the other 89 words 13 are drawn 9 times.
    assert chosen.sum(axis=1).mean() == pytest.approx(6 + 9 * 13 / 89, abs=0.1)
    none = supersenses(word_boundaries="token", single_probability=0.0)([row] * 2000)["labels"].numpy() == SWIM
    assert none.sum(axis=1).mean() == pytest.approx(15 * 19 / 95, abs=0.1), "at random"
    assert (supersenses()([row])["labels"] != -100).sum() == 15


def test_masked_and_kept():
    row = [2, *[FIRST] * 98, 3]
    batch = supersenses()([row] * 300)
    seen = batch["input_ids"][batch["labels"] != -100]
    assert (seen == 4).float().mean() == pytest.approx(0.9, abs=0.01)
    assert set(seen.tolist()) == {4, FIRST}


def test_a_word_of_which_a_piece_is_seen_is_not_asked_for():
    row = SENSES({"input_ids": [2, GOOD, NESS, GOOD, NESS, 3]})
    for _ in range(20):
        batch = supersenses(word_boundaries="token", mlm_probability=0.3)([row] * 8)
        chosen = batch["labels"].numpy() != -100
        words = find_segments(np.ones((8, 4), dtype=bool), np.array([[True, False] * 2] * 8))
        whole = chosen[words.row, words.start + 1] & chosen[words.row, words.start + 2]
        assert (batch["supersense_labels"].numpy()[words.row, words.start + 1] != -100).tolist() == whole.tolist()


def test_options_of_senses():
    with pytest.raises(ValueError, match="`table` must be given, or `supersenses` be a column"):
        supersenses(table=None)([[2, FIRST, 3]])
    assert (
        supersenses(table=None, mlm_probability=1.0)([SENSES({"input_ids": [2, SWIM, 3]})])["supersense_labels"][0, 1]
        > 0
    )
    with pytest.raises(TypeError, match="`table` must be a SupersenseTable or None, got dict"):
        supersenses(table={})
    with pytest.raises(ValueError, match="`budget` must be 'exact'"):
        supersenses(budget="bernoulli")


# ---- both ----

BOTH = {"sentiment": (sentiment, SENTIMENT), "supersenses": (supersenses, SENSES)}


@pytest.mark.parametrize("kind", BOTH)
def test_draws_shapes_and_padding(kind):
    make, columns = BOTH[kind]
    rows = [columns({"input_ids": [2, *range(5, 5 + length), 3]}) for length in (0, 1, 20)]
    first = make(seed=3, pad_to_multiple_of=32, label_budget=16)(rows)
    again = make(seed=3, pad_to_multiple_of=32, label_budget=16)
    second = again(rows)
    assert all(torch.equal(first[name], second[name]) for name in first), "the seed says it"
    assert {tuple(values.shape) for values in first.values()} <= {(3, 32), (3, 16), (3,)}
    assert not torch.equal(again(rows)["labels"], second["labels"]), "another call"
    again.set_epoch(1)
    assert not torch.equal(again(rows)["labels"], second["labels"]), "another epoch"
    copy = pickle.loads(pickle.dumps(make(seed=3, pad_to_multiple_of=32, label_budget=16)))
    assert torch.equal(copy(rows)["labels"], first["labels"])
    left = BertTokenizerFast(vocab=TOKENIZER.get_vocab(), padding_side="left")
    make_left = type(again)(left, seed=3, **({} if kind == "sentiment" else {"table": TABLE}))
    batch = make_left(rows)
    assert batch["attention_mask"][0].tolist() == [0] * 20 + [1, 1]
    assert (batch["labels"][0] == -100).all()


@pytest.mark.parametrize("kind", BOTH)
def test_each_sequence_of_a_packed_row_has_its_own(kind):
    make, columns = BOTH[kind]
    packed = {"input_ids": [2, SWIM, GOOD, 3, 2, GOOD, FILM, 3], "sequence_ids": [1] * 4 + [2] * 4}
    options = (
        {"at_least_one": True, "mlm_probability": 0.0, "sentiment_probability": 0.0} if kind == "sentiment" else {}
    )
    batch = make(**options)([columns(packed)] * 50)
    chosen = batch["labels"].numpy() != -100
    assert (chosen[:, :4].sum(1) == 1).all()
    assert (chosen[:, 4:].sum(1) == 1).all()


@pytest.mark.slow
def test_spawned_workers_draw_their_own():
    for make, columns in BOTH.values():
        row = columns({"input_ids": [2, *range(5, 40), 3]})
        loader = torch.utils.data.DataLoader(
            [row] * 4, batch_size=1, num_workers=2, collate_fn=make(seed=1), multiprocessing_context="spawn"
        )
        assert all_different([batch["labels"] for batch in loader])
