"""Packing: no token lost or doubled, no block across documents, no length exceeded."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.data import BlockPacker, RowPacker, pack_documents, pack_row

documents_of_lengths = st.lists(st.lists(st.integers(0, 14), max_size=6), max_size=6)


def numbered(lengths):
    """Documents whose tokens are 1, 2, 3, ... so that every token is known."""
    token = iter(range(1, 10_000))
    return [[[next(token) for _ in range(length)] for length in document] for document in lengths]


def tokens_of(document):
    return [token for sentence in document for token in sentence]


@settings(max_examples=150, deadline=None)
@given(documents_of_lengths, st.integers(1, 12), st.sampled_from([0.0, 0.5]))
def test_document_blocks_keep_every_token_in_order_within_its_document(lengths, max_tokens, short_seq_prob):
    documents = numbered(lengths)
    options = {"short_seq_prob": short_seq_prob, "generator": np.random.default_rng(0)}
    packer = BlockPacker(max_tokens, **options)
    for document in documents:
        blocks = packer.add(document)
        assert [token for block in blocks for token in block] == tokens_of(document)
        assert all(1 <= len(block) <= max_tokens for block in blocks)
    assert packer.flush() == []


@settings(max_examples=150, deadline=None)
@given(documents_of_lengths, st.integers(1, 12))
def test_blocks_are_greedy_and_cut_only_sentences_that_are_too_long(lengths, max_tokens):
    for document in numbered(lengths):
        blocks = BlockPacker(max_tokens).add(document)
        ends = {sentence[-1] for sentence in document if sentence}
        length_of = {sentence[0]: len(sentence) for sentence in document if sentence}
        for block, following in pairwise(blocks):
            if following[0] in length_of:  # a sentence that starts a block did not fit into the block before
                assert block[-1] in ends
                assert len(block) + length_of[following[0]] > max_tokens
            else:  # only a sentence that is too long is cut
                assert len(block) == max_tokens


@settings(max_examples=100, deadline=None)
@given(documents_of_lengths, st.integers(1, 12))
def test_dropping_leaves_out_long_sentences_and_nothing_else(lengths, max_tokens):
    documents = numbered(lengths)
    kept = [token for d in documents for s in d if len(s) <= max_tokens for token in s]
    blocks = pack_documents(documents, max_tokens, long_sentences="drop")
    assert [token for block in blocks for token in block] == kept


def test_the_pending_block_before_a_long_last_sentence_is_kept():
    assert BlockPacker(4, long_sentences="drop").add([[1, 2], [3] * 9]) == [[1, 2]]


@settings(max_examples=100, deadline=None)
@given(documents_of_lengths, st.integers(2, 12))
def test_full_sentences_cross_documents_with_one_separator_inside(lengths, max_tokens):
    documents = numbered(lengths)
    blocks = list(pack_documents(documents, max_tokens, mode="full_sentences", separator_id=0))
    assert [token for block in blocks for token in block if token] == [t for d in documents for t in tokens_of(d)]
    document_of = {token: index for index, document in enumerate(documents) for token in tokens_of(document)}
    for block in blocks:
        assert len(block) <= max_tokens
        assert block[0]
        assert block[-1]
        for left, middle, right in zip(block, block[1:], block[2:], strict=False):
            if middle == 0:
                assert document_of[left] < document_of[right]
        for left, right in pairwise(block):
            assert left == 0 or right == 0 or document_of[left] == document_of[right]


def test_short_targets_are_drawn_with_their_probability():
    blocks = BlockPacker(50, short_seq_prob=0.3, generator=np.random.default_rng(0)).add([[1]] * 100_000)
    short = sum(len(block) < 50 for block in blocks) / len(blocks)
    expected = 0.3 * 48 / 49  # the uniform target 2..50 is 50 in one of 49
    assert abs(short - expected) < 4 * (expected * (1 - expected) / len(blocks)) ** 0.5


def test_a_sentence_of_a_million_tokens_is_split_quickly():
    blocks = BlockPacker(510).add([list(range(1_000_000))])
    assert len(blocks) == 1961
    assert len(blocks[-1]) == 1_000_000 - 1960 * 510


sequence_lengths = st.lists(st.integers(1, 10), max_size=40)


@settings(max_examples=150, deadline=None)
@given(sequence_lengths, st.integers(1, 4), st.integers(1, 5))
def test_rows_hold_every_sequence_once_with_its_own_positions(lengths, open_rows, max_sequences):
    packer = RowPacker(10, pad_token_id=0, open_rows=open_rows, max_sequences=max_sequences)
    sequences = [{"input_ids": [index + 1] * length} for index, length in enumerate(lengths)]
    rows = [row for sequence in sequences for row in packer.add(sequence)] + packer.flush()
    found = []
    for row in rows:
        assert {len(values) for values in row.values()} == {10}
        ids, numbers = np.array(row["input_ids"]), np.array(row["sequence_ids"])
        assert ((ids == 0) == (numbers == 0)).all()
        count = numbers.max()
        assert count <= max_sequences
        for number in range(1, count + 1):
            places = np.flatnonzero(numbers == number)
            assert (np.diff(places) == 1).all()
            assert np.array(row["position_ids"])[places].tolist() == list(range(len(places)))
            found.append(ids[places].tolist())
    assert sorted(found) == sorted(sequence["input_ids"] for sequence in sequences)


@settings(max_examples=50, deadline=None)
@given(sequence_lengths, st.integers(0, 40))
def test_a_row_packer_goes_on_from_its_state(lengths, stop):
    sequences = [
        {"input_ids": [index + 1] * length, "token_type_ids": [0] * length} for index, length in enumerate(lengths)
    ]
    whole, first, second = (RowPacker(10, 0, open_rows=2) for _ in range(3))
    expected = [row for sequence in sequences for row in whole.add(sequence)] + whole.flush()
    rows = [row for sequence in sequences[:stop] for row in first.add(sequence)]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rows += [row for sequence in sequences[stop:] for row in second.add(sequence)]
    assert rows + second.flush() == expected


def test_rows_carry_one_integer_per_sequence():
    pairs = [
        {"input_ids": [2, 5, 3, 6, 3], "token_type_ids": [0, 0, 0, 1, 1], "next_sentence_label": 1},
        {"input_ids": [2, 7, 3, 8, 3], "token_type_ids": [0, 0, 0, 1, 1], "next_sentence_label": 0},
    ]
    row = pack_row(pairs, 12, 4, pad_token_id=0)
    assert row["token_type_ids"] == [0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0]
    assert row["next_sentence_label"] == [1, 0, -100, -100]


def test_sixteen_open_rows_leave_less_than_five_percent_padding():
    generator = np.random.default_rng(0)
    lengths = np.clip(np.exp(generator.normal(np.log(200), 0.7, 5000)).astype(int), 3, 512)
    packer = RowPacker(512, pad_token_id=0)
    rows = sum(len(packer.add({"input_ids": [1] * int(length)})) for length in lengths) + len(packer.flush())
    assert lengths.sum() / (rows * 512) > 0.95


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BlockPacker(0), "`max_tokens` must be at least 1, got 0"),
        (lambda: BlockPacker(4, mode="doc"), "`mode` must be one of"),
        (lambda: BlockPacker(4, long_sentences="cut"), "`long_sentences` must be one of"),
        (lambda: BlockPacker(4, mode="full_sentences"), "`separator_id` must be given"),
        (lambda: BlockPacker(4, short_seq_prob=0.1), "`generator` must be given"),
        (lambda: BlockPacker(4, short_seq_prob=2), r"`short_seq_prob` must be in \[0, 1\], got 2"),
        (lambda: RowPacker(4, 0, open_rows=0), "`open_rows` must be at least 1, got 0"),
        (lambda: RowPacker(4, 0).add({"input_ids": [1] * 5}), "at most `row_length` = 4 tokens, got 5"),
        (
            lambda: pack_row([{"input_ids": [1]}] * 3, 8, 2, 0),
            "fit into 8 tokens and 2 sequences, got 3 tokens in 3",
        ),
    ],
)
def test_impossible_options_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
