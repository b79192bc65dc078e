"""The ids of a knowledge graph's entities ("Q392") as row numbers of an entity table, without a Python dict.

    entity_ids 0 = no entity, 1..N = rows of the table      external ids = whatever the knowledge graph calls them

External ids that are a common prefix and a number (Wikidata: Q392) are one sorted integer array, searched by
bisection; any other strings are found by a 64-bit hash and then compared, so that a collision cannot mislead. Titles
are one text with offsets. Everything is an array of a memory-mapped file: opening millions of ids costs nothing.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging

from .storage_ernie_thu import FileStamp, read_arrays, reopen, write_arrays
from .texts_ernie_thu import text_lines

logger = logging.get_logger(__name__)

VOCABULARY_FORMAT = "entity_vocabulary"
TABLE_FORMAT = "entity_table"
POLICIES = ("ignore", "warn", "error")
MOST_DIGITS = 12  # of a number of entities, or of one
_NUMBERED = re.compile(r"([^0-9]*)(0|[1-9][0-9]{0,17})", re.ASCII)

ExternalId = str | int


def hash_text(text: str) -> int:
    """Hash a text to 64 bits, the same on every machine and in every process.

    Args:
        text: any text.

    Returns:
        A signed 64-bit integer (BLAKE2b).

    Example:
        >>> hash_text("Paris") == hash_text("Paris") != hash_text("London")
        True
    """
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little", signed=True)


class TextList:
    """An immutable list of texts as one UTF-8 text with offsets, and a hash index over it.

    Args:
        blob: `(bytes,)` uint8.
        offsets: `(size + 1,)` int64.
        hashes: `(size,)` int64, sorted.
        order: `(size,)` int32, the number of the text that each hash belongs to.

    Example:
        >>> texts = TextList.build(["Bob Dylan", "Paris"])
        >>> len(texts), texts[1], texts.find("Paris"), texts.find("London")
        (2, 'Paris', [1], [])
    """

    PARTS = ("blob", "offsets", "hashes", "order")

    def __init__(self, blob: np.ndarray, offsets: np.ndarray, hashes: np.ndarray, order: np.ndarray):
        self.blob, self.offsets, self.hashes, self.order = blob, offsets, hashes, order

    @classmethod
    def build(cls, texts: Iterable[str]) -> "TextList":
        """Lay texts out in arrays.

        Args:
            texts: in order.

        Returns:
            The list.
        """
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
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str) -> "TextList | None":
        """Take the list out of a file's arrays.

        Args:
            arrays: named `<prefix>_blob`, ...
            prefix: which list.

        Returns:
            The list, `None` if the file has none of this name.
        """
        if f"{prefix}_blob" not in arrays:
            return None
        return cls(*(arrays[f"{prefix}_{part}"] for part in cls.PARTS))

    def to_arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Name the arrays for a file.

        Args:
            prefix: which list.

        Returns:
            The arrays by name.
        """
        return {f"{prefix}_{part}": getattr(self, part) for part in self.PARTS}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> str:
        return self.blob[self.offsets[number] : self.offsets[number + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def find(self, text: str) -> list[int]:
        """Find every place of a text.

        Args:
            text: as it was listed.

        Returns:
            Its numbers in the list, ascending; texts that merely share its hash are left out.
        """
        code = hash_text(text)
        begin, end = (int(np.searchsorted(self.hashes, code, side=side)) for side in ("left", "right"))
        return [int(number) for number in self.order[begin:end] if self[number] == text]


class EntityVocabulary:
    """External ids and titles of the rows of an entity table.

    Make one with `from_ids`, `from_entity2id` or `from_file`.

    Args:
        arrays: as in a file.
        num_rows: rows of the table, row 0 (no entity) included.
        id_prefix: what stands before the number in every external id; `None` for ids that are not numbered.

    Example:
        >>> vocabulary = EntityVocabulary.from_ids(["Q392", "Q90"], titles={"Bob Dylan": "Q392"})
        >>> vocabulary.rows(["Q90", "Q392", "Q1"]).tolist(), vocabulary.id_of(1), vocabulary.title_of(1)
        ([2, 1, 0], 'Q392', 'Bob Dylan')
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], num_rows: int, id_prefix: str | None):
        self.num_rows = int(num_rows)
        self.id_prefix = id_prefix
        self._numbers = arrays.get("id_numbers")
        self._texts = TextList.from_arrays(arrays, "id")
        self._id_rows = arrays["id_rows"]
        self._titles = TextList.from_arrays(arrays, "title")
        self._title_rows = arrays.get("title_rows")
        self._file: FileStamp | None = None

    # ---- making one ----

    @classmethod
    def from_ids(
        cls,
        ids: Sequence[ExternalId] | np.ndarray,
        titles: Mapping[str, ExternalId] | Iterable[tuple[str, ExternalId]] | None = None,
        rows: Sequence[int] | np.ndarray | None = None,
    ) -> "EntityVocabulary":
        """Number external ids.

        Args:
            ids: texts or integers, each once, in the order of the table's rows.
            titles: (title, id) pairs or a mapping; an entity may have several titles, the first one is its name. A
                pair whose id is not in `ids` is left out, as the original project's partial title file asks for.
            rows: row of each id, from 1; `None` numbers them 1, 2, ...

        Returns:
            The vocabulary.

        Raises:
            TypeError: an id is neither text nor integer.
            ValueError: an id or a row comes twice, or a row is below 1.
        """
        row_of = np.arange(1, len(ids) + 1) if rows is None else np.asarray(rows, dtype=np.int64)
        if len(row_of) != len(ids):
            raise ValueError(f"`rows` must have one entry per id, got {len(row_of)} for {len(ids)} ids.")
        if len(row_of) and row_of.min() < 1:
            raise ValueError(f"`rows` must start at 1 (row 0 is no entity), got {row_of.min()}.")
        _refuse_repeats("rows", row_of)
        prefix, numbers = _numbered(ids)
        arrays: dict[str, np.ndarray] = {}
        if numbers is not None:
            order = np.argsort(numbers, kind="stable")
            arrays["id_numbers"] = numbers[order]
            arrays["id_rows"] = row_of[order].astype(np.int32)
            _refuse_repeats("ids", arrays["id_numbers"])
        else:
            texts = TextList.build(str(value) for value in ids)
            _refuse_repeated_texts(texts)
            arrays.update(texts.to_arrays("id"))
            arrays["id_rows"] = row_of.astype(np.int32)
        num_rows = int(row_of.max(initial=0)) + 1
        vocabulary = cls(arrays, num_rows, prefix)
        if titles is None:
            return vocabulary
        pairs = list(titles.items() if isinstance(titles, Mapping) else titles)
        title_rows = vocabulary.rows([identifier for _, identifier in pairs]).astype(np.int32)
        order = np.argsort(title_rows, kind="stable")
        order = order[title_rows[order] > 0]
        arrays.update(TextList.build(pairs[index][0] for index in order).to_arrays("title"))
        arrays["title_rows"] = title_rows[order]
        return cls(arrays, num_rows, prefix)

    @classmethod
    def from_entity2id(
        cls,
        entity2id: Mapping[ExternalId, int] | str | os.PathLike[str],
        titles: Mapping[str, ExternalId] | Iterable[tuple[str, ExternalId]] | None = None,
        *,
        encoding: str = "utf-8",
    ) -> "EntityVocabulary":
        """Take over a numbering that counts from 0, as the original project's and OpenKE's `entity2id.txt`.

        Args:
            entity2id: mapping of external id -> index, or the file (a count, then `id<TAB>index` in each line).
            titles: as in `from_ids`.
            encoding: of the file.

        Returns:
            The vocabulary, where index i is row i + 1.

        Raises:
            ValueError: the file is not of this form, an id or index comes twice, or an index is negative.

        Example:
            >>> EntityVocabulary.from_entity2id({"Q392": 0, "Q90": 1}).rows(["Q90"]).tolist()
            [2]
        """
        if not isinstance(entity2id, Mapping):
            ids, indices = read_entity2id(entity2id, encoding)
        else:
            ids, indices = list(entity2id), np.fromiter(entity2id.values(), dtype=np.int64, count=len(entity2id))
        if len(indices) and indices.min() < 0:
            raise ValueError(f"`entity2id` must count from 0, got {indices.min()}. Original ids of -1 mean no entity.")
        return cls.from_ids(ids, titles, rows=indices + 1)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "EntityVocabulary":
        """Open the vocabulary of a vocabulary or table file, memory-mapped.

        Args:
            path: a file of `EntityVocabulary.save` or `EntityTable.save`.

        Returns:
            The vocabulary.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is another kind of file, or damaged.
        """
        vocabulary = cls.from_stored(*read_arrays(path), path)
        vocabulary._file = FileStamp.of(path)
        return vocabulary

    @classmethod
    def from_stored(
        cls, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str], path: Any
    ) -> "EntityVocabulary":
        """Make the vocabulary of what `read_arrays` gave.

        Args:
            arrays: arrays of the file.
            metadata: metadata of the file.
            path: for messages.

        Returns:
            The vocabulary.

        Raises:
            ValueError: the file is of another kind or incomplete.
        """
        if metadata.get("format") not in (VOCABULARY_FORMAT, TABLE_FORMAT):
            raise ValueError(
                f"{path} is not a file of an entity vocabulary or table (`format` is {metadata.get('format')!r}). "
                "Make one with `EntityTable.from_arrays(vectors, ids).save(path)`."
            )
        has_ids = "id_numbers" in arrays or all(f"id_{part}" in arrays for part in TextList.PARTS)
        has_titles = all(name in arrays for name in ("title_rows", *(f"title_{part}" for part in TextList.PARTS)))
        if not has_ids or "id_rows" not in arrays or ("title_blob" in arrays and not has_titles):
            raise ValueError(f"{path} lacks arrays of its ids or titles, got {sorted(arrays)}. Write it again.")
        return cls(arrays, int(metadata["num_rows"]), metadata.get("id_prefix"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the vocabulary as a safetensors file; equal vocabularies give equal bytes.

        Args:
            path: the file.

        Returns:
            The path.
        """
        return write_arrays(path, self.arrays(), self.metadata(VOCABULARY_FORMAT))

    def arrays(self) -> dict[str, np.ndarray]:
        """Name the arrays for a file.

        Returns:
            The arrays by name.
        """
        arrays = {"id_rows": self._id_rows}
        if self._numbers is not None:
            arrays["id_numbers"] = self._numbers
        if self._texts is not None:
            arrays.update(self._texts.to_arrays("id"))
        if self._titles is not None and self._title_rows is not None:
            arrays.update(self._titles.to_arrays("title"), title_rows=self._title_rows)
        return arrays

    def metadata(self, kind: str) -> dict[str, str]:
        """Name what a file says about its arrays.

        Args:
            kind: format of the file.

        Returns:
            Texts for the file's header.
        """
        metadata = {"format": kind, "num_rows": str(self.num_rows)}
        if self.id_prefix is not None:
            metadata["id_prefix"] = self.id_prefix
        return metadata

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker as the name of the file, if it came from one and the file is still the same."""
        if self._file is not None and self._file.is_current():
            return reopen, (type(self), self._file)
        return type(self), (self.arrays(), self.num_rows, self.id_prefix)

    # ---- asking it ----

    def __len__(self) -> int:
        """Rows of the table, row 0 included."""
        return self.num_rows

    @property
    def num_titles(self) -> int:
        """Number of titles."""
        return 0 if self._titles is None else len(self._titles)

    def rows(self, ids: Iterable[ExternalId], on_unknown: str = "ignore") -> np.ndarray:
        """Turn external ids into `entity_ids`.

        Args:
            ids: texts or integers; an integer n stands for prefix + n ("Q392" may be given as 392).
            on_unknown: what to do about ids that the vocabulary lacks: "ignore" gives 0, "warn" gives 0 and logs how
                many, "error" raises.

        Returns:
            int64 `(number of ids,)`, 0 = unknown.

        Raises:
            TypeError: an id is neither text nor integer.
            ValueError: an id is unknown and `on_unknown="error"`, or the policy is none of the three.
        """
        ids = list(ids)
        if on_unknown not in POLICIES:
            raise ValueError(f"`on_unknown` must be one of {POLICIES}, got {on_unknown!r}.")
        if self._numbers is not None:
            rows = self._rows_of_numbers(ids)
        else:
            rows = np.array([self._row_of_text(_text_of(value)) for value in ids], dtype=np.int64)
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

    def _rows_of_numbers(self, ids: list[ExternalId]) -> np.ndarray:
        numbers = np.full(len(ids), -1, dtype=np.int64)
        prefix = self.id_prefix or ""
        for index, value in enumerate(ids):
            if isinstance(value, str):
                rest = value[len(prefix) :] if value.startswith(prefix) else ""
                if rest.isdecimal() and rest.isascii() and len(rest) < 19 and (rest[0] != "0" or rest == "0"):
                    numbers[index] = int(rest)
            else:
                number = _integer_of(value)
                numbers[index] = number if 0 <= number < 2**63 else -1
        if self._numbers is None or not len(self._numbers):
            return np.zeros(len(ids), dtype=np.int64)
        place = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[place] == numbers, self._id_rows[place], 0).astype(np.int64)

    def _row_of_text(self, text: str) -> int:
        found = [] if self._texts is None else self._texts.find(text)
        return int(self._id_rows[found[0]]) if found else 0

    def ids_of(self, rows: Iterable[int]) -> list[str | None]:
        """Name the external ids of many rows.

        Args:
            rows: entity ids of ours.

        Returns:
            The external ids as texts; `None` for row 0 and rows without an id.

        Raises:
            IndexError: the table has no such row.
        """
        wanted = np.fromiter(rows, dtype=np.int64)
        if len(wanted):
            self._check_row(int(wanted.min()))
            self._check_row(int(wanted.max()))
        places = np.full(self.num_rows, -1, dtype=np.int64)
        places[self._id_rows] = np.arange(len(self._id_rows))
        return [self._id_at(int(place)) for place in places[wanted]]

    def id_of(self, row: int) -> str | None:
        """Name the external id of a row.

        Args:
            row: an entity id of ours.

        Returns:
            The external id as text; `None` for row 0 and rows without an id.

        Raises:
            IndexError: the table has no such row.
        """
        return self.ids_of([row])[0]

    def _id_at(self, place: int) -> str | None:
        if place < 0:
            return None
        if self._numbers is not None:
            return f"{self.id_prefix or ''}{int(self._numbers[place])}"
        return None if self._texts is None else self._texts[place]

    def title_of(self, row: int) -> str | None:
        """Name an entity.

        Args:
            row: an entity id of ours.

        Returns:
            Its first title, `None` if it has none.

        Raises:
            IndexError: the table has no such row.
        """
        self._check_row(row)
        if self._titles is None or self._title_rows is None:
            return None
        place = int(np.searchsorted(self._title_rows, row))
        found = place < len(self._title_rows) and int(self._title_rows[place]) == row
        return self._titles[place] if found else None

    def rows_of_title(self, title: str) -> list[int]:
        """Find the entities of a title.

        Args:
            title: as it was given.

        Returns:
            Their rows, ascending; empty for an unknown title.
        """
        if self._titles is None or self._title_rows is None:
            return []
        return [int(self._title_rows[number]) for number in self._titles.find(title)]

    def titles(self) -> Iterator[tuple[str, int]]:
        """List all titles.

        Returns:
            (title, row), by row.
        """
        if self._titles is not None and self._title_rows is not None:
            yield from zip(self._titles, (int(row) for row in self._title_rows), strict=True)

    def subset(self, rows: np.ndarray) -> "EntityVocabulary":
        """Keep some rows and number them anew.

        Args:
            rows: ascending rows of this vocabulary, each once, without 0.

        Returns:
            The vocabulary in which `rows[i]` is row i + 1.
        """
        rows = np.asarray(rows, dtype=np.int64)
        arrays: dict[str, np.ndarray] = {}

        def new_rows(old: np.ndarray) -> np.ndarray:
            place = np.minimum(np.searchsorted(rows, old), max(len(rows) - 1, 0))
            return np.where(rows[place] == old, place + 1, 0) if len(rows) else np.zeros(len(old), dtype=np.int64)

        renumbered = new_rows(np.asarray(self._id_rows))
        kept = np.flatnonzero(renumbered)
        arrays["id_rows"] = renumbered[kept].astype(np.int32)
        if self._numbers is not None:
            arrays["id_numbers"] = np.asarray(self._numbers[kept])
        if self._texts is not None:
            arrays.update(TextList.build(self._texts[int(number)] for number in kept).to_arrays("id"))
        if self._titles is not None and self._title_rows is not None:
            renumbered = new_rows(np.asarray(self._title_rows))
            kept = np.flatnonzero(renumbered)
            arrays["title_rows"] = renumbered[kept].astype(np.int32)
            arrays.update(TextList.build(self._titles[int(number)] for number in kept).to_arrays("title"))
        return type(self)(arrays, len(rows) + 1, self.id_prefix)

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.num_rows:
            raise IndexError(f"`row` must be 0 to {self.num_rows - 1}, got {row}.")


def read_entity2id(path: str | os.PathLike[str], encoding: str = "utf-8") -> tuple[list[str], np.ndarray]:
    """Read an `entity2id.txt`.

    Args:
        path: the file: a count, then `id<TAB or space>index` in each line.
        encoding: of the file.

    Returns:
        External ids and their indices from 0, int64.

    Raises:
        ValueError: a line is not of this form, or the count is not the number of lines.
    """
    ids: list[str] = []
    indices: list[int] = []
    lines = text_lines(path, encoding=encoding)
    first = next(lines, "").strip()
    if not first.isdecimal() or len(first) > MOST_DIGITS:
        raise ValueError(f"{path} must begin with the number of entities, got {first[:40]!r}.")
    for number, line in enumerate(lines, start=2):
        fields = line.rsplit(None, 1)
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdecimal() or len(fields[1]) > MOST_DIGITS:
            raise ValueError(f"{path}, line {number}, must be an id and its index, got {line.strip()[:60]!r}.")
        ids.append(fields[0].strip())
        indices.append(int(fields[1]))
    if len(ids) != int(first):
        raise ValueError(f"{path} says {first} entities and has {len(ids)}. The file is cut off; get it again.")
    return ids, np.array(indices, dtype=np.int64)


def _numbered(ids: Sequence[ExternalId] | np.ndarray) -> tuple[str | None, np.ndarray | None]:
    """The common prefix and the numbers of external ids; (None, None) if they are not numbered that way."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return ("", ids.astype(np.int64)) if not len(ids) or ids.min() >= 0 else (None, None)
    prefixes = set()
    numbers = np.zeros(len(ids), dtype=np.int64)
    for index, value in enumerate(ids):
        match = _NUMBERED.fullmatch(_text_of(value))
        if match is None:
            return None, None
        prefixes.add(match[1])
        if len(prefixes) > 1:
            return None, None
        numbers[index] = int(match[2])
    return prefixes.pop() if prefixes else "", numbers


def _text_of(value: ExternalId) -> str:
    return value if isinstance(value, str) else str(_integer_of(value))


def _integer_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"An entity `id` must be text such as 'Q392' or an integer, got {value!r}.")
    return int(value)


def _refuse_repeats(field: str, values: np.ndarray) -> None:
    ordered = np.sort(values)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise ValueError(f"`{field}` must come once each, got {int(repeated[0])} twice. Remove the repetition.")


def _refuse_repeated_texts(texts: TextList) -> None:
    same_hash = np.flatnonzero(texts.hashes[1:] == texts.hashes[:-1])
    for place in same_hash:
        text = texts[int(texts.order[place])]
        if len(texts.find(text)) > 1:
            raise ValueError(f"`ids` must come once each, got {text!r} twice. Remove the repetition.")
