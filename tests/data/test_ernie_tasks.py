"""Rows of ERNIE 2.0's tasks: what each consists of, its classes, and that nothing depends on anything but the seed."""

from itertools import chain, permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.data import (
    DISCOURSE_MARKERS,
    DISCOURSE_RELATIONS,
    capitalization_rows,
    discourse_pairs,
    embedded_corpus,
    encode_documents,
    relevance_pairs,
    reordering_class,
    reordering_classes,
    reordering_order,
    reordering_rows,
    sentence_distance_pairs,
    special_tokens_of,
    text_pair_rows,
    token_document_rows,
    train_wordpiece,
)

LENGTH = 64
# A token is 100 * document + sentence.
NUMBERED = [[[100 * number + place] * (1 + place % 5) for place in range(12)] for number in range(1, 30)]


@pytest.fixture(scope="module", params=["en", "zh"])
def text(request):
    documents = embedded_corpus(request.param)[:120]
    tokenizer = train_wordpiece(documents, 1500)
    return request.param, documents, tokenizer, list(encode_documents(documents, tokenizer))


def checked(rows, tokenizer, classes):
    """Rows of one task, each as long as its columns, within the length, its special tokens without labels."""
    rows = list(rows)
    specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert rows
    for row in rows:
        assert 3 < len(row["input_ids"]) == len(row["token_type_ids"]) <= LENGTH
        if isinstance(row["labels"], int):
            assert row["labels"] in range(classes)
            continue
        assert set(row["labels"]) <= {*range(classes), -100}
        pairs = zip(row["input_ids"], row["labels"], strict=True)
        assert all(label == -100 for token, label in pairs if token in specials)
    return rows


def test_capitals_are_those_of_the_text(text):
    language, documents, tokenizer, _ = text
    rows = checked(capitalization_rows(documents, tokenizer, LENGTH), tokenizer, 2)
    assert rows == list(capitalization_rows(iter(documents), tokenizer, LENGTH, batch_size=7))
    row = next(capitalization_rows([["The iPhone of ÉMILE cost 3 € in 北京."]], tokenizer, 100))
    found = dict(zip(tokenizer.convert_ids_to_tokens(row["input_ids"]), row["labels"], strict=True))
    whole = next(capitalization_rows([["The the 3 北"]], train_wordpiece([["the 3 北"]] * 2, 40)))
    assert whole["labels"] == [-100, 1, 0, -100, -100, -100]
    assert found["[CLS]"] == found["."] == -100
    if language == "en":
        labels = [label for row in rows for label in row["labels"] if label >= 0]
        assert 0.05 < np.mean(labels) < 0.2


def test_a_tokenizer_that_tells_capitals_apart_is_refused(text):
    _, documents, _, _ = text
    with pytest.raises(ValueError, match="must be a fast one that lower-cases"):
        next(capitalization_rows(documents, train_wordpiece(documents[:9], 300, lowercase=False)))


def test_a_token_is_marked_where_another_segment_has_it(text):
    _, _, tokenizer, ids = text
    specials = special_tokens_of(tokenizer)
    for document in ids[:40]:
        rows = checked(token_document_rows([document], specials, LENGTH), tokenizer, 2)
        parts = [row["input_ids"][1:-1] for row in rows]
        assert list(chain(*parts)) == list(chain(*document))
        assert len(parts) >= 2
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        for place, row in enumerate(rows):
            others = set().union(*(part for other, part in enumerate(parts) if other != place))
            assert row["labels"][1:-1] == [int(token in others) for token in parts[place]]
    assert list(token_document_rows([[], [[7]], [[]]], specials)) == []


@pytest.mark.parametrize("most", [2, 3, 4])
def test_every_class_of_a_reordering_is_one_order(most):
    orders = [reordering_order(number) for number in range(reordering_classes(most))]
    assert [reordering_class(order) for order in orders] == list(range(sum(factorial(n) for n in range(1, most + 1))))
    assert set(orders) == {order for n in range(1, most + 1) for order in permutations(range(n))}
    for wrong in ((), (1,), (0, 0), (0, 2)):
        with pytest.raises(ValueError, match="`order` must hold each of"):
            reordering_class(wrong)


@given(st.integers(0, 2**31), st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_the_paragraph_can_be_put_together_again(seed, most):
    class Specials:
        pair_middle = [9001]
        single_count = 2
        prefix, suffix = [9000], [9001]

        @staticmethod
        def single(ids):
            return {"input_ids": [9000, *ids, 9001], "token_type_ids": [0] * (len(ids) + 2)}

    rows = list(reordering_rows(NUMBERED, Specials, 20, np.random.default_rng(seed), max_segments=most))
    assert rows == list(reordering_rows(NUMBERED, Specials, 20, np.random.default_rng(seed), max_segments=most))
    for row in rows:
        ids = np.array(row["input_ids"][1:-1])
        assert len(ids) <= 18
        segments = [part[part != 9001].tolist() for part in np.split(ids, np.flatnonzero(ids == 9001))]
        order = reordering_order(row["labels"])
        assert len(order) == len(segments)
        restored = list(chain(*(segments[order.index(number)] for number in range(len(order)))))
        assert restored == sorted(restored), "sentences are in their order again"
        assert len({token // 100 for token in restored}) == 1


def test_every_number_of_segments_is_drawn_alike(text):
    _, _, tokenizer, ids = text
    generator = np.random.default_rng(0)
    rows = [
        row
        for _ in range(20)
        for row in checked(
            reordering_rows(ids, special_tokens_of(tokenizer), LENGTH, generator), tokenizer, reordering_classes()
        )
    ]
    numbers = np.bincount([len(reordering_order(row["labels"])) for row in rows], minlength=4)[1:] / len(rows)
    spread = 4 * np.sqrt(2 / 9 / len(rows))
    assert np.abs(numbers - 1 / 3).max() < spread
    plain = list(
        reordering_rows(ids, special_tokens_of(tokenizer), LENGTH, np.random.default_rng(0), separators=False)
    )
    assert all(row["input_ids"].count(tokenizer.sep_token_id) == 1 for row in plain)


def test_pairs_are_as_far_apart_as_their_class_says():
    pairs = [
        pair
        for seed in range(20)
        for pair in sentence_distance_pairs(NUMBERED, 16, np.random.default_rng(seed), short_seq_prob=0.3)
    ]
    for first, second, label in pairs:
        assert len(first) + len(second) <= 16
        (document,), (other,) = ({token // 100 for token in part} for part in (first, second))
        assert (document != other) == (label == 2)
        if label == 0:
            # Neighbours, or two halves of one sentence.
            assert second[0] - first[-1] in (0, 1) or len(first) + len(second) == 16
        elif label == 1:
            assert second[0] > first[-1] + 1 or second[-1] < first[0] - 1
    shares = np.bincount([pair[2] for pair in pairs]) / len(pairs)
    assert shares.min() > 0.25
    lonely = [[[1]], [[2]]]
    assert {pair[2] for pair in sentence_distance_pairs(lonely * 30, 9, np.random.default_rng(0))} <= {0, 2}


def test_the_marker_is_taken_out_and_tells_the_class(text):
    language, documents, tokenizer, _ = text
    markers = DISCOURSE_MARKERS[language]
    pairs = list(discourse_pairs(documents, markers))
    assert len(pairs) > 40
    sentences = {sentence for document in documents for sentence in document}
    for first, second, label in pairs:
        assert 0 <= label < len(DISCOURSE_RELATIONS)
        (whole,) = {s for s in sentences if s.endswith(second) and (s.startswith(first) or first in sentences)} or {""}
        if whole.startswith(first) and whole:
            marker = whole[len(first) : len(whole) - len(second)].strip(" ,;:，；：").lower()
            assert markers.get(marker, markers.get(f"{marker},")) == DISCOURSE_RELATIONS[label]
    assert checked(text_pair_rows(pairs, tokenizer, LENGTH), tokenizer, len(DISCOURSE_RELATIONS))


def test_markers_are_whole_words_and_the_longest_counts():
    markers = {"but": "contrast", "so": "result", "for example,": "example", "不过": "contrast"}
    document = [
        "A cat.",
        "Butter is soft.",
        "So it is.",
        "FOR EXAMPLE, here.",
        "Some, so they say, do.",
        "不过，下雨了。",
    ]
    assert list(discourse_pairs([document], markers)) == [
        ("Butter is soft.", "it is.", 2),
        ("So it is.", "here.", 4),
        ("Some", "they say, do.", 2),
        ("Some, so they say, do.", "下雨了。", 0),
    ]
    assert list(discourse_pairs([["But alone."], [], ["... , but ..."]], markers)) == []
    with pytest.raises(ValueError, match=r"must give relations among .*, got \['no'\]"):
        next(discourse_pairs([document], {"but": "no"}))


def test_random_titles_are_none_of_the_querys_own():
    judged = [(f"query {n % 10}", f"title {n}", n % 2) for n in range(300)]
    pairs = list(relevance_pairs(judged, np.random.default_rng(0)))
    assert [pair for pair in pairs if pair[2] < 2] == judged
    assert np.mean([pair[2] == 2 for pair in pairs]) == pytest.approx(1 / 3, abs=0.01)
    assert all(int(title.split()[1]) % 10 != int(query.split()[1]) for query, title, label in pairs if label == 2)
    assert list(relevance_pairs(judged, np.random.default_rng(0), random_share=0)) == judged
    assert [label for *_, label in relevance_pairs([("q", "t", 0)], np.random.default_rng(0))] == [0], "no other title"
    with pytest.raises(ValueError, match=r"must have 0 \(clicked\) or 1 \(shown\), got 2"):
        next(relevance_pairs([("q", "t", 2)], np.random.default_rng(0)))


def test_pairs_lose_the_end_of_the_longer_text(text):
    _, _, tokenizer, _ = text
    row = next(text_pair_rows([("a " * 90, "b", 1), ("", "b", 0)], tokenizer, 12))
    a, b = tokenizer("a b", add_special_tokens=False)["input_ids"]
    assert row["input_ids"][1:-3] == [a] * 8
    assert row["input_ids"][-2] == b
    assert len(list(text_pair_rows([("a", "b", 1), ("", "b", 0)], tokenizer, 12))) == 1
    with pytest.raises(ValueError, match="must leave room for two texts, got 4"):
        next(text_pair_rows([("a", "b", 1)], tokenizer, 4))
