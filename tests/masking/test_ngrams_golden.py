"""N-gram masking against UniLM's own statistics (tests/goldens/unilm-mask-stats.json, 10,000 samples each)."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.masking import (
    RandomTokens,
    bert_budget,
    block_starts,
    find_segments,
    ngram_size_probabilities,
    replace_tokens,
    sample_ngrams,
)

STATS = json.loads((Path(__file__).parents[1] / "goldens" / "unilm-mask-stats.json").read_text(encoding="utf-8"))[
    "stats"
]
SAMPLES, TOLERANCE = 10_000, 0.015


def assert_runs(selected, shares):
    lengths = find_segments(selected).lengths
    ours = np.bincount(lengths, minlength=20) / len(lengths)
    for length, share in shares.items():
        # Runs of one row depend on each other, weakly; the golden has as many as we have.
        bound = min(TOLERANCE, 0.002 + 5 * np.sqrt(2 * share * (1 - share) / len(lengths)))
        assert ours[int(length)] == pytest.approx(share, abs=bound), length


def target_only(source, target):
    """[CLS] source [SEP] target [SEP] with the target and the last [SEP] as candidates."""
    candidates = np.zeros((SAMPLES, source + target + 3), dtype=bool)
    candidates[:, source + 2 :] = True
    return candidates


def test_the_pretraining_helper():
    golden = STATS["pretrain_span_sampler_p0.15_ngram0.2_size3"]
    candidates = np.ones((SAMPLES, golden["sequence_length"]), dtype=bool)
    candidates[:, [0, 61, -1]] = False
    budget = bert_budget(np.full(SAMPLES, golden["sequence_length"]), 0.15)
    rng = np.random.default_rng(0)
    selected = sample_ngrams(candidates, block_starts(candidates), budget, ngram_size_probabilities(), rng)
    assert (selected.sum(axis=1) == golden["n_pred"]).all()
    assert selected[~candidates].sum() == golden["special_ever_masked"]
    assert selected[candidates].mean() == pytest.approx(golden["per_position_rate_mean"], abs=1e-4)
    assert_runs(selected, golden["run_length_share"])
    ids = np.full(selected.shape, 9)
    corrupted = replace_tokens(ids, selected, rng, mask_token_id=3, random_tokens=RandomTokens(np.array([7])))
    for name, value in (("mask", 3), ("random", 7), ("keep", 9)):
        assert (corrupted[selected] == value).mean() == pytest.approx(golden[name], abs=0.005)


def test_the_finetuning_loader_gives_back_what_exceeds_the_budget():
    golden = STATS["finetune_ngram_p0.2_size3_maskprob0.15"]
    candidates = target_only(golden["len_source"], golden["len_target_without_sep"])
    arguments = (candidates, block_starts(candidates), np.full(SAMPLES, 4), ngram_size_probabilities())
    dropped = sample_ngrams(*arguments, np.random.default_rng(0), overflow="drop")
    assert set(dropped.sum(axis=1)) == {4}
    assert_runs(dropped, golden["run_length_share"])
    rates = dropped.mean(axis=0)[candidates[0]]
    low, high = golden["per_position_mask_rate_min_max_over_target_incl_sep"]
    assert rates.min() == pytest.approx(low, abs=TOLERANCE)
    assert rates.max() == pytest.approx(high, abs=TOLERANCE)
    assert rates[-1] == pytest.approx(golden["final_sep_masked_share"], abs=TOLERANCE)
    clipped = sample_ngrams(*arguments, np.random.default_rng(0))  # the other rule is further away
    single = golden["run_length_share"]["1"]
    off = [abs(np.mean(find_segments(selected).lengths == 1) - single) for selected in (dropped, clipped)]
    assert 1.5 * off[0] < off[1]


def test_whole_words_of_the_finetuning_loader():
    """The golden does not say its words: two pieces and one piece in turns give its numbers."""
    golden = STATS["finetune_whole_word"]
    candidates = target_only(golden["len_source"], golden["len_target_without_sep"])
    words = candidates.copy()
    words[:, golden["len_source"] + 3 : -1 : 3] = False
    selected = sample_ngrams(
        candidates,
        block_starts(candidates),
        np.full(SAMPLES, 6),
        ngram_size_probabilities(0.0, 1),
        np.random.default_rng(0),
        word_starts=words,
        overflow="drop",
    )
    assert set(selected.sum(axis=1)) == {6}
    assert_runs(selected, golden["run_length_share"])
    rates = selected.mean(axis=0)[candidates[0]]
    low, high = golden["per_position_mask_rate_min_max_over_target_incl_sep"]
    assert rates.min() == pytest.approx(low, abs=TOLERANCE)
    assert rates.max() == pytest.approx(high, abs=TOLERANCE)
    assert rates[-1] == pytest.approx(golden["final_sep_masked_share"], abs=TOLERANCE)
