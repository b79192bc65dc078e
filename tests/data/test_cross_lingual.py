"""Hard negatives by similar vectors, and documents whose sentences stand by turns in two languages."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.data import (
    alternated_documents,
    encode_documents,
    hard_negatives,
    sentence_vectors,
    train_wordpiece,
    unicoder_rows,
)

PAIRS = Path(__file__).parents[1] / "fixtures" / "xquad_pairs_240.jsonl"


@pytest.fixture(scope="module")
def text():
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    lines = [[pair["en"], pair["zh"]] for pair in pairs]
    tokenizer = train_wordpiece(lines, 1500, lowercase=True)
    return tokenizer, [tuple(pair) for pair in encode_documents(lines, tokenizer)]


def test_random_signs_are_nearly_tf_idf(text):
    tokenizer, pairs = text
    targets = [target for _, target in pairs]
    size = len(tokenizer)
    counts = np.stack([np.bincount(ids, minlength=size) for ids in targets]).astype(float)
    idf = np.log((1 + len(targets)) / (1 + (counts > 0).sum(axis=0))) + 1
    exact = counts * idf
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    vectors = sentence_vectors(targets, size, dim=1024)
    assert np.abs(vectors @ vectors.T - exact @ exact.T).max() < 5 / 32
    by_table = sentence_vectors(targets, size, table=np.eye(size, dtype=np.float32))
    assert np.allclose(by_table @ by_table.T, exact @ exact.T, atol=1e-5)


def test_negatives_are_alike_and_no_translations(text):
    tokenizer, pairs = text
    pairs = [*pairs, pairs[0], (pairs[1][0], [9, 9]), ([9], pairs[2][1])]
    vectors = sentence_vectors([target for _, target in pairs], len(tokenizer))
    found = hard_negatives(pairs, vectors, np.random.default_rng(0), top=2)
    assert (found >= 0).all()
    for (source, target), other in zip(pairs, found, strict=True):
        assert pairs[other][0] != source
        assert pairs[other][1] != target
    scores = vectors @ vectors.T
    assert scores[np.arange(len(pairs)), found].mean() > 4 * scores.mean()
    assert (hard_negatives(pairs, vectors, np.random.default_rng(0), pool=50) >= 0).all()
    assert hard_negatives(pairs[:1], vectors[:1], np.random.default_rng(0)).tolist() == [-1]
    assert hard_negatives([pairs[0]] * 3, vectors[[0] * 3], np.random.default_rng(0)).tolist() == [-1] * 3


def test_sentences_stand_by_turns():
    documents = [[([5] * n, [15] * n) for n in (2, 1, 3, 2)], [], [([6] * 20, [16] * 20)], [([], [])]]
    rows = list(alternated_documents(documents, 6))
    assert [row["mixed_ids"] for row in rows] == [
        *([5, 5, 15, 5, 5, 5], [15, 15, 5, 15, 15, 15], [5, 5, 15, 5, 5, 5]),
        *([5, 5], [6] * 6, []),
    ]
    assert all(
        [token > 10 for token in row["mixed_ids"]] == [bool(side) for side in row["mixed_sides"]] for row in rows
    )


def test_rows_of_real_text(text):
    tokenizer, pairs = text
    rows = unicoder_rows([pairs], len(tokenizer), 64, np.random.default_rng(0))
    again = unicoder_rows([pairs], len(tokenizer), 64, np.random.default_rng(0))
    assert rows == again
    assert len(rows) == len(pairs)
    for row, (source, target) in zip(rows, pairs, strict=True):
        assert row["source_ids"] == source[:30]
        assert row["target_ids"] == target[:30]
        assert 0 < len(row["negative_ids"]) <= 30
        assert len(row["mixed_ids"]) == len(row["mixed_sides"]) <= 62


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sentence_vectors([[1]], 5, np.zeros((3, 2))), r"`table` must be one vector for each of 5 ids"),
        (
            lambda: hard_negatives([([1], [2])], np.zeros((2, 3)), np.random.default_rng(0)),
            "for each of 1 pairs, got 2",
        ),
        (lambda: hard_negatives([], np.zeros((0, 3)), np.random.default_rng(0), top=0), "got 0 and 2048"),
        (lambda: unicoder_rows([], 5, 4, np.random.default_rng(0)), "room for two sentences .*, got 4"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
