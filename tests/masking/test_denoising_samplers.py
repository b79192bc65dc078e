"""The samplers of BART's and T5's noise: lengths, starts, budgets, orders, splits, against their laws.

Bounds are five standard errors of a share over independent samples.
"""

import math
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest

from hf_ptm_ext.masking import (
    RandomTokens,
    Segments,
    find_sentences,
    insert_tokens,
    noise_tokens_and_spans,
    permuted_sentences,
    poisson_length_probabilities,
    random_parts,
    random_subsets,
    rotated,
    sample_infilling_spans,
    sample_span_corruption,
    span_corruption_lengths,
    weighted_tokens,
)


def bound(share, samples):
    return 5 * math.sqrt(max(share * (1 - share), 1e-6) / samples)


def assert_uniform(outcomes, possible):
    """Every possible outcome has the same share, and there are no others."""
    counts = Counter(outcomes)
    assert set(counts) <= set(possible)
    share = 1 / len(possible)
    for outcome in possible:
        assert counts[outcome] / len(outcomes) == pytest.approx(share, abs=bound(share, len(outcomes))), outcome


def rows_of(count, length):
    """Bodies of `count` rows <s> ... </s> with `length` tokens between."""
    start = np.arange(count) * (length + 2) + 1
    return Segments(np.arange(count), start, start + length)


class TestPoissonLengths:
    def test_the_law(self):
        law = poisson_length_probabilities(3.5)
        exact = [math.exp(-3.5) * 3.5**k / math.factorial(k) for k in range(len(law))]
        np.testing.assert_allclose(law, exact, rtol=1e-6)  # renormalised behind the cut
        assert exact[-1] < 1e-7 <= exact[-2]

    def test_a_large_mean_is_not_cut_below_it(self):
        """exp(-20) is below 1e-7 too: the cut must not leave length 0 alone."""
        assert poisson_length_probabilities(20.0) @ np.arange(
            len(poisson_length_probabilities(20.0))
        ) == pytest.approx(20.0, abs=1e-3)

    @pytest.mark.parametrize("mean", [0.0, -1.0, math.inf, math.nan])
    def test_wrong_means(self, mean):
        with pytest.raises(ValueError, match="`mean` must be positive"):
            poisson_length_probabilities(mean)


@pytest.fixture(scope="module")
def drawn():
    """8,000 rows of 40 words, two tokens each: a budget of 12 words."""
    body = rows_of(8000, 80)
    words = np.zeros(8000 * 82, dtype=bool)
    words[(body.start[:, None] + np.arange(0, 80, 2)).ravel()] = True
    law = poisson_length_probabilities()
    return body, law, sample_infilling_spans(words, body, 0.3, law, np.random.default_rng(0))


class TestInfillingSpans:
    def test_every_budget_is_met_exactly(self, drawn):
        body, _, (spans, words, _) = drawn
        assert set(np.bincount(spans.row, weights=words, minlength=len(body.row))) == {12}

    def test_first_lengths_follow_the_law(self, drawn):
        """The first length of a row is a plain draw, cut at 12; later ones depend on what is left."""
        _, law, (spans, words, _) = drawn
        first = np.ones(len(words), dtype=bool)
        first[1:] = spans.row[1:] != spans.row[:-1]
        positive = law.copy()
        positive[0] = 0  # a row's first positive length
        positive /= positive.sum()
        # Positive lengths before the budget is near are independent of zeros.
        shares = np.bincount(words[first], minlength=13) / first.sum()
        for length in range(1, 12):
            assert shares[length] == pytest.approx(positive[length], abs=bound(positive[length], first.sum())), length

    def test_insertions_are_the_zero_lengths(self, drawn):
        """Between two positive lengths stands a geometric number of zeros."""
        _, law, (spans, _, insertions) = drawn
        per_span = law[0] / (1 - law[0])
        spread = 5 * math.sqrt(per_span * (1 + per_span) / len(spans.row))
        assert insertions.sum() / len(spans.row) == pytest.approx(per_span, abs=spread)

    def test_starts_are_distinct_words_and_uniform(self, drawn):
        body, _, (spans, _, _) = drawn
        offset = spans.start - body.start[spans.row]
        assert (offset % 2 == 0).all()
        assert len(set(spans.start.tolist())) == len(spans.start)
        shares = np.bincount(offset // 2, minlength=40) / len(body.row)
        expected = len(spans.row) / len(body.row) / 40
        assert shares == pytest.approx([expected] * 40, abs=bound(expected, len(body.row)))

    def test_spans_cover_their_words_and_end_with_the_body(self, drawn):
        body, _, (spans, words, _) = drawn
        assert (spans.stop == np.minimum(spans.start + 2 * words, body.stop[spans.row])).all()

    def test_rows_do_not_share_words(self):
        body = Segments(np.arange(3), np.array([0, 4, 4]), np.array([4, 4, 8]))  # the second row has no body
        drawn = sample_infilling_spans(np.ones(8, bool), body, 1.0, np.array([0.0, 1.0]), np.random.default_rng(0))
        assert sorted(zip(drawn.spans.row.tolist(), drawn.spans.start.tolist(), strict=True)) == [
            *((0, i) for i in range(4)),
            *((2, i) for i in range(4, 8)),
        ]

    def test_only_zero_lengths_would_never_end(self):
        with pytest.raises(ValueError, match="`length_probabilities`"):
            sample_infilling_spans(
                np.ones(3, bool), rows_of(1, 1), 0.5, np.array([1.0, 0.0]), np.random.default_rng(0)
            )


class TestInsertions:
    def test_places_and_random_ids(self):
        """2 of 5 places of the new body, each pair equally likely; ceil(2 * 0.1) = 1 of them is random."""
        samples, body = 6000, rows_of(6000, 3)
        tokens = np.tile([0, 5, 6, 7, 2], samples)
        lengths, counts = np.full(samples, 5), np.full(samples, 2)
        longer, sizes = insert_tokens(
            tokens,
            body,
            lengths,
            counts,
            np.random.default_rng(0),
            mask_token_id=9,
            random_tokens=RandomTokens(np.array([4])),
        )
        assert set(sizes) == {7}
        rows = longer.reshape(samples, 7)
        assert (rows[:, 0] == 0).all()
        assert (rows[:, -1] == 2).all()
        assert (np.sort(rows[:, 1:-1], axis=1) == [4, 5, 6, 7, 9]).all()
        assert (rows[np.isin(rows, [0, 5, 6, 7, 2])].reshape(samples, 5) == [0, 5, 6, 7, 2]).all()
        places = [tuple(np.flatnonzero((row == 4) | (row == 9))) for row in rows]
        assert_uniform(places, list(combinations(range(1, 6), 2)))
        random_first = np.array([row[np.isin(row, [4, 9])][0] == 4 for row in rows])
        assert random_first.mean() == pytest.approx(0.5, abs=bound(0.5, samples))


class TestSentences:
    STOP = 7

    def find(self, *rows):
        tokens = np.concatenate(rows)
        lengths = np.array([len(row) for row in rows])
        start = np.cumsum(lengths) - lengths
        body = Segments(np.arange(len(rows)), start + 1, start + lengths - 1)
        return find_sentences(tokens == self.STOP, body)

    @pytest.mark.parametrize(
        ("row", "spans"),
        [
            ([0, 5, 7, 6, 7, 2], [(1, 3), (3, 5)]),
            ([0, 5, 7, 6, 6, 2], [(1, 3), (3, 5)]),  # the end of the body ends a sentence
            ([0, 5, 7, 7, 6, 6, 2], [(1, 3), (3, 6)]),  # a second full stop begins the next one
            ([0, 7, 5, 7, 2], [(1, 2), (2, 4)]),
            ([0, 5, 7, 7, 2], [(1, 3)]),  # what follows the last end is no sentence
            ([0, 5, 7, 6, 2], [(1, 3)]),  # the last token counts as a full stop, and one stands before it
            ([0, 2], []),
            ([0, 5, 2], [(1, 2)]),
        ],
    )
    def test_ends(self, row, spans):
        found = self.find(row)
        assert list(zip(found.start.tolist(), found.stop.tolist(), strict=True)) == spans

    def test_rows_end_sentences(self):
        found = self.find([0, 5, 2], [0, 5, 7, 6, 8, 2])
        assert found.row.tolist() == [0, 1, 1]
        assert found.start.tolist() == [1, 4, 6]

    def test_every_permutation_is_equally_likely(self):
        samples = 12_000
        sentences = self.find(*[[0, 5, 7, 6, 6, 7, 8, 7, 2]] * samples)
        order = permuted_sentences(sentences, 9 * samples, 1.0, np.random.default_rng(0)).reshape(samples, 9)
        order = order - 9 * np.arange(samples)[:, None]
        parts = [(1, 2), (3, 4, 5), (6, 7)]
        possible = [tuple(sum(chosen, ())) for chosen in permutations(parts)]
        assert_uniform([tuple(row[1:8].tolist()) for row in order], possible)
        assert (order[:, [0, 8]] == [0, 8]).all()

    def test_a_share_of_the_sentences_moves(self):
        """ceil(4 * 0.4) = 2 of 4 sentences are permuted: each pair swaps with probability 1/6 * 1/2."""
        samples = 12_000
        sentences = self.find(*[[0, 5, 7] + [6, 7] * 3 + [2]] * samples)
        order = permuted_sentences(sentences, 10 * samples, 0.4, np.random.default_rng(0)).reshape(samples, 10)
        order = order - 10 * np.arange(samples)[:, None]
        got = Counter(tuple(((row[1:9:2] - 1) // 2).tolist()) for row in order)
        swaps = []
        for a, b in combinations(range(4), 2):
            places = list(range(4))
            places[a], places[b] = b, a
            swaps.append(tuple(places))
        assert set(got) == {(0, 1, 2, 3), *swaps}
        for swap in swaps:
            assert got[swap] / samples == pytest.approx(1 / 12, abs=bound(1 / 12, samples))

    def test_rotation(self):
        """A body of 4 begins with its token r = 0 .. 4, where 4 is 0 again."""
        samples = 10_000
        order = rotated(rows_of(samples, 4), 6 * samples, 1.0, np.random.default_rng(0)).reshape(samples, 6)
        order = order - 6 * np.arange(samples)[:, None]
        assert (order[:, [0, 5]] == [0, 5]).all()
        for first, share in ((1, 0.4), (2, 0.2), (3, 0.2), (4, 0.2)):
            rows = order[order[:, 1] == first]
            assert len(rows) / samples == pytest.approx(share, abs=bound(share, samples))
            assert (rows[:, 1:5] == [(first - 1 + i) % 4 + 1 for i in range(4)]).all()
        still = rotated(rows_of(samples, 4), 6 * samples, 0.3, np.random.default_rng(0)).reshape(samples, 6)
        moved = (still[:, 1] != 6 * np.arange(samples) + 1).mean()
        assert moved == pytest.approx(0.3 * 0.6, abs=bound(0.18, samples))


class TestSpanCorruption:
    @pytest.mark.parametrize(
        ("length", "density", "mean", "noise", "spans"),
        [
            (568, 0.15, 3.0, 85, 28),
            (2, 0.15, 3.0, 1, 1),
            (10, 0.15, 3.0, 2, 1),  # 1.5 rounds to the even 2
            (30, 0.15, 3.0, 4, 1),  # 4.5 rounds to the even 4
            (100, 0.9, 1.0, 90, 10),  # not more spans than clean tokens
            (4, 0.9, 3.0, 3, 1),  # at least one clean token
            (100, 0.5, 0.5, 50, 50),  # not more spans than noise tokens
        ],
    )
    def test_noise_tokens_and_spans(self, length, density, mean, noise, spans):
        got = noise_tokens_and_spans(np.array([length]), density, mean)
        assert (int(got[0][0]), int(got[1][0])) == (noise, spans)

    @pytest.mark.parametrize(
        ("input_length", "density", "mean"), [(512, 0.15, 3.0), (128, 0.15, 3.0), (1024, 0.3, 8.0), (256, 0.5, 3.0)]
    )
    def test_lengths_fill_the_input(self, input_length, density, mean):
        tokens, target = span_corruption_lengths(input_length, density, mean)
        noise, spans = (int(n[0]) for n in noise_tokens_and_spans(np.array([tokens]), density, mean))
        assert tokens - noise + spans + 1 == input_length
        assert noise + spans + 1 == target

    def test_at_half_density_the_target_is_not_longer(self):
        tokens, target = span_corruption_lengths(64, 0.5, 1.0)
        assert target <= 64
        assert tokens - 1 <= 64 + target

    def test_every_split_is_equally_likely(self):
        parts = random_parts(np.full(10_000, 6), np.full(10_000, 3), np.random.default_rng(0)).reshape(-1, 3)
        possible = [(a, b - a, 6 - b) for a, b in combinations(range(1, 6), 2)]
        assert_uniform([tuple(row) for row in parts.tolist()], possible)

    def test_layout(self):
        """7 tokens, 3 of them noise in 2 spans: clean, noise, clean, noise, all splits of 4 and 3."""
        spans = sample_span_corruption(
            np.full(9000, 7), np.random.default_rng(0), noise_density=0.4, mean_noise_span_length=1.5
        )
        assert spans.row.tolist() == [row for row in range(9000) for _ in range(2)]
        places = np.stack([spans.start, spans.stop], axis=1).reshape(-1, 4) - 7 * np.arange(9000)[:, None]
        possible = [(a, a + b, 4 + b, 7) for a in (1, 2, 3) for b in (1, 2)]
        assert_uniform([tuple(row) for row in places.tolist()], possible)

    @pytest.mark.parametrize("totals", [[0], [2]])
    def test_parts_that_would_be_empty(self, totals):
        with pytest.raises(ValueError, match="`parts`"):
            random_parts(np.array(totals), np.array([3]), np.random.default_rng(0))


@pytest.mark.parametrize(("size", "count"), [(5, 2), (5, 3), (13, 2), (30, 1), (4, 4), (4, 0)])
def test_every_subset_is_equally_likely(size, count):
    """Few of many and many of few items are drawn in two ways."""
    samples = 12_000
    marked = random_subsets(np.full(samples, size), np.full(samples, count), np.random.default_rng(0))
    got = [tuple(np.flatnonzero(row).tolist()) for row in marked.reshape(samples, size)]
    assert_uniform(got, list(combinations(range(size), count)))


def test_subsets_of_groups_of_all_sizes():
    sizes, counts = np.array([0, 3, 100, 7, 1, 50]), np.array([0, 3, 4, 0, 1, 25])
    marked = random_subsets(sizes, counts, np.random.default_rng(0))
    assert [part.sum() for part in np.split(marked, np.cumsum(sizes)[:-1])] == counts.tolist()
    with pytest.raises(ValueError, match="`counts` must be between 0 and the items"):
        random_subsets(np.array([2]), np.array([3]), np.random.default_rng(0))


def test_weighted_tokens_follow_successive_draws():
    """Weights 1, 2, 3, two draws: P(a, b) = a / 6 * b / (6 - a), in either order."""
    samples = 9000
    rng = np.random.default_rng(0)
    weights = np.array([[1.0, 2.0, 3.0, 0.0]])
    pairs = Counter(
        tuple(np.flatnonzero(weighted_tokens(np.ones((1, 4), bool), weights, 2, rng)[0])) for _ in range(samples)
    )
    for pair in combinations(range(3), 2):
        a, b = (weights[0, i] for i in pair)
        share = a / 6 * b / (6 - a) + b / 6 * a / (6 - b)
        assert pairs[pair] / samples == pytest.approx(share, abs=bound(share, samples))
    assert sum(pairs.values()) == samples
