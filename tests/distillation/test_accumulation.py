"""Case G07: how an update is cut into micro-batches changes neither the loss nor the update."""

import pytest
import torch

from hf_ptm_ext.distillation import PRESET_NAMES
from tests.distillation.pairs import logged, moved, one_update, rows


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


def trimmed(features):
    """Rows padded to the longest of their own micro-batch."""
    batch = torch.utils.data.default_collate(features)
    longest = int(batch["attention_mask"].sum(1).max())
    return {name: value[:, :longest].contiguous() if value.dim() == 2 else value for name, value in batch.items()}


@pytest.mark.parametrize("preset", ["pkd", "minilm", "minilm-v2", "distilbert", "ensemble"])
def test_a_last_smaller_micro_batch_counts_by_its_rows(tmp_path, preset):
    """Seven rows as 2 + 2 + 2 + 1, with another number of tokens, labels and padding each."""
    seven = rows(preset)[:7]
    before, whole = one_update(tmp_path / "whole", preset, 7, 1, data=seven, data_collator=trimmed)
    expected = moved(before, whole)
    before, pieces = one_update(tmp_path / "pieces", preset, 2, 4, data=seven, data_collator=trimmed)
    for name, value in moved(before, pieces).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=5e-7)
    assert logged(pieces) == pytest.approx(logged(whole), rel=1e-5)
