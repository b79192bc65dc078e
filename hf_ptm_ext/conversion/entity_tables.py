"""Entity tables made of what people have; a model that is loaded needs none of it.

    arrays in memory, .npy files
    kg_embed folder of the original project   entity2id.txt, entity2vec.vec, entity_map.txt
    OpenKE                                    entity2id.txt and vectors as .vec, .bin, .json, .ckpt/.pt, .npy
    word2vec text                             optional header, then `name v1 v2 ...` in each line

A line of the wrong length is an error with its number: padding a file that was cut off would train on zeros.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from ..models import entity_table_ernie_thu, entity_vocab_ernie_thu
from ..models.entity_table_ernie_thu import stored_dtype
from ..models.entity_vocab_ernie_thu import ExternalId, FilePath, TextList, text_of_id
from ..models.texts_core import text_lines

Ids = Sequence[ExternalId] | np.ndarray
Titles = Mapping[str, ExternalId] | Iterable[tuple[str, ExternalId]]

_NUMBERED = re.compile(r"([^0-9]*)(0|[1-9][0-9]{0,17})", re.ASCII)
_MOST_DIGITS = 12  # of a number of entities, or of one
_ROWS = 1 << 16


class _Opened(type):
    """Counts what a model or processor has opened as an instance: the class that travels lacks the builders alone."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, vars(cls).get("_opened", ()))


class EntityVocabulary(entity_vocab_ernie_thu.EntityVocabulary, metaclass=_Opened):
    """External ids and titles of the rows of an entity table.

    Make one with `from_ids` or `from_entity2id`, or open one with `from_file`.

    Args:
        arrays: as in a file.
        num_rows: rows of the table, row 0 (no entity) included.
        id_prefix: what stands before the number in every external id; `None` for ids that are not numbered.

    Examples:
        >>> vocabulary = EntityVocabulary.from_ids(["Q392", "Q90"], titles={"Bob Dylan": "Q392"})
        >>> vocabulary.rows(["Q90", "Q392", "Q1"]).tolist(), vocabulary.id_of(1), vocabulary.title_of(1)
        ([2, 1, 0], 'Q392', 'Bob Dylan')
    """

    _opened = entity_vocab_ernie_thu.EntityVocabulary

    @classmethod
    def from_ids(cls, ids: Ids, titles: Titles | None = None, rows: Sequence[int] | np.ndarray | None = None) -> Self:
        """Number external ids.

        Args:
            ids: texts or integers, each once, in the order of the table's rows.
            titles: (title, id) pairs or a mapping; an entity may have several titles, the first one is its name. A
                pair whose id is not in `ids` is left out, as the original project's partial title file asks for.
            rows: row of each id, from 1; `None` numbers them 1, 2, ...
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
            _refuse_repeats("ids", numbers)
        else:
            texts = [text_of_id(value) for value in ids]
            _refuse_repeats("ids", np.array(texts, dtype=object))
            arrays.update(TextList.build(texts).to_arrays("id"))
            arrays["id_rows"] = row_of.astype(np.int32)
        num_rows = int(row_of.max(initial=0)) + 1
        if titles is not None:
            pairs = list(titles.items() if isinstance(titles, Mapping) else titles)
            title_rows = cls(arrays, num_rows, prefix).rows([identifier for _, identifier in pairs]).astype(np.int32)
            order = np.argsort(title_rows, kind="stable")
            order = order[title_rows[order] > 0]
            arrays.update(TextList.build(pairs[index][0] for index in order).to_arrays("title"))
            arrays["title_rows"] = title_rows[order]
        return cls(arrays, num_rows, prefix)

    @classmethod
    def from_entity2id(
        cls, entity2id: Mapping[ExternalId, int] | FilePath, titles: Titles | None = None, *, encoding: str = "utf-8"
    ) -> Self:
        """Take over a numbering that counts from 0: index i is row i + 1.

        Args:
            entity2id: mapping of external id -> index, or the file of the original project and of OpenKE: a count,
                then `id<TAB>index` in each line.
            titles: as in `from_ids`.
            encoding: of the file.
        """
        if not isinstance(entity2id, Mapping):
            ids, indices = _read_entity2id(entity2id, encoding)
        else:
            ids, indices = list(entity2id), np.fromiter(entity2id.values(), dtype=np.int64, count=len(entity2id))
        if len(indices) and indices.min() < 0:
            raise ValueError(f"`entity2id` must count from 0, got {indices.min()}. Original ids of -1 mean no entity.")
        return cls.from_ids(ids, titles, rows=indices + 1)


class EntityTable(entity_table_ernie_thu.EntityTable, metaclass=_Opened):
    """Vectors, ids and titles of entities.

    Make one with `from_arrays`, `from_kg_embed`, `from_openke` or `from_word2vec`, keep it with `save`, and open it
    with `from_file`.

    Args:
        vectors: `(rows, dim)`, float16 or float32; row 0 is zeros.
        vocabulary: external ids and titles of the rows; `None` for a table that knows row numbers only.

    Raises:
        ValueError: the vectors are not of this form, or the vocabulary has rows that the table lacks.

    Examples:
        >>> table = EntityTable.from_arrays([[1.0, 2.0], [3.0, 4.0]], ids=["Q392", "Q90"])
        >>> len(table), table.dim, table.rows(["Q90", "Q1"]).tolist()
        (3, 2, [2, 0])
        >>> table.lookup([[2, 0]])
        tensor([[[3., 4.],
                 [0., 0.]]])
        >>> table.renumber([[2, 1, 0]], kept=[2])  # ids of `table` as ids of `table.prune([2])`
        tensor([[1, 0, 0]])
    """

    _opened = entity_table_ernie_thu.EntityTable

    @classmethod
    def from_arrays(
        cls, vectors: Any, ids: Ids | None = None, titles: Titles | None = None, *, dtype: Any = None
    ) -> Self:
        """Make a table of vectors in memory or in an `.npy` file: `vectors[i]` is row i + 1.

        Args:
            vectors: array or tensor `(entities, dim)` without a row for no entity, or the path of an `.npy` file.
            ids: external id of each vector; `None` for none.
            titles: (title, id) pairs or a mapping title -> id.
            dtype: how to store them, "float32" or "float16"; `None` keeps float16 and float32.
        """
        if isinstance(vectors, str | os.PathLike):
            vectors = np.load(vectors, mmap_mode="r", allow_pickle=False)
        if isinstance(vectors, torch.Tensor):
            vectors = vectors.detach().cpu()
            vectors = (vectors.float() if vectors.dtype == torch.bfloat16 else vectors).numpy()
        vectors = np.asarray(vectors)
        if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or not vectors.shape[1]:
            raise ValueError(
                f"`vectors` must be numbers of shape (entities, dim), got {vectors.dtype} {vectors.shape}."
            )
        if ids is not None and len(ids) != len(vectors):
            raise ValueError(f"`ids` must name every vector, got {len(ids)} ids for {len(vectors)} vectors.")
        if ids is None and titles is not None:
            raise ValueError(f"`titles` must come with `ids`, which they refer to, got {titles!r:.60}.")
        vocabulary = None if ids is None else EntityVocabulary.from_ids(ids, titles)
        return cls(_with_row_zero(vectors, dtype), vocabulary)

    @classmethod
    def from_kg_embed(cls, folder: FilePath, *, dtype: Any = None, encoding: str = "utf-8") -> Self:
        """Read the original project's `kg_embed` folder: entity i of the files is row i + 1.

        Args:
            folder: has `entity2id.txt`, `entity2vec.vec` and, for titles, `entity_map.txt`.
            dtype: how to store the vectors, "float32" (default) or "float16".
            encoding: of its files of text.
        """
        folder = Path(folder)
        for name in ("entity2id.txt", "entity2vec.vec"):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder} must have `{name}`, as the original project's `kg_embed` folder has. Name that folder, "
                    "or use `from_openke`, `from_word2vec` or `from_arrays`."
                )
        titles = folder / "entity_map.txt"
        named = read_titles(titles, encoding) if os.path.lexists(titles) else None
        files = (folder / "entity2id.txt", folder / "entity2vec.vec")
        return cls.from_openke(*files, titles=named, dtype=dtype, encoding=encoding)

    @classmethod
    def from_openke(
        cls,
        entity2id: FilePath,
        vectors: FilePath,
        titles: Titles | None = None,
        *,
        dtype: Any = None,
        encoding: str = "utf-8",
    ) -> Self:
        """Read what OpenKE writes: index i is row i + 1.

        `entity2id` is the file of ids, a count, then `id<TAB>index` in each line; `vectors` those by index: `.vec`,
        `.bin`, `.json`, `.ckpt` or `.npy`. The others as of `from_arrays` and `from_kg_embed`.
        """
        vocabulary = EntityVocabulary.from_entity2id(entity2id, titles, encoding=encoding)
        return cls(_with_row_zero(_read_vectors(Path(vectors), len(vocabulary) - 1, encoding), dtype), vocabulary)

    @classmethod
    def from_word2vec(
        cls, path: FilePath, titles: Titles | None = None, *, dtype: Any = None, encoding: str = "utf-8"
    ) -> Self:
        """Read word2vec's text form, in the order of its lines: `name v1 v2 ...`, after an optional header.

        The names become the external ids. The others as of `from_arrays` and `from_kg_embed`.
        """
        names, vectors = read_word2vec(path, encoding)
        return cls.from_arrays(vectors, names, titles, dtype=dtype)


def _numbered(ids: Ids) -> tuple[str | None, np.ndarray | None]:
    """The common prefix and the numbers of external ids; (None, None) if they are not numbered that way."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return ("", ids.astype(np.int64)) if not len(ids) or ids.min() >= 0 else (None, None)
    prefix = ""
    numbers = np.zeros(len(ids), dtype=np.int64)
    for index, value in enumerate(ids):
        match = _NUMBERED.fullmatch(text_of_id(value))
        if match is None or (index and match[1] != prefix):
            return None, None
        prefix, numbers[index] = match[1], int(match[2])
    return prefix, numbers


def _refuse_repeats(field: str, values: np.ndarray) -> None:
    ordered = np.sort(values)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise ValueError(f"`{field}` must come once each, got {repeated.tolist()[0]!r} twice. Remove the repetition.")


def _with_row_zero(vectors: np.ndarray, dtype: Any) -> np.ndarray:
    """The matrix with a row of zeros in front."""
    if dtype is None:
        dtype = "float16" if vectors.dtype.itemsize == 2 and vectors.dtype.kind == "f" else "float32"
    kind = stored_dtype(dtype)
    result = np.zeros((len(vectors) + 1, vectors.shape[1]), dtype=kind)
    for begin in range(0, len(vectors), _ROWS):
        with np.errstate(over="ignore"):
            result[begin + 1 : begin + 1 + _ROWS] = vectors[begin : begin + _ROWS]
        finite = np.isfinite(result[begin + 1 : begin + 1 + _ROWS]).all(axis=1)
        if not finite.all():
            row = begin + int(np.argmin(finite))
            raise ValueError(f"`vectors` must be finite as {kind.name}, got {vectors[row][:4]}... for entity {row}.")
    return result


# ---- files of others ----


def _read_entity2id(path: FilePath, encoding: str) -> tuple[list[ExternalId], np.ndarray]:
    ids: list[ExternalId] = []
    indices: list[int] = []
    lines = text_lines(path, encoding=encoding)
    first = next(lines, "").strip()
    if not _is_number(first):
        raise ValueError(f"{path} must begin with the number of entities, got {first[:40]!r}.")
    for number, line in enumerate(lines, start=2):
        fields = line.rsplit(None, 1)
        if not fields:
            continue
        if len(fields) != 2 or not _is_number(fields[1]):
            raise ValueError(f"{path}, line {number}, must be an id and its index, got {line.strip()[:60]!r}.")
        ids.append(fields[0].strip())
        indices.append(int(fields[1]))
    if len(ids) != int(first):
        raise ValueError(f"{path} says {first} entities and has {len(ids)}. The file is cut off; get it again.")
    return ids, np.array(indices, dtype=np.int64)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _read_vectors(path: Path, num_rows: int, encoding: str) -> np.ndarray:
    """The vectors of numbered entities, in the order of their numbers."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file of entity vectors {path}.")
    kind = path.suffix.lower()
    if kind in (".vec", ".txt"):
        vectors = _parse_lines(text_lines(path, encoding=encoding), num_rows, path)
    elif kind == ".bin":
        flat = np.fromfile(path, dtype="<f4")
        if not num_rows or not len(flat) or len(flat) % num_rows:
            raise ValueError(f"{path} has {len(flat)} numbers, which are not {num_rows} vectors of one length.")
        vectors = flat.reshape(num_rows, -1)
    elif kind == ".npy":
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    elif kind == ".json":
        try:
            state = json.loads("\n".join(text_lines(path)))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path} must be JSON: {error}.") from error
        vectors = np.array(_openke_entities(state, path), dtype=np.float32)
    elif kind in (".ckpt", ".pt", ".pth"):
        state = torch.load(path, map_location="cpu", weights_only=True)
        vectors = _openke_entities(state, path).float().numpy()
    else:
        raise ValueError(f"{path} must end in .vec, .txt, .bin, .npy, .json, .ckpt, .pt or .pth, got {kind!r}.")
    if vectors.ndim != 2 or len(vectors) != num_rows:
        raise ValueError(f"{path} must hold {num_rows} vectors, got an array of shape {vectors.shape}.")
    return vectors


def _openke_entities(state: Any, path: Path) -> Any:
    """The entity matrix among OpenKE's parameters."""
    for name in ("ent_embeddings.weight", "model.ent_embeddings.weight", "ent_embeddings"):
        if name in state:
            return state[name]
    raise ValueError(f"{path} must hold OpenKE's `ent_embeddings.weight`, got {sorted(state)[:8]}.")


def _parse_lines(lines: Iterable[str], num_rows: int, path: Path) -> np.ndarray:
    """Vectors as lines of numbers."""
    result, done = np.empty((0, 0), dtype=np.float32), 0
    for number, line in _numbered_lines(lines):
        if done == num_rows:
            raise ValueError(f"{path} must hold {num_rows} vectors, got more. Its entity list is of another file.")
        if not done:
            result = np.empty((num_rows, len(line.split())), dtype=np.float32)
        result[done] = _vector(line, result.shape[1], f"{path}, line {number}")
        done += 1
    if done < num_rows or not done:
        raise ValueError(f"{path} must hold {num_rows} vectors, got {done}. The file is cut off; get it again.")
    return result


def _numbered_lines(lines: Iterable[str], first: int = 1) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a last empty one is left out."""
    held = None
    for number, line in enumerate(lines, first):
        if held is not None:
            yield held
        held = (number, line)
    if held is not None and held[1].strip():
        yield held


def _vector(text: str, dim: int, where: str) -> np.ndarray:
    """The numbers of one line."""
    numbers = text.split()
    if len(numbers) != dim:
        raise ValueError(
            f"{where}, must have {dim} numbers, got {len(numbers)}. The file is cut off or damaged; get it again."
        )
    try:
        with np.errstate(over="ignore"):
            vector = np.array(numbers, dtype=np.float32)
        if np.isfinite(vector).all():
            return vector
    except ValueError:
        pass
    raise ValueError(f"{where}, must hold numbers, got {text.strip()[:60]!r}.")


def read_word2vec(path: FilePath, encoding: str = "utf-8") -> tuple[list[str], np.ndarray]:
    """Names and vectors in word2vec's text form."""
    names: list[str] = []
    vectors: list[np.ndarray] = []
    lines = text_lines(path, encoding=encoding)
    opening = next(lines, "")
    fields = opening.split()
    header = len(fields) == 2 and all(_is_number(field) for field in fields)
    dim = int(fields[1]) if header else len(fields) - 1
    if dim < 1:
        raise ValueError(f"{path} must have `name v1 v2 ...` in each line, got {opening.strip()[:60]!r}.")
    for number, line in _numbered_lines(lines if header else chain([opening], lines), 2 if header else 1):
        pieces = line.rstrip().rsplit(None, dim)
        if len(pieces) != dim + 1:
            raise ValueError(
                f"{path}, line {number}, must be a name and {dim} numbers, got {len(line.split())} fields. The file "
                "is cut off or damaged; get it again."
            )
        names.append(pieces[0])
        vectors.append(_vector(" ".join(pieces[1:]), dim, f"{path}, line {number}"))
    if header and len(names) != int(fields[0]):
        raise ValueError(f"{path} says {fields[0]} vectors and has {len(names)}. The file is cut off; get it again.")
    return names, np.array(vectors, dtype=np.float32).reshape(len(names), dim)


def read_titles(path: FilePath, encoding: str = "utf-8") -> list[tuple[str, str]]:
    """(title, id) pairs of an `entity_map.txt` or `anchor2id.txt`."""
    pairs = []
    for number, line in enumerate(text_lines(path, encoding=encoding), start=1):
        fields = line.rsplit("\t", 1)
        if not line.strip():
            continue
        if len(fields) != 2:
            raise ValueError(f"{path}, line {number}, must be a title, a tab and an id, got {line.strip()[:60]!r}.")
        pairs.append((fields[0], fields[1].strip()))
    if not pairs:
        raise ValueError(f"{path} must have at least one title, got none.")
    return pairs
