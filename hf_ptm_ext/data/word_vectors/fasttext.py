"""fastText's own files, `.bin` and quantised `.ftz` (github.com/facebookresearch/fastText, version 12 and 11)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .subwords import Subwords

MAGIC = 793712314
SUPERVISED = 3
# A model of so many words, or numbers in a row, is none: a damaged file does not take the memory.
_MOST = 2**31


class _Settings(NamedTuple):
    """What stands behind the magic number and the version."""

    dim: int
    ws: int
    epoch: int
    min_count: int
    neg: int
    word_ngrams: int
    loss: int
    model: int
    bucket: int
    minn: int
    maxn: int
    lr_update_rate: int


class FastTextFile(NamedTuple):
    """What a file has of words: their own rows `(words, width)`, and the n-grams that complete them."""

    words: list[str]
    own: Any
    subwords: Subwords | None


class _Source:
    """A file that is read number by number, and says where it ends too early."""

    def __init__(self, file: BinaryIO, path: Path):
        self.file, self.path = file, path

    def raw(self, size: int, what: str) -> bytes:
        found = self.file.read(size)
        if len(found) != size:
            raise ValueError(f"{self.path} ends in {what}: it is cut off. Fetch it again.")
        return found

    def array(self, kind: str, count: int, what: str) -> np.ndarray:
        if not 0 <= count <= _MOST:
            raise ValueError(f"{self.path} is damaged: {what} would have {count} numbers. Fetch it again.")
        return np.frombuffer(self.raw(count * np.dtype(kind).itemsize, what), kind)

    def ints(self, kind: str, count: int, what: str) -> list[int]:
        return [int(value) for value in self.array(kind, count, what)]

    def matrix(self, rows: int, width: int, quantized: bool, what: str) -> Any:
        """A matrix, which must be of so many rows of so many numbers."""
        found = _Quantized.read(self, what) if quantized else None
        shape = tuple(self.ints("<i8", 2, what)) if found is None else found.shape
        if shape[1] != width or (rows >= 0 and shape[0] != rows):
            raise ValueError(f"{self.path} is damaged: {what} is {shape}, of {rows} rows of {width}. Fetch it again.")
        return self.array("<f4", shape[0] * shape[1], what).reshape(shape) if found is None else found


@dataclass
class _Quantized:
    """A matrix as product quantisation keeps it: a code for each block of a row, of 256 centroids each."""

    shape: tuple[int, int]
    codes: np.ndarray
    centroids: list[np.ndarray]
    norms: np.ndarray | None

    @classmethod
    def read(cls, source: _Source, what: str) -> "_Quantized":
        (has_norms,) = source.ints("u1", 1, what)
        rows, width = source.ints("<i8", 2, what)
        (size,) = source.ints("<i4", 1, what)
        codes = source.array("u1", size, what)
        centroids = cls._centroids(source, what)
        if rows < 0 or size != rows * len(centroids) or sum(block.shape[1] for block in centroids) != width:
            raise ValueError(f"{source.path} is damaged: {what} has {size} codes of {rows} rows. Fetch it again.")
        norms = None
        if has_norms:
            places = source.array("u1", rows, what)
            norms = cls._centroids(source, what)[0][places]
        return cls((rows, width), codes.reshape(rows, len(centroids)), centroids, norms)

    @staticmethod
    def _centroids(source: _Source, what: str) -> list[np.ndarray]:
        dim, blocks, size, last = source.ints("<i4", 4, what)
        if not (0 < blocks <= dim and 0 < last <= size and (blocks - 1) * size + last == dim):
            raise ValueError(f"{source.path} is damaged: {what} has {blocks} blocks of {size}. Fetch it again.")
        flat = source.array("<f4", dim * 256, what)
        found = [flat[block * 256 * size :][: 256 * size].reshape(256, size) for block in range(blocks - 1)]
        return [*found, flat[(blocks - 1) * 256 * size :].reshape(256, last)]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        codes = self.codes[rows]
        found = np.concatenate([block[codes[..., place]] for place, block in enumerate(self.centroids)], axis=-1)
        return found if self.norms is None else found * self.norms[rows]


class _Part:
    """Some rows of a matrix behind its first ones."""

    def __init__(self, matrix: Any, start: int):
        self.matrix, self.start = matrix, start

    def __len__(self) -> int:
        return len(self.matrix) - self.start

    def __getitem__(self, rows: Any) -> np.ndarray:
        found: np.ndarray = self.matrix[np.asarray(rows) + self.start]
        return found


def read_fasttext(file: BinaryIO, path: Path, encoding: str, errors: str) -> FastTextFile:
    """Read the words, their rows and those of n-grams; labels and the output matrix are left out."""
    source = _Source(file, path)
    magic, version = source.ints("<i4", 2, "its head")
    if magic != MAGIC or version not in (11, 12):
        raise ValueError(f"{path} is no model of fastText of version 11 or 12 (got {magic}, {version}).")
    settings = _Settings(*source.ints("<i4", 12, "its head"))
    source.raw(8, "its head")  # the threshold of sampling
    size, nwords, _ = source.ints("<i4", 3, "its head")
    _, pruned = source.ints("<i8", 2, "its head")
    words = []
    for number in range(size):
        raw, kind = _entry(source, number)
        try:
            text = raw.decode(encoding, errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, word {number + 1}: {raw!r} is not {encoding}. Name its `encoding`, or set `errors`."
            ) from error
        if kind == 0:
            words.append(text)
    if len(words) != nwords:
        raise ValueError(f"{path} is damaged: it has {len(words)} words and says {nwords}. Fetch it again.")
    pairs = source.array("<i4", 2 * max(0, pruned), "its pruned n-grams").reshape(-1, 2)
    (quantized,) = source.ints("u1", 1, "its input matrix")
    longest = 0 if version == 11 and settings.model == SUPERVISED else settings.maxn
    matrix = source.matrix(-1, settings.dim, bool(quantized), "its input matrix")
    if len(matrix) < nwords:
        raise ValueError(f"{path} is damaged: {len(matrix)} rows for {nwords} words. Fetch it again.")
    subwords = None
    if longest > 0 and settings.bucket > 0 and len(matrix) > nwords:
        kept = dict(pairs.tolist()) if pruned >= 0 else None
        subwords = Subwords(_Part(matrix, nwords), settings.minn, longest, settings.bucket, kept)
    return FastTextFile(words, matrix, subwords)


def _entry(source: _Source, number: int) -> tuple[bytes, int]:
    """A word and whether it is a label."""
    what, parts = f"its word {number + 1}", [b""]
    while not parts[-1].endswith(b"\0"):
        ahead = source.file.peek()  # type: ignore[attr-defined]
        parts.append(source.raw(ahead.find(b"\0") + 1 or len(ahead) or 1, what))
        if len(parts) > 2**10:
            raise ValueError(f"{source.path} is damaged: {what} has no end. Fetch it again.")
    return b"".join(parts)[:-1], source.raw(9, what)[8]
