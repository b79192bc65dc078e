"""XLNet's targets against the reference's statistics (tests/goldens/xlnet-mask-stats.json), and their order."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.masking import (
    find_segments,
    inverse_size_probabilities,
    permutation_mask,
    sample_context_ngrams,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "xlnet-mask-stats.json").read_text(encoding="utf-8"))
LAW = inverse_size_probabilities(5)


def text(rng, rows, width):
    """Words of several pieces, all of them candidates, one segment a row."""
    candidates = np.ones((rows, width), dtype=bool)
    first = np.zeros_like(candidates)
    first[:, 0] = True
    return candidates, (rng.random((rows, width)) >= 0.25) | first, first


@pytest.mark.parametrize("number", range(len(GOLDEN["runs"])))
def test_targets_are_those_of_the_reference(number):
    run, rng = GOLDEN["runs"][number], np.random.default_rng(number)
    rows, width = min(run["sequences"], 6000), run["segment_length"]
    candidates, starts, first = text(rng, rows, width)
    goal = run["goal_num_predict"]
    budget = None if goal is None else np.full(rows, goal)
    selected = sample_context_ngrams(candidates, starts, first, budget, LAW, rng)
    if goal is not None:
        assert (selected.sum(axis=1) == goal).all()
    assert selected.sum(axis=1).mean() == pytest.approx(run["mean_masked"], abs=0.25)
    runs = find_segments(selected)
    lengths = np.bincount(runs.lengths, minlength=12) / len(runs.lengths)
    for length, share in run["run_length_tokens_hist"].items():
        assert lengths[int(length)] == pytest.approx(share, abs=0.006), length
    inside = (runs.stop < width) & ~starts[runs.row, np.minimum(runs.stop, width - 1)]
    assert inside.mean() == pytest.approx(run["runs_ending_inside_a_word_fraction"], abs=0.008)
    eighths = selected.reshape(rows, 8, width // 8).mean(axis=(0, 2))
    assert eighths == pytest.approx(run["mask_prob_by_eighth"], abs=0.006)


def test_whole_words_end_with_a_word():
    rng = np.random.default_rng(0)
    candidates, starts, first = text(rng, 500, 200)
    selected = sample_context_ngrams(candidates, starts, first, None, LAW, rng, whole_words=True)
    runs = find_segments(selected)
    assert starts[runs.row, runs.start].all()
    assert starts[runs.row, runs.stop].all(), "the next token begins a word"


def test_each_segment_has_its_own_budget():
    rng = np.random.default_rng(0)
    candidates, starts, first = text(rng, 50, 40)
    candidates[:, 19] = False
    first[:, 20] = True
    selected = sample_context_ngrams(candidates, starts, first, np.tile([4, 7], 50), LAW, rng)
    assert (selected[:, :19].sum(1) == 4).all()
    assert (selected[:, 20:].sum(1) == 7).all()
    short = sample_context_ngrams(candidates, starts, first, np.tile([19, 99], 50), LAW, rng)
    assert short[candidates].all(), "no more than there are"
    assert not short[:, 19].any()


def test_who_sees_whom():
    rng = np.random.default_rng(0)
    targets = rng.random((20, 12)) < 0.4
    functional = np.zeros_like(targets)
    functional[:, [5, 11]] = True
    targets &= ~functional
    places = np.arange(12)
    hidden = permutation_mask(targets, functional, np.tile(places // 6, (20, 1)), rng)
    ordinary = ~targets & ~functional
    first = places < 6
    for row in range(20):
        mask = hidden[row]
        assert mask[np.ix_(first, ~first)].all(), "the first part sees nothing of the second"
        assert not mask[np.ix_(~first, first)].any(), "which sees all of the first, its targets too"
        for part in (first, ~first):
            plain, ordered = places[part & ordinary[row]], places[part & ~ordinary[row]]
            assert not mask[np.ix_(part, plain)].any(), "what is no target is seen by all of its part"
            assert mask[np.ix_(plain, ordered)].all(), "and sees no target and no special token of it"
            for one in ordered:
                assert mask[one, one] == targets[row, one], "a target does not see itself, a special token does"
                for other in ordered:
                    if one != other:
                        assert mask[one, other] != mask[other, one], "one of two comes first"
