"""The words of a graph in texts (`Lexicon`, `BranchStore`), and texts as tokens (`WordPieces`, `Characters`)."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from .knowledge_graph_kbert import KnowledgeGraph
from .matcher_core import LongestMatcher, Match, fold_case, is_spaced

Span = tuple[int, int]
_UNSEEN, _NONE = -2, -1


def bounds_of(sizes: Any) -> np.ndarray:
    """Where stretches of these sizes begin, and the last one ends."""
    bounds = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


# ---- words of a graph, and what hangs on them ----


class LookupOptions(NamedTuple):
    """Which objects of a word are injected, and how they are written; see `KnowledgeGraph.lookup`."""

    max_entities: int
    use_predicate: bool | frozenset[str]
    predicates: frozenset[str] | None
    separator: str | None


class Lexicon:
    """Finds the subjects of a graph, and tags, in texts."""

    def __init__(
        self,
        graph: KnowledgeGraph | None,
        tags: Sequence[str] = (),
        *,
        ignore_case: bool = False,
        whole_words: bool = True,
        pkuseg_compat: bool = False,
        backend: str = "auto",
    ):
        self.graph = graph
        self.num_tags = len(tags)
        subjects = graph.subjects if graph is not None else []
        self.names = [*tags, *subjects]
        self.ignore_case = ignore_case
        self.matcher = LongestMatcher(
            self.names, ignore_case=ignore_case, whole_words=whole_words, pkuseg_compat=pkuseg_compat, backend=backend
        )
        self.stores: dict[Any, BranchStore] = {}
        self._spellings: dict[str, list[str]] = {}
        if ignore_case:
            for name in subjects:
                self._spellings.setdefault(fold_case(name), []).append(name)

    def find(self, texts: Sequence[str]) -> list[list[Match]]:
        """Find words, and tags as they are written."""
        found = self.matcher.find_all(texts)
        if not self.ignore_case or not self.num_tags:
            return found
        tags, names = self.num_tags, self.names
        return [
            [match for match in matches if match[2] >= tags or text[match[0] : match[1]] == names[match[2]]]
            for text, matches in zip(texts, found, strict=True)
        ]

    def lookup(self, number: int, options: LookupOptions) -> list[str]:
        """What is injected for a word."""
        if self.graph is None:
            return []
        name = self.names[number]
        spellings = self._spellings.get(fold_case(name), [name]) if self.ignore_case else [name]
        found: dict[str, None] = {}
        for spelling in spellings:
            found |= dict.fromkeys(self.graph.lookup(spelling, **options._asdict()))
        return list(found)[: options.max_entities]


class BranchStore:
    """Branches of the words that were met so far, as tokens, in flat arrays that grow."""

    def __init__(self, lexicon: Lexicon, options: LookupOptions, tokenize: Callable[[list[str]], list[Sequence[int]]]):
        if lexicon.graph is not None:
            if options.predicates is not None:
                lexicon.graph.check_predicates(options.predicates)
            if isinstance(options.use_predicate, frozenset) and options.use_predicate:
                lexicon.graph.check_predicates(options.use_predicate, "use_predicate")
        self.lexicon, self.options, self._tokenize = lexicon, options, tokenize
        self._rows: dict[int, int] = {}
        self.word_bounds = np.zeros(1, dtype=np.int64)
        self.branch_bounds = np.zeros(1, dtype=np.int64)
        self.ids = np.zeros(0, dtype=np.int64)

    def rows(self, numbers: Collection[int]) -> np.ndarray:
        """Look words up."""
        rows = self._rows
        new = [number for number in dict.fromkeys(numbers) if number not in rows]
        if new:
            self._add(new)
        return np.array([rows[number] for number in numbers], dtype=np.int64)

    def _add(self, numbers: list[int]) -> None:
        texts = [self.lexicon.lookup(number, self.options) for number in numbers]
        tokens = iter(self._tokenize([text for of_word in texts for text in of_word]))
        words = [[branch for branch in (next(tokens) for _ in of_word) if len(branch)] for of_word in texts]
        branches = [branch for of_word in words for branch in of_word]
        for number in numbers:
            self._rows[number] = len(self._rows)
        self.word_bounds = _extended(self.word_bounds, [len(of_word) for of_word in words])
        self.branch_bounds = _extended(self.branch_bounds, [len(branch) for branch in branches])
        ids = np.array([token for branch in branches for token in branch], dtype=np.int64)
        self.ids = np.concatenate([self.ids, ids])


def _extended(bounds: np.ndarray, sizes: list[int]) -> np.ndarray:
    return np.concatenate([bounds, bounds[-1] + bounds_of(sizes)[1:]])


# ---- texts as tokens, with the place that every token comes from ----


class Row(NamedTuple):
    """One text, or two, as strings or lists of words."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Texts:
    """The texts of rows as they are `searched`, and `given`; where words begin in each, if they came as words.

    `parts` are (begin, end, begin, end) of the first and second text of a row in each, `of_row` the numbers of the
    texts of each row, -1 for no second one.
    """

    searched: list[str]
    given: list[Any]
    word_begins: list[list[int]] | None
    parts: list[tuple[int, int, int, int]]
    of_row: list[tuple[int, int]]


def separate_texts(rows: Sequence[Row], split: bool) -> Texts:
    """The texts of rows one by one: all first ones, then all second ones."""
    given = [row.first for row in rows]
    of_row = []
    for number, row in enumerate(rows):
        of_row.append((number, -1 if row.second is None else len(given)))
        if row.second is not None:
            given.append(row.second)
    joined = [join_words(words) for words in given] if split else []
    searched = [text for text, _ in joined] if split else given
    begins = [begins for _, begins in joined] if split else None
    ends = [len(text) for text in searched]
    parts = [(0, end, 0, 0) for end in ends[: len(rows)]] + [(0, 0, 0, end) for end in ends[len(rows) :]]
    return Texts(searched, given, begins, parts, of_row)


def framed_texts(rows: Sequence[Row], split: bool, cls: str, sep: str) -> Texts:
    """The texts of rows as the original project reads them: tags written into the text, two texts in one."""
    searched, parts, word_begins = [], [], []
    for row in rows:
        first, begins = join_words(row.first, blanks=False) if split else (row.first, [])
        text = cls + first
        part = (len(cls), len(text), 0, 0)
        if row.second is not None:
            if split:
                raise ValueError("`is_split_into_words` must come with single texts in a reference style, got pairs.")
            part = (len(cls), len(text), len(text + sep), len(text + sep + row.second))
            text += sep + row.second + sep
        searched.append(text)
        parts.append(part)
        word_begins.append([begin + len(cls) for begin in begins])
    of_row = [(number, -1) for number in range(len(rows))]
    return Texts(searched, searched, word_begins if split else None, parts, of_row)


def join_words(words: Sequence[str], blanks: bool = True) -> tuple[str, list[int]]:
    """Write words together, with a blank where two letters of a script with spaces would meet; and where each begins.

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


class WordPieces:
    """Texts as the tokenizer's own tokens: Chinese by characters, other scripts by words in pieces."""

    def __init__(self, texts: Texts, encodings: Sequence[Any]):
        self._texts, self._encodings = texts, encodings
        rows = [encoding.ids for encoding in encodings]
        self.bounds = bounds_of([len(row) for row in rows])
        self.ids = np.array([token for row in rows for token in row], dtype=np.int64)

    def place(self, matches: Sequence[Sequence[Match]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """First and last token of each word, and its number; without words that begin or end inside a token."""
        places = self._place_text if self._texts.word_begins is None else self._place_words
        placed = [
            (bound + low, bound + high, number)
            for text, (bound, found) in enumerate(zip(self.bounds.tolist(), matches, strict=False))
            if found
            for low, high, number in places(text, found)
        ]
        first, last, numbers = zip(*placed, strict=True) if placed else ((), (), ())
        return np.array(first, dtype=np.int64), np.array(last, dtype=np.int64), list(numbers)

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
        encoding, word_begins = self._encodings[text], self._texts.word_begins[text]  # type: ignore[index]
        shifts = np.array([word_begins[word] for word in encoding.word_ids], dtype=np.int64)
        begins, ends = shifts + np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2).T
        placed = []
        for begin, end, number in found:
            low, high = int(np.searchsorted(begins, begin)), int(np.searchsorted(begins, end)) - 1
            if low <= high and ends[high] <= end and (low == 0 or ends[low - 1] <= begin):
                placed.append((low, high, number))
        return placed

    def describe(self, tokens: np.ndarray) -> list[tuple[Span, int, int | None]]:
        """Of tokens: the place in their text, or in their word if the text came as words; the word; which text."""
        described: list[tuple[Span, int, int | None]] = []
        texts = np.searchsorted(self.bounds, tokens, side="right") - 1
        for text in dict.fromkeys(texts.tolist()):
            encoding, second = self._encodings[text], int(text >= len(self._texts.of_row))
            spans, words = encoding.offsets, encoding.word_ids
            own = (tokens[texts == text] - self.bounds[text]).tolist()
            described += [(spans[token], words[token], second) for token in own]
        return described


class CharacterTable:
    """Which id a character has; looked up once."""

    def __init__(self, resolve: Callable[[str], int]):
        self._resolve = resolve
        self._ids = np.full(0x110000, _UNSEEN, dtype=np.int32)

    def __call__(self, text: str) -> np.ndarray:
        """Look up every character of a text; -1 for one that is no token."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ids = self._ids[points]
        unseen = ids == _UNSEEN
        if unseen.any():
            for point in np.unique(points[unseen]).tolist():
                self._ids[point] = self._resolve(chr(point))
            ids = self._ids[points]
        return ids.astype(np.int64)


class Characters:
    """Texts as characters, apart from blanks, as the original project has them; tags are one token each."""

    def __init__(
        self, texts: Texts, table: CharacterTable, matches: Sequence[Sequence[Match]], tag_ids: Sequence[int]
    ):
        self._word_begins = texts.word_begins
        self._parts = np.array(texts.parts, dtype=np.int64).reshape(-1, 4)
        self.has_second = self._parts[:, 2] > 0  # of two texts in one
        self._text_bounds = bounds_of([len(text) for text in texts.searched])
        ids = table("".join(texts.searched))
        ends = np.arange(1, len(ids) + 1)
        if tag_ids:
            for start, found in zip(self._text_bounds.tolist(), matches, strict=False):
                for begin, end, number in found:
                    if number < len(tag_ids):
                        ids[start + begin : start + end] = _NONE
                        ids[start + begin] = tag_ids[number]
                        ends[start + begin] = start + end
        is_token = ids != _NONE
        self._token_before = bounds_of(is_token.astype(np.int64))
        self.bounds = self._token_before[self._text_bounds]
        self.ids = ids[is_token]
        self._begins, self._ends = np.flatnonzero(is_token), ends[is_token]

    def place(self, matches: Sequence[Sequence[Match]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """First and last token of each word, and its number; without words that are blanks."""
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

    def _sequences(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of tokens: their text; the place in it; 0 or 1 for the first or second text of a pair, -1 for neither."""
        texts = np.searchsorted(self.bounds, tokens, side="right") - 1
        begins = self._begins[tokens] - self._text_bounds[texts]
        first, first_end, second, second_end = self._parts[texts].T
        in_first, in_second = (first <= begins) & (begins < first_end), (second <= begins) & (begins < second_end)
        return texts, begins, np.where(in_first, 0, np.where(in_second, 1, -1))

    def is_outside(self) -> np.ndarray:
        """Which tokens are in neither of the two texts in one, `(num_tokens,)`."""
        return self._sequences(np.arange(len(self.ids)))[2] < 0

    def describe(self, tokens: np.ndarray) -> list[tuple[Span, int, int | None]]:
        """Of tokens: the place in their text, or in their word if the text came as words; the word; which text."""
        texts, begins, sequences = self._sequences(tokens)
        sizes = (self._ends - self._begins)[tokens]
        if self._word_begins is None:
            # Every token is a word; of two texts in one, each counts its own.
            shifts = np.where(sequences == 1, self._parts[texts, 2], self._parts[texts, 0])
            words = tokens - self._token_before[self._text_bounds[texts] + shifts]
        else:
            places = list(zip(texts.tolist(), begins.tolist(), strict=True))
            words = np.array([bisect_right(self._word_begins[text], begin) - 1 for text, begin in places])
            shifts = np.array(
                [self._word_begins[text][word] for (text, _), word in zip(places, words.tolist(), strict=True)]
            )
        spans = zip((begins - shifts).tolist(), (begins - shifts + sizes).tolist(), strict=True)
        return list(zip(spans, words.tolist(), sequences.tolist(), strict=True))
