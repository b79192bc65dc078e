"""Arrays in a safetensors file: read through a memory map, written in a fixed order.

Opening a file reads its header alone, so a table of gigabytes opens at once and its pages stay the system's to drop.
The same arrays always give the same bytes, which makes a file's sha256 a name for its content.
"""

import json
import os
import shutil
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"U8": "u1", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4"}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_CHUNK = 1 << 24


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Map a safetensors file into memory.

    Args:
        path: the file.

    Returns:
        Its arrays, read-only views of one memory map, and its metadata.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no safetensors file, is cut off, or has a type other than u8, i32, i64, f16, f32.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > size - 8:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        raw = np.memmap(path, dtype=np.uint8, mode="r", offset=0)[8 + length :]
        arrays = {name: _view(raw, entry) for name, entry in header.items()}
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a readable safetensors file of entity data ({error}). Download or write it again."
        ) from error
    return arrays, metadata


def _view(raw: np.ndarray, entry: Mapping[str, Any]) -> np.ndarray:
    """One array of the file, as a plain view of the map."""
    kind = np.dtype(_TYPES[entry["dtype"]])
    begin, end = entry["data_offsets"]
    shape = tuple(int(axis) for axis in entry["shape"])
    expected = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if not 0 <= begin <= end <= len(raw) or end - begin != expected:
        raise ValueError("an array lies outside the file")
    return np.asarray(raw[begin:end]).view(kind).reshape(shape)


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> Path:
    """Write arrays as a safetensors file, aside first and renamed when complete.

    Args:
        path: the file to write; its folder is made.
        arrays: contiguous or not; of one of the five types.
        metadata: strings for the header.

    Returns:
        The path.

    Raises:
        ValueError: an array has another type.
    """
    path = Path(path)
    for name, array in arrays.items():
        if array.dtype not in _NAMES:
            raise ValueError(f"`{name}` must be u8, i32, i64, f16 or f32, got {array.dtype}. Convert it first.")
    # Wide types first, so that every array is aligned; then by name, so that the order is always the same.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted((metadata or {}).items()))}
    offset = 0
    for name in names:
        array = arrays[name]
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(aside, "wb") as file:
            file.write(struct.pack("<Q", len(text)))
            file.write(text)
            for name in names:
                array = arrays[name]
                rows = max(1, _CHUNK // max(1, array.nbytes // max(1, len(array))))
                for begin in range(0, len(array), rows):
                    file.write(np.ascontiguousarray(array[begin : begin + rows]).tobytes())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def copy_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Copy a file, aside first and renamed when complete.

    Args:
        source: the file.
        target: its copy, whose folder is made; nothing is done if it is the file itself.

    Returns:
        The target's path.
    """
    target = Path(target)
    if target.exists() and os.path.samefile(source, target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        shutil.copyfile(source, aside)
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)
    return target


@dataclass(frozen=True)
class FileStamp:
    """A file as it was: what a memory-mapped object pickles to in place of its arrays.

    Args:
        path: absolute path.
        size: bytes.
        modified: modification time in nanoseconds.
    """

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> "FileStamp":
        """Take the stamp of a file.

        Args:
            path: the file.

        Returns:
            Its stamp.
        """
        state = os.stat(path)
        return cls(os.path.abspath(path), state.st_size, state.st_mtime_ns)

    def is_current(self) -> bool:
        """Say whether the file is still there and unchanged.

        Returns:
            Whether it is.
        """
        return os.path.isfile(self.path) and FileStamp.of(self.path) == self


def reopen(owner: Any, stamp: FileStamp) -> Any:
    """Open a pickled object's file again.

    Args:
        owner: class with a `from_file`.
        stamp: of the file.

    Returns:
        The object.

    Raises:
        ValueError: the file has gone or changed since.
    """
    if not stamp.is_current():
        raise ValueError(f"{stamp.path} has gone or changed since the {owner.__name__} was pickled. Open it anew.")
    return owner.from_file(stamp.path)
