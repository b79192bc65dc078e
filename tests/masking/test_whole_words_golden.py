"""Whole-word and token budgets against BERT's own statistics (tests/goldens/wwm-mask-stats.json)."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.masking import (
    RandomTokens,
    bert_budget,
    block_starts,
    exact_tokens,
    exact_words,
    find_segments,
    replace_tokens,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "wwm-mask-stats.json").read_text(encoding="utf-8"))
TEXT, MASK, RANDOM = 9, 3, 7


@pytest.fixture(scope="module", params=range(len(GOLDEN["runs"])), ids=lambda i: f"run{i}")
def drawn(request):
    """[CLS] x [SEP] with random continuation pieces, never first; 10k rows suffice for every length."""
    run = GOLDEN["runs"][request.param]
    rng = np.random.default_rng(request.param)
    rows = min(run["sequences"], 10_000 if run["tokens_between_CLS_and_SEP"] < 200 else 3000)
    shape = (rows, run["tokens_between_CLS_and_SEP"] + 2)
    candidates = np.ones(shape, dtype=bool)
    candidates[:, [0, -1]] = False
    starts = (rng.random(shape) >= run["p_continuation_piece"]) & candidates | block_starts(candidates)
    budget = bert_budget(np.full(rows, shape[1]), run["masked_lm_prob"], run["max_predictions_per_seq"])
    if run["whole_word_mask"]:
        selected = exact_words(candidates, starts, budget, rng)
    else:
        selected = exact_tokens(candidates, budget, rng)
    return run, candidates, starts, budget, selected, rng


def test_budget_is_met_in_every_row(drawn):
    run, candidates, _, budget, selected, _ = drawn
    assert (selected.sum(axis=1) == budget).all()
    assert not selected[~candidates].any()
    assert selected[candidates].mean() == pytest.approx(run["masked_over_non_special_tokens"], abs=1e-12)


def test_words_are_selected_whole_and_long_ones_less_often(drawn):
    run, candidates, starts, _, selected, _ = drawn
    words = find_segments(candidates, starts)
    width = candidates.shape[1]
    before = np.concatenate([[0], np.cumsum(selected.ravel())])
    hits = before[words.row * width + words.stop] - before[words.row * width + words.start]
    whole = hits == words.lengths
    if not run["whole_word_mask"]:
        assert ((hits > 0) & ~whole).any()
        return
    assert (whole | (hits == 0)).all()
    for length, share in run["mask_prob_given_word_length"].items():
        these = whole[words.lengths == int(length)]
        golden_count = run["word_length_hist_in_text"].get(length, 0) * len(words.lengths)
        if len(these) > 3000 and golden_count > 3000:
            bound = 4 * np.sqrt(share * (1 - share) * (1 / len(these) + 1 / golden_count))
            assert these.mean() == pytest.approx(share, abs=bound), length
    chosen = np.bincount(words.lengths[whole], minlength=40) / whole.sum()
    for length, share in run["word_length_hist_of_masked_words"].items():
        assert chosen[int(length)] == pytest.approx(share, abs=0.01), length


def test_fate_is_drawn_per_token(drawn):
    run, _, _, _, selected, rng = drawn
    ids = np.full(selected.shape, TEXT)
    corrupted = replace_tokens(ids, selected, rng, mask_token_id=MASK, random_tokens=RandomTokens(np.array([RANDOM])))
    for name, value in (("mask", MASK), ("random", RANDOM), ("keep", TEXT)):
        assert (corrupted[selected] == value).mean() == pytest.approx(run["token_level_fate"][name], abs=0.01)


def test_budget_rounds_halves_to_even():
    # 0.5 * T for odd T ends in .5: 0.5 -> 0 -> at least 1, 1.5 -> 2, 2.5 -> 2, 3.5 -> 4
    assert bert_budget(np.array([1, 3, 5, 7]), 0.5).tolist() == [1, 2, 2, 4]
    assert bert_budget(np.array([128, 512]), 0.15, 20).tolist() == [19, 20]
