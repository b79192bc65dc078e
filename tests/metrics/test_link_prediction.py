"""Filtered ranks equal a naive count; a random order is what a random order gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.metrics.link_prediction import filtered_ranks, link_prediction_scores, random_scores


def naive(triples, known, entities, table):
    ranks, candidates = [], []
    true = {tuple(row) for row in [*known.tolist(), *triples.tolist()]}
    for asked in (2, 0):
        for row in triples.tolist():
            answers = [e for e in range(entities) if (*row[:asked], e, *row[asked + 1 :]) in true]
            rest = [e for e in range(entities) if e == row[asked] or e not in answers]
            mine = table[asked][row[2 - asked], row[1], row[asked]]
            distances = [table[asked][row[2 - asked], row[1], e] for e in rest]
            better = sum(d < mine for d in distances)
            ties = sum(d == mine for d in distances) - 1
            ranks.append(1 + better + ties / 2)
            candidates.append(len(rest))
    return ranks, candidates


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.integers(1, 3), st.integers(1, 80))
def test_ranks_equal_a_naive_count(seed, entities, relations, number):
    rng = np.random.default_rng(seed)
    limits = [entities, relations, entities]
    known, triples = rng.integers(0, limits, size=(20, 3)), rng.integers(0, limits, size=(number, 3))
    # Few distinct distances, so that there are ties.
    table = {side: rng.integers(0, 4, size=(entities, relations, entities)).astype(np.float32) for side in (0, 2)}

    def distances(fixed, relation, heads):
        return table[0 if heads else 2][fixed, relation]

    ranks, candidates = filtered_ranks(triples, known, entities, distances)
    expected = naive(triples, known, entities, table)
    assert ranks.tolist() == expected[0]
    assert candidates.tolist() == expected[1]


def test_a_random_order_is_what_the_formula_says():
    candidates = np.array([3, 50, 1])
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.integers(1, candidates + 1) for _ in range(20_000)])
    simulated = [link_prediction_scores(ranks) for ranks in drawn]
    for name, value in random_scores(candidates).items():
        values = [scores[name] for scores in simulated]
        # Five standard errors of the mean.
        assert abs(np.mean(values) - value) < 5 * np.std(values) / len(values) ** 0.5 + 1e-9, name


def test_equal_scores_are_chance_and_not_first_place():
    triples = np.array([[0, 0, 1]])
    ranks, candidates = filtered_ranks(triples, triples, 9, lambda fixed, relation, heads: np.zeros((len(fixed), 9)))
    assert ranks.tolist() == [5.0, 5.0]
    assert candidates.tolist() == [9, 9]
