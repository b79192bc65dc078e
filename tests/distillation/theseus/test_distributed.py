"""Two processes draw the same modules and make the updates of one."""

import json

import pytest

from tests.distillation.theseus.runs import one_update
from tests.trainers.test_distributed import launch


@pytest.mark.slow
def test_updates_of_two_processes_are_those_of_one(tmp_path):
    before, whole = one_update(tmp_path / "one", 8, 1, max_steps=3)
    output = launch(29671, "-m", "tests.distillation.theseus.runs", str(tmp_path / "two"), "2", "2")
    result = json.loads(output.partition("RESULT")[2].splitlines()[0])
    for name, value in whole.wrapper.state_dict().items():
        expected = (value - before[name]).flatten()[:50].tolist()
        assert result["moved"][name] == pytest.approx(expected, rel=1e-4, abs=1e-6), name
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert result["losses"] == pytest.approx(losses, rel=1e-4)
