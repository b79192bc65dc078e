"""Entity annotations: as people write them, as a dictionary finds them, and on which tokens of a text they are.

    {"start": 0, "end": 9, "id": "Q392", "score": 0.9}      (0, 9, "Q392", 0.9)      ["Q392", 0, 9, 0.9]

Which tokens of a mention carry the entity is the alignment:

    first       the first token of the mention (Zhang et al. 2019, section 3.3; the fine-tuning code)
    all         every token of the mention
    alternate   every token of the mention whose left neighbour does not carry the same entity: tokens 0, 2, 4, ...
                (the released pre-training data, where the code compares with the already thinned neighbour)
    reference   the original tokenizer's rule: the first token of a word between spaces that starts exactly at `start`;
                of annotations with one start the last one counts, even if its id is unknown. No end is read, a start
                outside the text is that of no word, and marked mentions are cut out as Python slices
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .entity_vocab_ernie_thu import EntityVocabulary, ExternalId, FilePath, TextList, read_arrays, write_arrays
from .matcher_core import LongestMatcher

ALIGNMENTS = ("first", "all", "alternate", "reference")
LINKER_FORMAT = "dictionary_linker"

Span = tuple[int, int]


class EntityAnnotation(NamedTuple):
    """An entity mention."""

    start: int  # in characters, or in words of a text that comes split into words
    end: int  # exclusive
    id: str | int  # the knowledge graph's, "Q392" or an integer
    score: float = 1.0  # confidence of whoever linked it


class DroppedEntity(NamedTuple):
    """An annotation of a text (number in the call; second of a `pair`?) that gave no entity, or not where it asked
    for.

    Its reason: "score" (not above `min_score`), "overlap", "unknown" (not in the vocabulary), "truncated", "no_token"
    (none begins where the alignment asks for one), or "inside_token": kept, on the token around its start.
    """

    text: int
    pair: bool
    annotation: EntityAnnotation
    reason: str


# ---- reading ----


def read_annotation(value: Any) -> EntityAnnotation:
    """Understand one annotation in any of its forms."""
    if type(value) is EntityAnnotation:
        return value
    if isinstance(value, Mapping) and all(key in value for key in ("start", "end", "id")):
        start, end, identifier, score = value["start"], value["end"], value["id"], value.get("score")
    elif isinstance(value, Sequence) and not isinstance(value, str) and len(value) in (3, 4):
        start, end, identifier, score = (*value, None)[:4]
        if isinstance(start, str):
            start, end, identifier = end, identifier, start
    else:
        raise TypeError(
            "`entities`: an annotation must be a mapping with `start`, `end` and `id`, or (start, end, id[, score]), "
            f"got {value!r}."
        )
    for name, number in (("start", start), ("end", end)):
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"`entities`: `{name}` must be an integer, got {number!r} in {value!r}.")
    if isinstance(identifier, bool) or not (isinstance(identifier, str) or hasattr(identifier, "__index__")):
        raise TypeError(
            f"`entities`: `id` must be text such as 'Q392' or an integer, got {identifier!r} in {value!r}."
        )
    return EntityAnnotation(start.__index__(), end.__index__(), identifier, 1.0 if score is None else score)


def check_span(field: str, span: Span, length: int, unit: str) -> None:
    """Refuse a span that is empty or not inside its text of `length` characters or words."""
    start, end = span
    if not 0 <= start < end <= length:
        raise ValueError(
            f"`{field}` must have spans with 0 <= start < end <= {length}, the number of {unit} of the text, got "
            f"[{start}, {end}). Offsets count {unit} of the original text, end exclusive."
        )


def read_span(field: str, value: Any) -> Span:
    """Understand the span of a mention that markers go around: (start, end), or an annotation."""
    if isinstance(value, Mapping):
        whole: Any = (value.get("start"), value.get("end"), 0)
    else:
        whole = (*value, 0) if isinstance(value, list | tuple) and len(value) == 2 else value
    try:
        annotation = read_annotation(whole)
    except TypeError as error:
        raise TypeError(f"`{field}` must be (start, end) or an annotation, got {value!r}.") from error
    return annotation.start, annotation.end


def resolve_overlaps(annotations: Sequence[EntityAnnotation]) -> tuple[list[EntityAnnotation], list[EntityAnnotation]]:
    """Choose among annotations that overlap, the longest, then the highest score, then the first: kept, dropped."""
    by_place = sorted(annotations, key=lambda one: one.start)
    if all(first.end <= second.start for first, second in pairwise(by_place)):
        return by_place, []
    kept: list[EntityAnnotation] = []
    dropped: list[EntityAnnotation] = []
    for annotation in sorted(annotations, key=lambda one: (one.start - one.end, -one.score)):
        free = all(annotation.end <= other.start or other.end <= annotation.start for other in kept)
        (kept if free else dropped).append(annotation)
    return sorted(kept, key=lambda one: one.start), sorted(dropped, key=lambda one: (one.start, one.end))


# ---- finding ----


class DictionaryLinker:
    """A linker that knows titles: every mention whose words are exactly a title, leftmost and longest.

    It needs no service and knows no context: a title of several entities means the first of them. Any other function
    from a list of texts to a list of lists of annotations can take its place.

    Args:
        titles: title -> external id, as a mapping or (title, id) pairs; of equal titles the first one counts.
        ignore_case: whether upper and lower case are the same.
        whole_words: whether a title must not begin or end inside a word; of no effect in scripts without spaces.
        min_length: titles with fewer characters are left out.
        backend: as in `LongestMatcher`.

    Raises:
        TypeError: a title is not text.
        ValueError: a title is empty.

    Examples:
        >>> linker = DictionaryLinker({"Bob Dylan": "Q392", "巴黎": "Q90"})
        >>> linker(["Bob Dylan", "我在巴黎"])
        [[EntityAnnotation(start=0, end=9, id='Q392', score=1.0)],
         [EntityAnnotation(start=2, end=4, id='Q90', score=1.0)]]
    """

    def __init__(
        self,
        titles: Mapping[str, ExternalId] | Iterable[tuple[str, ExternalId]],
        *,
        ignore_case: bool = False,
        whole_words: bool = True,
        min_length: int = 1,
        backend: str = "auto",
    ):
        pairs = titles.items() if isinstance(titles, Mapping) else titles
        kept = [(title, identifier) for title, identifier in pairs if not title or len(title) >= min_length]
        self.titles = [title for title, _ in kept]
        self.ids = [identifier for _, identifier in kept]
        self.min_length = min_length
        self.matcher = LongestMatcher(self.titles, ignore_case=ignore_case, whole_words=whole_words, backend=backend)

    @classmethod
    def from_vocabulary(cls, vocabulary: EntityVocabulary, **options: Any) -> "DictionaryLinker":
        """Make a linker of the titles of an entity vocabulary; a table has one as `table.vocabulary`."""
        if not vocabulary.num_titles:
            raise ValueError(
                f"`vocabulary` must have titles to link by, got {vocabulary.num_titles}. Give `titles` when making "
                "the entity table."
            )
        titles, rows = zip(*vocabulary.titles(), strict=True)
        ids = vocabulary.ids_of(rows)
        return cls([(title, name) for title, name in zip(titles, ids, strict=True) if name is not None], **options)

    def __call__(self, texts: Sequence[str]) -> list[list[EntityAnnotation]]:
        """Link texts."""
        ids = self.ids
        return [
            [EntityAnnotation(begin, end, ids[number]) for begin, end, number in matches]
            for matches in self.matcher.find_all(texts)
        ]

    def __len__(self) -> int:
        """Number of titles."""
        return len(self.matcher)

    def save(self, path: FilePath) -> Path:
        """Write the dictionary as a safetensors file; equal dictionaries give equal bytes."""
        ids = [str(identifier) for identifier in self.ids]
        number = {identifier: index for index, identifier in enumerate(dict.fromkeys(ids))}
        arrays = {"title_ids": np.array([number[identifier] for identifier in ids], dtype=np.int32)}
        for prefix, texts in (("title", TextList.build(self.titles)), ("id", TextList.build(number))):
            arrays |= {f"{prefix}_blob": texts.blob, f"{prefix}_offsets": texts.offsets}
        options = {
            "ignore_case": str(self.matcher.ignore_case).lower(),
            "whole_words": str(self.matcher.whole_words).lower(),
            "min_length": str(self.min_length),
        }
        return write_arrays(path, arrays, {"format": LINKER_FORMAT, **options})

    @classmethod
    def from_file(cls, path: FilePath, *, backend: str = "auto") -> "DictionaryLinker":
        """Read a dictionary that `save` wrote; integer ids are texts now, which mean the same to a vocabulary."""
        arrays, metadata = read_arrays(path)
        if metadata.get("format") != LINKER_FORMAT:
            raise ValueError(f"{path} is not a file of `DictionaryLinker.save`, got {metadata.get('format')!r}.")
        none = np.zeros(0, dtype=np.int64)  # no index: all is read anyway
        titles, ids = (
            list(TextList(arrays[f"{prefix}_blob"], arrays[f"{prefix}_offsets"], none, none))
            for prefix in ("title", "id")
        )
        return cls(
            [(title, ids[index]) for title, index in zip(titles, arrays["title_ids"], strict=True)],
            ignore_case=metadata["ignore_case"] == "true",
            whole_words=metadata["whole_words"] == "true",
            min_length=int(metadata["min_length"]),
            backend=backend,
        )


# ---- placing ----


class TextTokens:
    """The tokens of one text of an encoding, asked by characters."""

    def __init__(self, encoding: Any, text: str, sequence: int = 0):
        self.encoding, self.text, self.sequence = encoding, text, sequence

    def first(self, span: Span) -> int | None:
        """The token of a mention's first visible character."""
        start, end = span
        token = self.encoding.char_to_token(start, self.sequence)
        if token is not None:
            return token
        for place in range(start, end):
            if not _is_invisible(self.text[place]):
                return self.encoding.char_to_token(place, self.sequence)
        return None

    def tokens(self, span: Span) -> range:
        """All tokens of a mention."""
        first = self.first(span)
        if first is None:
            return range(0)
        behind, count = first + 1, len(self.encoding)
        while behind < count:
            characters = self.encoding.token_to_chars(behind)
            if characters is None or self.encoding.token_to_sequence(behind) != self.sequence:
                break
            if characters[0] >= span[1]:
                break
            behind += 1
        return range(first, behind)

    def starts_inside(self, token: int, span: Span) -> bool:
        """Whether a mention starts inside its first token."""
        start = span[0]
        if not start or self.text[start - 1].isspace():
            return False
        characters = self.encoding.token_to_chars(token)
        return characters is not None and characters[0] < start


class WordTokens:
    """The tokens of one text of an encoding that came split into words, asked by words."""

    def __init__(self, encoding: Any, sequence: int = 0):
        self.encoding, self.sequence = encoding, sequence

    def first(self, span: Span) -> int | None:
        """The first token of a mention."""
        tokens = self.tokens(span)
        return tokens.start if tokens else None

    def tokens(self, span: Span) -> range:
        """All tokens of a mention."""
        found = [tokens for word in range(*span) if (tokens := self.encoding.word_to_tokens(word, self.sequence))]
        return range(found[0][0], found[-1][1]) if found else range(0)

    def starts_inside(self, token: int, span: Span) -> bool:
        """A word never starts inside a token."""
        return False


def thin(entities: list[int]) -> list[int]:
    """Drop each entity that equals its left neighbour, going from left to right over what is left."""
    result: list[int] = []
    for entity in entities:
        result.append(0 if result and entity == result[-1] else entity)
    return result


def slice_window(window: Any, full: Sequence[tuple[int | None, Span]], sequence: int) -> tuple[int, range] | None:
    """Where a window's tokens of a text begin, and which of all tokens of that text they are."""
    own = [index for index, owner in enumerate(window.sequence_ids) if owner == sequence]
    if not own:
        return None
    words, offsets = window.word_ids, window.offsets
    keys = [(words[index], offsets[index]) for index in own]
    for begin in range(len(full) - len(keys) + 1):
        if full[begin] == keys[0] and list(full[begin : begin + len(keys)]) == keys:
            return own[0], range(begin, begin + len(keys))
    return None


def reference_word(text: str, start: int) -> Span | None:
    """The word between spaces that starts at a place, where the original tokenizer has deleted control characters."""
    if not 0 <= start < len(text):
        return None
    while start < len(text) and _is_deleted(text[start]):
        start += 1
    before = start - 1
    while before >= 0 and _is_deleted(text[before]):
        before -= 1
    if start == len(text) or _is_space(text[start]) or (before >= 0 and not _is_space(text[before])):
        return None
    end = start
    while end < len(text) and not _is_space(text[end]):
        end += 1
    return start, end


def _is_invisible(char: str) -> bool:
    """Spaces and what tokenizers delete: a mention that begins with it begins behind it."""
    return char.isspace() or _is_deleted(char) or unicodedata.category(char) == "Mn"


def _is_space(char: str) -> bool:
    """BERT's rule, which does not count line and paragraph separators."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_deleted(char: str) -> bool:
    """BERT's rule: control characters (not tab and line ends) and the replacement character."""
    return char not in "\t\n\r" and (char == "\ufffd" or unicodedata.category(char).startswith("C"))
