"""Two processes make the update of one: the wrapped forward holds the whole loss, means are over all processes."""

import json

import pytest

from hf_ptm_ext.distillation import PRESET_NAMES
from tests.distillation.pairs import logged, moved, one_update
from tests.trainers.test_distributed import launch

# Projections, hooks and rows; label counts that differ between the processes; phases with parameters left out.
DEFAULT = ["tinybert-intermediate"]


def assert_two_are_one(folder, preset, port):
    before, whole = one_update(folder / "one", preset, 8, 1)
    output = launch(port, "-m", "tests.distillation.pairs", str(folder / "two"), preset, "2", "2")
    result = json.loads(output.partition("RESULT")[2].splitlines()[0])
    for name, value in moved(before, whole).items():
        assert result["moved"][name] == pytest.approx(value.flatten()[:50].tolist(), rel=1e-4, abs=1e-6), name
    assert result["logged"] == pytest.approx(logged(whole), rel=1e-4)


@pytest.mark.parametrize("preset", DEFAULT)
def test_an_update_of_two_processes_is_that_of_one(tmp_path, preset):
    assert_two_are_one(tmp_path, preset, 29631)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "preset"), list(enumerate(sorted(set(PRESET_NAMES) - set(DEFAULT)))))
def test_every_preset_over_two_processes(tmp_path, number, preset):
    assert_two_are_one(tmp_path, preset, 29632 + number)
