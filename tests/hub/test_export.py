"""Code files, auto_map and folders."""

import json

import pytest

from hf_ptm_ext.hub import (
    add_question_answering_pipeline,
    check_target,
    code_files,
    families,
    finish_folder,
    full_auto_map,
    written_whole,
)
from hf_ptm_ext.registration import FAMILIES
from tests.hub.checkpoints import tiny_model


def test_families_are_those_that_are_registered():
    assert families() == sorted(family.model_type for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
def test_auto_map_names_every_registered_class(family):
    auto_map = full_auto_map(family.model_type)
    names = {"AutoConfig": family.config, **family.models}
    assert {auto_class: entry.rpartition(".")[2] for auto_class, entry in auto_map.items()} == names


def test_code_files_are_those_that_saving_writes(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.py")) == [path.name for path in code_files("spanbert")]


def test_finishing_gives_what_saving_gives(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    saved = {path.name: path.read_bytes() for path in tmp_path.glob("*.py")}
    for name in saved:
        (tmp_path / name).unlink()
    (tmp_path / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if key != "auto_map"}), encoding="utf-8"
    )
    assert finish_folder(tmp_path) == sorted(saved)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.py")} == saved
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) == config


@pytest.mark.parametrize("model_type", ["unilm", "spanbert"])
def test_nothing_is_written_through_a_link(tmp_path, model_type):
    """Neither into another's files nor into the Hub's cache, of whose files a snapshot is made."""
    outside, folder = tmp_path / "outside", tmp_path / "model"
    outside.mkdir()
    folder.mkdir()
    (outside / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    for path in code_files(model_type):
        (outside / path.name).write_text("theirs", encoding="utf-8")
        (folder / path.name).symlink_to(outside / path.name)
    (folder / "config.json").symlink_to(outside / "config.json")
    (folder / "custom_generate").symlink_to(outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    assert finish_folder(folder) == [path.name for path in code_files(model_type)]
    add_question_answering_pipeline(folder)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["auto_map"] == full_auto_map(model_type)


def test_other_families_need_no_code(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    assert finish_folder(tmp_path) == []


@pytest.mark.parametrize(("content", "error"), [(None, FileNotFoundError), ("[]", ValueError), ("{", ValueError)])
def test_what_is_no_checkpoint(tmp_path, content, error):
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(error, match=r"config\.json"):
        finish_folder(tmp_path)


def test_unknown_family():
    with pytest.raises(ValueError, match="`family`"):
        code_files("no_family")


class TestWrittenWhole:
    def test_nothing_is_seen_before_the_end(self, tmp_path):
        with written_whole(tmp_path / "a" / "target") as folder:
            (folder / "file").touch()
            assert not (tmp_path / "a" / "target").exists()
        assert (tmp_path / "a" / "target" / "file").exists()

    def test_a_failure_leaves_the_old_one(self, tmp_path):
        (tmp_path / "config.json").write_text("{}", encoding="utf-8")

        def write():
            with written_whole(tmp_path, overwrite=True) as folder:
                (folder / "file").touch()
                raise RuntimeError

        with pytest.raises(RuntimeError):
            write()
        assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
        assert not list(tmp_path.parent.glob(f".{tmp_path.name}.*"))

    def test_an_empty_folder_is_taken(self, tmp_path):
        check_target(tmp_path)
        check_target(tmp_path / "new")

    def test_a_file_is_not(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="`target` must be a folder"):
            check_target(tmp_path / "file")

    def test_a_repository_is_never_replaced(self, tmp_path):
        (tmp_path / ".git").mkdir()
        (tmp_path / "config.json").touch()
        with pytest.raises(ValueError, match="git repository"):
            check_target(tmp_path, overwrite=True)
