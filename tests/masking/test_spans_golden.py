"""Span masking against the reference's own statistics (tests/goldens/spanbert-mask-stats.json)."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.masking import (
    RandomTokens,
    block_starts,
    boundary_pairs,
    find_segments,
    pack_pairs,
    replace_tokens,
    sample_spans,
    segment_index,
    span_budget,
    span_length_probabilities,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "spanbert-mask-stats.json").read_text(encoding="utf-8"))
TEXT, MASK, RANDOM = 9, 3, 7  # sentinels: a random replacement is told from a kept token exactly


@pytest.fixture(scope="module", params=range(len(GOLDEN["runs"])), ids=lambda i: f"run{i}")
def drawn(request):
    """One golden run regenerated: random continuation pieces, no special tokens, then our sampler."""
    run = GOLDEN["runs"][request.param]
    rng = np.random.default_rng(request.param)
    shape = (run["sequences"], run["length"])
    candidates = np.ones(shape, dtype=bool)
    blocks = block_starts(candidates)
    starts = (rng.random(shape) >= run["p_continuation_piece"]) | blocks
    budget = span_budget(np.full(shape[0], shape[1]), 0.15)
    selected = sample_spans(candidates, blocks, starts, budget, span_length_probabilities(), rng)
    return run, candidates, blocks, starts, selected, rng


def histogram(values):
    return np.bincount(values, minlength=64) / len(values)


def assert_histograms_close(ours, golden, tolerance=0.01):
    for value, share in golden.items():
        assert ours[int(value)] == pytest.approx(share, abs=tolerance), value


def test_length_law_is_the_clipped_geometric_law():
    law = span_length_probabilities(0.2, 10)
    np.testing.assert_allclose(law, GOLDEN["theory"]["length_distribution"], rtol=1e-12)
    assert law @ np.arange(1, 11) == pytest.approx(GOLDEN["theory"]["mean"], rel=1e-12)


def test_every_block_masks_exactly_its_budget(drawn):
    run, _, _, _, selected, _ = drawn
    assert set(selected.sum(axis=1)) == {int(np.ceil(0.15 * run["length"]))}
    assert selected.mean() == pytest.approx(run["masked_ratio"], abs=1e-12)


def test_number_and_length_of_merged_spans(drawn):
    run, _, blocks, starts, selected, _ = drawn
    spans = find_segments(selected, blocks)
    per_row = np.bincount(spans.row, minlength=run["sequences"])
    # Both sides are samples: four standard errors of a difference of means.
    error = 4 * np.sqrt(2) * per_row.std() / np.sqrt(run["sequences"])
    assert per_row.mean() == pytest.approx(run["merged_spans_per_sequence"], abs=error)
    error = 4 * np.sqrt(2) * spans.lengths.std() / np.sqrt(len(spans.row))
    assert spans.lengths.mean() == pytest.approx(run["merged_span_len_tokens_mean"], abs=error)
    assert_histograms_close(histogram(spans.lengths), run["merged_span_len_tokens_hist"])
    count = np.concatenate([[0], np.cumsum(starts.ravel())])
    width = run["length"]
    words = count[spans.row * width + spans.stop] - count[spans.row * width + spans.start]
    assert_histograms_close(histogram(words), run["merged_span_len_words_hist"])


def test_profile_over_positions(drawn):
    run, _, _, _, selected, _ = drawn
    profile = selected.mean(axis=0)
    first, last = run["mask_prob_first_last"]
    assert profile[0] == pytest.approx(first, abs=4 * np.sqrt(2 * 0.05 * 0.95 / run["sequences"]))
    assert profile[-1] == pytest.approx(last, abs=4 * np.sqrt(2 * 0.15 * 0.85 / run["sequences"]))
    edges = np.linspace(0, run["length"], 11).astype(int)
    deciles = [profile[a:b].mean() for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(deciles, run["mask_prob_by_position_decile"], atol=0.01)


def test_only_the_budget_cuts_words(drawn):
    run, _, blocks, starts, selected, _ = drawn
    spans = find_segments(selected, blocks)
    assert starts[spans.row, spans.start].all()
    inside = spans.stop < run["length"]
    cut = inside.copy()
    cut[inside] = ~starts[spans.row[inside], spans.stop[inside]]
    assert cut.mean() == pytest.approx(run["spans_cut_mid_word_fraction"], abs=0.01)
    assert np.bincount(spans.row[cut], minlength=1).max() <= 1


def test_pairs(drawn):
    run, candidates, blocks, _, selected, rng = drawn
    spans = find_segments(selected, blocks)
    with_pair, pairs = boundary_pairs(spans, candidates, blocks)
    per_row = np.bincount(spans.row[with_pair], minlength=run["sequences"])
    error = 4 * np.sqrt(2) * per_row.std() / np.sqrt(run["sequences"])
    assert per_row.mean() == pytest.approx(run["sbo_pairs_per_sequence"], abs=error)
    lost = 1 - len(with_pair) / len(spans.row)
    assert lost == pytest.approx(run["spans_touching_edge_fraction(no SBO pair)"], abs=0.01)
    too_long = (spans.lengths > 15).mean()
    assert too_long == pytest.approx(run["spans_longer_than_max_pair_targets_fraction"], abs=0.01)
    ids = rng.integers(10, 99, selected.shape)
    boundaries, labels = pack_pairs(ids, spans, with_pair, pairs, 15)
    assert not selected[np.repeat(spans.row[with_pair], 2), pairs.ravel()].any()
    for index in range(0, len(with_pair), 997):
        span = with_pair[index]
        row, start, stop = spans.row[span], spans.start[span], spans.stop[span]
        slot = (boundaries[row] == [start - 1, stop]).all(axis=1).nonzero()[0]
        assert len(slot) == 1
        expected = ids[row, start:stop][:15].tolist()
        assert labels[row, slot[0]].tolist() == expected + [-100] * (15 - len(expected))


def test_one_fate_per_merged_span(drawn):
    run, _, blocks, _, selected, rng = drawn
    ids = np.full(selected.shape, TEXT)
    corrupted = replace_tokens(
        ids,
        selected,
        rng,
        mask_token_id=MASK,
        random_tokens=RandomTokens(np.array([RANDOM])),
        units=segment_index(selected, blocks),
    )
    assert (corrupted[~selected] == TEXT).all()
    spans = find_segments(selected, blocks)
    first = corrupted[spans.row, spans.start]
    assert (np.repeat(first, spans.lengths) == corrupted[selected]).all()
    for name, value in (("mask", MASK), ("random", RANDOM), ("keep", TEXT)):
        assert (first == value).mean() == pytest.approx(run["span_level_fate"][name], abs=0.01)
        assert (corrupted[selected] == value).mean() == pytest.approx(run["token_level_fate"][name], abs=0.015)


def literal_span_masking(starts, budget, law, rng):
    """Section 1.1 of the rules read word by word, one token at a time; the oracle for small blocks."""
    n = len(starts)
    masked = set()
    while len(masked) < budget:
        length = rng.choice(len(law), p=law) + 1
        anchor = rng.integers(n)
        if anchor in masked:
            continue
        left = anchor
        while left > 0 and not starts[left]:
            left -= 1
        position, words = left, 0
        while position < n and len(masked) < budget:
            if starts[position] or position == left:
                words += 1
                if words > length:
                    break
            masked.add(int(position))
            position += 1
    return sum(1 << position for position in masked)


@pytest.mark.parametrize("starts", [[1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 1], [0, 0, 1, 0, 1, 1, 0]])
def test_small_blocks_have_the_distribution_of_the_literal_rules(starts):
    count, budget = 12000, 3
    rng = np.random.default_rng(5)
    law = span_length_probabilities(0.3, 3)
    oracle = np.bincount([literal_span_masking(starts, budget, law, rng) for _ in range(count)], minlength=128)
    shape = (count, len(starts))
    candidates = np.ones(shape, dtype=bool)
    blocks = block_starts(candidates)
    flags = np.broadcast_to(np.array(starts, dtype=bool), shape) | blocks
    selected = sample_spans(candidates, blocks, flags, np.full(count, budget), law, rng)
    ours = np.bincount(selected @ (1 << np.arange(len(starts))), minlength=128)
    assert set(np.flatnonzero(ours)) == set(np.flatnonzero(oracle))
    bound = 5 * np.sqrt((ours + oracle).clip(1))
    assert (np.abs(ours - oracle) <= bound).all()
