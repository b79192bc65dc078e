"""Entity annotations as people write them, checked and made equal.

    {"start": 0, "end": 9, "id": "Q392", "score": 0.9}      (0, 9, "Q392", 0.9)      ["Q392", 0, 9, 0.9]

The last form is the original project's. Of annotations that overlap the longest one counts, then the one with the
highest score, then the first; the others are reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

Span = tuple[int, int]


class EntityAnnotation(NamedTuple):
    """An entity mention.

    Args:
        start: first character (or word, in a text that comes split into words).
        end: behind the last one.
        id: the knowledge graph's id, "Q392" or an integer.
        score: confidence of whoever linked it.
    """

    start: int
    end: int
    id: str | int
    score: float = 1.0


class DroppedEntity(NamedTuple):
    """An annotation that gave no entity, or not where it asked for.

    Args:
        text: number of the text in the call.
        pair: whether it is of the second text of a pair.
        annotation: what was given.
        reason: "score" (not above `min_score`), "overlap", "unknown" (not in the vocabulary), "truncated", "no_token"
            (no token begins where the alignment asks for one), or "inside_token": kept, on the token around its start.
    """

    text: int
    pair: bool
    annotation: EntityAnnotation
    reason: str


def read_annotation(value: Any) -> EntityAnnotation:
    """Understand one annotation.

    Args:
        value: mapping with `start`, `end`, `id` and perhaps `score`, or a list or tuple (start, end, id[, score]) or
            (id, start, end[, score]), where `id` is text.

    Returns:
        The annotation, not checked against a text.

    Raises:
        TypeError: it is none of these.
    """
    if type(value) is EntityAnnotation:
        return value
    if isinstance(value, Mapping):
        missing = [key for key in ("start", "end", "id") if key not in value]
        if missing:
            raise TypeError(f"`entities`: an annotation must have `start`, `end` and `id`, got {dict(value)!r}.")
        return _checked(value["start"], value["end"], value["id"], value.get("score"), value)
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) in (3, 4):
        score = value[3] if len(value) == 4 else None
        if isinstance(value[0], str):
            return _checked(value[1], value[2], value[0], score, value)
        return _checked(value[0], value[1], value[2], score, value)
    raise TypeError(
        f"`entities`: an annotation must be a mapping with `start`, `end` and `id`, or (start, end, id[, score]), got "
        f"{value!r}."
    )


def _checked(start: Any, end: Any, identifier: Any, score: Any, value: Any) -> EntityAnnotation:
    for name, number in (("start", start), ("end", end)):
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"`entities`: `{name}` must be an integer, got {number!r} in {value!r}.")
    if isinstance(identifier, bool) or not (isinstance(identifier, str) or hasattr(identifier, "__index__")):
        raise TypeError(
            f"`entities`: `id` must be text such as 'Q392' or an integer, got {identifier!r} in {value!r}."
        )
    return EntityAnnotation(start.__index__(), end.__index__(), identifier, 1.0 if score is None else score)


def read_annotations(
    values: Iterable[Any] | None, length: int, unit: str, checked: bool = True
) -> list[EntityAnnotation]:
    """Understand and check the annotations of one text.

    Args:
        values: the annotations in any of the forms; `None` is none.
        length: characters or words of the text.
        unit: "characters" or "words", for messages.
        checked: whether places outside the text are refused; the reference reads what it can of them.

    Returns:
        The annotations in the order given.

    Raises:
        TypeError: one is not of a known form.
        ValueError: one lies outside the text or is empty.
    """
    annotations = []
    for value in values or ():
        annotation = read_annotation(value)
        if checked:
            check_span("entities", (annotation.start, annotation.end), length, unit)
        annotations.append(annotation)
    return annotations


def check_span(field: str, span: Span, length: int, unit: str) -> None:
    """Refuse a span that is empty or not inside its text.

    Args:
        field: name for the message.
        span: (start, end), end exclusive.
        length: characters or words of the text.
        unit: "characters" or "words", for the message.

    Raises:
        ValueError: it is.
    """
    start, end = span
    if not 0 <= start < end <= length:
        raise ValueError(
            f"`{field}` must have spans with 0 <= start < end <= {length}, the number of {unit} of the text, got "
            f"[{start}, {end}). Offsets count {unit} of the original text, end exclusive."
        )


def read_span(field: str, value: Any, length: int, unit: str, checked: bool = True) -> Span:
    """Understand the span of a mention that markers go around.

    Args:
        field: name for messages.
        value: (start, end), a mapping with both, or an annotation in any form.
        length: characters or words of the text.
        unit: "characters" or "words", for messages.
        checked: see `read_annotations`.

    Returns:
        (start, end).

    Raises:
        TypeError: it is none of these.
        ValueError: it is empty or outside the text.
    """
    if isinstance(value, Mapping):
        value = (value.get("start"), value.get("end"), 0)
    elif isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        value = (*value, 0)
    try:
        annotation = read_annotation(value)
    except TypeError as error:
        raise TypeError(f"`{field}` must be (start, end) or an annotation, got {value!r}.") from error
    if checked:
        check_span(field, (annotation.start, annotation.end), length, unit)
    return annotation.start, annotation.end


def resolve_overlaps(annotations: Sequence[EntityAnnotation]) -> tuple[list[EntityAnnotation], list[EntityAnnotation]]:
    """Choose among annotations that overlap: the longest, then the highest score, then the first.

    Args:
        annotations: of one text.

    Returns:
        Those that count and those that do not, both by their place in the text.

    Example:
        >>> new_york, times = EntityAnnotation(0, 8, "Q60"), EntityAnnotation(0, 14, "Q9684")
        >>> resolve_overlaps([new_york, times])[0] == [times]
        True
    """
    if len(annotations) < 2:
        return list(annotations), []
    by_place = sorted(annotations, key=lambda one: one.start)
    if all(first.end <= second.start for first, second in pairwise(by_place)):
        return by_place, []
    kept: list[EntityAnnotation] = []
    dropped: list[EntityAnnotation] = []
    for annotation in sorted(annotations, key=lambda one: (one.start - one.end, -one.score)):
        free = all(annotation.end <= other.start or other.end <= annotation.start for other in kept)
        (kept if free else dropped).append(annotation)
    return sorted(kept, key=lambda one: one.start), sorted(dropped, key=lambda one: (one.start, one.end))
