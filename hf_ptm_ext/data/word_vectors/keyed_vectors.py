"""Word vectors of gensim's own files, of its vectors and of its models.

What gensim's `save` wrote is read without gensim and without running anything that a file names. Such a
file is a pickle, which can call any function of any package: here each name in it stands for a record of what the
pickle says about it, which no code belongs to, and names that vectors do not need are refused. Arrays that gensim
wrote beside the file have the file's own name in front: nothing out of the pickle becomes a path.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import open_bytes
from .fasttext import FastTextFile
from .subwords import Subwords

ALLOWED = {
    *(("builtins", name) for name in ("set", "frozenset", "int", "float", "object")),
    *(("__builtin__", name) for name in ("set", "frozenset", "int", "float", "object")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *((module, "_reconstructor") for module in ("copyreg", "copy_reg")),
    # Of a whole model beside its vectors.
    *(("builtins", "hash"), ("collections", "defaultdict"), ("numpy.random._mt19937", "MT19937")),
    *(("numpy.random._pickle", name) for name in ("__randomstate_ctor", "__bit_generator_ctor")),
    ("_codecs", "encode"),
}
WORDS = ("index_to_key", "index2word", "index2entity")  # gensim 4, gensim 3
VECTORS = ("vectors", "syn0")
ARRAYS = (*VECTORS, "vectors_vocab", "vectors_ngrams")
_HINT = "Vectors are read from what gensim's `save` wrote, and from word2vec's, GloVe's and fastText's files."


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

    def __setitem__(self, key: Any, value: Any) -> None:
        """What a dictionary of its own kind would hold, which vectors do not need."""


class _ForeignName(Exception):
    """A pickle names something that vectors do not need."""


class _Reader(pickle.Unpickler):
    """Makes records, and data of Python's own."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED and module.split(".")[0] != "gensim":
            raise _ForeignName(f"{module}.{name}")
        return type("_Record", (_Record,), {"name": name})


def read_keyed_vectors(path: Path) -> FastTextFile:
    """Read what `save` of vectors or of a model wrote, with the n-grams of fastText's."""
    inside = ""
    with open_bytes(path) as file:
        try:
            content = dict(_Reader(file).load().state)
            if isinstance(content.get("wv"), _Record):  # a model
                inside, content = ".wv", dict(content["wv"].state)
            words = [str(word) for word in next(content[name] for name in WORDS if name in content)]
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
    arrays |= {name: _array_beside(path, f"{inside}.{name}".removeprefix(".")) for name in names if name in beside}
    own, pieces = arrays.get("vectors_vocab"), arrays.get("vectors_ngrams")
    subwords = None
    if own is not None and pieces is not None and len(pieces):
        subwords = Subwords(pieces, int(content["min_n"]), int(content["max_n"]), len(pieces))
        vectors: Any = own
    else:
        vectors = next((arrays[name] for name in VECTORS if name in arrays), own)
    if vectors is None or vectors.dtype.kind != "f" or vectors.ndim != 2 or len(vectors) < len(words):
        raise ValueError(f"{path} has no array with a vector for each word. {_HINT}")
    return FastTextFile(words, vectors, subwords)


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
