"""ZEN's lexicon of n-grams, a file of `n-gram,frequency` lines, and what of it occurs in a row of tokens.

The id of an n-gram is the number of its line, from 1. Every window of 2 to 7 tokens is looked up, so matches overlap.
"""

import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .texts_core import text_lines

LEXICON_FILE = "ngram.txt"
SHORTEST, LONGEST = 2, 7


class NgramMatch(NamedTuple):
    """An n-gram in a row of tokens."""

    ngram_id: int
    start: int
    length: int


def read_lexicon(path: str | Path, encoding: str = "utf-8") -> list[tuple[str, str]]:
    """Read a lexicon's file."""
    entries = []
    for number, line in enumerate(text_lines(path, "lexicon", encoding), 1):
        ngram, comma, frequency = line.rpartition(",")
        if not comma or not ngram.strip():
            raise ValueError(f"{path}, line {number}: expected `n-gram,frequency`, got {line[:60]!r}.")
        entries.append((ngram, frequency))
    if not entries:
        raise ValueError(f"{path} must have an `n-gram,frequency` in each line, got an empty file.")
    return entries


def lexicon_text(entries: Iterable[tuple[str, str]]) -> str:
    """What the file of a lexicon holds."""
    return "".join(f"{ngram},{frequency}\n" for ngram, frequency in entries)


class NgramIndex:
    """Finds the n-grams of a lexicon in token ids."""

    def __init__(self, entries: Iterable[Sequence[int]]):
        self._ids: dict[tuple[int, ...], int] = {}
        self._lengths: dict[tuple[int, ...], set[int]] = {}
        for number, tokens in enumerate(entries, 1):
            if SHORTEST <= len(tokens) <= LONGEST:
                self._ids[tuple(tokens)] = number
                self._lengths.setdefault(tuple(tokens[:SHORTEST]), set()).add(len(tokens))

    def __len__(self) -> int:
        """Number of different n-grams that can be found."""
        return len(self._ids)

    def find(self, tokens: Sequence[int]) -> list[NgramMatch]:
        """All n-grams in a row, shorter ones first, then from left to right, as the reference finds them."""
        row = tuple(tokens)
        matches = []
        for start in range(len(row) - SHORTEST + 1):
            for length in self._lengths.get(row[start : start + SHORTEST], ()):
                # A window that the end cuts short is a key of another length, or none.
                window = row[start : start + length]
                if len(window) == length and window in self._ids:
                    matches.append(NgramMatch(self._ids[window], start, length))
        return sorted(matches, key=lambda match: (match.length, match.start))


def keep_some(matches: list[NgramMatch], most: int, seed: int | None, tokens: Sequence[int]) -> list[NgramMatch]:
    """At most so many of the n-grams of a row."""
    if seed is None or not matches:
        return matches[:most]
    drawn = list(matches)
    random.Random(f"{seed} {list(tokens)}").shuffle(drawn)
    return drawn[:most]


def proportional_limit(num_tokens: int, max_length: int, most: int) -> int:
    """How many n-grams the reference's fine-tuning keeps of a row: as many as its share of the longest row."""
    return math.ceil((num_tokens / max_length) * most)
