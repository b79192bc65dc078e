"""Words that are near in a table of word vectors, and tables from the files people have.

What gensim's `KeyedVectors.save` wrote is read without gensim and without running anything that a file names. Such a
file is a pickle, which can call any function of any package: here each name in it stands for a record of what the
pickle says about it, which no code belongs to, and names that vectors do not need are refused. Arrays that gensim
wrote beside the file have the file's own name in front: nothing out of the pickle becomes a path.
"""

import hashlib
import pickle
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import iter_lines, open_bytes

# TinyBERT's script reads no more of GloVe, whose words are sorted by frequency.
MAX_WORDS = 100_000
TEXT_SUFFIXES = (".txt", ".vec")
ALLOWED = {
    *(("builtins", name) for name in ("set", "frozenset", "int", "float", "object")),
    *(("__builtin__", name) for name in ("set", "frozenset", "int", "float", "object")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *((module, "_reconstructor") for module in ("copyreg", "copy_reg")),
    ("_codecs", "encode"),
}
WORDS = ("index_to_key", "index2word", "index2entity")  # gensim 4, gensim 3
VECTORS = ("vectors", "syn0")
ARRAYS = (*VECTORS, "vectors_vocab", "vectors_ngrams")
_HINT = "Vectors are read from what `KeyedVectors.save` wrote (of a model: `model.wv.save`), and from text files."


class WordVectors:
    """Nearest neighbours by cosine.

    Args:
        words: The words, by frequency.
        vectors: `(words, width)`.
        max_words: How many of the first ones are kept (default: 100,000, as TinyBERT's script).

    Examples:
        >>> vectors = WordVectors(["good", "fine", "table"], [[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]])
        >>> vectors.nearest("good", 1), vectors.nearest("Good", 1), vectors.nearest("unknown", 1)
        (['fine'], [], [])
    """

    def __init__(self, words: Sequence[str], vectors: Any, max_words: int | None = MAX_WORDS):
        table = np.asarray(vectors, dtype=np.float32)
        if table.ndim != 2 or len(words) != len(table) or not len(table):
            raise ValueError(
                f"`vectors` must be (words, width) for the {len(words)} `words`, at least one, got {table.shape}."
            )
        self.words = list(words[:max_words])
        self.index = {word: number for number, word in reversed(list(enumerate(self.words)))}
        table = table[:max_words]
        self.lengths = np.linalg.norm(table, axis=1, keepdims=True)
        self.table = table / np.maximum(self.lengths, 1e-12)
        self._known: dict[tuple[str, int], list[str]] = {}

    @classmethod
    def of(cls, vectors: Any, max_words: int | None = MAX_WORDS) -> "WordVectors":
        """Take gensim's `KeyedVectors`, or anything like it."""
        if isinstance(vectors, cls):
            return vectors
        if not hasattr(vectors, "index_to_key") or not hasattr(vectors, "vectors"):
            raise TypeError(f"`vectors` must be WordVectors or gensim's KeyedVectors, got {type(vectors).__name__}.")
        return cls(vectors.index_to_key, vectors.vectors, max_words)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the neighbours found so far: what is pickled is the same before and after use."""
        return {**self.__dict__, "_known": {}}

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> np.ndarray:
        """A word's vector, `(width,)`, as it was given."""
        place = self.index[word]
        return self.table[place] * self.lengths[place]

    def fingerprint(self) -> str:
        """A digest of words and vectors."""
        digest = hashlib.blake2b(self.table.tobytes(), digest_size=16)
        digest.update(repr(self.words).encode())
        return digest.hexdigest()

    def nearest(self, word: str, number: int) -> list[str]:
        """The nearest words, itself left out; none for an unknown word, in title case for one in title case."""
        key = (word, number)
        if key not in self._known:
            self._known[key] = self._search(word, number)
        return self._known[key]

    def _search(self, word: str, number: int) -> list[str]:
        place = self.index.get(word)
        if place is None:
            return []
        similarity = self.table @ self.table[place]
        similarity[place] = -np.inf
        number = min(number, len(self.words) - 1)
        order = np.lexsort((np.arange(len(similarity)), -similarity))[:number]
        found = [self.words[index] for index in order]
        return [each.title() for each in found] if word.istitle() else found


def load_word_vectors(path: str | Path, max_words: int | None = MAX_WORDS, *, encoding: str = "utf-8") -> WordVectors:
    """Read word vectors: text as GloVe and word2vec write it, what gensim saved, and, by gensim, word2vec's binary.

    Nothing in a file is executed; gensim's own pickles may hold words and arrays, and are refused with more.

    Args:
        path: A `.txt` or `.vec` file (gzipped too), `.bin`, or what `KeyedVectors.save` wrote.
        max_words: How many of the first ones are read.
        encoding: Of a text file.
    """
    path = Path(path)
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1] in TEXT_SUFFIXES:
        return WordVectors(
            *_parse((line.text for line in iter_lines(path, encoding)), str(path), max_words), max_words=None
        )
    if not suffixes or suffixes[-1] != ".bin":
        return WordVectors(*read_keyed_vectors(path, max_words), max_words=None)
    try:
        from gensim.models import KeyedVectors
    except ImportError as error:
        raise ImportError(
            f"Reading {path.name} needs the package `gensim`: `pip install hf-ptm-ext[embeddings]`. Text files "
            f"({', '.join(TEXT_SUFFIXES)}) and what `KeyedVectors.save` wrote are read without it."
        ) from error
    return WordVectors.of(KeyedVectors.load_word2vec_format(str(path), binary=True, limit=max_words), max_words)


def _parse(lines: Iterable[str], name: str, max_words: int | None) -> tuple[list[str], np.ndarray]:
    words: list[str] = []
    rows: list[np.ndarray] = []
    for number, line in enumerate(lines):
        cells = line.rstrip("\n").rstrip(" ").split(" ")
        if number == 0 and len(cells) == 2:  # word2vec's header: number and width
            continue
        if max_words is not None and len(words) == max_words:
            break
        # A few of GloVe's 840B words have spaces: the width is that of the first row.
        width = len(rows[0]) if rows else len(cells) - 1
        try:
            with np.errstate(over="ignore"):
                row = np.array(cells[-width:], dtype=np.float32)
        except ValueError as error:
            raise ValueError(f"{name}, line {number + 1}: a word and {width} numbers expected: {error}") from error
        if len(row) != width or len(cells) <= width:
            raise ValueError(
                f"{name}, line {number + 1}: a word and {width} numbers expected, got {len(cells)} cells."
            )
        if not np.isfinite(row).all():
            raise ValueError(f"{name}, line {number + 1}: the vector has a number that is none, NaN or infinity.")
        words.append(" ".join(cells[:-width]))
        rows.append(row)
    return words, np.stack(rows) if rows else np.zeros((0, 0), np.float32)


class _Record:
    """What a pickle says about one object: what it is made of, and the state that it would have."""

    name = ""
    parts: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "_Record":
        record = object.__new__(cls)
        record.parts = args
        return record

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _ForeignName(Exception):
    """A pickle names something that vectors do not need."""


class _Reader(pickle.Unpickler):
    """Makes records, and data of Python's own."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED and module.split(".")[0] != "gensim":
            raise _ForeignName(f"{module}.{name}")
        return type("_Record", (_Record,), {"name": name})


def read_keyed_vectors(path: Path, max_words: int | None = None) -> tuple[list[str], np.ndarray]:
    """Read a file of `KeyedVectors.save`, those of fastText too."""
    with open_bytes(path) as file:
        try:
            content = dict(_Reader(file).load().state)
            words = next(content[name] for name in WORDS if name in content)[:max_words]
            beside = content.get("__numpys") or ()
            names = [name for name in ARRAYS if name in beside or content.get(name) is not None]
            arrays = {name: None if name in beside else _array(content[name]) for name in names}
        except _ForeignName as error:
            raise ValueError(
                f"{path} is no file of word vectors alone, it names {error}. A pickle can run code, so nothing else "
                f"in it is made. {_HINT}"
            ) from error
        except Exception as error:  # a damaged pickle raises anything
            raise ValueError(f"{path} is damaged, or no file of word vectors ({error!r}). {_HINT}") from error
    arrays |= {name: _array_beside(path, name) for name in names if name in beside}
    vectors = next((arrays[name] for name in VECTORS if name in arrays), None)
    own, pieces = arrays.get("vectors_vocab"), arrays.get("vectors_ngrams")
    if vectors is None and own is not None and pieces is not None:
        vectors = _with_subwords(words, content, own, pieces)
    if vectors is None or vectors.dtype.kind != "f" or vectors.ndim != 2 or len(vectors) < len(words):
        raise ValueError(f"{path} has no array with a vector for each word. {_HINT}")
    return [str(word) for word in words], vectors[:max_words]


def _with_subwords(words: list[str], options: dict[str, Any], own: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """fastText's vectors: the mean of a word's own vector and those of the pieces of `<word>`, as gensim takes it."""
    vectors = np.array(own[: len(words)])
    for number, word in enumerate(words if len(pieces) else []):
        text = f"<{word}>"
        places = [
            _fasttext_hash(text[begin : begin + size].encode()) % len(pieces)
            for begin in range(len(text))
            for size in range(options["min_n"], min(options["max_n"], len(text) - begin) + 1)
            if size > 1 or 0 < begin < len(text) - 1
        ]
        vectors[number] = (vectors[number] + pieces[places].sum(axis=0)) / (len(places) + 1)
    return vectors


def _fasttext_hash(piece: bytes) -> int:
    """32-bit FNV-1a over signed characters."""
    value = 2166136261
    for byte in piece:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    return value


def _array(record: Any) -> np.ndarray | None:
    """The array of floating point numbers that a record tells of."""
    if not isinstance(record, _Record):
        return None
    if record.name == "_frombuffer":
        raw, kind, shape, order = record.parts
    else:
        _, shape, kind, fortran, raw = record.state
        order = "F" if fortran else "C"
    if isinstance(raw, _Record):  # bytes, as older pickles write them
        raw = raw.parts[0].encode("latin1")
    dtype = np.dtype(str(kind.parts[0]))
    if dtype.kind != "f":
        return None
    return np.frombuffer(raw, dtype.newbyteorder(kind.state[1])).reshape(shape, order=order)


def _array_beside(path: Path, name: str) -> np.ndarray:
    """An array that gensim wrote to a file of its own."""
    packed = path.suffix == ".gz"
    file = path.with_name(f"{path.name}.{name}.{'npz' if packed else 'npy'}")
    if not file.is_file():
        raise FileNotFoundError(f"{path} has its vectors in {file.name}, which must lie beside it and is missing.")
    try:
        found = np.load(file, mmap_mode=None if packed else "r", allow_pickle=False)
        return found["val"] if packed else found
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is damaged, or no array of numbers ({error}).") from error
