"""A fingerprint of a training set's content: every row of it, whatever made or stored it."""

import hashlib
import random
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

ROWS_AT_ONCE = 1000


def is_resumable(dataset: Any) -> bool:
    """Whether the dataset can save and restore its own position."""
    return hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")


def rows_digest(dataset: Any) -> str | None:
    """A fingerprint of prepared rows, all of them by content; `None` for streams, which have their own."""
    if hasattr(dataset, "rows_digest"):  # rows that change with the epoch know what they are made of
        return dataset.rows_digest()
    indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if is_resumable(dataset) or not indexed or isinstance(dataset, IterableDataset):
        return None
    digest = hashlib.blake2b(str(len(dataset)).encode("utf-8"), digest_size=16)
    if hasattr(dataset, "with_format") and hasattr(dataset, "column_names"):  # a table of `datasets`
        table = dataset.with_format("arrow")
        for start in range(0, len(dataset), ROWS_AT_ONCE):
            batch = table[start : start + ROWS_AT_ONCE]
            for name in sorted(batch.column_names):
                digest.update(name.encode("utf-8"))
                _add_column(digest, batch.column(name).combine_chunks())
        return digest.hexdigest()
    # Rows that are made with random draws are drawn alike each time, and take none from training.
    with seeded_draws([0]):
        for number in range(len(dataset)):
            _add_value(digest, dataset[number])
    return digest.hexdigest()


def _add_column(digest: Any, column: Any) -> None:
    """Add a column of Arrow, whatever its buffers look like: type, which entries are there, values."""
    import pyarrow
    from pyarrow import types

    if isinstance(column, pyarrow.ChunkedArray):  # of no rows, or too long for one piece
        for chunk in column.chunks:
            _add_column(digest, chunk)
        return
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    if isinstance(column, pyarrow.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    digest.update(f"{kind} {len(column)} {column.null_count}".encode())
    if column.null_count:
        digest.update(np.packbits(column.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        column = column.drop_null()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        digest.update(np.ascontiguousarray(column.value_lengths().to_numpy(zero_copy_only=False)).tobytes())
        _add_column(digest, column.flatten())
    elif types.is_struct(kind):
        for field, part in zip(kind, column.flatten(), strict=True):
            digest.update(field.name.encode("utf-8"))
            _add_column(digest, part)
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        digest.update(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).tobytes())
    else:  # text, bytes, times, maps
        for value in column.to_pylist():
            _add_value(digest, value)


def _add_value(digest: Any, value: Any) -> None:
    """Add one value of a row; equal values add the same, and where one ends and the next begins is told."""
    if torch.is_tensor(value):
        value = value.detach().cpu()
        value = value.view(torch.int16).numpy() if value.dtype == torch.bfloat16 else value.numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping) or hasattr(value, "keys"):
        digest.update(f"mapping {len(value.keys())}".encode())
        for name in sorted(value.keys(), key=str):
            _add_value(digest, str(name))
            _add_value(digest, value[name])
    elif isinstance(value, list | tuple):
        try:
            numbers = array("q", value)  # token ids, in one go
        except (TypeError, OverflowError):
            digest.update(f"list {len(value)}".encode())
            for one in value:
                _add_value(digest, one)
        else:
            digest.update(f"integers {len(value)}".encode())
            digest.update(numbers.tobytes())
    elif hasattr(value, "__dict__") and not isinstance(value, str | bytes | int | float):
        _add_value(digest, {**vars(value), "": type(value).__name__})
    else:
        text = repr(value).encode("utf-8", "surrogatepass")
        digest.update(f"{len(text)}:".encode())
        digest.update(text)


@contextmanager
def seeded_draws(key: list[int]) -> Iterator[int]:
    """In the block the global generators of the CPU draw what the key says; behind it they are as before."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed = int(np.random.SeedSequence(key).generate_state(1)[0]) // 2 + 1
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    try:
        yield seed
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
