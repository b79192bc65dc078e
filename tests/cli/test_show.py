"""`hf-ptm-ext show masks unilm` draws what the model uses."""

import pytest

from hf_ptm_ext.cli import main


def test_all_four_modes_are_drawn(capsys):
    assert main(["show", "masks", "unilm"]) == 0
    printed = capsys.readouterr().out
    for mode in ("bidirectional", "left-to-right", "right-to-left", "seq2seq"):
        assert mode in printed


def test_seq2seq_shows_the_source_to_all_and_the_past_to_the_target(capsys):
    assert main(["show", "masks", "unilm", "--mode", "seq2seq"]) == 0
    rows = [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line[:1] in "[st" and "■" in line]
    rows = [row for row in rows if len(row) == 8]
    assert ["".join(row) for row in rows] == ["■■■■■···"] * 5 + ["■■■■■■··", "■■■■■■■·", "■■■■■■■■"]


def test_the_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    assert main(["show", "masks", "unilm", "--png", str(tmp_path / "masks.png")]) == 0
    assert (tmp_path / "masks.png").read_bytes()[:4] == b"\x89PNG"
