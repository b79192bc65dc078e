"""N-gram masking for any input: exact budgets, nothing outside the candidates, n-grams inside their blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.masking import (
    block_starts,
    find_segments,
    ngram_size_probabilities,
    sample_ngrams,
    sequence_groups,
)


def only(size):
    """The law under which every n-gram has this size."""
    return np.eye(size)[-1]


@st.composite
def batches(draw):
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    candidates = rng.random((rows, width)) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    sequence_ids = np.cumsum(rng.random(candidates.shape) < 0.1, axis=1) + 1 if draw(st.booleans()) else None
    blocks = block_starts(candidates, sequence_ids)
    words = candidates & (rng.random(candidates.shape) < 0.6) | blocks if draw(st.booleans()) else None
    groups = None if sequence_ids is None else sequence_groups(candidates.shape, sequence_ids)
    count = rows if groups is None else groups[1]
    return candidates, blocks, words, groups, rng.integers(0, 12, count), rng


@settings(max_examples=150, deadline=None)
@given(batches(), st.sampled_from(["clip", "drop"]), st.integers(1, 5))
def test_the_budget_of_every_sequence_is_met_exactly(batch, overflow, size):
    candidates, blocks, words, groups, budget, rng = batch
    selected = sample_ngrams(candidates, blocks, budget, only(size), rng, groups, word_starts=words, overflow=overflow)
    assert not selected[~candidates].any()
    index, count = groups if groups is not None else sequence_groups(candidates.shape)
    available = np.bincount(index[candidates], minlength=count)
    assert (np.bincount(index[selected], minlength=count) == np.minimum(budget, available)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_one_ngram_is_one_run_that_ends_at_its_block(size, seed):
    candidates = np.ones((50, 17), dtype=bool)
    candidates[:, [0, 6, 16]] = False
    selected = sample_ngrams(
        candidates, block_starts(candidates), np.full(50, 1), only(size), np.random.default_rng(seed)
    )
    assert (selected.sum(axis=1) == 1).all()  # clipped at the budget
    whole = sample_ngrams(
        candidates, block_starts(candidates), np.full(50, size), only(size), np.random.default_rng(seed)
    )
    runs = find_segments(whole)
    touching = np.isin(runs.stop, [6, 16])
    assert (whole.sum(axis=1) == size).all()
    full = np.bincount(runs.row, minlength=50) == 1
    assert (runs.lengths[full[runs.row]] == size).all()
    assert touching[~full[runs.row]].any() or full.all()  # only the end of a block leaves an n-gram short


def test_ngrams_do_not_cross_into_the_next_packed_sequence():
    candidates = np.ones((2000, 6), dtype=bool)
    sequence_ids = np.tile([1, 1, 1, 2, 2, 2], (2000, 1))
    groups = sequence_groups(candidates.shape, sequence_ids)
    budget = np.tile([0, 3, 0], 2000)
    selected = sample_ngrams(
        candidates, block_starts(candidates, sequence_ids), budget, only(3), np.random.default_rng(0), groups
    )
    assert selected[:, :3].all()
    assert not selected[:, 3:].any()


def test_words_are_whole_while_the_budget_allows():
    words = np.zeros((500, 12), dtype=bool)
    words[:, ::3] = True
    candidates = np.ones_like(words)
    blocks = block_starts(candidates)
    selected = sample_ngrams(candidates, blocks, np.full(500, 6), only(1), np.random.default_rng(0), word_starts=words)
    by_word = selected.reshape(500, 4, 3).sum(axis=2)
    assert np.isin(by_word, [0, 3]).all()
    assert (by_word.sum(axis=1) == 6).all()


def test_degenerate_batches():
    rng = np.random.default_rng(0)
    nothing = np.zeros((2, 0), dtype=bool)
    assert sample_ngrams(nothing, nothing, np.array([1, 1]), only(2), rng).shape == (2, 0)
    empty = np.zeros((2, 3), dtype=bool)
    assert not sample_ngrams(empty, empty, np.array([1, 1]), only(2), rng).any()
    full = ~empty
    assert not sample_ngrams(full, block_starts(full), np.array([0, 0]), only(2), rng).any()


def test_the_law_of_sizes():
    assert ngram_size_probabilities(0.2, 3).tolist() == pytest.approx([0.8, 0.1, 0.1])
    assert ngram_size_probabilities(0.0, 1).tolist() == [1.0]
    for probability, size in ((1.5, 3), (0.2, 1), (0.2, 0)):
        with pytest.raises(ValueError, match=r"`ngram_probability`|`max_ngram_size`"):
            ngram_size_probabilities(probability, size)


def test_bad_arguments_are_named():
    candidates = np.ones((2, 5), dtype=bool)
    blocks, law, rng = block_starts(candidates), only(2), np.random.default_rng(0)
    with pytest.raises(ValueError, match="`budget`"):
        sample_ngrams(candidates, blocks, np.array([1]), law, rng)
    with pytest.raises(ValueError, match="`block_starts`"):
        sample_ngrams(candidates, blocks[:1], np.array([1, 1]), law, rng)
    with pytest.raises(ValueError, match="`word_starts`"):
        sample_ngrams(candidates, blocks, np.array([1, 1]), law, rng, word_starts=blocks[:1])
    with pytest.raises(ValueError, match="`overflow`"):
        sample_ngrams(candidates, blocks, np.array([1, 1]), law, rng, overflow="cut")
    for wrong in (np.array([0.5, 0.4]), np.array([-0.5, 1.5]), np.array([])):
        with pytest.raises(ValueError, match="`size_probabilities`"):
            sample_ngrams(candidates, blocks, np.array([1, 1]), wrong, rng)
