"""Rates and draws are those of the reference's schedulers."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_ptm_ext.distillation import TheseusArguments
from hf_ptm_ext.distillation.theseus import (
    constant_rate,
    draw_replacements,
    generator_of_step,
    linear_rate,
    reference_constant_rate,
)

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
GOLDEN = json.loads((GOLDENS / "theseus-stats.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GOLDEN["constant"])
def test_constant_rates_are_the_reference_s(case):
    rate, steps = case["replacing_rate"], case["replacing_steps"]
    assert [reference_constant_rate(t, rate, steps) for t in range(1, 7)] == case["returned_by_step_1_to_6"]
    in_force = [reference_constant_rate(t, rate, steps) for t in range(7)]
    assert list(dict.fromkeys(in_force)) == case["set_on_encoder_in_order"]
    if steps != 0:
        assert [constant_rate(t, rate, steps) for t in range(7)] == in_force


def test_no_steps_of_replacing_means_none_by_default_and_one_in_the_reference():
    assert [constant_rate(t, 0.9, 0) for t in range(2)] == [1.0, 1.0]
    assert [reference_constant_rate(t, 0.9, 0) for t in range(2)] == [0.9, 1.0]


@pytest.mark.parametrize("case", GOLDEN["linear"])
def test_linear_rates_are_the_reference_s(case):
    base, k = case["base_replacing_rate"], case["k"]
    assert linear_rate(0, base, k) == case["rate_before_first_step"]
    assert [linear_rate(t, base, k) for t in range(1, 9)] == case["returned_by_step_1_to_8"]
    assert next(t for t in range(10_000) if linear_rate(t, base, k) == 1.0) == case["first_step_at_rate_1"]


@pytest.mark.parametrize("case", GOLDEN["sampling"])
def test_draws_are_the_reference_s(case):
    generator = torch.Generator().manual_seed(case["seed"])
    drawn = [draw_replacements(case["replacing_rate"], case["modules"], generator) for _ in range(case["forwards"])]
    assert [list(map(int, row)) for row in drawn[:10]] == case["first_10_draw_rows"]
    means = torch.tensor(drawn, dtype=torch.float64).mean(0)
    torch.testing.assert_close(means, torch.tensor(case["mean_per_module"], dtype=torch.float64))


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.9])
def test_draws_by_step_are_independent_bernoulli(rate):
    """Seeded anew in every update: each module's mean, and each pair's, within four standard errors."""
    steps = 4000
    drawn = torch.tensor([draw_replacements(rate, 4, generator_of_step(7, t)) for t in range(steps)]).double()
    assert (drawn.mean(0) - rate).abs().max() < 4 * math.sqrt(rate * (1 - rate) / steps)
    both = rate * rate
    pairs = torch.stack([drawn[:, i] * drawn[:, j] for i in range(4) for j in range(i)])
    in_time = drawn[1:] * drawn[:-1]
    bound = 4.5 * math.sqrt(both * (1 - both) / steps) * math.sqrt(1 + 2 * rate)
    assert (pairs.mean(1) - both).abs().max() < bound
    assert (in_time.mean(0) - both).abs().max() < bound


def test_draws_depend_on_seed_and_step_alone():
    def at(seed, step):
        return draw_replacements(0.5, 32, generator_of_step(seed, step))

    torch.manual_seed(0)
    first = at(1, 5)
    state = torch.get_rng_state()
    assert at(1, 5) == first
    assert torch.equal(torch.get_rng_state(), state), "the run's own generator is left alone"
    assert at(2, 5) != first
    assert at(1, 6) != first


@given(st.integers(0, 500), st.floats(0.01, 1.0), st.floats(0, 0.5), st.integers(0, 300))
def test_rates_never_fall_and_end_in_one(step, base, k, steps):
    for rates in ([constant_rate(step + n, base, steps) for n in (0, 1, 400)],
                  [linear_rate(step + n, base, k) for n in (0, 1, 400)]):  # fmt: skip
        assert sorted(rates) == rates
        assert base <= rates[0] <= rates[-1] <= 1.0
    assert constant_rate(max(step, steps), base, steps) == 1.0


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_outside_its_range_is_refused(tmp_path, rate):
    for build in (
        lambda: constant_rate(0, rate),
        lambda: linear_rate(0, rate, 0.1),
        lambda: draw_replacements(rate, 2),
    ):
        with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
            build()
    with pytest.raises(ValueError, match="`replacing_rate`"):
        TheseusArguments(str(tmp_path), replacing_rate=rate)


def arguments(folder, **fields):
    return TheseusArguments(str(folder), report_to="none", **fields)


def test_arguments_give_the_rate_of_each_update(tmp_path):
    half = arguments(tmp_path)
    assert [half.rate_at(t, 5) for t in range(5)] == [0.5, 0.5, 0.5, 1.0, 1.0]
    fixed = arguments(tmp_path, steps_for_replacing=2, replacing_rate=0.3)
    assert [fixed.rate_at(t, 1000) for t in range(4)] == [0.3, 0.3, 1.0, 1.0]
    assert arguments(tmp_path, steps_for_replacing=None).rate_at(10**6, 10**6) == 0.5
    growing = arguments(tmp_path, replacing_scheduler="linear", replacing_rate=0.2)
    assert [growing.rate_at(t, 8) for t in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    slope = arguments(tmp_path, replacing_scheduler="linear", replacing_rate=0.3, scheduler_linear_k=0.0006)
    assert slope.rate_at(2, 8) == 0.30119999999999997
    quirk = arguments(tmp_path, replacing_scheduler="reference-constant", steps_for_replacing=0)
    assert [quirk.rate_at(t, 8) for t in range(3)] == [0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replacing_scheduler": "lineal"}, "replacing_scheduler"),
        ({"steps_for_replacing": -1}, "steps_for_replacing"),
        ({"steps_for_replacing": 2.5}, "steps_for_replacing"),
        ({"scheduler_linear_k": 0.1}, "scheduler_linear_k"),
        ({"replacing_scheduler": "linear", "steps_for_replacing": None}, "scheduler_linear_k"),
        ({"replacing_scheduler": "linear", "steps_for_replacing": 0}, "scheduler_linear_k"),
    ],
)
def test_arguments_that_make_no_schedule_are_refused(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **fields)
