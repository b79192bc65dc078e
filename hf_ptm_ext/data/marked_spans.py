"""Texts whose entities are marked by characters, as words with tags: doccano, CLUENER, brat.

    doccano    {"text", "label" or "labels": [[start, end, type]]}, {"text", "entities" or "spans": [{"start_offset"
               or "start", "end_offset" or "end", "label" or "type"}]}
    CLUENER    {"text", "label": {type: {surface: [[first, last]]}}}, whose ends are inclusive
    brat       a folder of .txt files with .ann files beside them

Words are runs of letters and digits, single characters of scripts without spaces, and single marks.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .lines import iter_lines, whole_text
from .rows import PlacedRow, typed
from .segmentation import is_unspaced
from .tag_schemes import Span, tags_of

TEXT_FIELD, SPAN_FIELDS = "text", ("label", "labels", "entities", "spans")
_KNOWN = (
    "Known are [[start, end, type], ...], objects with `start`, `end` and `label` (doccano), and {type: {surface: "
    "[[first, last]]}} (CLUENER)"
)
_STARTS, _ENDS, _TYPES = ("start", "start_offset"), ("end", "end_offset"), ("label", "type")

CharacterSpan = tuple[int, int, str]


def check_span(text: str, span: tuple[int, int] | CharacterSpan) -> None:
    """Refuse a span that is not in its text."""
    if not 0 <= span[0] < span[1] <= len(text):
        raise ValueError(f"the span {span} is not in its text of {len(text)} characters.")


def places_of_words(text: str) -> list[tuple[int, int]]:
    """First and behind-last character of each word."""
    places: list[tuple[int, int]] = []
    run = False  # whether the last word goes on with a letter
    for at, character in enumerate(text):
        touches = bool(places) and places[-1][1] == at
        letter = character.isalnum() and not is_unspaced(character)
        if touches and ((run and letter) or unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")):
            places[-1] = (places[-1][0], at + 1)
            continue
        run = letter
        if not character.isspace():
            places.append((at, at + 1))
    return places


def words_and_tags(text: str, spans: Sequence[CharacterSpan], cut: list[str]) -> tuple[list[str], list[str]]:
    """Words of a text with their tags in IOB2."""
    ordered = sorted(set(spans))
    for span in ordered:
        check_span(text, span)
    for one, other in pairwise(ordered):
        if other[0] < one[1]:
            raise ValueError(
                f"the spans {one} and {other} overlap ({text[slice(*one[:2])]!r:.40}, {text[slice(*other[:2])]!r:.40}"
                "), and a word has one tag. Keep one of them, or take the row out."
            )
    borders = {border for span in ordered for border in span[:2]}
    places: list[tuple[int, int]] = []
    for start, end in places_of_words(text):
        inside = sorted(border for border in borders if start < border < end) if borders else []
        if inside:
            cut.append(text[start:end])
        places += zip([start, *inside], [*inside, end], strict=True)
    found: list[Span] = []
    for start, end, kind in ordered:
        within = [number for number, (first, behind) in enumerate(places) if start <= first and behind <= end]
        if not within:
            raise ValueError(f"the span {(start, end, kind)} holds no word, but {text[start:end]!r:.40}.")
        found.append((kind, within[0], within[-1] + 1))
    return [text[start:end] for start, end in places], tags_of(found, len(places))


def spans_of_field(value: Any, text: str) -> list[CharacterSpan]:
    """Spans as one of the known forms has them."""
    if isinstance(value, Mapping) and "entities" in value:
        value = value["entities"]
    if isinstance(value, Mapping):
        return [span for kind, surfaces in value.items() for span in _cluener(kind, surfaces, text)]
    if not isinstance(value, list | tuple):
        raise ValueError(f"spans of characters have another form, got {value!r:.60}. {_KNOWN}.")
    spans = []
    for one in value:
        if isinstance(one, Mapping):
            one = [next((one[name] for name in names if name in one), None) for names in (_STARTS, _ENDS, _TYPES)]
        if not isinstance(one, list | tuple) or len(one) != 3:
            raise ValueError(f"a span must be a start, an end and a type, got {one!r:.60}. {_KNOWN}.")
        typed([*one[:2]], "two whole numbers", "start and end of a span")
        spans.append((one[0], one[1], typed(one[2], "a text", "the type of a span")))
    return spans


def _cluener(kind: Any, surfaces: Any, text: str) -> Iterator[CharacterSpan]:
    for surface, places in typed(surfaces, "an object", f"`{kind}`", f"{_KNOWN}.").items():
        for place in typed(places, "a list", f"the places of {surface!r}"):
            first, last = typed(place, "two whole numbers", f"a place of {surface!r}")
            if text[first : last + 1] != surface:
                raise ValueError(
                    f"the text has {text[first : last + 1]!r:.40} at characters {first} to {last} (inclusive), where "
                    f"the {kind} {surface!r:.40} should be."
                )
            yield first, last + 1, kind


def brat_rows(path: Path, encoding: str, unlabelled: bool = False) -> Iterator[PlacedRow]:
    """Read a text of brat's, cut at its line breaks where no span goes on."""
    path, annotations = path.with_suffix(".txt"), path.with_suffix(".ann")
    text = whole_text(path, encoding)
    found: list[tuple[str, Any]] = []
    if annotations.is_file():
        lines = list(_text_bounds(annotations, encoding))
        readings = [
            (one, [(where, _span_or_error(line, one)) for where, line in lines])
            for one in dict.fromkeys((text, text.replace("\r\n", "\n")))
        ]  # brat has counted Windows' line ends both ways
        text, found = min(readings, key=lambda reading: len(_wrong(reading[1])))
        if wrong := _wrong(found):
            yield from wrong
            return
    elif not unlabelled:
        yield f"{path}, line 1", ValueError(f"there is no {annotations.name} beside it. An empty one marks nothing.")
        return
    start = 0
    for number, end in enumerate([at for at, one in enumerate(text) if one == "\n"] + [len(text)], start=1):
        if any(first < end < behind for _, (first, behind, _) in found):
            continue
        if text[start:end].strip():
            inside = [(a - start, b - start, kind) for _, (a, b, kind) in found if start <= a < end]
            row = {"id": f"{path.stem}:{start}", TEXT_FIELD: text[start:end]}
            yield f"{path}, line {number}", {**row, "label": inside} if annotations.is_file() else row
        start = end + 1


def _wrong(found: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [pair for pair in found if isinstance(pair[1], ValueError)]


def _text_bounds(path: Path, encoding: str) -> Iterator[tuple[str, str]]:
    for line in iter_lines(path, encoding):
        if line.text.startswith("T"):  # others are relations, events, attributes and notes
            yield f"{path}, line {line.number}", line.text


def _span_or_error(line: str, text: str) -> CharacterSpan | ValueError:
    try:
        return _brat_span(line, text)
    except ValueError as error:
        return error


def _brat_span(line: str, text: str) -> CharacterSpan:
    """`T1<tab>PER 0 4<tab>Anna`; parts of a discontinuous span are separated by `;`."""
    fields = line.split("\t")
    kind, _, places = (fields[1] if len(fields) > 1 else "").partition(" ")
    parts = places.replace(";", " ").split()
    numbers = [int(one) for one in parts if one.isdecimal() and len(one) < 12]
    if not numbers or len(numbers) != len(parts) or len(numbers) % 2:
        raise ValueError(
            f"must be an id, a tab, a type with a start and an end, a tab and the text, got {line!r:.60}."
        )
    # Parts with white space between them are one: brat cuts spans at line breaks.
    if any(text[end:start].strip() for end, start in zip(numbers[1:-1:2], numbers[2::2], strict=True)):
        raise ValueError(f"the span {kind} {places} is discontinuous, which tags cannot say. Take it out.")
    start, end = numbers[0], numbers[-1]
    check_span(text, (start, end, kind))
    if len(fields) > 2 and fields[2].split() != text[start:end].split():
        raise ValueError(
            f"the text has {text[start:end]!r:.40} at characters {start} to {end}, where {fields[2]!r:.40} should be."
        )
    return start, end, kind
