"""Entity vectors outside the model: a table in a memory-mapped file (Zhang et al. 2019, section 3.1; thunlp/ERNIE).

    row 0       no entity, zeros
    row i + 1   entity i of the knowledge graph's own numbering (`entity2id.txt`)

The vectors come from elsewhere (TransE, 100 numbers in the released model) and stay as they are. The table is no
parameter and no buffer: it is neither saved with a model nor copied to each device, and only the rows that a batch
needs leave the file. Its ids and titles are an `EntityVocabulary`.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from .entity_sources_ernie_thu import read_titles, read_vectors, read_word2vec
from .entity_vocab_ernie_thu import POLICIES, TABLE_FORMAT, EntityVocabulary, ExternalId
from .storage_ernie_thu import FileStamp, copy_file, read_arrays, reopen, write_arrays

logger = logging.get_logger(__name__)

Titles = Mapping[str, ExternalId] | Iterable[tuple[str, ExternalId]]
_STORED = (np.dtype("<f2"), np.dtype("<f4"))


class EntityTable:
    """Vectors, ids and titles of entities.

    Make one with `from_arrays`, `from_kg_embed`, `from_openke` or `from_word2vec`, keep it with `save`, and open it
    with `from_file`.

    Args:
        vectors: `(rows, dim)`, float16 or float32; row 0 is zeros.
        vocabulary: external ids and titles of the rows; `None` for a table that knows row numbers only.

    Raises:
        ValueError: the vectors are not of this form, or the vocabulary has rows that the table lacks.

    Example:
        >>> table = EntityTable.from_arrays([[1.0, 2.0], [3.0, 4.0]], ids=["Q392", "Q90"])
        >>> len(table), table.dim, table.rows(["Q90", "Q1"]).tolist()
        (3, 2, [2, 0])
        >>> table.lookup([[2, 0]])
        tensor([[[3., 4.],
                 [0., 0.]]])
    """

    def __init__(self, vectors: np.ndarray, vocabulary: EntityVocabulary | None = None):
        if vectors.ndim != 2 or vectors.dtype not in _STORED or not len(vectors) or not vectors.shape[1]:
            raise ValueError(
                "`vectors` must be float16 or float32 of shape (rows, dim) with a row 0 for no entity, got "
                f"{vectors.dtype} {vectors.shape}. `EntityTable.from_arrays` adds the row."
            )
        if np.any(vectors[0]):
            raise ValueError(
                "`vectors` must have zeros in row 0, which stands for no entity, got other numbers. "
                "`EntityTable.from_arrays(vectors, ids)` adds the row."
            )
        if vocabulary is not None and len(vocabulary) > len(vectors):
            raise ValueError(
                f"`vocabulary` must name rows of the table, got {len(vocabulary)} rows for {len(vectors)} vectors."
            )
        self._vectors = vectors
        self.vocabulary = vocabulary
        self._file: FileStamp | None = None
        self._sha256: str | None = None

    # ---- making one ----

    @classmethod
    def from_arrays(
        cls,
        vectors: Any,
        ids: Sequence[ExternalId] | np.ndarray | None = None,
        titles: Titles | None = None,
        *,
        dtype: Any = None,
    ) -> "EntityTable":
        """Make a table of vectors in memory or in an `.npy` file.

        Args:
            vectors: array or tensor `(entities, dim)` without a row for no entity, or the path of an `.npy` file.
            ids: external id of each vector; `None` for none.
            titles: (title, id) pairs or a mapping title -> id.
            dtype: how to store them, "float32" or "float16"; `None` keeps float16 and float32.

        Returns:
            The table, where `vectors[i]` is row i + 1.

        Raises:
            ValueError: `vectors` is no matrix of finite numbers, or has not one row per id.
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
            raise ValueError("`titles` must come with `ids`, which they refer to, got none.")
        vocabulary = None if ids is None else EntityVocabulary.from_ids(ids, titles)
        return cls(_with_row_zero(vectors, dtype), vocabulary)

    @classmethod
    def from_kg_embed(
        cls, folder: str | os.PathLike[str], *, dtype: Any = None, encoding: str = "utf-8"
    ) -> "EntityTable":
        """Read the original project's `kg_embed` folder.

        Args:
            folder: has `entity2id.txt`, `entity2vec.vec` and, for titles, `entity_map.txt`.
            dtype: how to store the vectors, "float32" (default) or "float16".
            encoding: of its files of text.

        Returns:
            The table; entity i of the files is row i + 1.

        Raises:
            FileNotFoundError: the folder lacks one of the first two files.
            ValueError: a file is damaged, or they do not fit each other.
        """
        folder = Path(folder)
        for name in ("entity2id.txt", "entity2vec.vec"):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder} must have `{name}`, as the original project's `kg_embed` folder has. Name that folder, "
                    "or use `from_openke`, `from_word2vec` or `from_arrays`."
                )
        titles = folder / "entity_map.txt"
        return cls.from_openke(
            folder / "entity2id.txt",
            folder / "entity2vec.vec",
            titles=read_titles(titles, encoding) if os.path.lexists(titles) else None,
            dtype=dtype,
            encoding=encoding,
        )

    @classmethod
    def from_openke(
        cls,
        entity2id: str | os.PathLike[str],
        vectors: str | os.PathLike[str],
        titles: Titles | None = None,
        *,
        dtype: Any = None,
        encoding: str = "utf-8",
    ) -> "EntityTable":
        """Read what OpenKE writes.

        Args:
            entity2id: the file of ids: a count, then `id<TAB>index` in each line.
            vectors: the vectors by index: `.vec`, `.bin`, `.json`, `.ckpt` or `.npy`.
            titles: (title, id) pairs or a mapping title -> id.
            dtype: how to store the vectors, "float32" or "float16"; `None` keeps what the file has.
            encoding: of the files of text.

        Returns:
            The table; index i is row i + 1.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged, or they do not fit each other.
        """
        vocabulary = EntityVocabulary.from_entity2id(entity2id, titles, encoding=encoding)
        return cls(_with_row_zero(read_vectors(vectors, len(vocabulary) - 1, encoding), dtype), vocabulary)

    @classmethod
    def from_word2vec(
        cls,
        path: str | os.PathLike[str],
        titles: Titles | None = None,
        *,
        dtype: Any = None,
        encoding: str = "utf-8",
    ) -> "EntityTable":
        """Read word2vec's text form.

        Args:
            path: `name v1 v2 ...` in each line, after an optional header; the names become the external ids.
            titles: (title, id) pairs or a mapping title -> id.
            dtype: how to store the vectors, "float32" (default) or "float16".
            encoding: of the file.

        Returns:
            The table, in the order of the lines.

        Raises:
            ValueError: the file is damaged, or a name comes twice.
        """
        names, vectors = read_word2vec(path, encoding)
        return cls.from_arrays(vectors, names, titles, dtype=dtype)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, sha256: str | None = None, dim: int | None = None
    ) -> "EntityTable":
        """Open a table that `save` wrote; its vectors stay in the file.

        Args:
            path: the file.
            sha256: the hash that the file must have; `None` reads nothing but the header. Checking reads the whole
                file once.
            dim: the length that the vectors must have (`config.entity_hidden_size`).

        Returns:
            The table.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is of another kind or damaged, or has another hash or dimension.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"There is no entity table {path}. Download it from where the model's card says, or make one from "
                "your own vectors with `EntityTable.from_arrays(vectors, ids).save(path)` (also `from_kg_embed`, "
                "`from_openke`, `from_word2vec`)."
            )
        arrays, metadata = read_arrays(path)
        if metadata.get("format") != TABLE_FORMAT or "vectors" not in arrays:
            raise ValueError(
                f"{path} is not a file of `EntityTable.save`: it holds {sorted(arrays)[:6]}. Make a table of its "
                "vectors with `EntityTable.from_arrays(vectors, ids)`, without a row for no entity."
            )
        vocabulary = EntityVocabulary.from_stored(arrays, metadata, path) if "id_rows" in arrays else None
        table = cls(arrays["vectors"], vocabulary)
        table._file = FileStamp.of(path)
        if dim is not None and table.dim != dim:
            raise ValueError(
                f"{path} has vectors of `entity_hidden_size` {table.dim}, and {dim} is asked for. Use the table that "
                "belongs to the model, or a config with this size."
            )
        if sha256 is not None and table.sha256 != sha256.lower():
            raise ValueError(
                f"{path} must have `sha256` {sha256}, got {table.sha256}: it is another table than the one the model "
                "was made with, and its rows would mean other entities."
            )
        return table

    def save(self, path: str | os.PathLike[str], *, dtype: Any = None) -> Path:
        """Write the table as a safetensors file: `vectors`, ids, titles. Equal tables give equal bytes.

        Args:
            path: the file.
            dtype: "float16" or "float32"; `None` keeps the table's own.

        Returns:
            The path.
        """
        vectors = self._vectors if dtype is None else self._vectors.astype(_dtype_of(dtype))
        arrays = {"vectors": vectors, **({} if self.vocabulary is None else self.vocabulary.arrays())}
        metadata = {"format": TABLE_FORMAT} if self.vocabulary is None else self.vocabulary.metadata(TABLE_FORMAT)
        return write_arrays(path, arrays, {**metadata, "num_rows": str(len(self))})

    def save_as_is(self, path: str | os.PathLike[str]) -> Path:
        """Write the table so that the file has the hash `sha256`: a copy of its file, if it came from one.

        Args:
            path: the file; that of the table itself stays as it is.

        Returns:
            The path.
        """
        if self._file is not None and self._file.is_current():
            return copy_file(self._file.path, path)
        return self.save(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker as the name of the file, if it came from one and the file is still the same."""
        if self._file is not None and self._file.is_current():
            return reopen, (type(self), self._file)
        return type(self), (np.array(self._vectors), self.vocabulary)

    # ---- asking it ----

    def __len__(self) -> int:
        """Rows, row 0 included: `config.entity_vocab_size`."""
        return len(self._vectors)

    def __repr__(self) -> str:
        where = f", {self._file.path}" if self._file is not None else ""
        return f"{type(self).__name__}({len(self)} rows, dim {self.dim}, {self._vectors.dtype}{where})"

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self._vectors.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """How the vectors are stored."""
        return torch.float16 if self._vectors.dtype.itemsize == 2 else torch.float32

    @property
    def path(self) -> str | None:
        """The file it was opened from, `None` for a table in memory."""
        return None if self._file is None else self._file.path

    @property
    def sha256(self) -> str:
        """Hash of the table's file; of a table in memory, of the file that `save` would write. Computed once."""
        if self._sha256 is None:
            if self._file is not None and self._file.is_current():
                self._sha256 = _sha256_of(self._file.path)
            else:
                self._sha256 = self._sha256_in_memory()
        return self._sha256

    def _sha256_in_memory(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return _sha256_of(self.save(Path(folder) / "table.safetensors"))

    def lookup(
        self,
        entity_ids: Any,
        *,
        on_unknown: str = "error",
        dtype: torch.dtype | str = torch.float32,
        device: Any = None,
    ) -> torch.Tensor:
        """Fetch vectors. Each row that occurs is read once, on the CPU, and only those rows go to the device.

        Args:
            entity_ids: integers of any shape, 0 = no entity; tensor, array or nested list.
            on_unknown: what to do about ids outside the table: "error" raises, "ignore" gives zeros, "warn" gives
                zeros and logs how many.
            dtype: floating point type of the result, by its name or as torch's.
            device: of the result; `None` takes that of `entity_ids`.

        Returns:
            `(*entity_ids.shape, dim)`; zeros where the id is 0.

        Raises:
            TypeError: the ids are not integers.
            ValueError: an id is outside the table and `on_unknown="error"`, the policy is none of the three, or the
                type is no floating point type.
        """
        kind = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
        if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
            raise ValueError(
                f"`dtype` must be a floating point type such as 'float32', 'float16' or 'bfloat16', got {dtype!r}."
            )
        ids = entity_ids if isinstance(entity_ids, torch.Tensor) else torch.as_tensor(np.asarray(entity_ids))
        if not ids.numel() and not isinstance(entity_ids, torch.Tensor):
            ids = ids.long()
        if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
            raise TypeError(f"`entity_ids` must be integers, got {ids.dtype}. Vectors go in as `entity_embeds`.")
        if on_unknown not in POLICIES:
            raise ValueError(f"`on_unknown` must be one of {POLICIES}, got {on_unknown!r}.")
        distinct, place = torch.unique(ids.detach().cpu().long(), return_inverse=True)
        rows = distinct.numpy()
        outside = (rows < 0) | (rows >= len(self))
        if outside.any():
            positions = int(np.isin(place.numpy(), np.flatnonzero(outside)).sum())
            message = (
                f"`entity_ids` must be 0 to {len(self) - 1}, the rows of the entity table, got "
                f"{rows[outside][:5].tolist()} ({positions} positions)."
            )
            if on_unknown == "error":
                raise ValueError(f"{message} Is the table the one that the processor's entity vocabulary belongs to?")
            if on_unknown == "warn":
                logger.warning(f"{message} They count as no entity.")
            rows = np.where(outside, 0, rows)
        vectors = torch.from_numpy(np.asarray(self._vectors[rows])).to(kind)
        target = ids.device if device is None else torch.device(device)
        return vectors.to(target)[place.to(target)]

    def rows(self, ids: Iterable[ExternalId], on_unknown: str = "ignore") -> np.ndarray:
        """Turn external ids ("Q392") into `entity_ids`.

        Args:
            ids: external ids.
            on_unknown: "ignore" (0 for unknown ids), "warn" or "error".

        Returns:
            int64 `(number of ids,)`.

        Raises:
            ValueError: the table has no ids, or one is unknown and `on_unknown="error"`.
        """
        if self.vocabulary is None:
            raise ValueError("The table has row numbers only. Make it with `ids` to look external ids up.")
        return self.vocabulary.rows(ids, on_unknown)

    def prune(self, entity_ids: Any) -> "EntityTable":
        """Keep the rows that are used, for a table small enough to travel inside a checkpoint.

        Args:
            entity_ids: rows to keep, in any order and number, 0 allowed; tensor, array or list.

        Returns:
            A table in memory. Kept rows are numbered anew in their old order: `renumber` translates, and a processor
            needs the pruned table's `vocabulary`.

        Raises:
            ValueError: an id is outside the table.
        """
        rows = self._kept_rows(entity_ids)
        vectors = np.concatenate([np.zeros((1, self.dim), self._vectors.dtype), self._vectors[rows]])
        return type(self)(vectors, None if self.vocabulary is None else self.vocabulary.subset(rows))

    def renumber(self, entity_ids: Any, kept: Any) -> torch.Tensor:
        """Translate ids of this table into ids of `prune(kept)`.

        Args:
            entity_ids: ids of this table, any shape.
            kept: what `prune` was given.

        Returns:
            int64 tensor of the same shape; 0 for rows that were not kept.

        Raises:
            ValueError: an id of `kept` is outside the table.

        Example:
            >>> table = EntityTable.from_arrays([[1.0], [2.0], [3.0]])
            >>> table.renumber([[3, 1, 0, 2]], kept=[3, 2])
            tensor([[2, 0, 0, 1]])
        """
        rows = torch.from_numpy(self._kept_rows(kept))
        ids = torch.as_tensor(entity_ids).long().contiguous()
        if not len(rows):
            return torch.zeros_like(ids)
        place = torch.searchsorted(rows.to(ids.device), ids).clamp(max=len(rows) - 1)
        return torch.where(rows.to(ids.device)[place] == ids, place + 1, 0)

    def _kept_rows(self, entity_ids: Any) -> np.ndarray:
        """Distinct rows, ascending, without 0."""
        ids = entity_ids.detach().cpu().numpy() if isinstance(entity_ids, torch.Tensor) else np.asarray(entity_ids)
        if ids.size and ids.dtype.kind not in "iu":
            raise TypeError(
                f"`entity_ids` must be integers, got {ids.dtype}. `table.rows(ids)` translates external ids."
            )
        rows = np.unique(ids.astype(np.int64))
        if len(rows) and (rows[0] < 0 or rows[-1] >= len(self)):
            raise ValueError(f"`entity_ids` must be 0 to {len(self) - 1}, got {rows[0]} to {rows[-1]}.")
        return rows[rows > 0]

    def weight(self) -> torch.Tensor:
        """Copy all vectors, for an `nn.Embedding` inside a checkpoint.

        Returns:
            Float32 `(rows, dim)`, row 0 zeros.
        """
        return torch.from_numpy(np.array(self._vectors, dtype=np.float32))

    def describe(self) -> dict[str, Any]:
        """Say what a config needs to recognise the table: part of `config.entity_embeddings_source`.

        Returns:
            `sha256`, `num_rows`, `dim`.
        """
        return {"sha256": self.sha256, "num_rows": len(self), "dim": self.dim}


def _dtype_of(dtype: Any) -> np.dtype:
    """float16 or float32 by name, or as a type of torch or numpy."""
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, str | torch.dtype) else np.dtype(dtype).name
    if name not in ("float16", "float32"):
        raise ValueError(f"`dtype` must be 'float16' or 'float32', got {dtype!r}.")
    return np.dtype("<f2" if name == "float16" else "<f4")


def _with_row_zero(vectors: np.ndarray, dtype: Any) -> np.ndarray:
    """The matrix with a row of zeros in front."""
    if dtype is None:
        dtype = "float16" if vectors.dtype.itemsize == 2 and vectors.dtype.kind == "f" else "float32"
    kind = _dtype_of(dtype)
    result = np.zeros((len(vectors) + 1, vectors.shape[1]), dtype=kind)
    for begin in range(0, len(vectors), 1 << 16):
        block = vectors[begin : begin + (1 << 16)]
        with np.errstate(over="ignore"):
            result[begin + 1 : begin + 1 + len(block)] = block
        if not np.isfinite(result[begin + 1 : begin + 1 + len(block)]).all():
            row = begin + int(np.flatnonzero(~np.isfinite(result[begin + 1 : begin + 1 + len(block)]).all(axis=1))[0])
            raise ValueError(f"`vectors` must be finite as {kind.name}, got {vectors[row][:4]}... for entity {row}.")
    return result


def _sha256_of(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
