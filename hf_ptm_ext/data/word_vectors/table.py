"""A table of word vectors: look-up, what is near, files."""

import hashlib
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...files import file_aside
from ...hints import did_you_mean
from .fasttext import FastTextFile
from .files import Asked, read_vectors, write_safetensors
from .measures import AnalogyScores, SimilarityScore, analogy_scores, similarity_score
from .subwords import Subwords

OOV = ("subword", "zero", "mean", "normal", "nan", "error")
# TinyBERT's script reads no more of GloVe, whose words are sorted by frequency.
MAX_WORDS = 100_000
_CHUNK = 10_000  # words whose n-grams are gathered at once


class WordVectors:
    """Word vectors, with fastText's n-grams for words that are not among them.

    Args:
        words: The words, by frequency.
        vectors: `(words, width)`; of fastText the words' own rows, without their n-grams.
        max_words: How many of the first ones are kept (default: all).
        subwords: The n-grams of a fastText model.

    Raises:
        ValueError: there is not a vector for each word.

    Examples:
        >>> vectors = WordVectors(["good", "fine", "table"], [[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]])
        >>> vectors.nearest("good", 1), vectors.nearest("Good", 1), vectors.nearest("unknown", 1)
        (['fine'], [], [])
        >>> vectors.vector("fine").tolist(), vectors.vectors(["fine", "unknown"], oov="zero").shape
        ([1.0, 0.0], (2, 2))
    """

    def __init__(
        self, words: Sequence[str], vectors: Any, max_words: int | None = None, subwords: Subwords | None = None
    ):
        own = np.asarray(vectors, dtype=np.float32)
        if own.ndim != 2 or len(words) != len(own) or not len(own):
            raise ValueError(
                f"`vectors` must be (words, width) for the {len(words)} `words`, at least one, got {own.shape}."
            )
        if max_words is not None and max_words < 1:
            raise ValueError(f"`max_words` must be at least 1, got {max_words}.")
        self.words = list(words[:max_words])
        self.index = dict(zip(self.words, range(len(self.words)), strict=True))
        if len(self.index) < len(self.words):  # of a word that is there twice, the first
            self.index = {word: number for number, word in reversed(list(enumerate(self.words)))}
        self.own, self.subwords = own[:max_words], subwords
        self._forget()

    def _forget(self) -> None:
        self._table: np.ndarray | None = None if self.subwords is not None else self.own
        self._unit: np.ndarray | None = None
        self._known: dict[tuple[str, int], list[str]] = {}

    @classmethod
    def load(
        cls,
        path: str | Path,
        format: str = "auto",
        *,
        limit: int | None = None,
        encoding: str = "utf-8",
        errors: str = "strict",
        restrict_to: Set[str] | None = None,
    ) -> "WordVectors":
        """Read a file of word vectors, packed or not (`.gz`, `.bz2`, `.xz`, `.zip`); nothing in it is executed.

        Args:
            path: Of word2vec (text and binary), GloVe (text; binary with `vocab.txt` beside it), fastText (`.bin`,
                quantised `.ftz`, `.vec`), gensim (`save` of vectors or of a model) or `save` of this class.
            format: One of `FORMATS`; told by the beginning of the file by default.
            limit: How many of the first words are read.
            encoding: Of the words.
            errors: What becomes of words that are not in it: "strict", "ignore" or "replace".
            restrict_to: Only these words are kept.

        Raises:
            ValueError: the file is damaged or cut off (file and line are named), or has none of the words.
        """
        found = read_vectors(Path(path), format, Asked(limit, restrict_to, encoding, errors))
        return cls(found.words, found.own, subwords=found.subwords)

    @classmethod
    def of(cls, vectors: Any, max_words: int | None = None) -> "WordVectors":
        """Take gensim's `KeyedVectors`, or anything like it, with the n-grams of fastText's."""
        if isinstance(vectors, cls):
            return vectors
        if not hasattr(vectors, "index_to_key") or not hasattr(vectors, "vectors"):
            raise TypeError(f"`vectors` must be WordVectors or gensim's KeyedVectors, got {type(vectors).__name__}.")
        pieces, subwords, own = getattr(vectors, "vectors_ngrams", None), None, vectors.vectors
        if pieces is not None and len(pieces):
            subwords = Subwords(pieces, vectors.min_n, vectors.max_n, len(pieces))
            own = vectors.vectors_vocab
        return cls(vectors.index_to_key, own, max_words, subwords)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with words, vectors and n-grams."""
        with file_aside(Path(path)) as aside:
            write_safetensors(aside, FastTextFile(self.words, self.own, self.subwords))

    def to_word2vec(self, path: str | Path, binary: bool = False) -> None:
        """Write word2vec's text or binary, the words with their n-grams in them."""
        wrong = next((word for word in self.words if not word or {" ", "\n"} & set(word)), None)
        if wrong is not None:
            raise ValueError(f"word2vec's files cannot hold the word {wrong!r}. Use `save`.")
        with file_aside(Path(path)) as aside, aside.open("wb") as file:
            file.write(f"{len(self.words)} {self.width}\n".encode())
            for word, row in zip(self.words, self.table, strict=True):
                body = row.astype("<f4").tobytes() if binary else " ".join(map(str, row)).encode()
                file.write(word.encode() + b" " + body + b"\n")

    # ---- look-up ----

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self.own.shape[1])

    @property
    def table(self) -> np.ndarray:
        """The vectors of all words, `(words, width)`; of fastText composed when first asked for."""
        if self._table is None:
            subwords = cast(Subwords, self.subwords)
            parts = range(0, len(self.words), _CHUNK)
            composed = [
                subwords.add_to(self.own[start : start + _CHUNK], self.words[start : start + _CHUNK])
                for start in parts
            ]
            self._table = np.concatenate(composed)
        return self._table

    @property
    def unit_table(self) -> np.ndarray:
        """The same at length 1."""
        if self._unit is None:
            self._unit = self.table / np.maximum(np.linalg.norm(self.table, axis=1, keepdims=True), 1e-12)
        return self._unit

    def __getstate__(self) -> dict[str, Any]:
        """Nothing of what was computed so far: what is pickled is the same before and after use."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> np.ndarray:
        """As `vector`."""
        return self.vector(word)

    def vector(self, word: str) -> np.ndarray:
        """A word's vector, `(width,)`, of an unknown one fastText's; a KeyError without n-grams."""
        place = self.index.get(word)
        if place is not None:
            if self._table is not None:
                return np.array(self._table[place])
            return np.asarray(cast(Subwords, self.subwords).add_to(self.own[place : place + 1], [word])[0])
        if self.subwords is None or not self.subwords.rows(word):
            raise KeyError(f"There is no vector for {word!r}.{did_you_mean(word, self.words[:MAX_WORDS])}")
        return np.asarray(self.subwords.add_to(np.zeros((1, self.width)), [word], lengths=0)[0])

    def vectors(self, words: Iterable[str], oov: str | None = None, seed: int = 0) -> np.ndarray:
        """The vectors of words, `(words, width)`.

        Args:
            words: The words.
            oov: Of a word without a vector: "subword" (fastText's n-grams; zero where it has none), "zero", "mean" (of
                all vectors), "normal" (drawn with their mean and deviation), "nan", or "error". Default: "subword"
                of fastText, else "error".
            seed: Of "normal".
        """
        chosen = oov or ("error" if self.subwords is None else "subword")
        if chosen not in OOV or (chosen == "subword" and self.subwords is None):
            known = OOV[self.subwords is None :]
            raise ValueError(f"`oov` must be one of {', '.join(known)} for these vectors, got {chosen!r}.")
        asked = list(words)
        places = np.array([self.index.get(word, -1) for word in asked], dtype=np.int64)
        found = np.array(self.table[places]) if len(self) else np.zeros((len(asked), self.width), np.float32)
        missing = np.flatnonzero(places < 0)
        if len(missing) and chosen == "error":
            word = asked[missing[0]]
            raise KeyError(f"There is no vector for {word!r}.{did_you_mean(word, self.words[:MAX_WORDS])}")
        if chosen == "subword":
            lost = [asked[place] for place in missing]
            found[missing] = cast(Subwords, self.subwords).add_to(np.zeros((len(lost), self.width)), lost, lengths=0)
        elif len(missing):
            fills = {"zero": 0.0, "nan": np.nan, "mean": self.table.mean(axis=0)}
            if chosen == "normal":
                draw = np.random.default_rng(seed).normal(size=(len(missing), self.width))
                fills["normal"] = self.table.mean(axis=0) + draw * self.table.std(axis=0)
            found[missing] = fills[chosen]
        return found

    def fingerprint(self) -> str:
        """A digest of words and vectors."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.table).tobytes(), digest_size=16)
        digest.update(repr(self.words).encode())
        return digest.hexdigest()

    # ---- what is near ----

    def nearest(self, word: str, number: int) -> list[str]:
        """The nearest words, itself left out; none for an unknown word, in title case for one in title case."""
        key = (word, number)
        if key not in self._known:
            found = [each for each, _ in self.most_similar(word, topn=number)] if word in self else []
            self._known[key] = [each.title() for each in found] if word.istitle() else found
        return self._known[key]

    def most_similar(
        self, positive: str | Sequence[str], negative: str | Sequence[str] = (), topn: int = 10
    ) -> list[tuple[str, float]]:
        """The words nearest to the sum of unit vectors less others, those named left out, with their cosines.

        Examples:
            >>> vectors = WordVectors(["a", "b", "c"], [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
            >>> vectors.most_similar("a", topn=1)[0][0]
            'b'
        """
        plus = [positive] if isinstance(positive, str) else list(positive)
        minus = [negative] if isinstance(negative, str) else list(negative)
        if not plus + minus:
            raise ValueError(f"`positive` must have at least one word, got {positive!r}.")
        rows = np.stack([self.vector(word) for word in plus + minus])
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        target = np.array([1.0] * len(plus) + [-1.0] * len(minus)) @ rows
        cosines = self.unit_table @ (target / max(float(np.linalg.norm(target)), 1e-12)).astype(np.float32)
        named = [self.index[word] for word in plus + minus if word in self.index]
        cosines[named] = -np.inf
        number = max(0, min(topn, len(self) - len(set(named))))
        order = np.lexsort((np.arange(len(cosines)), -cosines))[:number]
        return [(self.words[place], float(cosines[place])) for place in order]

    def evaluate_analogies(
        self, path: str | Path, *, restrict_vocab: int | None = 300_000, case: str = "lower"
    ) -> AnalogyScores:
        """Answer `a b c d` lines (is `d` the word nearest to b - a + c?) in the sections of `: name` lines.

        Args:
            path: Such as word2vec's `questions-words.txt`.
            restrict_vocab: Only so many of the first words are answers (default: 300,000, as gensim).
            case: "lower" takes words whatever their case, "exact" as they are.
        """
        return analogy_scores(self.words, self.unit_table, Path(path), restrict_vocab, case)

    def evaluate_similarity(self, path: str | Path, *, case: str = "lower") -> SimilarityScore:
        """Compare cosines with people's scores of `word<TAB>word<TAB>score` lines, such as WordSim-353's.

        Args:
            path: The file; blanks or commas in the place of tabs are taken too.
            case: As of `evaluate_analogies`.
        """
        return similarity_score(self, Path(path), case)


def load_word_vectors(path: str | Path, max_words: int | None = MAX_WORDS, *, encoding: str = "utf-8") -> WordVectors:
    """Read the first 100,000 words of a file (`WordVectors.load` has all options)."""
    return WordVectors.load(path, limit=max_words, encoding=encoding)
