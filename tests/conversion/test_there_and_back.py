"""The command, there and back: the original's names and tensors again, and whatever is made up told."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hf_ptm_ext import cli
from tests.conversion.sources import FAMILIES, source_of

# Copies of tied weights that the reference's own files hold and the golden leaves out.
TIED_COPIES = {
    "mass_nmt": {f"{part}.pred_layer.proj.weight" for part in ("encoder", "decoder")},
    "transfo_xl": {
        *(f"crit.out_layers.{cluster}.weight" for cluster in range(3)),
        *(f"crit.out_projs.{cluster}" for cluster in (1, 2)),
    },
    "spanbert": {f"decoder.cls.{head}.decoder.weight" for head in ("predictions", "pair_target_predictions")},
}
# Kept as they are, K-BERT's LayerNorms and its row of padding come back exactly.
PARITY = ("kbert", ("--reference-parity",))
PADDING_ROW = "embedding.segment_embedding.weight"


def flat(saved: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors by their names; XLM's checkpoints hold a state dict a module."""
    if "encoder" not in saved:
        return saved
    return {f"{part}.{name}": value for part in ("encoder", "decoder") for name, value in saved[part].items()}


@pytest.mark.parametrize(("family", "options"), [*((family, ()) for family in FAMILIES), PARITY])
def test_the_originals_names_and_tensors_come_back(
    family: str, options: tuple[str, ...], tmp_path: Path, capsys: Any
) -> None:
    source = source_of(family)
    for arguments in (("original", "ours", *options), ("ours", "task", "--to-original")):
        folders = [str(tmp_path / name) for name in arguments[:2]]
        if arguments[0] == "original":
            source.write(tmp_path / "original")
        capsys.readouterr()
        assert cli.main(["convert", family, *folders, *arguments[2:]]) == 0
    (file,) = [path for path in (tmp_path / "task").iterdir() if path.suffix in (".bin", ".pt", ".pth", ".th")]
    back = flat(torch.load(file, weights_only=True))
    assert set(back) - TIED_COPIES.get(family, set()) == set(source.tensors)
    told = "made up" in (report := capsys.readouterr().out)
    assert told == (family == "kbert" and not options), report
    for name, tensor in source.tensors.items():
        if told and name == PADDING_ROW:
            assert f"row 0 of `{name}`: zeros" in report
            assert not back[name][0].any()
            torch.testing.assert_close(back[name][1:], tensor[1:], rtol=0, atol=0)
        elif told and name.endswith(".gamma"):
            torch.testing.assert_close(back[name], tensor, rtol=2e-7, atol=0)
            assert "up to rounding" in report
        else:
            torch.testing.assert_close(back[name], tensor, rtol=0, atol=0)
