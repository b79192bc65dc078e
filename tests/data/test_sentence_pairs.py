"""Next-sentence pairs: the reference's statistics, and what each pair may consist of."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.data import (
    RowPacker,
    encode_documents,
    next_sentence_pairs,
    sentence_order_pairs,
    special_tokens_of,
    structural_pairs,
    truncate_pair,
)
from hf_ptm_ext.data.sentence_pairs import PairPacker, PairRule

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "nsp-sop-stats.json").read_text(encoding="utf-8"))


def random_documents(seed, count=200):
    """Documents as in the golden: 4-40 sentences of 3-40 tokens; a token is 100 * document + sentence."""
    generator = np.random.default_rng(seed)
    return [
        [[100 * number + place] * int(generator.integers(3, 41)) for place in range(int(generator.integers(4, 41)))]
        for number in range(count)
    ]


def statistics_of(documents, max_seq_length, seed, make=next_sentence_pairs):
    generator = np.random.default_rng(seed)
    pairs = [pair for _ in range(6) for pair in make(documents, max_seq_length - 3, generator)]
    lengths = np.array([(len(pair.first), len(pair.second)) for pair in pairs])
    total = lengths.sum(1) + 3
    return {
        "pairs": len(pairs),
        "label1_fraction": np.mean([pair.next_sentence_label for pair in pairs]),
        "mean_len_with_specials": total.mean(),
        "full_length_fraction": (total == max_seq_length).mean(),
        "mean_len_A": lengths[:, 0].mean(),
        "mean_len_B": lengths[:, 1].mean(),
    }


def released_order(*given):
    return sentence_order_pairs(*given, single_sentences="elsewhere")


@pytest.mark.parametrize(
    ("key", "length", "make"),
    [
        ("nsp(google bert)", 128, next_sentence_pairs),
        ("nsp(google bert, len 512)", 512, next_sentence_pairs),
        ("albert random_next_sentence=True", 128, next_sentence_pairs),
        ("sop(albert, random_next_sentence=False)", 128, released_order),
    ],
)
def test_the_statistics_are_those_of_the_reference(key, length, make):
    """The golden's documents are not given, only how they were drawn: corpora drawn likewise give the spread."""
    runs = [statistics_of(random_documents(seed), length, seed, make) for seed in range(8)]
    for name in runs[0]:
        values = np.array([run[name] for run in runs])
        # the golden is one more draw: its distance to the mean of 8 has sd * sqrt(1 + 1/8); Student's t, 7 degrees
        assert abs(GOLDEN[key][name] - values.mean()) < 5.4 * values.std(ddof=1) * (9 / 8) ** 0.5, name


@pytest.mark.parametrize("variant", ["bert", "spanbert"])
def test_a_pair_is_a_piece_of_a_document_and_its_continuation_or_a_piece_of_another(variant):
    for pair in next_sentence_pairs(random_documents(0, 40), 125, np.random.default_rng(0), variant=variant):
        assert len(pair.first) + len(pair.second) <= 125
        assert pair.first
        assert pair.second
        (document,), (other,) = ({token // 100 for token in part} for part in (pair.first, pair.second))
        assert (document != other) == bool(pair.next_sentence_label)
        if not pair.next_sentence_label:
            assert pair.second[0] > pair.first[-1]  # a later sentence
        assert list(pair.first) == sorted(pair.first)


@pytest.mark.parametrize("rule", ["split", "elsewhere"])
def test_order_is_exchanged_within_a_document(rule):
    documents = random_documents(0, 60)
    pairs = list(sentence_order_pairs(documents, 60, np.random.default_rng(0), single_sentences=rule))
    elsewhere = [pair.first[0] // 100 != pair.second[0] // 100 for pair in pairs]
    assert any(elsewhere) == (rule == "elsewhere")
    assert all(pair.next_sentence_label for pair, other in zip(pairs, elsewhere, strict=True) if other)
    for pair, other in zip(pairs, elsewhere, strict=True):
        if not other and pair.first[0] != pair.second[0]:  # not the halves of one sentence
            assert (pair.first[0] > pair.second[-1]) == bool(pair.next_sentence_label)
    if rule == "split":
        assert np.mean([pair.next_sentence_label for pair in pairs]) == pytest.approx(0.5, abs=0.05)
        assert sum(map(len, (part for pair in pairs for part in pair[:2]))) > 0.6 * sum(
            len(sentence) for document in documents for sentence in document
        )
    with pytest.raises(ValueError, match="`single_sentences` must be one of"):
        next(sentence_order_pairs(documents, 60, np.random.default_rng(0), single_sentences="skip"))


def test_three_classes_are_a_third_each():
    pairs = list(structural_pairs(random_documents(0, 100), 80, np.random.default_rng(0)))
    for pair in pairs:
        same = pair.first[0] // 100 == pair.second[0] // 100
        assert same == (pair.next_sentence_label != 2)
        if same and pair.first[0] != pair.second[0]:
            assert (pair.first[0] > pair.second[-1]) == (pair.next_sentence_label == 1)
    shares = np.bincount([pair.next_sentence_label for pair in pairs]) / len(pairs)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.04)
    tiny = [pair for seed in range(20) for pair in structural_pairs([[[5]], [[6]]], 8, np.random.default_rng(seed))]
    assert {pair.next_sentence_label for pair in tiny} == {2}, "one token has no halves"


def test_every_sentence_comes_first_or_follows_if_nothing_is_truncated():
    documents = random_documents(0, 20)
    pairs = list(next_sentence_pairs(documents, 100_000, np.random.default_rng(0), short_seq_prob=0))
    seen = {token for pair in pairs for token in pair.first}
    seen |= {token for pair in pairs if not pair.next_sentence_label for token in pair.second}
    assert seen == {sentence[0] for document in documents for sentence in document}


def test_spanbert_leaves_two_sentences_for_the_second_segment():
    documents = [[[1], [2], [3]], [[4]]]
    cuts = {
        variant: {
            len(pair.first)
            for seed in range(50)
            for pair in next_sentence_pairs(
                documents, 9, np.random.default_rng(seed), short_seq_prob=0, variant=variant
            )
            if pair.next_sentence_label == 0 and len(pair.first + pair.second) == 3
        }
        for variant in ("bert", "spanbert")
    }
    assert cuts == {"bert": {1, 2}, "spanbert": {1}}


# ---- one document after the other ----


def one_by_one(rule, documents, max_tokens, seed):
    packer = PairPacker(rule, max_tokens, np.random.default_rng(seed))
    return [pair for document in documents for pair in packer.add(document)] + packer.flush()


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("nsp(google bert)", PairRule("next")),
        ("sop(albert, random_next_sentence=False)", PairRule("order", single_sentences="elsewhere")),
    ],
)
def test_a_stream_has_the_statistics_of_the_reference(key, rule):
    def make(documents, max_tokens, generator):
        return one_by_one(rule, documents, max_tokens, int(generator.integers(1 << 30)))

    runs = [statistics_of(random_documents(seed), 128, seed, make) for seed in range(8)]
    for name in runs[0]:
        values = np.array([run[name] for run in runs])
        assert abs(GOLDEN[key][name] - values.mean()) < 5.4 * values.std(ddof=1) * (9 / 8) ** 0.5, name


@pytest.mark.parametrize("kind", ["next", "order", "structure"])
def test_a_second_segment_from_elsewhere_is_of_a_document_before(kind):
    documents = random_documents(3, 80)
    pairs = one_by_one(PairRule(kind, buffer_size=5), documents, 61, 0)
    places = [(pair.first[0] // 100, pair.second[0] // 100) for pair in pairs]
    elsewhere = [(first, second) for first, second in places if first != second]
    assert {first for first, _ in places} == set(range(80)), "every document gives pairs, the first one too"
    assert all(second < first or (first, second) == (0, 1) for first, second in elsewhere)
    assert bool(elsewhere) == (kind != "order")
    assert all(len(pair.first) + len(pair.second) <= 61 for pair in pairs)
    shares = np.bincount([pair.next_sentence_label for pair in pairs]) / len(pairs)
    assert len(shares) == PairRule(kind).classes
    assert shares == pytest.approx([1 / len(shares)] * len(shares), abs=0.1)
    # Nothing far away is ever repeated often: what is remembered is replaced.
    if elsewhere:
        assert max(np.bincount([second for _, second in elsewhere])) < 0.2 * len(elsewhere)


def test_a_packer_goes_on_from_its_state():
    documents = random_documents(0, 30)
    whole = one_by_one(PairRule("structure", buffer_size=4), documents, 50, 7)
    generator = np.random.default_rng(7)
    packer = PairPacker(PairRule("structure", buffer_size=4), 50, generator)
    parts = [pair for document in documents[:9] for pair in packer.add(document)]
    later = PairPacker(PairRule("structure", buffer_size=4), 50, generator)
    later.load_state_dict(json.loads(json.dumps(packer.state_dict())))
    assert whole == [*parts, *(pair for document in documents[9:] for pair in later.add(document))]


def test_rules_and_documents_that_cannot_be_are_named():
    assert one_by_one(PairRule(), [], 10, 0) == []
    with pytest.raises(ValueError, match="at least 2 documents with tokens, got 1"):
        one_by_one(PairRule(), [[[1], [2]], [[]]], 10, 0)
    for options, message in (
        ({"kind": "nsp"}, "`kind` must be one of next, order, structure, distance, got 'nsp'"),
        ({"variant": "x"}, "`variant` must be one of bert, spanbert"),
        ({"short_seq_prob": 2}, "`short_seq_prob` must be in"),
        ({"buffer_size": 0}, "`buffer_size` must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            PairRule(**options)
    with pytest.raises(ValueError, match="`max_tokens` must be at least 2"):
        PairPacker(PairRule(), 1, np.random.default_rng(0))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40), st.integers(0, 5))
def test_truncation_shortens_the_longer_segment_token_by_token(first, second, max_tokens, seed):
    kept = truncate_pair(list(range(first)), list(range(second)), max_tokens, np.random.default_rng(seed))
    while first + second > max_tokens:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    assert [len(part) for part in kept] == [first, second]
    for part in kept:
        assert part == list(range(part[0], part[0] + len(part))) if part else True


def test_pairs_become_a_dataset_and_packed_rows(english_documents, english_tokenizer):
    special_tokens = special_tokens_of(english_tokenizer)
    documents = list(encode_documents(english_documents[:10], english_tokenizer))
    pairs = list(next_sentence_pairs(documents, 64 - special_tokens.pair_count, np.random.default_rng(0)))
    rows = Dataset.from_list([pair.features(special_tokens) for pair in pairs])
    assert set(rows.column_names) == {"input_ids", "token_type_ids", "next_sentence_label"}
    assert "sentence_order_label" in pairs[0].features(special_tokens, "sentence_order_label")
    assert max(map(len, rows["input_ids"])) <= 64
    packer = RowPacker(128, english_tokenizer.pad_token_id, max_sequences=4)
    packed = [row for features in rows for row in packer.add(features)] + packer.flush()
    labels = [label for row in packed for label in row["next_sentence_label"] if label != -100]
    assert sorted(labels) == sorted(rows["next_sentence_label"])


def test_impossible_input_is_named():
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match="at least 2 documents with tokens, got 1"):
        list(next_sentence_pairs([[[1]], [[]]], 10, generator))
    with pytest.raises(ValueError, match="`max_tokens` must be at least 2"):
        list(next_sentence_pairs([[[1]], [[2]]], 1, generator))
    with pytest.raises(ValueError, match="`variant` must be one of"):
        list(next_sentence_pairs([[[1]], [[2]]], 9, generator, variant="albert"))
