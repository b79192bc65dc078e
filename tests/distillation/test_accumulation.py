"""Case G07: how an update is cut into micro-batches changes neither the loss nor the update."""

import pytest
import torch

from hf_ptm_ext.distillation import PRESET_NAMES
from tests.distillation.pairs import logged, moved, one_update


@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_every_preset_moves_the_weights_alike(tmp_path, preset):
    before, whole = one_update(tmp_path / "whole", preset, 8, 1)
    expected = moved(before, whole)
    assert any(value.abs().max() > 1e-6 for value in expected.values())
    for batch, accumulation in ((2, 4), (1, 8)):
        before, pieces = one_update(tmp_path / f"{batch}", preset, batch, accumulation)
        for name, value in moved(before, pieces).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=3e-7)
        assert logged(pieces) == pytest.approx(logged(whole), rel=1e-5)
