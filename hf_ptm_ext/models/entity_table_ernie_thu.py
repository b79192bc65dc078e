"""Entity vectors outside the model: a table in a memory-mapped file (Zhang et al. 2019, section 3.1; thunlp/ERNIE).

Row 0 is no entity, zeros; row i + 1 is entity i of the knowledge graph's own numbering (`entity2id.txt`). The table is
not saved with a model. On a GPU there is a copy of one of up to 2 GiB; of others only the rows that a batch needs
leave the file.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from transformers.utils import logging

from .entity_vocab_ernie_thu import (
    POLICIES,
    TABLE_FORMAT,
    EntityVocabulary,
    ExternalId,
    FilePath,
    FileStamp,
    read_arrays,
    reopen,
    write_arrays,
    written_aside,
)

logger = logging.get_logger(__name__)

LARGEST_COPY = 2 << 30  # bytes
_STORED = (np.dtype("<f2"), np.dtype("<f4"))


class EntityTable:
    """Vectors, ids and titles of entities: look-up, opening, saving, pruning.

    Args:
        vectors: `(rows, dim)`, float16 or float32; row 0 is zeros.
        vocabulary: external ids and titles of the rows; `None` for a table that knows row numbers only.
    """

    def __init__(self, vectors: np.ndarray, vocabulary: EntityVocabulary | None = None):
        if vectors.ndim != 2 or vectors.dtype not in _STORED or not len(vectors) or not vectors.shape[1]:
            raise ValueError(
                "`vectors` must be float16 or float32 of shape (rows, dim) with a row 0 for no entity, got "
                f"{vectors.dtype} {vectors.shape}. `EntityTable.from_arrays` adds the row."
            )
        if np.any(vectors[0]):
            raise ValueError(
                f"`vectors` must have zeros in row 0, which stands for no entity, got {vectors[0][:4]}... "
                "`EntityTable.from_arrays(vectors, ids)` adds the row."
            )
        if vocabulary is not None and len(vocabulary) > len(vectors):
            raise ValueError(
                f"`vocabulary` must name rows of the table, got {len(vocabulary)} rows for {len(vectors)} vectors."
            )
        self._vectors = vectors
        self._copies: dict[torch.device, torch.Tensor] = {}
        self.vocabulary = vocabulary
        self._file: FileStamp | None = None
        self._sha256: str | None = None

    # ---- files ----

    @classmethod
    def from_file(cls, path: FilePath, *, sha256: str | None = None, dim: int | None = None) -> Self:
        """Open a table that `save` wrote; its vectors stay in the file.

        Args:
            path: the file.
            sha256: the hash that the file must have, for which the whole file is read once.
            dim: the length that the vectors must have (`config.entity_hidden_size`).
        """
        if not os.path.isfile(path):
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

    def save(self, path: FilePath, *, dtype: Any = None) -> Path:
        """Write vectors, ids and titles as a safetensors file; equal tables give equal bytes.

        Args:
            path: the file.
            dtype: "float16" or "float32"; `None` keeps the table's own.
        """
        vectors = self._vectors if dtype is None else self._vectors.astype(stored_dtype(dtype))
        arrays, metadata = {"vectors": vectors}, {"format": TABLE_FORMAT}
        if self.vocabulary is not None:
            arrays.update(self.vocabulary.arrays())
            metadata = self.vocabulary.metadata(TABLE_FORMAT)
        return write_arrays(path, arrays, {**metadata, "num_rows": str(len(self))})

    def save_as_is(self, path: FilePath) -> Path:
        """Write the table so that the file has the hash `sha256`: a copy of its file, if it came from one."""
        if self._file is None or not self._file.is_current():
            return self.save(path)
        if not (os.path.exists(path) and os.path.samefile(self._file.path, path)):
            with written_aside(path) as aside:
                shutil.copyfile(self._file.path, aside)
        return Path(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker as the name of the file, if it came from one and the file is still the same."""
        if self._file is not None and self._file.is_current():
            return reopen, (type(self), self._file)
        return type(self), (np.array(self._vectors), self.vocabulary)

    # ---- what it is ----

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
            with tempfile.TemporaryDirectory() as folder:
                on_disk = self._file is not None and self._file.is_current()
                source = self.path if on_disk else self.save(Path(folder) / "table.safetensors")
                with open(str(source), "rb") as file:
                    self._sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return self._sha256

    def describe(self) -> dict[str, Any]:
        """What a config needs to recognise the table: `sha256`, `num_rows`, `dim`."""
        return {"sha256": self.sha256, "num_rows": len(self), "dim": self.dim}

    # ---- asking it ----

    def lookup(
        self,
        entity_ids: Any,
        *,
        on_unknown: str = "error",
        dtype: torch.dtype | str = torch.float32,
        device: Any = None,
    ) -> torch.Tensor:
        """Fetch vectors `(*entity_ids.shape, dim)`: each row that occurs is read once, and only those leave the CPU.

        Args:
            entity_ids: integers of any shape, 0 = no entity; tensor, array or nested list.
            on_unknown: ids outside the table are an error, or give zeros silently ("ignore") or with a line in the
                log ("warn").
            dtype: floating point type of the result, by its name or as torch's.
            device: of the result; `None` takes that of `entity_ids`.
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

    def copy_on(self, device: torch.device) -> torch.Tensor | None:
        """All vectors on an accelerator, copied once, so that no look-up waits; none of a table that is too large."""
        if device.type == "cpu" or self._vectors.nbytes > LARGEST_COPY:
            return None
        if device not in self._copies:
            self._copies[device] = torch.from_numpy(np.array(self._vectors)).to(device)
        return self._copies[device]

    def rows(self, ids: Iterable[ExternalId], on_unknown: str = "ignore") -> np.ndarray:
        """Turn external ids ("Q392") into `entity_ids`, as the vocabulary's `rows`."""
        if self.vocabulary is None:
            raise ValueError(
                f"{self} has row numbers only. Make the table with `ids` to look external ids up, got {ids!r:.60}."
            )
        return self.vocabulary.rows(ids, on_unknown)

    def prune(self, entity_ids: Any) -> Self:
        """Keep the rows that are used, for a table small enough to travel inside a checkpoint.

        Kept rows are numbered anew in their old order: `renumber` translates, and a processor needs the pruned
        table's `vocabulary`.
        """
        rows = self._kept_rows(entity_ids)
        vectors = np.concatenate([np.zeros((1, self.dim), self._vectors.dtype), self._vectors[rows]])
        return type(self)(vectors, None if self.vocabulary is None else self.vocabulary.subset(rows))

    def renumber(self, entity_ids: Any, kept: Any) -> torch.Tensor:
        """Translate ids of this table into ids of `prune(kept)`, 0 for rows that were not kept."""
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
        """Copy all vectors, for an `nn.Embedding` inside a checkpoint: float32, row 0 zeros."""
        return torch.from_numpy(np.array(self._vectors, dtype=np.float32))


def stored_dtype(dtype: Any) -> np.dtype:
    """float16 or float32 by name, or as a type of torch or numpy."""
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, str | torch.dtype) else np.dtype(dtype).name
    if name not in ("float16", "float32"):
        raise ValueError(f"`dtype` must be 'float16' or 'float32', got {dtype!r}.")
    return np.dtype("<f2" if name == "float16" else "<f4")
