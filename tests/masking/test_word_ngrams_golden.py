"""N-grams of words against ALBERT's own statistics (tests/goldens/albert-ngram-mask-stats.json)."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.masking import (
    RandomTokens,
    bert_budget,
    block_starts,
    find_segments,
    inverse_size_probabilities,
    replace_tokens,
    sample_word_ngrams,
)

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "goldens" / "albert-ngram-mask-stats.json").read_text(encoding="utf-8")
)
TEXT, MASK, RANDOM = 9, 3, 7


@pytest.fixture(scope="module", params=range(len(GOLDEN["runs"])), ids=lambda i: f"run{i}")
def drawn(request):
    """[CLS] x [SEP] with random continuation pieces, never first."""
    run = GOLDEN["runs"][request.param]
    rng = np.random.default_rng(request.param)
    rows = min(run["sequences"], 6000 if run["n"] < 200 else 2500)
    shape = (rows, run["n"] + 2)
    candidates = np.ones(shape, dtype=bool)
    candidates[:, [0, -1]] = False
    blocks = block_starts(candidates)
    starts = (rng.random(shape) >= run["p_continuation_piece"]) & candidates | blocks
    budget = bert_budget(np.full(rows, shape[1]), 0.15)
    law = inverse_size_probabilities(run["ngram"], run["favor_shorter_ngram"])
    return run, candidates, starts, budget, sample_word_ngrams(candidates, starts, blocks, budget, law, rng), rng


def test_budget_is_met_in_every_row(drawn):
    run, candidates, _, budget, selected, _ = drawn
    assert (selected.sum(axis=1) == budget).all()
    assert not selected[~candidates].any()
    assert selected[candidates].mean() == pytest.approx(run["masked_over_non_special"], abs=1e-12)


def test_runs_of_words_have_the_lengths_of_the_reference(drawn):
    run, candidates, starts, _, selected, _ = drawn
    words = find_segments(candidates, starts)
    width = candidates.shape[1]
    before = np.concatenate([[0], np.cumsum(selected.ravel())])
    hits = before[words.row * width + words.stop] - before[words.row * width + words.start]
    whole = hits == words.lengths
    assert (whole | (hits == 0)).all(), "no word is cut"
    first_of_row = np.diff(words.row, prepend=-1) > 0
    runs = find_segments(whole[None], first_of_row[None] & whole[None])
    lengths = np.bincount(runs.lengths, minlength=30) / len(runs.lengths)
    for length, share in run["run_length_in_words_hist"].items():
        assert lengths[int(length)] == pytest.approx(share, abs=0.006), length


def test_fate_is_drawn_per_token(drawn):
    run, _, _, _, selected, rng = drawn
    ids = np.full(selected.shape, TEXT)
    corrupted = replace_tokens(ids, selected, rng, mask_token_id=MASK, random_tokens=RandomTokens(np.array([RANDOM])))
    for name, value in (("mask", MASK), ("random", RANDOM), ("keep", TEXT)):
        assert (corrupted[selected] == value).mean() == pytest.approx(run["token_level_fate"][name], abs=0.01)
