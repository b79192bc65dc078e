"""ZEN's lexicon of n-grams and what of it occurs in a row of tokens (Diao et al. 2019, section 2.1; sinovation/ZEN).

The lexicon is a text file, `ngram.txt`, one `n-gram,frequency` a line; the id of an n-gram is the number of its line,
from 1, and 0 is padding. An n-gram is found where its tokens stand one after the other: every window of 2 to 7 tokens
is looked up, so matches overlap, and one may be inside another.
"""

import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .texts_zen import text_lines

LEXICON_FILE = "ngram.txt"
SHORTEST, LONGEST = 2, 7


class NgramMatch(NamedTuple):
    """An n-gram in a row of tokens."""

    ngram_id: int
    start: int
    length: int


def read_lexicon(path: str | Path, encoding: str = "utf-8") -> list[tuple[str, str]]:
    """Read a lexicon's file.

    Args:
        path: the file.
        encoding: its encoding.

    Returns:
        N-gram and frequency of each line, as they are written there.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is of another encoding, has no line, or has one that is not `n-gram,frequency`; the message
            names the line. None is skipped, since that would move all ids behind it.
    """
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
    """What the file of a lexicon holds.

    Args:
        entries: n-gram and frequency of each line.

    Returns:
        The text.

    Example:
        >>> lexicon_text([("提高", "3"), ("高速公路", "2")])
        '提高,3\\n高速公路,2\\n'
    """
    return "".join(f"{ngram},{frequency}\n" for ngram, frequency in entries)


class NgramIndex:
    """Finds the n-grams of a lexicon in token ids.

    Args:
        entries: the token ids of each n-gram, in the order of the lexicon; of equal ones the last counts, as in the
            reference code.

    Example:
        >>> index = NgramIndex([[5, 6], [6, 7, 8], [5, 6, 7]])
        >>> [tuple(match) for match in index.find([2, 5, 6, 7, 8, 3])]
        [(1, 1, 2), (3, 1, 3), (2, 2, 3)]
    """

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
        """All n-grams in a row, shorter ones first, then from left to right, as the reference finds them.

        Args:
            tokens: token ids.

        Returns:
            The matches.
        """
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
    """At most so many of the n-grams of a row.

    Args:
        matches: as `NgramIndex.find` gives them.
        most: how many are kept.
        seed: `None` keeps the first ones, that is the shortest; a number draws them, as the reference does, the same
            ones for the same row.
        tokens: the row.

    Returns:
        The kept ones; drawn ones in the order in which they were drawn.
    """
    if seed is None or not matches:
        return matches[:most]
    drawn = list(matches)
    random.Random(f"{seed} {list(tokens)}").shuffle(drawn)
    return drawn[:most]


def proportional_limit(num_tokens: int, max_length: int, most: int) -> int:
    """How many n-grams the reference's fine-tuning keeps of a row: as many as its share of the longest row.

    Args:
        num_tokens: tokens of the row.
        max_length: tokens of the longest row.
        most: n-grams of a row of that length.

    Returns:
        ceil(num_tokens / max_length * most).

    Example:
        >>> proportional_limit(40, 128, 128), proportional_limit(1, 128, 20)
        (40, 1)
    """
    return math.ceil((num_tokens / max_length) * most)
