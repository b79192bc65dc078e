"""The unigram baseline is what a model without input could reach."""

import numpy as np
import pytest

from hf_ptm_ext.metrics import UnigramBaseline


def test_counts_rows_without_excluded_ids():
    baseline = UnigramBaseline.from_rows([[2, 5, 5, 3], [2, 6, 3]], vocab_size=8, excluded_ids={2, 3})
    assert baseline.counts.tolist() == [0, 0, 0, 0, 0, 2, 1, 0]
    assert baseline.majority_token == 5


def test_cross_entropy_approaches_the_entropy_of_the_text():
    rng = np.random.default_rng(0)
    probabilities = np.array([0.5, 0.3, 0.2])
    text = rng.choice(3, size=20000, p=probabilities)
    baseline = UnigramBaseline.from_rows([text], vocab_size=3)
    entropy = -(probabilities * np.log(probabilities)).sum()
    assert baseline.cross_entropy(rng.choice(3, size=20000, p=probabilities)) == pytest.approx(entropy, abs=0.01)


def test_unseen_targets_have_a_finite_cross_entropy():
    assert np.isfinite(UnigramBaseline(np.array([4, 0])).cross_entropy(np.array([1])))


def test_an_empty_text_is_refused():
    with pytest.raises(ValueError, match="counts"):
        UnigramBaseline(np.zeros(4))
