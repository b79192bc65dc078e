"""The original project's pre-training instances (`.idx` and `.bin` of thunlp/ERNIE), read and written.

An instance of length L is a vector of 6 L + 1 integers: token ids, attention mask, token types, labels of masked
tokens (-1 = none), entity ids (-1 = none), entity mask, next-sentence label.

    .bin   all vectors one after the other, little endian, each value + 1
    .idx   "TNTIDX" and two zero bytes; as uint64 version 1, type code, bytes of a value, number of instances, number
           of sizes; as int64 offsets into the sizes, offsets into the values, sizes

Our rows count entities from 1 (0 = none) and mark unlabelled tokens with -100.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"TNTIDX\x00\x00"
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f4", 7: "<f8"}
_NONE, _IGNORED = -1, -100


def read_instances(prefix: str | os.PathLike[str], *, keep_padding: bool = False) -> Iterator[dict[str, Any]]:
    """Read instances one by one; the file is memory-mapped.

    Args:
        prefix (`str` or `PathLike`): Path without `.idx` and `.bin`.
        keep_padding (`bool`, *optional*, defaults to `False`): Whether rows keep their padding.

    Returns:
        `Iterator[dict[str, Any]]`: `input_ids`, `attention_mask`, `token_type_ids`, `labels`, `entity_ids`,
        `next_sentence_label`.

    Raises:
        FileNotFoundError: If one of the two files is missing.
        ValueError: If they are of another format, damaged, or do not fit each other.
    """
    offsets, values = _open(Path(prefix))
    for number, (begin, end) in enumerate(pairwise(offsets)):
        length, rest = divmod(int(end - begin) - 1, 6)
        if rest:
            raise ValueError(f"{prefix}.idx, instance {number}, must have 6 L + 1 values, got {int(end - begin)}.")
        vector = values[begin:end].astype(np.int64) - 1
        ids, mask, types, labels, entities, _ = vector[:-1].reshape(6, length)
        size = length if keep_padding else int(np.flatnonzero(mask).max(initial=-1)) + 1
        yield {
            "input_ids": ids[:size].tolist(),
            "attention_mask": mask[:size].tolist(),
            "token_type_ids": types[:size].tolist(),
            "labels": np.where(labels == _NONE, _IGNORED, labels)[:size].tolist(),
            "entity_ids": (entities + 1)[:size].tolist(),
            "next_sentence_label": int(vector[-1]),
        }


def instances_dataset(prefix: str | os.PathLike[str], *, keep_padding: bool = False) -> Any:
    """Read instances as a `datasets.Dataset`, cached by path, size and time of the file.

    Args:
        prefix (`str` or `PathLike`): Path without `.idx` and `.bin`.
        keep_padding (`bool`, *optional*, defaults to `False`): Whether rows keep their padding.

    Returns:
        `datasets.Dataset`: With the columns of `read_instances`.

    Raises:
        FileNotFoundError: If one of the two files is missing.
        ValueError: If they are of another format, damaged, or do not fit each other.
    """
    from datasets import Dataset

    _open(Path(prefix))
    state = os.stat(f"{os.fspath(prefix)}.bin")
    stamp = (os.path.abspath(prefix), keep_padding, state.st_size, state.st_mtime_ns)
    return Dataset.from_generator(_stamped, gen_kwargs={"stamp": stamp})


def _stamped(stamp: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    return read_instances(stamp[0], keep_padding=stamp[1])


def write_instances(
    rows: Iterable[Mapping[str, Any]], prefix: str | os.PathLike[str], max_length: int, *, pad_token_id: int = 0
) -> int:
    """Write rows as instances.

    Args:
        rows (`Iterable[Mapping]`): With `input_ids` and, where they are not zeros (mask: ones; labels: -100),
            `attention_mask`, `token_type_ids`, `labels`, `entity_ids`, `next_sentence_label`.
        prefix (`str` or `PathLike`): Path without `.idx` and `.bin`.
        max_length (`int`): L, to which rows are padded.
        pad_token_id (`int`, *optional*, defaults to 0): Of the tokenizer.

    Returns:
        `int`: the number of rows.

    Raises:
        ValueError: If a row is longer than `max_length` or a column is not as long as its row.
    """
    prefix = Path(prefix)
    width = 6 * max_length + 1
    paths = [prefix.with_name(prefix.name + ending) for ending in (".bin", ".idx")]
    aside = [path.with_name(f"{path.name}.tmp") for path in paths]
    count = 0
    try:
        with open(aside[0], "wb") as binary:
            for row in rows:
                (_vector(row, max_length, pad_token_id, count) + 1).astype("<i4").tofile(binary)
                count += 1
        with open(aside[1], "wb") as index:
            index.write(MAGIC + struct.pack("<5Q", 1, 4, 4, count, count))
            np.arange(count + 1, dtype="<i8").tofile(index)
            (np.arange(count + 1, dtype="<i8") * width).tofile(index)
            np.full(count, width, dtype="<i8").tofile(index)
        for temporary, path in zip(aside, paths, strict=True):
            os.replace(temporary, path)
    finally:
        for temporary in aside:
            temporary.unlink(missing_ok=True)
    return count


def _vector(row: Mapping[str, Any], max_length: int, pad_token_id: int, number: int) -> np.ndarray:
    """A row as 6 L + 1 integers, before the + 1."""
    size = len(row["input_ids"])
    if size > max_length:
        raise ValueError(f"`max_length` must hold every row, got {max_length} for {size} tokens of row {number}.")

    def column(name: str, missing: int, padding: int) -> np.ndarray:
        values = np.asarray(row[name] if row.get(name) is not None else [missing] * size, dtype=np.int64)
        if values.shape != (size,):
            raise ValueError(f"`{name}` must have one entry per token, got {values.shape} for {size} of row {number}.")
        return np.concatenate([values, np.full(max_length - size, padding)])

    labels = column("labels", _IGNORED, _IGNORED)
    entities = column("entity_ids", 0, 0) - 1
    parts = [
        column("input_ids", pad_token_id, pad_token_id),
        column("attention_mask", 1, 0),
        column("token_type_ids", 0, 0),
        np.where(labels == _IGNORED, _NONE, labels),
        entities,
        entities != _NONE,
        [int(row.get("next_sentence_label", 0))],
    ]
    return np.concatenate(parts).astype(np.int64)


def _open(prefix: Path) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and values of the two files."""
    index, binary = (prefix.with_name(prefix.name + ending) for ending in (".idx", ".bin"))
    for path in (index, binary):
        if not path.is_file():
            raise FileNotFoundError(f"There is no {path}. `prefix` must be the path without `.idx` and `.bin`.")
    data = index.read_bytes()
    if data[:8] != MAGIC or len(data) < 48:
        raise ValueError(f"{index} must begin with {MAGIC!r}, got {data[:8]!r}: it is of another format.")
    version, code, size, count, sizes = struct.unpack("<5Q", data[8:48])
    if version != 1 or code not in _TYPES or np.dtype(_TYPES[code]).itemsize != size:
        raise ValueError(
            f"{index} must be of version 1 with a known type, got {version}, type {code} of {size} bytes."
        )
    if len(data) != 48 + 8 * (2 * (count + 1) + sizes):
        raise ValueError(f"{index} must have {48 + 8 * (2 * (count + 1) + sizes)} bytes, got {len(data)}: cut off.")
    offsets = np.frombuffer(data, dtype="<i8", count=count + 1, offset=48 + 8 * (count + 1))
    available = binary.stat().st_size // size
    if count and (np.any(np.diff(offsets) < 0) or offsets[0] < 0 or offsets[-1] > available):
        raise ValueError(f"{binary} must have {int(offsets[-1])} values, got {available}: it is cut off.")
    values = np.memmap(binary, dtype=_TYPES[code], mode="r") if available else np.zeros(0, dtype=_TYPES[code])
    return offsets, values
