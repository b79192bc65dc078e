"""Reading checkpoints: every format, wrapped or sharded, and damaged files."""

import argparse
import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hf_ptm_ext.conversion.files import read_checkpoint
from hf_ptm_ext.files import read_json

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}


def assert_is_state(checkpoint):
    assert checkpoint.tensors.keys() == STATE.keys()
    assert all(torch.equal(checkpoint.tensors[key], STATE[key]) for key in STATE)


@pytest.mark.parametrize("name", ["w.bin", "w.pt", "w.pth", "w.safetensors", "w.npz"])
@pytest.mark.parametrize("as_folder", [False, True])
def test_every_format_from_a_file_or_its_folder(tmp_path, name, as_folder):
    path = tmp_path / name
    if path.suffix == ".safetensors":
        save_file(STATE, path)
    elif path.suffix == ".npz":
        np.savez(path, **{key: tensor.numpy() for key, tensor in STATE.items()})
    else:
        torch.save(STATE, path)
    checkpoint = read_checkpoint(tmp_path if as_folder else path)
    assert_is_state(checkpoint)
    assert checkpoint.files == (path,)


@pytest.mark.parametrize("legacy", [False, True])
def test_both_pickle_formats(tmp_path, legacy):
    torch.save(STATE, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
    assert_is_state(read_checkpoint(tmp_path))


@pytest.mark.parametrize("wrapper", ["model", "state_dict"])
def test_wrapped_state_dict(tmp_path, wrapper):
    torch.save({wrapper: STATE, "optimizer_history": [], "epoch": 3}, tmp_path / "w.pt")
    checkpoint = read_checkpoint(tmp_path)
    assert_is_state(checkpoint)
    assert checkpoint.wrapper == wrapper


def test_options_of_the_training_tool_are_read_safely(tmp_path):
    torch.save({"model": STATE, "args": argparse.Namespace(arch="bert_pair", no_nsp=True)}, tmp_path / "w.pt")
    assert read_checkpoint(tmp_path).arguments == {"arch": "bert_pair", "no_nsp": True}
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


def write_shards(folder, weight_map=None):
    save_file({"a.weight": STATE["a.weight"]}, folder / "model-1.safetensors")
    save_file({"b": STATE["b"]}, folder / "model-2.safetensors")
    weight_map = weight_map or {"a.weight": "model-1.safetensors", "b": "model-2.safetensors"}
    with open(folder / "model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump({"weight_map": weight_map}, file)


class TestShards:
    def test_are_read_together(self, tmp_path):
        write_shards(tmp_path)
        checkpoint = read_checkpoint(tmp_path)
        assert_is_state(checkpoint)
        assert len(checkpoint.files) == 2

    def test_missing_shard_is_named(self, tmp_path):
        write_shards(tmp_path)
        (tmp_path / "model-2.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match=r"model-2\.safetensors"):
            read_checkpoint(tmp_path)

    def test_tensor_missing_from_its_shard_is_named(self, tmp_path):
        write_shards(tmp_path, {"a.weight": "model-1.safetensors", "c": "model-2.safetensors"})
        with pytest.raises(ValueError, match="`c`"):
            read_checkpoint(tmp_path)

    @pytest.mark.parametrize("name", ["../w.safetensors", "/etc/w.safetensors", "..\\w.safetensors"])
    def test_shards_outside_the_folder_are_refused(self, tmp_path, name):
        write_shards(tmp_path, {"a.weight": name})
        with pytest.raises(ValueError, match="beside their index"):
            read_checkpoint(tmp_path)


class TestDamage:
    @pytest.mark.parametrize("name", ["w.bin", "w.safetensors", "w.npz"])
    @pytest.mark.parametrize("share", [0.5, 0.98])
    def test_file_cut_short_is_named(self, tmp_path, name, share):
        path = tmp_path / name
        tensors = {"w": torch.arange(4000.0)}
        if path.suffix == ".safetensors":
            save_file(tensors, path)
        elif path.suffix == ".npz":
            np.savez(path, w=tensors["w"].numpy())
        else:
            torch.save(tensors, path)
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
        with pytest.raises(ValueError, match=rf"w\{path.suffix} is cut short"):
            read_checkpoint(path)

    def test_legacy_pickle_cut_short(self, tmp_path):
        path = tmp_path / "w.pt"
        torch.save({"w": torch.arange(4000.0)}, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes()[:9000])
        with pytest.raises(ValueError, match=r"w\.pt is cut short"):
            read_checkpoint(path)

    @pytest.mark.parametrize("name", ["w.bin", "w.safetensors", "w.npz"])
    def test_empty_file(self, tmp_path, name):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match="is empty"):
            read_checkpoint(tmp_path / name)

    @pytest.mark.parametrize("name", ["w.bin", "w.npz"])
    def test_text_file(self, tmp_path, name):
        (tmp_path / name).write_text("<html>Not found</html>", encoding="utf-8")
        with pytest.raises(ValueError, match=r"text file.*Not found"):
            read_checkpoint(tmp_path / name)

    def test_lfs_pointer(self, tmp_path):
        (tmp_path / "w.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
        with pytest.raises(ValueError, match="git lfs pull"):
            read_checkpoint(tmp_path)

    def test_pickle_of_a_class_is_refused_and_not_run(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return (open, (str(tmp_path / "ran"), "w"))

        (tmp_path / "w.bin").write_bytes(pickle.dumps({"a": Evil()}, protocol=2))
        with pytest.raises(ValueError, match=r"`weights_only=True`\) refuses: .*io\.open"):
            read_checkpoint(tmp_path)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {"a": torch.ones(1), "epoch": 3}, {}])
    def test_what_is_not_a_state_dict(self, tmp_path, value):
        torch.save(value, tmp_path / "w.bin")
        with pytest.raises(ValueError, match=r"w\.bin"):
            read_checkpoint(tmp_path)


class TestFolders:
    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="`source`"):
            read_checkpoint(tmp_path / "nowhere")

    def test_without_weights(self, tmp_path):
        with pytest.raises(ValueError, match="without any"):
            read_checkpoint(tmp_path)

    def test_with_a_choice(self, tmp_path):
        for name in ("x.pt", "y.pt"):
            torch.save(STATE, tmp_path / name)
        with pytest.raises(ValueError, match=r"x\.pt, y\.pt"):
            read_checkpoint(tmp_path)

    def test_safetensors_before_pickles(self, tmp_path):
        save_file(STATE, tmp_path / "model.safetensors")
        torch.save({"other": torch.ones(1)}, tmp_path / "pytorch_model.bin")
        assert_is_state(read_checkpoint(tmp_path))

    def test_other_suffix(self, tmp_path):
        (tmp_path / "w.h5").write_bytes(b"\0" * 9)
        with pytest.raises(ValueError, match="`source` must end in"):
            read_checkpoint(tmp_path / "w.h5")


@pytest.mark.parametrize(("text", "message"), [("{", "line 1"), ("[]", "JSON object")])
def test_json_errors_name_the_line(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "config.json")


def test_json_in_another_encoding(tmp_path):
    (tmp_path / "config.json").write_bytes('{"a": "é"}'.encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        read_json(tmp_path / "config.json")
