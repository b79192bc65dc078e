"""Find which of many names occur in a text: exact, leftmost, longest, without overlap, in characters.

With `whole_words` a name counts only where it cuts no word, in scripts with spaces: "art" is not found in "party".
`pkuseg_compat` walks as the dictionary of the segmenter pkuseg 0.0.25 does: a name is lost where the text goes on with
more of a longer name but not with all of it (苹果 in 苹果公园, beside 苹果公司), and white space ends a walk. The
search runs in `ahocorasick-rs` where that is installed, else in Python; both find the same.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

try:
    import ahocorasick_rs
except ImportError:  # optional: the search in Python finds the same
    ahocorasick_rs = None  # type: ignore[assignment]

BACKENDS = ("auto", "rust", "python")
# Thai to Khmer, and everything East Asian: characters that are a word, or part of one, without spaces around it.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\ua4cf\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_LETTER = re.compile(rf"[^\W{_UNSPACED}]")
_SPACE = re.compile(r"\s")
_PREFIX = 4
_MANY = 1000
_FILLER = "\uffff" * 1000  # U+FFFF is no character

Match = tuple[int, int, int]


def fold_case(text: str) -> str:
    """Lower-case a text without changing its length, so that places in it stay places in the original."""
    if text.isascii():
        return text.lower()
    return "".join(lower if len(lower := char.lower()) == 1 else char for char in text)


def is_spaced(char: str) -> bool:
    """Say whether a character is a letter or digit of a script that is written with spaces."""
    return _LETTER.match(char) is not None


def _inside_word(text: str, place: int) -> bool:
    """Say whether a word goes on there."""
    return (
        0 < place < len(text) and _LETTER.match(text, place - 1) is not None and _LETTER.match(text, place) is not None
    )


class LongestMatcher:
    """Searches texts for names."""

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
                "`pkuseg_compat` must come with ignore_case=False and whole_words=False, which pkuseg has, got "
                f"{ignore_case} and {whole_words}."
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
        self._has_single = any(len(name) == 1 for name in self._numbers)
        self._index: Any = None
        self._walked: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the index, which is built again where it is used."""
        return {**self.__dict__, "_index": None, "_walked": []}

    def __len__(self) -> int:
        """Number of different names."""
        return len(self._numbers)

    def find(self, text: str) -> list[Match]:
        """Search one text."""
        return self.find_all([text])[0]

    def find_all(self, texts: Sequence[str]) -> list[list[Match]]:
        """Search many texts."""
        if not self._numbers:
            return [[] for _ in texts]
        if self._index is None:
            names = [name for name in self._numbers if not (self.pkuseg_compat and _SPACE.search(name))]
            self._walked = sorted(self._numbers) if self.pkuseg_compat else []
            self._index = self._build_rust(names) if self.backend == "rust" else self._build_python(names)
        if self.ignore_case:
            texts = [fold_case(text) for text in texts]
        if self.backend == "rust" and not self.whole_words and not self.pkuseg_compat:
            return [self._leftmost_longest_in_rust(text) for text in texts]
        occurring = self._occurring_in_rust if self.backend == "rust" else self._occurring_in_python
        choose = self._walk if self.pkuseg_compat else self._leftmost
        return [choose(text, occurring(text)) for text in texts]

    def _leftmost(self, text: str, occurring: Iterable[Match]) -> list[Match]:
        matches, behind = [], 0
        for begin, negative, number in occurring:
            if begin >= behind:
                behind = -negative
                matches.append((begin, behind, number))
        return matches

    def _walk(self, text: str, occurring: Iterable[Match]) -> list[Match]:
        """Keep the names that pkuseg finds."""
        matches, behind, limit = [], 0, -1
        for begin, negative, number in occurring:
            if begin < behind:
                continue
            end = -negative
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

    # ---- (begin, -end, number) of names that occur in a text, sorted: of one place the longest first ----

    def _build_rust(self, names: list[str]) -> tuple[Any, list[int]]:
        kinds = ahocorasick_rs.MatchKind
        # Where nearly every beginning of a name is a name (item 1, item 2, ... item 12), building takes time by the
        # square of their number over the number of states in front of them; `_FILLER` puts many there.
        filler = [_FILLER] if len(names) > _MANY else []
        index = ahocorasick_rs.AhoCorasick(
            [*filler, *names],
            matchkind=kinds.Standard if self.whole_words or self.pkuseg_compat else kinds.LeftmostLongest,
            # The package's own choice for few names takes time by the square of the longest one's length to build.
            implementation=ahocorasick_rs.Implementation.ContiguousNFA,
        )
        return index, [-1] * len(filler) + [self._numbers[name] for name in names]

    def _occurring_in_rust(self, text: str) -> list[Match]:
        index, numbers = self._index
        matches = index.find_matches_as_indexes(text, overlapping=True)
        letter, size, anywhere = _LETTER.match, len(text), not self.whole_words
        found = [  # as `_inside_word` says, at both ends; a call of it for each would take longer than the search
            (begin, -end, numbers[name])
            for name, begin, end in matches
            if numbers[name] >= 0
            and (begin == 0 or anywhere or not letter(text, begin - 1) or not letter(text, begin))
            and (end == size or anywhere or not letter(text, end) or not letter(text, end - 1))
        ]
        if len(found) > 1:
            found.sort()
        return found

    def _leftmost_longest_in_rust(self, text: str) -> list[Match]:
        index, numbers = self._index
        found = [(begin, end, numbers[name]) for name, begin, end in index.find_matches_as_indexes(text)]
        return [match for match in found if match[2] >= 0]

    def _build_python(self, names: list[str]) -> tuple[dict[str, int], frozenset[str], dict[str, list[int]]]:
        """The names, their first two characters, and by the first few the lengths that there are, longest first."""
        lengths: dict[str, set[int]] = {}
        for name in names:
            lengths.setdefault(name[:_PREFIX], set()).add(len(name))
        longest_first = {prefix: sorted(sizes, reverse=True) for prefix, sizes in lengths.items()}
        return {name: self._numbers[name] for name in names}, frozenset(name[:2] for name in names), longest_first

    def _occurring_in_python(self, text: str) -> Iterator[Match]:
        """The longest at each place, without places inside one that was found: what chooses takes none of them.

        pkuseg's walk gives names up again, so it is told of every place.
        """
        heads, letter, whole_words, behind = self._index[1], _LETTER.match, self.whole_words, 0
        if self._has_single:
            places = [i for i, char in enumerate(text) if text[i : i + 2] in heads or char in heads]
        else:
            places = [i for i in range(len(text)) if text[i : i + 2] in heads]
        for begin in places:
            if begin < behind or (whole_words and begin and letter(text, begin - 1) and letter(text, begin)):
                continue
            found = self._longest_in_python(text, begin)
            if found is not None:
                behind = 0 if self.pkuseg_compat else -found[1]
                yield found

    def _longest_in_python(self, text: str, begin: int) -> Match | None:
        numbers, _, lengths = self._index
        for prefix in range(min(_PREFIX, len(text) - begin), 0, -1):
            for length in lengths.get(text[begin : begin + prefix], ()):
                end = begin + length
                number = numbers.get(text[begin:end]) if end <= len(text) else None
                if number is not None and not (self.whole_words and _inside_word(text, end)):
                    return begin, -end, number
        return None
