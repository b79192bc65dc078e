"""The ids of a knowledge graph's entities ("Q392") as row numbers of an entity table, without a Python dict.

External ids that are a common prefix and a number (Wikidata: Q392) are one sorted integer array, searched by
bisection; any other strings are found by a 64-bit hash and then compared. All are arrays of a memory-mapped
safetensors file: opening millions of ids costs nothing. What makes a vocabulary does not travel with a checkpoint.
"""

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from transformers.utils import logging

logger = logging.get_logger(__name__)

VOCABULARY_FORMAT = "entity_vocabulary"
TABLE_FORMAT = "entity_table"
POLICIES = ("ignore", "warn", "error")
_TYPES = {np.dtype("u1"): "U8", np.dtype("<i4"): "I32", np.dtype("<i8"): "I64"}
_TYPES |= {np.dtype("<f2"): "F16", np.dtype("<f4"): "F32"}
_CHUNK = 1 << 24

ExternalId = str | int
FilePath = str | os.PathLike[str]
Arrays = Mapping[str, np.ndarray]


# ---- arrays in a file ----


def read_arrays(path: FilePath) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors file; of a table of gigabytes only the header is read."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="pt") as file:  # maps the file; the framework "np" would copy it
            arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"{path} is not a readable safetensors file of entity data ({error}). Download or write it again."
        ) from error
    for array in arrays.values():
        array.flags.writeable = False
    return arrays, metadata


def write_arrays(path: FilePath, arrays: Arrays, metadata: Mapping[str, str]) -> Path:
    """Write a safetensors file in pieces of bounded size; equal arrays give equal bytes, which a hash can name.

    The library's own writer copies all arrays and puts the metadata in another order in each process.
    """
    # Wide types first, so that every array is aligned; then by name.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    offset = 0
    for name in names:
        array = arrays[name]
        places = [offset, offset + array.nbytes]
        header[name] = {"dtype": _TYPES[array.dtype], "shape": list(array.shape), "data_offsets": places}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with written_aside(path) as aside, open(aside, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            array = arrays[name]
            rows = max(1, _CHUNK // max(1, array.nbytes // max(1, len(array))))
            for begin in range(0, len(array), rows):
                file.write(array[begin : begin + rows].tobytes())
    return Path(path)


@contextmanager
def written_aside(path: FilePath) -> Iterator[Path]:
    """Context: a name to write to, which takes the place of `path` when all went well."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


class FileStamp(NamedTuple):
    """A file as it was: what an object that lies in a file pickles to in place of its arrays."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: FilePath) -> "FileStamp":
        """The stamp of a file."""
        state = os.stat(path)
        return cls(os.path.abspath(path), state.st_size, state.st_mtime_ns)

    def is_current(self) -> bool:
        """Whether the file is still there and unchanged."""
        return os.path.isfile(self.path) and FileStamp.of(self.path) == self


def reopen(owner: Any, stamp: FileStamp) -> Any:
    """Open a pickled object's file again."""
    if not stamp.is_current():
        raise ValueError(f"{stamp.path} has gone or changed since the {owner.__name__} was pickled. Open it anew.")
    return owner.from_file(stamp.path)


# ---- texts ----


def hash_text(text: str) -> int:
    """64 bits of a text, the same on every machine and in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little", signed=True)


class TextList:
    """An immutable list of texts as one UTF-8 text with offsets, and a hash index over it."""

    PARTS = ("blob", "offsets", "hashes", "order")

    def __init__(self, blob: np.ndarray, offsets: np.ndarray, hashes: np.ndarray, order: np.ndarray):
        self.blob, self.offsets, self.hashes, self.order = blob, offsets, hashes, order

    @classmethod
    def build(cls, texts: Iterable[str]) -> "TextList":
        """Lay texts out in arrays."""
        encoded, hashes = [], []
        for text in texts:
            encoded.append(text.encode("utf-8"))
            hashes.append(hash_text(text))
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        unsorted = np.array(hashes, dtype=np.int64)
        order = np.argsort(unsorted, kind="stable").astype(np.int32)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets, unsorted[order], order)

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> "TextList | None":
        """Take the list out of a file's arrays."""
        if f"{prefix}_blob" not in arrays:
            return None
        return cls(*(arrays[f"{prefix}_{part}"] for part in cls.PARTS))

    def to_arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Name the arrays for a file."""
        return {f"{prefix}_{part}": getattr(self, part) for part in self.PARTS}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> str:
        return self.blob[self.offsets[number] : self.offsets[number + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def find(self, text: str) -> list[int]:
        """Every place of a text."""
        code = hash_text(text)
        begin, end = (int(np.searchsorted(self.hashes, code, side=side)) for side in ("left", "right"))
        return [int(number) for number in self.order[begin:end] if self[number] == text]


# ---- the vocabulary ----


class EntityVocabulary:
    """External ids and titles of the rows of an entity table: look-up, opening and saving.

    Args:
        arrays: as in a file.
        num_rows: rows of the table, row 0 (no entity) included.
        id_prefix: what stands before the number in every external id; `None` for ids that are not numbered.
    """

    def __init__(self, arrays: Arrays, num_rows: int, id_prefix: str | None):
        self.num_rows = int(num_rows)
        self.id_prefix = id_prefix
        self._arrays = arrays
        self._numbers = arrays.get("id_numbers")
        self._texts = TextList.from_arrays(arrays, "id")
        self._id_rows = arrays["id_rows"]
        self._titles = TextList.from_arrays(arrays, "title")
        self._title_rows = arrays.get("title_rows", np.zeros(0, dtype=np.int32))
        self._file: FileStamp | None = None

    @classmethod
    def from_file(cls, path: FilePath) -> Self:
        """Open the vocabulary of a vocabulary or table file, memory-mapped."""
        vocabulary = cls.from_stored(*read_arrays(path), path)
        vocabulary._file = FileStamp.of(path)
        return vocabulary

    @classmethod
    def from_stored(cls, arrays: Arrays, metadata: Mapping[str, str], path: FilePath) -> Self:
        """Make the vocabulary of what `read_arrays` gave for the file `path`."""
        if metadata.get("format") not in (VOCABULARY_FORMAT, TABLE_FORMAT):
            raise ValueError(
                f"{path} is not a file of an entity vocabulary or table (`format` is {metadata.get('format')!r}). "
                "Make one with `EntityTable.from_arrays(vectors, ids).save(path)`."
            )
        texts, titles = ([f"{prefix}_{part}" for part in TextList.PARTS] for prefix in ("id", "title"))
        has_ids = "id_numbers" in arrays or all(name in arrays for name in texts)
        has_titles = all(name in arrays for name in ("title_rows", *titles))
        if not has_ids or "id_rows" not in arrays or ("title_blob" in arrays and not has_titles):
            raise ValueError(f"{path} lacks arrays of its ids or titles, got {sorted(arrays)}. Write it again.")
        kept = {name: array for name, array in arrays.items() if name != "vectors"}
        return cls(kept, int(metadata["num_rows"]), metadata.get("id_prefix"))

    def save(self, path: FilePath) -> Path:
        """Write the vocabulary as a safetensors file; equal vocabularies give equal bytes."""
        return write_arrays(path, self._arrays, self.metadata(VOCABULARY_FORMAT))

    def arrays(self) -> Arrays:
        """The arrays by their names in a file."""
        return self._arrays

    def metadata(self, kind: str) -> dict[str, str]:
        """What a file of the format `kind` says about its arrays."""
        prefix = {} if self.id_prefix is None else {"id_prefix": self.id_prefix}
        return {"format": kind, "num_rows": str(self.num_rows), **prefix}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker as the name of the file, if it came from one and the file is still the same."""
        if self._file is not None and self._file.is_current():
            return reopen, (type(self), self._file)
        return type(self), (self._arrays, self.num_rows, self.id_prefix)

    def __len__(self) -> int:
        """Rows of the table, row 0 included."""
        return self.num_rows

    @property
    def num_titles(self) -> int:
        """Number of titles."""
        return len(self._title_rows)

    def rows(self, ids: Iterable[ExternalId], on_unknown: str = "ignore") -> np.ndarray:
        """Turn external ids into `entity_ids`, int64 with 0 for ids that the vocabulary lacks.

        Args:
            ids: texts or integers; an integer n stands for prefix + n ("Q392" may be given as 392).
            on_unknown: "warn" logs how many are unknown, "error" raises.
        """
        ids = list(ids)
        if on_unknown not in POLICIES:
            raise ValueError(f"`on_unknown` must be one of {POLICIES}, got {on_unknown!r}.")
        if self._numbers is not None:
            rows = self._rows_of_numbers(self._numbers, ids)
        else:
            rows = np.array([self._row_of_text(text_of_id(value)) for value in ids], dtype=np.int64)
        if on_unknown != "ignore" and not rows.all():
            unknown = [value for value, row in zip(ids, rows, strict=True) if not row]
            message = (
                f"{len(unknown)} of {len(ids)} entity ids are not in the vocabulary: "
                f"{', '.join(repr(value) for value in unknown[:5])}{', ...' * (len(unknown) > 5)}."
            )
            if on_unknown == "error":
                raise ValueError(f"{message} Add them to the table, or pass on_unknown='ignore'.")
            logger.warning(f"{message} They count as no entity.")
        return rows

    def _rows_of_numbers(self, known: np.ndarray, ids: list[ExternalId]) -> np.ndarray:
        numbers = np.full(len(ids), -1, dtype=np.int64)
        prefix = self.id_prefix or ""
        for index, value in enumerate(ids):
            if isinstance(value, str):
                rest = value[len(prefix) :] if value.startswith(prefix) else ""
                if rest.isdecimal() and rest.isascii() and len(rest) < 19 and (rest[0] != "0" or rest == "0"):
                    numbers[index] = int(rest)
            else:
                number = integer_of_id(value)
                numbers[index] = number if 0 <= number < 2**63 else -1
        if not len(known):
            return np.zeros(len(ids), dtype=np.int64)
        place = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        return np.where(known[place] == numbers, self._id_rows[place], 0).astype(np.int64)

    def _row_of_text(self, text: str) -> int:
        found = [] if self._texts is None else self._texts.find(text)
        return int(self._id_rows[found[0]]) if found else 0

    def ids_of(self, rows: Iterable[int]) -> list[str | None]:
        """The external ids of rows as texts; `None` for row 0 and rows without an id."""
        wanted = np.fromiter(rows, dtype=np.int64)
        if len(wanted):
            self._check_row(int(wanted.min()))
            self._check_row(int(wanted.max()))
        places = np.full(self.num_rows, -1, dtype=np.int64)
        places[self._id_rows] = np.arange(len(self._id_rows))
        return [None if place < 0 else self._id_at(int(place)) for place in places[wanted]]

    def id_of(self, row: int) -> str | None:
        """The external id of a row as text; `None` for row 0 and rows without an id."""
        return self.ids_of([row])[0]

    def _id_at(self, place: int) -> str | None:
        if self._numbers is not None:
            return f"{self.id_prefix or ''}{int(self._numbers[place])}"
        return None if self._texts is None else self._texts[place]

    def title_of(self, row: int) -> str | None:
        """The first title of a row, `None` if it has none."""
        self._check_row(row)
        place = int(np.searchsorted(self._title_rows, row))
        found = place < len(self._title_rows) and int(self._title_rows[place]) == row
        return self._titles[place] if self._titles is not None and found else None

    def rows_of_title(self, title: str) -> list[int]:
        """The rows of a title, ascending; none for an unknown one."""
        return [] if self._titles is None else [int(self._title_rows[place]) for place in self._titles.find(title)]

    def titles(self) -> Iterator[tuple[str, int]]:
        """All titles with their rows, by row."""
        yield from zip(self._titles or (), (int(row) for row in self._title_rows), strict=True)

    def subset(self, rows: np.ndarray) -> Self:
        """Keep some rows, ascending and without 0: the vocabulary in which `rows[i]` is row i + 1."""
        rows = np.asarray(rows, dtype=np.int64)
        arrays: dict[str, np.ndarray] = {}
        for prefix, texts, old in (("id", self._texts, self._id_rows), ("title", self._titles, self._title_rows)):
            place = np.searchsorted(rows, old)
            kept = np.flatnonzero(np.append(rows, -1)[place] == old)
            arrays[f"{prefix}_rows"] = (place[kept] + 1).astype(np.int32)
            if texts is not None:
                arrays.update(TextList.build(texts[int(number)] for number in kept).to_arrays(prefix))
        if self._titles is None:
            del arrays["title_rows"]
        if self._numbers is not None:
            arrays["id_numbers"] = self._numbers[np.isin(self._id_rows, rows)]
        return type(self)(arrays, len(rows) + 1, self.id_prefix)

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.num_rows:
            raise IndexError(f"`row` must be 0 to {self.num_rows - 1}, got {row}.")


def text_of_id(value: ExternalId) -> str:
    """An external id as text."""
    return value if isinstance(value, str) else str(integer_of_id(value))


def integer_of_id(value: Any) -> int:
    """An external id that is no text; a TypeError if it is no integer either."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"An entity `id` must be text such as 'Q392' or an integer, got {value!r}.")
    return int(value)
