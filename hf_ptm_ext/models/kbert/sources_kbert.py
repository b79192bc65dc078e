"""Texts as tokens, in two ways, with the place in the text that every token comes from.

    WordPieces    the tokenizer's own tokens: Chinese by characters, other scripts by words in pieces
    Characters    every character a token, as the original project has it

Both give flat ids, and spans and words of tokens on demand.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from .injection_kbert import bounds_of
from .matcher_kbert import Match, is_spaced

Span = tuple[int, int]
_UNSEEN, _NONE = -2, -1


def join_words(words: Sequence[str], blanks: bool = True) -> tuple[str, list[int]]:
    """Write the words of a text together, with a blank where two letters of a script with spaces would meet.

    Args:
        words: the words.
        blanks: whether blanks are put in at all.

    Returns:
        The text, and where each word begins in it.

    Example:
        >>> join_words(["New", "York", "(", "纽", "约", ")"])
        ('New York(纽约)', [0, 4, 8, 9, 10, 11])
    """
    if not blanks:
        return "".join(words), list(accumulate((len(word) for word in words), initial=0))[:-1]
    parts: list[str] = []
    begins: list[int] = []
    length, spaced = 0, False
    for word in words:
        if word:
            if spaced and is_spaced(word[0]):
                parts.append(" ")
                length += 1
            spaced = is_spaced(word[-1])
        begins.append(length)
        parts.append(word)
        length += len(word)
    return "".join(parts), begins


class Source(ABC):
    """Tokens of many texts.

    Attributes:
        ids: `(num_tokens,)`, all texts one after another.
        bounds: text `t` is tokens `bounds[t]` to `bounds[t + 1]`.
    """

    ids: np.ndarray
    bounds: np.ndarray

    @abstractmethod
    def place(self, matches: Sequence[Sequence[Match]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Put words on tokens.

        Args:
            matches: (begin, end, number) in characters, of each text.

        Returns:
            First token, last token and number of each word that begins and ends with a token.
        """

    @abstractmethod
    def spans(self, tokens: np.ndarray) -> list[Span]:
        """Begin and end of tokens in their text, or in their word if the text came as words.

        Args:
            tokens: their numbers, ascending; none is negative.

        Returns:
            A pair each.
        """

    @abstractmethod
    def words(self, tokens: np.ndarray) -> list[int]:
        """The number of the word of each token, within its text.

        Args:
            tokens: as in `spans`.

        Returns:
            The numbers.
        """

    @abstractmethod
    def sequences(self, tokens: np.ndarray) -> list[int | None]:
        """Whether tokens are of the first (0) or second (1) text of a pair.

        Args:
            tokens: as in `spans`.

        Returns:
            0 or 1 each, `None` for a tag that is in neither.
        """


class WordPieces(Source):
    """Tokens of a fast tokenizer.

    Args:
        encodings: of each text, without special tokens.
        second: which of the texts are second ones of pairs.
        word_begins: where each word begins in the text that was searched, if the texts came as words.
    """

    def __init__(
        self, encodings: Sequence[Any], second: Sequence[bool], word_begins: Sequence[list[int]] | None = None
    ):
        self._encodings, self._second, self._word_begins = encodings, second, word_begins
        rows = [encoding.ids for encoding in encodings]
        self.bounds = bounds_of(np.array([len(row) for row in rows], dtype=np.int64))
        self.ids = np.array([token for row in rows for token in row], dtype=np.int64)

    def place(self, matches: Sequence[Sequence[Match]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        first, last, numbers = [], [], []
        bounds = self.bounds.tolist()
        for text, found in enumerate(matches):
            if not found:
                continue
            places = self._place_words if self._word_begins is not None else self._place_text
            for begin, end, number in places(text, found):
                first.append(bounds[text] + begin)
                last.append(bounds[text] + end)
                numbers.append(number)
        return np.array(first, dtype=np.int64), np.array(last, dtype=np.int64), numbers

    def _place_text(self, text: int, found: Sequence[Match]) -> list[Match]:
        encoding = self._encodings[text]
        placed = []
        for begin, end, number in found:
            low, high = encoding.char_to_token(begin), encoding.char_to_token(end - 1)
            if low is None or high is None:
                continue
            if encoding.token_to_chars(low)[0] >= begin and encoding.token_to_chars(high)[1] <= end:
                placed.append((low, high, number))
        return placed

    def _place_words(self, text: int, found: Sequence[Match]) -> list[Match]:
        encoding, word_begins = self._encodings[text], self._word_begins[text]  # type: ignore[index]
        shifts = [word_begins[word] for word in encoding.word_ids]
        offsets = encoding.offsets
        begins = np.array([shift + begin for shift, (begin, _) in zip(shifts, offsets, strict=True)])
        ends = np.array([shift + end for shift, (_, end) in zip(shifts, offsets, strict=True)])
        placed = []
        for begin, end, number in found:
            low, high = int(np.searchsorted(begins, begin)), int(np.searchsorted(begins, end)) - 1
            if low <= high and ends[high] <= end and (low == 0 or ends[low - 1] <= begin):
                placed.append((low, high, number))
        return placed

    def _collect(self, tokens: np.ndarray, attribute: str) -> list[Any]:
        collected: list[Any] = []
        texts = np.searchsorted(self.bounds, tokens, side="right") - 1
        for text in dict.fromkeys(texts.tolist()):
            values = getattr(self._encodings[text], attribute)
            collected += [values[token] for token in (tokens[texts == text] - self.bounds[text]).tolist()]
        return collected

    def spans(self, tokens: np.ndarray) -> list[Span]:
        return self._collect(tokens, "offsets")

    def words(self, tokens: np.ndarray) -> list[int]:
        return self._collect(tokens, "word_ids")

    def sequences(self, tokens: np.ndarray) -> list[int | None]:
        texts = np.searchsorted(self.bounds, tokens, side="right") - 1
        return [int(self._second[text]) for text in texts.tolist()]


class CharacterTable:
    """Which id a character has; looked up once.

    Args:
        resolve: the id of a character, or -1 if it is no token.
    """

    def __init__(self, resolve: Callable[[str], int]):
        self._resolve = resolve
        self._ids = np.full(0x110000, _UNSEEN, dtype=np.int32)

    def __call__(self, text: str) -> np.ndarray:
        """Look up every character of a text.

        Args:
            text: any text.

        Returns:
            `(len(text),)` ids.
        """
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ids = self._ids[points]
        unseen = ids == _UNSEEN
        if unseen.any():
            for point in np.unique(points[unseen]).tolist():
                self._ids[point] = self._resolve(chr(point))
            ids = self._ids[points]
        return ids.astype(np.int64)


class Characters(Source):
    """Every character a token, apart from blanks; tags one token each.

    Args:
        texts: the texts that are searched.
        table: ids of characters.
        tags: (begin, end, id) of the tags in each text.
        second: which of the texts are second ones of pairs.
        word_begins: where each word begins, if the texts came as words.
        parts: for texts that are two in one, (begin of the first, its end, begin of the second, its end).
    """

    def __init__(
        self,
        texts: Sequence[str],
        table: CharacterTable,
        tags: Sequence[Sequence[Match]],
        second: Sequence[bool],
        word_begins: Sequence[list[int]] | None = None,
        parts: Sequence[tuple[int, int, int, int]] | None = None,
    ):
        self._second, self._word_begins, self._parts = second, word_begins, parts
        self._text_bounds = bounds_of(np.array([len(text) for text in texts], dtype=np.int64))
        ids = table("".join(texts))
        ends = np.arange(1, len(ids) + 1)
        for start, found in zip(self._text_bounds.tolist(), tags, strict=False):
            for begin, end, tag in found:
                ids[start + begin : start + end] = _NONE
                ids[start + begin] = tag
                ends[start + begin] = start + end
        is_token = ids != _NONE
        self._token_before = bounds_of(is_token.astype(np.int64))
        self.bounds = self._token_before[self._text_bounds]
        self.ids = ids[is_token]
        self._begins, self._ends = np.flatnonzero(is_token), ends[is_token]

    def is_outside(self) -> np.ndarray:
        """Which tokens are in neither of the two texts in one, `(num_tokens,)`."""
        texts = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        begins = self._begins - self._text_bounds[texts]
        parts = np.array(self._parts, dtype=np.int64).reshape(-1, 4)[texts]
        return ~(
            ((parts[:, 0] <= begins) & (begins < parts[:, 1])) | ((parts[:, 2] <= begins) & (begins < parts[:, 3]))
        )

    def place(self, matches: Sequence[Sequence[Match]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        begins, ends, numbers = [], [], []
        for start, found in zip(self._text_bounds.tolist(), matches, strict=False):
            for begin, end, number in found:
                begins.append(start + begin)
                ends.append(start + end)
                numbers.append(number)
        first = self._token_before[np.array(begins, dtype=np.int64)]
        last = self._token_before[np.array(ends, dtype=np.int64)] - 1
        if (some := first <= last).all():
            return first, last, numbers
        return first[some], last[some], [number for number, there in zip(numbers, some.tolist(), strict=True) if there]

    def _texts_of(self, tokens: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.bounds, tokens, side="right") - 1

    def _places(self, tokens: np.ndarray) -> list[tuple[int, int, int]]:
        """(text, begin, end) of each, in characters of the text that was searched."""
        texts = self._texts_of(tokens)
        starts = self._text_bounds[texts]
        return list(
            zip(
                texts.tolist(),
                (self._begins[tokens] - starts).tolist(),
                (self._ends[tokens] - starts).tolist(),
                strict=True,
            )
        )

    def _shift(self, text: int, begin: int) -> int:
        """Where the text, or the part of it, begins that a place is in."""
        if self._parts is None:
            return 0
        first, first_end, second, second_end = self._parts[text]
        return second if second <= begin < second_end else first if first <= begin < first_end else 0

    def spans(self, tokens: np.ndarray) -> list[Span]:
        spans = []
        for (text, begin, end), word in zip(self._places(tokens), self.words(tokens), strict=True):
            shift = self._shift(text, begin) if self._word_begins is None else self._word_begins[text][word]
            spans.append((begin - shift, end - shift))
        return spans

    def words(self, tokens: np.ndarray) -> list[int]:
        if self._word_begins is None:
            # Every token is a word; of two texts in one, each counts its own.
            first = self._token_before[
                [self._text_bounds[text] + self._shift(text, begin) for text, begin, _ in self._places(tokens)]
            ]
            return (tokens - first).tolist()
        begins = {text: np.array(self._word_begins[text]) for text in set(self._texts_of(tokens).tolist())}
        return [int(np.searchsorted(begins[text], begin, side="right")) - 1 for text, begin, _ in self._places(tokens)]

    def sequences(self, tokens: np.ndarray) -> list[int | None]:
        sequences: list[int | None] = []
        for text, begin, _ in self._places(tokens):
            if self._parts is None:
                sequences.append(int(self._second[text]))
                continue
            first, first_end, second, second_end = self._parts[text]
            inside_first, inside_second = first <= begin < first_end, second <= begin < second_end
            sequences.append(0 if inside_first else 1 if inside_second else None)
        return sequences


__all__ = ["CharacterTable", "Characters", "Source", "WordPieces", "join_words"]
