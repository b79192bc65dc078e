"""fastText's n-grams: which rows of a table of buckets a word is made of (Bojanowski et al. 2017).

A word is framed as `<word>`; its n-grams are runs of `min_n` to `max_n` characters, single frame marks left out, in
the order of their start, then their length. Each is hashed (32-bit FNV-1a over bytes taken as signed) into a bucket.
The sentence end `</s>` has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SENTENCE_END = "</s>"
_OFFSET, _PRIME = np.uint32(2166136261), np.uint32(16777619)


@dataclass
class Subwords:
    """The n-grams of a fastText model.

    Args:
        table: `(buckets, width)`, a row for each bucket, or for each that was kept.
        min_n: Fewest characters of an n-gram.
        max_n: Most.
        buckets: How many buckets n-grams are hashed to; the rows of `table` where none were pruned.
        kept: Bucket -> row of `table` in a pruned model.

    Examples:
        >>> Subwords(np.zeros((150, 2)), min_n=3, max_n=4, buckets=150).ngrams("king")
        ['<ki', '<kin', 'kin', 'king', 'ing', 'ing>', 'ng>']
    """

    table: Any
    min_n: int
    max_n: int
    buckets: int
    kept: dict[int, int] | None = None

    def ngrams(self, word: str, begins: bool = True, ends: bool = True) -> list[str]:
        """The n-grams of a word, none of the sentence's end; of a part of one that does not begin or end it."""
        text = f"{'<' * begins}{word}{'>' * ends}"
        marks = {0} if begins else set()
        marks |= {len(text) - 1} if ends else set()
        return [
            text[start : start + size]
            for start in range(0 if word != SENTENCE_END else len(text), len(text))
            for size in range(max(1, self.min_n), min(self.max_n, len(text) - start) + 1)
            if size > 1 or start not in marks
        ]

    def rows(self, word: str, begins: bool = True, ends: bool = True) -> list[int]:
        """Their rows of `table`."""
        places = (hashed(self.ngrams(word, begins, ends)) % self.buckets).tolist() if self.buckets else []
        return places if self.kept is None else [self.kept[place] for place in places if place in self.kept]

    def add_to(self, own: np.ndarray, words: Sequence[str], lengths: int = 1) -> np.ndarray:
        """The vectors of words: means of their own rows `(words, width)` and of those of their n-grams.

        Args:
            own: Vectors of the words; zeros of words without a row.
            words: The words.
            lengths: How many rows each of them has in `own`: 1, or 0 of words that are not in the vocabulary.
        """
        rows = [self.rows(word) for word in words]
        counts = np.array([len(found) for found in rows])
        found = np.array(own, dtype=np.float32)
        flat = np.array([row for each in rows for row in each], dtype=np.int64)
        having = np.flatnonzero(counts)
        if len(flat):
            starts = np.concatenate([[0], np.cumsum(counts[having])[:-1]])
            found[having] += np.add.reduceat(np.asarray(self.table[flat], dtype=np.float32), starts, axis=0)
        return (found / np.maximum(counts + lengths, 1)[:, None]).astype(np.float32)


def hashed(pieces: Sequence[str]) -> np.ndarray:
    """32-bit FNV-1a of texts in UTF-8, each byte taken as signed, as fastText does."""
    raw = [piece.encode() for piece in pieces]
    lengths = np.array([len(each) for each in raw], dtype=np.int64)
    values = np.full(len(raw), _OFFSET, dtype=np.uint32)
    if not len(raw):
        return values
    padded = np.zeros((len(raw), int(lengths.max())), dtype=np.int8)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.frombuffer(b"".join(raw), dtype=np.int8)
    signed = padded.astype(np.int32).view(np.uint32)
    for place in range(padded.shape[1]):
        values = np.where(place < lengths, (values ^ signed[:, place]) * _PRIME, values)
    return values
