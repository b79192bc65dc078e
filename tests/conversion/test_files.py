"""Reading checkpoints: every format, wrapped or sharded, and damaged files."""

import argparse
import contextlib
import io
import json
import os
import pickle
import random
import zipfile

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
        (tmp_path / "w.tflite").write_bytes(b"\0" * 9)
        with pytest.raises(ValueError, match="`source` must end in"):
            read_checkpoint(tmp_path / "w.tflite")


@pytest.mark.parametrize(("text", "message"), [("{", "line 1"), ("[]", "JSON object")])
def test_json_errors_name_the_line(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "config.json")


def test_json_in_another_encoding(tmp_path):
    (tmp_path / "config.json").write_bytes('{"a": "é"}'.encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        read_json(tmp_path / "config.json")


class TestNothingIsReadOutsideTheFolder:
    """Not by an index, and not by a link, which would be copied into the target."""

    @pytest.mark.parametrize("name", [5, None, [1], {"a": 1}, "", " ", "a\0b", "C:\\w.safetensors", "a/../../w"])
    def test_what_is_no_name_of_a_shard(self, tmp_path, name):
        write_shards(tmp_path, {"a.weight": name})
        with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json"):
            read_checkpoint(tmp_path)

    @pytest.mark.parametrize("names", ["x", [], 5, None, {}])
    def test_what_is_no_table_of_shards(self, tmp_path, names):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}), encoding="utf-8")
        with pytest.raises(ValueError, match="`weight_map`"):
            read_checkpoint(tmp_path)

    def test_a_shard_that_links_out(self, tmp_path):
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        write_shards(folder)
        (folder / "model-2.safetensors").rename(tmp_path / "secret.safetensors")
        (folder / "model-2.safetensors").symlink_to(tmp_path / "secret.safetensors")
        with pytest.raises(ValueError, match="beside their index"):
            read_checkpoint(folder)

    @pytest.mark.parametrize("name", ["model.safetensors", "other.safetensors"])
    def test_weights_that_link_out(self, tmp_path, name):
        save_file(STATE, tmp_path / "secret.safetensors")
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / name).symlink_to(tmp_path / "secret.safetensors")
        with pytest.raises(ValueError, match=name):
            read_checkpoint(tmp_path / "checkpoint")
        assert_is_state(read_checkpoint(tmp_path / "checkpoint" / name))  # the caller may name any file

    def test_one_tensor_in_two_shards(self, tmp_path):
        write_shards(tmp_path)
        save_file({**STATE}, tmp_path / "model-2.safetensors")
        with pytest.raises(ValueError, match=r"`a\.weight`"):
            read_checkpoint(tmp_path)


class TestClaims:
    """A small file that says that it is gigabytes is refused, and nothing of that size is made."""

    def test_an_archive_that_unpacks_to_far_more_than_it_is(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "w.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", bytes(10**8))
        torch.save(STATE, tmp_path / "w.pt")
        with zipfile.ZipFile(tmp_path / "w.pt", "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data/9", bytes(10**8))
        for name in ("w.npz", "w.pt"):
            with pytest.raises(ValueError, match=rf"{name}.*unpack to 100,"):
                read_checkpoint(tmp_path / name)

    @pytest.mark.parametrize("size", [750_000_000, 10**12, 10**18])
    def test_an_array_that_is_longer_than_its_file(self, tmp_path, size):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (size,)})
        with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
            archive.writestr("a.npy", header.getvalue() + bytes(64))
        with pytest.raises(ValueError, match=r"w\.npz is cut short"):
            read_checkpoint(tmp_path)

    def test_a_tensor_that_is_longer_than_its_file(self, tmp_path):
        header = json.dumps({"a": {"dtype": "F32", "shape": [750_000_000], "data_offsets": [0, 3_000_000_000]}})
        content = len(header).to_bytes(8, "little") + header.encode() + bytes(64)
        (tmp_path / "w.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match=r"w\.safetensors is cut short"):
            read_checkpoint(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "w.pt")
        with pytest.raises(ValueError, match="which is neither"):
            read_checkpoint(tmp_path / "w.pt")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("name", ["w.bin", "w.safetensors", "w.npz", "legacy.pt"])
def test_bytes_that_changed_are_an_error_or_harmless(tmp_path, name, seed):
    draw, path = random.Random(seed), tmp_path / name
    if path.suffix == ".safetensors":
        save_file(STATE, path)
    elif path.suffix == ".npz":
        np.savez(path, **{key: tensor.numpy() for key, tensor in STATE.items()})
    else:
        torch.save(STATE, path, _use_new_zipfile_serialization=name != "legacy.pt")
    content = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 20)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    path.write_bytes(content)
    with contextlib.suppress(ValueError):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' is there twice"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": [-Infinity]}', "-Infinity is no number"),
        ('{"a": ' + "9" * 5000 + "}", "must be JSON"),
        ("null", "JSON object, got a NoneType"),
        ("", "line 1"),
    ],
)
def test_strict_json_has_each_name_once_and_numbers_alone(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"config\.json.*{message}"):
        read_json(tmp_path / "config.json", strict=True)
