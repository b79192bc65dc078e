"""What gensim's `KeyedVectors.save` wrote, read without gensim and without running anything that a file names.

Such a file is a pickle, which can call any function of any package. Here each name in it stands for a record of what
the pickle says about it, which no code belongs to; names that vectors do not need are refused. Arrays that gensim
wrote beside the file have the file's own name in front: nothing out of the pickle becomes a path.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import open_bytes

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


class _Record:
    """What a pickle says about one object: what it is made of, and the state that it would have."""

    name = ""
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
    """Read a file of `KeyedVectors.save`, those of fastText too.

    Args:
        path: the file, gzipped if its name ends so; large arrays lie beside it.
        max_words: how many of the first ones are read.

    Returns:
        The words and their vectors, `(words, width)`.

    Raises:
        FileNotFoundError: the file, or its array beside it, is missing.
        ValueError: it is damaged, is no such file, or names anything but vectors.
    """
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
    if vectors is None and {"vectors_vocab", "vectors_ngrams"} <= arrays.keys():
        vectors = _with_subwords(words, content, arrays["vectors_vocab"], arrays["vectors_ngrams"])
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


__all__ = ["read_keyed_vectors"]
