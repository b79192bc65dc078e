"""Reading original checkpoints of any of the usual formats, safely, and with errors that name the file.

Pickles are read with `weights_only=True`; beside tensors only `argparse.Namespace` is let through, fairseq's options.
"""

import argparse
import os
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..files import path_inside, read_json

SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".th", ".npz", ".hdf5", ".h5", ".index")
HDF5 = (".hdf5", ".h5")
# The files that stand for a whole folder, in order of preference.
INDEX_NAMES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
FILE_NAMES = ("model.safetensors", "pytorch_model.bin", "model.pt", "model.npz")
# Keys under which training tools put the state dict beside other things.
WRAPPERS = ("model", "state_dict", "model_state_dict")
# How many times its file an archive may unpack to, if that is more than 64 MB.
MOST_PACKED, SMALL = 20, 2**26
# XLM's files have two state dicts side by side.
HALVES = ("encoder", "decoder")


@dataclass(frozen=True)
class Checkpoint:
    """What was read: the state dict, its files, the key that it lay under, and what lay beside it."""

    tensors: dict[str, torch.Tensor]
    files: tuple[Path, ...]
    wrapper: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)


def read_checkpoint(source: str | Path, suffix: str | None = None) -> Checkpoint:
    """Read a file of weights (`SUFFIXES`), or a folder with one of them or a shard index."""
    path = Path(source)
    if not path.exists() and (index := path.with_name(f"{path.name}.index")).exists():
        path = index  # as TensorFlow calls its checkpoints
    if not path.exists():
        raise FileNotFoundError(f"`source` must be a checkpoint file or folder, got {path}, which does not exist.")
    if path.is_dir():
        path = weights_file(path)
    if not path.is_file():
        raise ValueError(f"`source` must be a checkpoint file or folder, got {path}, which is neither.")
    if path.name.endswith(".index.json"):
        return _read_shards(path)
    return _read_file(path, suffix)


def weights_file(folder: Path) -> Path:
    """The file of a folder that holds its weights, or the index of its shards."""
    usual = beside(folder, (*INDEX_NAMES, *FILE_NAMES))
    if usual is not None:
        return usual
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in SUFFIXES)
    if not found:
        raise ValueError(f"`source` must have a {', '.join(SUFFIXES)} file, got the folder {folder} without any.")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(f"`source` must name one checkpoint, got the folder {folder} with {names}. Name the file.")
    return path_inside(folder, found[0].name, str(folder))


def beside(source: Path, names: tuple[str, ...]) -> Path | None:
    """The first of several files in a folder, or in the folder of a file; what is no file or leads out is an error."""
    folder = source if source.is_dir() else source.parent
    name = next((name for name in names if os.path.lexists(folder / name)), None)
    if name is None:
        return None
    path = path_inside(folder, name, f"The folder {folder}")
    if not path.is_file():
        raise ValueError(f"{path} must be a file, got {'a folder' if path.is_dir() else 'no regular file'}.")
    return path


def _read_shards(index: Path) -> Checkpoint:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(n, str) for n in weight_map.values()):
        raise ValueError(f"{index} must have a `weight_map` from tensor names to files.")
    tensors: dict[str, torch.Tensor] = {}
    files = []
    for name in sorted(set(weight_map.values())):
        try:
            shard = path_inside(index.parent, name, str(index))
        except ValueError as error:
            raise ValueError(f"{index} names the file {name!r}: shards must lie beside their index.") from error
        if not shard.is_file():
            raise FileNotFoundError(f"{index} names the shard {name}, which does not exist.")
        part = _read_file(shard).tensors
        missing = [key for key, file in weight_map.items() if file == name and key not in part]
        if missing:
            raise ValueError(f"{shard} lacks tensors that its index promises: {name_some(missing)}.")
        twice = sorted(tensors.keys() & part.keys())
        if twice:
            raise ValueError(f"{shard} has tensors that another shard has too: {name_some(twice)}.")
        tensors.update(part)
        files.append(shard)
    return Checkpoint(tensors, tuple(files))


def _read_file(path: Path, suffix: str | None = None) -> Checkpoint:
    suffix = suffix or path.suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"`source` must end in {', '.join(SUFFIXES)}, got {path}.")
    _check_head(path)
    _check_unpacked(path)
    if suffix == ".safetensors":
        return Checkpoint(_read_safetensors(path), (path,))
    if suffix == ".npz":
        return Checkpoint(_read_npz(path), (path,))
    if suffix == ".index":
        from .tensorflow import read_bundle

        return Checkpoint(*read_bundle(path))
    if suffix in HDF5 and not _is_torch(path):  # as fastai 0.7 called its own
        return Checkpoint(_read_hdf5(path), (path,))
    return _unwrap(_read_pickle(path), path)


def _is_torch(path: Path) -> bool:
    """Whether a file begins as torch's archives or pickles do."""
    with open(path, "rb") as file:
        return file.read(4).startswith((b"PK", b"\x80"))


def _check_head(path: Path) -> None:
    """Recognise files that are no checkpoint at all by how they begin."""
    with open(path, "rb") as file:
        head = file.read(512)
    if not head:
        raise ValueError(f"{path} is empty (0 bytes): copy or download it again.")
    if head.startswith(b"version https://git-lfs"):
        raise ValueError(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in its repository.")
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in head)
    # A safetensors header is text too, but behind eight bytes of length; pickles and archives are mostly not text.
    if printable == len(head) and path.suffix != ".safetensors":
        raise ValueError(f"{path} is a text file, not weights; it begins with {head[:40].decode('ascii')!r}.")


def _check_unpacked(path: Path) -> None:
    """Refuse an archive that claims to be far more than its file: weights hardly become smaller by packing."""
    try:
        with zipfile.ZipFile(path) as archive:
            claimed = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # no archive, or one that its reader refuses
    size = path.stat().st_size
    if claimed > max(SMALL, MOST_PACKED * size):
        raise ValueError(
            f"{path} has {size:,} bytes and claims to unpack to {claimed:,}: that is no checkpoint. Unpack it by hand "
            "if you trust it."
        )


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # its own, and those of kinds of numbers that torch has not
        raise ValueError(f"{path} is cut short or not a safetensors file: {_first_line(error)}.") from error


def _read_npz(path: Path) -> dict[str, torch.Tensor]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # of zipfile, zlib, numpy's headers and torch's kinds of numbers
        raise ValueError(
            f"{path} is cut short or not an archive of numpy arrays ({type(error).__name__}: {_first_line(error)})."
        ) from error


def hdf5_library() -> Any:
    """The library that reads HDF5; it is no requirement of the package."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"A file of HDF5 needs h5py: `pip install hf-ptm-ext[hdf5]` ({error}).") from error
    return h5py


def _read_hdf5(path: Path) -> dict[str, torch.Tensor]:
    """The arrays of a file by their paths; links are not followed, nor anything that lies in other files."""
    import numpy as np

    h5py, found = hdf5_library(), {}

    def take(name: str, part: Any) -> None:
        if isinstance(part, h5py.Dataset):
            if part.external or part.is_virtual or part.nbytes > max(SMALL, MOST_PACKED * path.stat().st_size):
                raise ValueError(f"`{_one_line(name)}` lies outside the file, or claims {part.nbytes:,} bytes")
            found[name] = torch.from_numpy(np.asarray(part[()]))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except Exception as error:  # whatever damaged bytes lead to
        raise ValueError(f"{path} is cut short or not an HDF5 file of arrays: {_first_line(error)}.") from error
    return found


def _read_pickle(path: Path) -> Any:
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        lines = [line.strip() for line in str(error).splitlines() if "WeightsUnpickler error" in line]
        reason = lines[0].partition("WeightsUnpickler error:")[2].strip() if lines else _first_line(error)
        raise ValueError(
            f"{path} is cut short, or a pickle with more than weights in it, which safe loading (`weights_only=True`) "
            f"refuses: {reason} Copy it again, or save the state dict alone with the tool that wrote it, in an "
            "environment you trust."
        ) from error
    except Exception as error:  # a damaged pickle fails wherever its instructions lead
        raise ValueError(
            f"{path} is cut short or not a file of weights ({type(error).__name__}: {_first_line(error)}). "
            "Copy or download it again."
        ) from error


def _unwrap(value: Any, path: Path) -> Checkpoint:
    """The state dict inside what a training tool saved."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{path} must hold a state dict, got a {type(value).__name__}.")
    if all(isinstance(value.get(half), Mapping) for half in HALVES):
        return _unwrap_halves(value, path)
    wrapper = None
    tensors = value
    if not any(torch.is_tensor(item) for item in value.values()):
        wrapper = next((key for key in WRAPPERS if isinstance(value.get(key), Mapping)), None)
        if wrapper is not None:
            tensors = value[wrapper]
    if not tensors:
        raise ValueError(f"{path} holds no tensors.")
    foreign = [str(key) for key, item in tensors.items() if not (isinstance(key, str) and torch.is_tensor(item))]
    if foreign:
        raise ValueError(
            f"{path} must hold a state dict, bare or under {', '.join(map(repr, WRAPPERS))}; these entries are no "
            f"tensors: {name_some(foreign)}."
        )
    return Checkpoint(dict(tensors), (path,), wrapper, _options(value.get("args") if wrapper is not None else None))


def _options(value: Any) -> dict[str, Any]:
    """What a training tool stored as its options, or none."""
    value = vars(value) if isinstance(value, argparse.Namespace) else value
    return dict(value) if isinstance(value, Mapping) else {}


def _unwrap_halves(value: Mapping[str, Any], path: Path) -> Checkpoint:
    """Both state dicts of XLM's file as one, with its options and its dictionary."""
    tensors = {f"{half}.{name}": item for half in HALVES for name, item in value[half].items()}
    foreign = [name for name, item in tensors.items() if not torch.is_tensor(item)]
    if foreign:
        raise ValueError(f"{path} must hold two state dicts; these entries are no tensors: {name_some(foreign)}.")
    words = value.get("dico_word2id")
    if isinstance(words, Mapping) and not all(isinstance(w, str) and type(n) is int for w, n in words.items()):
        raise ValueError(f"{path}: `dico_word2id` must number words.")
    numbers = dict(words) if isinstance(words, Mapping) else {}
    return Checkpoint(tensors, (path,), " and ".join(HALVES), _options(value.get("params")), numbers)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def name_some(names: list[str], most: int = 8) -> str:
    """Put names into a message."""
    shown = ", ".join(f"`{_one_line(name)}`" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _one_line(name: str) -> str:
    """A name that a file made up, as it can stand in a message."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return text if len(text) <= 200 else f"{text[:200]}..."
