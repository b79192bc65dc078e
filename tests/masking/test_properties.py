"""What must hold for any input: budgets, disjoint spans, untouched specials, shared fates."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.masking import (
    IGNORE_INDEX,
    RandomTokens,
    bernoulli_tokens,
    bernoulli_words,
    bert_budget,
    block_starts,
    boundary_pairs,
    candidate_mask,
    check_sequences,
    cover,
    exact_tokens,
    exact_units,
    exact_words,
    find_segments,
    fixed_label_positions,
    pack_pairs,
    replace_tokens,
    sample_spans,
    segment_index,
    selected_labels,
    sequence_groups,
    shuffled_within_groups,
    span_budget,
    span_length_probabilities,
    uniform_tokens,
    unigram_tokens,
    word_starts,
)

SPECIAL, MASK, VOCAB = 0, 1, 30
NEVER = np.array([True, True] + [False] * (VOCAB - 2))
CONTINUES = np.arange(VOCAB) >= 20


@st.composite
def batches(draw):
    """Rows of ids with special tokens, masks and padding anywhere; width from 1; maybe packed."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    ids = rng.integers(2, VOCAB, (rows, width))
    ids[rng.random(ids.shape) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))] = SPECIAL
    text = np.arange(width) < rng.integers(0, width + 1, (rows, 1))
    sequence_ids = None
    if draw(st.booleans()):
        sequence_ids = np.cumsum(rng.random(ids.shape) < 0.1, axis=1) + 1
        sequence_ids[~text] = 0
    candidates = candidate_mask(ids, NEVER, text)
    blocks = block_starts(candidates, sequence_ids)
    starts = word_starts(ids, candidates, blocks, CONTINUES)
    return ids, text, candidates, blocks, starts, sequence_ids, rng


@settings(max_examples=120, deadline=None)
@given(batches(), st.floats(0, 1))
def test_spans(batch, probability):
    ids, _, candidates, blocks, starts, sequence_ids, rng = batch
    units = find_segments(candidates, blocks)
    budget = span_budget(units.lengths, probability)
    selected = sample_spans(candidates, blocks, starts, budget, span_length_probabilities(), rng)
    assert not selected[~candidates].any()
    inside = segment_index(candidates, blocks)
    assert (np.bincount(inside[selected], minlength=len(budget)) == budget).all()
    spans = find_segments(selected, blocks)
    assert starts[spans.row, spans.start].all()
    if sequence_ids is not None:
        for row, start, stop in zip(*spans, strict=True):
            assert len(set(sequence_ids[row, start:stop])) == 1
    with_pair, pairs = boundary_pairs(spans, candidates, blocks)
    rows = spans.row[with_pair]
    assert not selected[rows, pairs[:, 0]].any()
    assert not selected[rows, pairs[:, 1]].any()
    assert (inside[rows, pairs[:, 0]] == inside[rows, spans.start[with_pair]]).all()
    assert (inside[rows, pairs[:, 1]] == inside[rows, spans.start[with_pair]]).all()
    boundaries, labels = pack_pairs(ids, spans, with_pair, pairs, 4)
    assert boundaries.shape == (*labels.shape[:2], 2)
    assert (labels != IGNORE_INDEX).sum() == np.minimum(spans.lengths[with_pair], 4).sum()


@settings(max_examples=120, deadline=None)
@given(batches(), st.floats(0, 1), st.sampled_from([None, 1, 5]))
def test_whole_words(batch, probability, maximum):
    _, text, candidates, _, starts, sequence_ids, rng = batch
    groups = sequence_groups(candidates.shape, sequence_ids)
    budget = bert_budget(np.bincount(groups[0][text], minlength=groups[1]), probability, maximum)
    selected = exact_words(candidates, starts, budget, rng, groups)
    words = find_segments(candidates, starts)
    taken = selected[words.row, words.start]
    assert (cover(words, candidates.shape) == candidates).all()
    assert (np.repeat(taken, words.lengths) == selected[candidates]).all()
    used = np.bincount(groups[0][selected], minlength=groups[1])
    assert (used <= budget).all()
    left = (budget - used)[groups[0][words.row, words.start]]
    assert (words.lengths[~taken] > left[~taken]).all()  # a word was skipped only because it did not fit


@settings(max_examples=80, deadline=None)
@given(batches(), st.floats(0, 1))
def test_tokens(batch, probability):
    _, text, candidates, _, starts, sequence_ids, rng = batch
    groups = sequence_groups(candidates.shape, sequence_ids)
    available = np.bincount(groups[0][candidates], minlength=groups[1])
    budget = bert_budget(np.bincount(groups[0][text], minlength=groups[1]), probability)
    selected = exact_tokens(candidates, budget, rng, groups)
    assert not selected[~candidates].any()
    assert (np.bincount(groups[0][selected], minlength=groups[1]) == np.minimum(budget, available)).all()
    for draw in (
        bernoulli_tokens(candidates, probability, rng, at_least_one=True, groups=groups),
        bernoulli_words(candidates, starts, probability, rng, at_least_one=True, groups=groups),
    ):
        assert not draw[~candidates].any()
        assert ((np.bincount(groups[0][draw], minlength=groups[1]) > 0) == (available > 0)).all()


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(["token", "word", "span"]))
def test_replacement(batch, unit):
    ids, _, candidates, blocks, starts, _, rng = batch
    selected = bernoulli_tokens(candidates, 0.5, rng)
    units = {
        "token": None,
        "word": segment_index(candidates, starts),
        "span": segment_index(selected, blocks),
    }[unit]
    sentinel = VOCAB + 1
    corrupted = replace_tokens(
        ids, selected, rng, mask_token_id=MASK, random_tokens=RandomTokens(np.array([sentinel])), units=units
    )
    assert (corrupted[~selected] == ids[~selected]).all()
    if units is not None:
        fate = np.where(corrupted == MASK, 0, np.where(corrupted == sentinel, 1, 2))
        for index in np.unique(units[selected]):
            assert len(set(fate[selected & (units == index)])) == 1
    labels = selected_labels(ids, selected)
    assert (labels[selected] == ids[selected]).all()
    assert (labels[~selected] == IGNORE_INDEX).all()
    positions = fixed_label_positions(labels, max(int(selected.sum(axis=1).max()), 1))
    gathered = np.take_along_axis(labels, positions, axis=1)
    assert (np.sort(gathered[gathered != IGNORE_INDEX]) == np.sort(ids[selected])).all()


def test_units_are_taken_as_the_sequential_walk_takes_them():
    # Lengths 1 and 2, budget 2: whichever comes first is taken, and then the other does not fit.
    draws = 4000
    groups = np.repeat(np.arange(draws), 2)
    chosen = exact_units(groups, np.tile([1, 2], draws), np.full(draws, 2), np.random.default_rng(0)).reshape(-1, 2)
    assert (chosen.sum(axis=1) == 1).all()
    assert chosen[:, 0].mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / draws))


def test_every_order_within_a_group_is_equally_likely():
    draws = 6000
    order = shuffled_within_groups(np.repeat(np.arange(draws), 3), draws, np.random.default_rng(0)).reshape(-1, 3) % 3
    shares = np.bincount(order @ [9, 3, 1], minlength=27) / draws
    assert np.count_nonzero(shares) == 6
    assert shares[shares > 0] == pytest.approx(1 / 6, abs=4 * np.sqrt(1 / 6 * 5 / 6 / draws))


def test_every_subset_of_tokens_is_equally_likely():
    draws = 6000
    selected = exact_tokens(np.ones((draws, 4), dtype=bool), np.full(draws, 2), np.random.default_rng(0))
    shares = np.bincount(selected @ [1, 2, 4, 8], minlength=16) / draws
    assert np.count_nonzero(shares) == 6
    assert shares[shares > 0] == pytest.approx(1 / 6, abs=4 * np.sqrt(1 / 6 * 5 / 6 / draws))


def test_random_tokens_follow_the_counts():
    rng = np.random.default_rng(0)
    counts = np.array([5, 0, 3, 2])
    draws = np.bincount(unigram_tokens(counts).draw(20_000, rng), minlength=4) / 20_000
    assert draws == pytest.approx(counts / 10, abs=0.015)
    assert set(unigram_tokens(counts, np.array([True, False, False, False])).draw(100, rng)) == {2, 3}
    assert set(uniform_tokens(4).draw(500, rng)) == {0, 1, 2, 3}


def test_the_first_piece_of_a_block_starts_a_word_even_if_it_is_a_continuation():
    ids = np.array([[0, 25, 5, 25, 0, 25, 25]])
    candidates = candidate_mask(ids, NEVER)
    starts = word_starts(ids, candidates, block_starts(candidates), CONTINUES)
    assert starts.astype(int).tolist() == [[0, 1, 1, 0, 0, 1, 0]]


def test_packed_sequences_without_special_tokens_are_separate_blocks():
    candidates = np.ones((1, 6), dtype=bool)
    blocks = block_starts(candidates, np.array([[1, 1, 1, 2, 2, 2]]))
    assert blocks.astype(int).tolist() == [[1, 0, 0, 1, 0, 0]]
    selected = np.array([[0, 1, 1, 1, 1, 0]], dtype=bool)
    spans = find_segments(selected, blocks)
    assert spans.stop.tolist() == [3, 5]
    assert len(boundary_pairs(spans, candidates, blocks)[0]) == 0  # both touch the border between the sequences
    assert boundary_pairs(spans, candidates, blocks, "internal")[1].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: span_length_probabilities(0), "`geometric_p`"),
        (lambda: span_length_probabilities(0.2, 0), "`max_span_length`"),
        (lambda: bert_budget(np.array([3]), 1.5), "`probability`"),
        (lambda: bert_budget(np.array([3]), 0.5, 0), "`max_predictions`"),
        (lambda: unigram_tokens(np.array([-1.0])), "`counts`"),
        (lambda: uniform_tokens(1, np.array([True])), "`excluded`"),
        (lambda: candidate_mask(np.array([[5]]), np.zeros(3, dtype=bool)), "`input_ids`"),
        (lambda: fixed_label_positions(np.array([[1, 2]]), 1), "`label_budget`"),
        (lambda: fixed_label_positions(np.array([[1, 2]]), 3), "`label_budget`"),
        (lambda: exact_tokens(np.ones((2, 2), dtype=bool), np.array([1]), np.random.default_rng(0)), "`budget`"),
    ],
)
def test_impossible_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_label_positions_beyond_a_short_row_point_at_an_unlabelled_position():
    positions = fixed_label_positions(np.array([[-100, 7, 8]]), 5)
    assert positions.tolist() == [[1, 2, 0, 0, 0]]


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=4))
@settings(deadline=None)
def test_a_torn_sequence_is_found_exactly_where_there_is_one(rows):
    runs = [[number for number, _ in groupby(row) if number] for row in rows]
    torn = [index for index, row in enumerate(runs) if len(set(row)) < len(row)]
    if not torn:
        check_sequences(np.array(rows))
        return
    with pytest.raises(ValueError, match="in two places") as raised:
        check_sequences(np.array(rows))
    assert any(f"in row {index}." in str(raised.value) for index in torn)
