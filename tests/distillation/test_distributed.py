"""Two processes make the update of one: the wrapped forward holds the whole loss, means are over all processes."""

import json

import pytest

from hf_ptm_ext.distillation import PRESET_NAMES
from tests.distillation.pairs import logged, moved, one_update
from tests.trainers.test_distributed import launch

# Projections, hooks and rows; label counts that differ between the processes; phases with parameters left out.
DEFAULT = ["tinybert-intermediate"]


OTHERS = sorted(set(PRESET_NAMES) - set(DEFAULT))


def by_two_processes(folder, port, presets):
    output = launch(port, "-m", "tests.distillation.pairs", str(folder), "2", "2", *presets)
    return json.loads(output.partition("RESULT")[2].splitlines()[0])


def assert_two_are_one(folder, preset, result):
    before, whole = one_update(folder, preset, 8, 1)
    for name, value in moved(before, whole).items():
        assert result["moved"][name] == pytest.approx(value.flatten()[:50].tolist(), rel=1e-4, abs=1e-6), name
    assert result["logged"] == pytest.approx(logged(whole), rel=1e-4)


@pytest.mark.parametrize("preset", DEFAULT)
def test_an_update_of_two_processes_is_that_of_one(tmp_path, preset):
    assert_two_are_one(tmp_path / "one", preset, by_two_processes(tmp_path / "two", 29631, [preset])[preset])


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The updates of all the other presets, which two processes make one after the other."""
    return by_two_processes(tmp_path_factory.mktemp("two"), 29632, OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("preset", OTHERS)
def test_every_preset_over_two_processes(tmp_path, others, preset):
    assert_two_are_one(tmp_path, preset, others[preset])
