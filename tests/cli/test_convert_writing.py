"""`hf-ptm-ext convert`: what cannot be written is one line with the file, and nothing stays behind."""

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_ptm_ext import cli
from hf_ptm_ext.hub.folders import written_whole
from tests.conversion.sources import FAMILIES, source_of

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]


@pytest.fixture
def limited() -> Iterator[Callable[[int], None]]:
    """Limits the size of files, as a full disk does but for the number of the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("back", [False, True])
def test_a_file_that_reaches_a_limit_is_named_and_nothing_stays(
    family: str, back: bool, tmp_path: Path, capsys: Any, limited: Callable[[int], None]
) -> None:
    source = source_of(family).write(tmp_path / "source")
    (source / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    if back:
        assert cli.main(["convert", family, str(source), str(tmp_path / "ours")]) == 0
    arguments = [
        "convert",
        family,
        str(tmp_path / "ours" if back else source),
        str(tmp_path / "new" / "deep" / "task"),
    ]
    before = set(tmp_path.rglob("*"))
    for size in (0, 1000):
        capsys.readouterr()
        limited(size)
        code = cli.main([*arguments, *(["--to-original"] if back else [])])
        limited(resource.RLIM_INFINITY)
        said = capsys.readouterr().err.strip()
        assert code == 2, said
        assert len(said.splitlines()) == 1
        assert f"{tmp_path}/new/deep/task/" in said
        assert ".tmp" not in said
        assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
        Exception("No space left on device (os error 28)"),
    ],
)
def test_whichever_library_writes_the_file_and_the_reason_are_told(tmp_path: Path, error: Exception) -> None:
    def write(file: Path) -> None:
        file.write_text("half", encoding="utf-8")
        raise error

    with (
        pytest.raises(OSError, match=r"new/target/model\.safetensors"),
        written_whole(tmp_path / "new" / "target") as folder,
    ):
        write(folder / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_another_file_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"), written_whole(tmp_path / "target"):
        (tmp_path / "nowhere").read_bytes()
    denied = PermissionError(errno.EACCES, "Permission denied", "/root/vocab.txt")
    with pytest.raises(PermissionError, match=r"/root/vocab\.txt"), written_whole(tmp_path / "target"):
        raise denied
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, capsys: Any) -> None:
    source = source_of("nezha").write(tmp_path / "source")
    (tmp_path / "closed").mkdir(mode=0o500)
    assert cli.main(["convert", "nezha", str(source), str(tmp_path / "closed" / "target")]) == 2
    assert "closed/target" in capsys.readouterr().err


def test_a_place_below_a_file_is_refused(tmp_path: Path, capsys: Any) -> None:
    source = source_of("nezha").write(tmp_path / "source")
    for target in (source / "config.json" / "target", source / "config.json" / "a" / "b", tmp_path / ("n" * 300)):
        assert cli.main(["convert", "nezha", str(source), str(target)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"source"}


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "pytorch_model.bin", "tokenizer.json", "ngram.txt"])
def test_links_out_of_the_source_are_not_copied(name: str, tmp_path: Path, capsys: Any) -> None:
    source = source_of("zen").write(tmp_path / "source")
    secret = tmp_path / "secret"
    if (source / name).exists():
        (source / name).rename(secret)
    else:
        secret.write_text("\n".join([*PIECES, "secret"]), encoding="utf-8")
        if name != "tokenizer.json":
            (source / "tokenizer.json").unlink(missing_ok=True)
    (source / name).symlink_to(secret)
    if name == "ngram.txt":
        (source / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    assert cli.main(["convert", "zen", str(source), str(tmp_path / "target")]) == 2
    assert f"'{name}'" in capsys.readouterr().err
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"model": None},
        {"model": "WordPiece"},
        {"model": {"type": "WordPiece"}},
        {"model": {"type": "WordPiece", "vocab": ["a"]}},
        {"model": {"type": "WordPiece", "vocab": {**dict(zip(PIECES, range(20), strict=False)), "[MASK]": 10**11}}},
        {"model": {"type": "WordPiece", "vocab": {**dict(zip(PIECES, range(20), strict=False)), "[MASK]": "4"}}},
        {"model": {"type": "WordPiece", "vocab": {**dict(zip(PIECES, range(20), strict=False)), "[MASK]": 0}}},
        {"model": {"type": "WordPiece", "vocab": dict(zip(PIECES, range(20), strict=False))}, "added_tokens": 5},
        {"model": {"type": "WordPiece", "vocab": dict(zip(PIECES, range(20), strict=False))}, "normalizer": 5},
    ],
)
def test_a_damaged_tokenizer_is_named(content: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    source = source_of("nezha").write(tmp_path / "source")
    (source / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert cli.main(["convert", "nezha", str(source), str(tmp_path / "target")]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert "tokenizer.json" in said
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("text", ["", "\n\n", "\0", "["])
def test_an_empty_vocabulary_is_named(text: str, tmp_path: Path, capsys: Any) -> None:
    source = source_of("nezha").write(tmp_path / "source")
    (source / "vocab.txt").write_text(text, encoding="utf-8")
    assert cli.main(["convert", "nezha", str(source), str(tmp_path / "target")]) == 2
    assert "vocab.txt" in capsys.readouterr().err


def test_names_that_a_file_makes_up_stay_on_one_line(tmp_path: Path, capsys: Any) -> None:
    source = source_of("nezha")
    tensors = {**source.tensors, "a\nb\x1b[31m.weight": torch.ones(2), "x" * 10_000: torch.ones(2)}
    assert cli.main(["convert", "nezha", str(source.write(tmp_path / "source", tensors)), str(tmp_path / "t")]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert len(said) < 1500
