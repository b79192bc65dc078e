"""Find which of many names occur in a text: exact, leftmost, longest, without overlap, in characters.

Going from left to right, the longest name that begins at the first place where any begins is taken, and the search
goes on behind it. With `whole_words` a name counts only where it cuts no word: "art" is not found in "party". Scripts
that are written without spaces (Chinese, Japanese, Thai, ...) have no words in this sense, so 巴黎 is found anywhere.

The search runs in `ahocorasick-rs` (Aho and Corasick 1975) where that package is installed, else in Python; both find
the same.

`pkuseg_compat` walks as the dictionary of the segmenter pkuseg 0.0.25 does, for results that were made with it. A name
is lost where the text goes on with more of a longer name but not with all of it (苹果 in 苹果公园, beside 苹果公司).
White space, at which that segmenter cuts the text first, ends a walk and is part of no name.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

try:
    import ahocorasick_rs
except ImportError:  # optional: the search in Python finds the same
    ahocorasick_rs = None

BACKENDS = ("auto", "rust", "python")
# Thai to Khmer, and everything East Asian: characters that are a word, or part of one, without spaces around it.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\ua4cf\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_LETTER = re.compile(rf"[^\W{_UNSPACED}]")
_SPACE = re.compile(r"\s")
_PREFIX = 4
_HEAD = 2
_MANY = 1000
_FILLER = "\uffff" * 1000  # U+FFFF is no character

Match = tuple[int, int, int]


def fold_case(text: str) -> str:
    """Lower-case a text without changing its length, so that places in it stay places in the original.

    Args:
        text: any text.

    Returns:
        The text; characters whose lower case is longer stay as they are.

    Example:
        >>> fold_case("İzmir ΟΔΟΣ")
        'İzmir οδοσ'
    """
    if text.isascii():
        return text.lower()
    return "".join(lower if len(lower := char.lower()) == 1 else char for char in text)


def is_spaced(char: str) -> bool:
    """Say whether a character is a letter or digit of a script that is written with spaces.

    Args:
        char: one character.

    Returns:
        Whether it is.

    Example:
        >>> is_spaced("k"), is_spaced("京"), is_spaced("-")
        (True, False, False)
    """
    return _LETTER.match(char) is not None


class CanonicalMatcher:
    """Searches texts for names.

    Args:
        names: the names, not empty; of equal ones the first counts.
        ignore_case: whether upper and lower case are the same.
        whole_words: whether a name must not begin or end inside a word.
        pkuseg_compat: whether to lose names as pkuseg does; takes every name anywhere, as it is written.
        backend: "auto" (the package if it is installed), "rust" or "python".

    Raises:
        ImportError: `backend="rust"` without the package.
        TypeError: a name is not text.
        ValueError: a name is empty, `backend` is none of the three, or `pkuseg_compat` comes with one of the other two
            options.

    Example:
        >>> matcher = CanonicalMatcher(["New York", "New York Times", "巴黎"])
        >>> matcher.find("the New York Times, New Yorkers, 我在巴黎")
        [(4, 18, 1), (35, 37, 2)]
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        ignore_case: bool = False,
        whole_words: bool = True,
        pkuseg_compat: bool = False,
        backend: str = "auto",
    ):
        if backend not in BACKENDS:
            raise ValueError(f"`backend` must be one of {BACKENDS}, got {backend!r}.")
        if backend == "rust" and ahocorasick_rs is None:
            raise ImportError("`backend='rust'` needs ahocorasick-rs: `pip install ahocorasick-rs`, or take 'auto'.")
        if pkuseg_compat and (ignore_case or whole_words):
            raise ValueError(
                "`pkuseg_compat` must come with ignore_case=False and whole_words=False, which pkuseg has."
            )
        self.ignore_case = ignore_case
        self.whole_words = whole_words
        self.pkuseg_compat = pkuseg_compat
        self.backend = "python" if backend == "auto" and ahocorasick_rs is None else backend.replace("auto", "rust")
        self._numbers: dict[str, int] = {}
        for number, name in enumerate(names):
            if not isinstance(name, str):
                raise TypeError(f"`names` must be texts, got {name!r}.")
            if not name:
                raise ValueError(f"`names` must not be empty, got '' as number {number}. Remove it.")
            self._numbers.setdefault(fold_case(name) if ignore_case else name, number)
        self._index: Any = None
        self._walked: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the index, which is built again where it is used."""
        return {**self.__dict__, "_index": None, "_walked": []}

    def __len__(self) -> int:
        """Number of different names."""
        return len(self._numbers)

    def find(self, text: str) -> list[Match]:
        """Search one text.

        Args:
            text: any text.

        Returns:
            (begin, end, number of the name) from left to right, in characters, end exclusive.
        """
        return self.find_all([text])[0]

    def find_all(self, texts: Sequence[str]) -> list[list[Match]]:
        """Search many texts.

        Args:
            texts: any texts.

        Returns:
            The matches of each, as `find` gives them.
        """
        if not self._numbers:
            return [[] for _ in texts]
        if self._index is None:
            self._walked = sorted(self._numbers) if self.pkuseg_compat else []
            self._index = self._build_rust() if self.backend == "rust" else self._build_python()
        if self.ignore_case:
            texts = [fold_case(text) for text in texts]
        in_rust = self.backend == "rust"
        if self.pkuseg_compat:
            longest = self._longest_in_rust if in_rust else self._longest_in_python
            return [self._walk(text, longest(text)) for text in texts]
        find = self._find_in_rust if in_rust else self._find_in_python
        return [find(text) for text in texts]

    def _searched(self) -> list[str]:
        """The names that can be found."""
        return [name for name in self._numbers if not (self.pkuseg_compat and _SPACE.search(name))]

    # ---- with the package ----

    def _build_rust(self) -> tuple[Any, list[int]]:
        kinds = ahocorasick_rs.MatchKind
        kind = kinds.Standard if self.whole_words or self.pkuseg_compat else kinds.LeftmostLongest
        names = self._searched()
        # Where nearly every beginning of a name is a name (item 1, item 2, ... item 12), building takes time by the
        # square of their number over the number of states in front of them; `_FILLER` puts many there.
        filler = [_FILLER] if len(names) > _MANY else []
        # Its choice for few names takes time by the square of the longest one's length to build.
        sort = ahocorasick_rs.Implementation.ContiguousNFA
        index = ahocorasick_rs.AhoCorasick([*filler, *names], matchkind=kind, implementation=sort)
        return index, [-1] * len(filler) + [self._numbers[name] for name in names]

    def _find_in_rust(self, text: str) -> list[Match]:
        index, numbers = self._index
        if not self.whole_words:
            found = [(begin, end, numbers[name]) for name, begin, end in index.find_matches_as_indexes(text)]
            return [match for match in found if match[2] >= 0]
        size = len(text)
        letter = _LETTER.match
        whole = [
            (begin, -end, name)
            for name, begin, end in index.find_matches_as_indexes(text, overlapping=True)
            if numbers[name] >= 0
            and (begin == 0 or not letter(text, begin - 1) or not letter(text, begin))
            and (end == size or not letter(text, end) or not letter(text, end - 1))
        ]
        if len(whole) > 1:
            whole.sort()
        matches, behind = [], 0
        for begin, negative, name in whole:
            if begin >= behind:
                behind = -negative
                matches.append((begin, behind, numbers[name]))
        return matches

    def _longest_in_rust(self, text: str) -> list[Match]:
        """The longest name at each place where one begins."""
        index, numbers = self._index
        longest: dict[int, tuple[int, int]] = {}
        for name, begin, end in index.find_matches_as_indexes(text, overlapping=True):
            if numbers[name] >= 0 and end > longest.get(begin, (0, 0))[0]:
                longest[begin] = (end, numbers[name])
        return [(begin, *longest[begin]) for begin in sorted(longest)]

    # ---- without it ----

    def _build_python(self) -> tuple[frozenset[str], frozenset[str], dict[str, list[int]]]:
        """Beginnings of names; the names of one character; the lengths of the names with the same prefix."""
        names = self._searched()
        lengths: dict[str, set[int]] = {}
        for name in names:
            lengths.setdefault(name[:_PREFIX], set()).add(len(name))
        heads = frozenset(name[:_HEAD] for name in names)
        single = frozenset(name for name in names if len(name) == 1)
        return heads, single, {prefix: sorted(sizes, reverse=True) for prefix, sizes in lengths.items()}

    def _find_in_python(self, text: str) -> list[Match]:
        matches, behind = [], 0
        for begin in self._beginnings(text):
            if begin < behind:
                continue
            end, number = self._longest_at(text, begin)
            if end > begin:
                matches.append((begin, end, number))
                behind = end
        return matches

    def _longest_in_python(self, text: str) -> list[Match]:
        """The longest name at each place where one begins."""
        found = ((begin, *self._longest_at(text, begin)) for begin in self._beginnings(text))
        return [match for match in found if match[1] > match[0]]

    def _beginnings(self, text: str) -> list[int]:
        """Places where a name may begin, by its first characters."""
        heads, single, _ = self._index
        places = [i for i in range(len(text)) if text[i : i + _HEAD] in heads]
        if single:
            places = sorted({*places, *(i for i, char in enumerate(text) if char in single)})
        if not self.whole_words:
            return places
        letter = _LETTER.match
        return [i for i in places if i == 0 or not letter(text, i - 1) or not letter(text, i)]

    def _longest_at(self, text: str, begin: int) -> tuple[int, int]:
        """End and number of the longest name at a place; (begin, -1) if there is none."""
        lengths = self._index[2]
        for size in range(min(_PREFIX, len(text) - begin), 0, -1):
            for length in lengths.get(text[begin : begin + size], ()):
                end = begin + length
                number = self._numbers.get(text[begin:end]) if end <= len(text) else None
                if number is not None and (not self.whole_words or self._ends_whole(text, end)):
                    return end, number
        return begin, -1

    @staticmethod
    def _ends_whole(text: str, end: int) -> bool:
        return end == len(text) or not _LETTER.match(text, end) or not _LETTER.match(text, end - 1)

    # ---- as pkuseg ----

    def _walk(self, text: str, longest: list[Match]) -> list[Match]:
        """Keep the names that pkuseg finds."""
        matches, behind, limit = [], 0, -1
        for begin, end, number in longest:
            if begin < behind:
                continue
            if limit < end:
                space = _SPACE.search(text, end)
                limit = len(text) if space is None else space.start()
            behind = self._followed(text, begin, end, limit)
            if behind in (end, limit):
                # At the end of the text the walk falls back on the last complete name.
                matches.append((begin, end, number))
                behind = end
        return matches

    def _followed(self, text: str, begin: int, end: int, limit: int) -> int:
        """How far a text goes on as some name does."""
        names, place = self._walked, 0
        while end < limit:
            prefix = text[begin : end + 1]
            place = bisect_left(names, prefix, place)
            if place == len(names) or not names[place].startswith(prefix):
                break
            name = names[place]
            while end < limit and end - begin < len(name) and text[end] == name[end - begin]:
                end += 1
        return end
