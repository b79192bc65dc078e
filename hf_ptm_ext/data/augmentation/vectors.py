"""Words that are near in a table of word vectors."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import iter_lines
from .keyed_vectors import read_keyed_vectors

# TinyBERT's script reads no more of GloVe, whose words are sorted by frequency.
MAX_WORDS = 100_000
TEXT_SUFFIXES = (".txt", ".vec")


class WordVectors:
    """Nearest neighbours by cosine.

    Args:
        words: the words, by frequency.
        vectors: `(words, width)`.
        max_words: how many of the first ones are kept (default: 100,000, as TinyBERT's script).

    Raises:
        ValueError: other numbers of words and vectors, or none.

    Example:
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
        """Take gensim's `KeyedVectors`, or anything like it.

        Args:
            vectors: has `index_to_key` and `vectors`, or is a `WordVectors`.
            max_words: as the class.

        Raises:
            TypeError: it is neither.
        """
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
        """The nearest words, the word itself left out.

        Args:
            word: as it is in the table; the neighbours of one in title case are given in title case, as by TinyBERT's
                script.
            number: how many.

        Returns:
            The words, nearest first; none if the table has no such word.
        """
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
        path: a `.txt` or `.vec` file (gzipped too), `.bin`, or what `KeyedVectors.save` wrote.
        max_words: how many of the first ones are read.
        encoding: of a text file.

    Returns:
        The vectors.

    Raises:
        ImportError: gensim is needed and not installed.
        FileNotFoundError: there is no such file.
        ValueError: a line of another width, a value that is no number, or a pickle of more than vectors.
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


__all__ = ["MAX_WORDS", "WordVectors", "load_word_vectors"]
