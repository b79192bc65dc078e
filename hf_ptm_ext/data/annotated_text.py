"""Text with marked mentions: examples of relation classification and entity typing, from the files people have.

    relations   FewRel's own form (`{relation: [{"tokens", "h": [name, id, [positions]], "t"}]}`) and rows of it
                (`tokens`, `head`, `tail`, `relation`), OpenNRE (`token` or `text`, `h`, `t`, `relation`), ERNIE-THU's
                FewRel and TACRED (`text`, `ents`, `label`, `ann`), TACRED (`token`, `subj_start`...), SemEval-2010
                task 8 (`<e1>`, `<e2>` in numbered sentences)
    types       lists of tokens (`tokens`, `pos`, `labels`), ERNIE-THU's FIGER and Open Entity (`sent`, `start`, ...)

Spans are characters of the text, end exclusive. Words are joined by blanks.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from .bad_rows import usable
from .lines import iter_lines, json_object, json_value, whole_text
from .marked_spans import check_span
from .rows import TYPES, NoRows, PlacedRow, field_of, id_of, typed, with_rows

logger = logging.getLogger(__name__)

_FORMS = (
    "Known are FewRel's (`tokens` with `h` and `t`, or `head` and `tail`), OpenNRE's (`text` or `token` with `h` and "
    "`t`), TACRED's (`token`, `subj_start`), ERNIE-THU's (`text`, `ents`), and SemEval's numbered sentences (.txt)."
)


@dataclass(frozen=True)
class Mention:
    """A place in a text that names an entity.

    Args:
        start: First character.
        end: Behind the last one.
        id: The entity, `None` if nobody knows.
        score: How sure the linker was.
        name: How a data set calls the entity, `""` if it does not.
    """

    start: int
    end: int
    id: str | None = None
    score: float = 1.0
    name: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """Start and end."""
        return self.start, self.end


@dataclass(frozen=True)
class RelationExample:
    """A text with two mentions and the relation between them.

    Args:
        text: The text.
        head: First argument of the relation.
        tail: Second argument.
        label: The relation, `None` if it is not told.
        entities: Mentions whose entity is told to the model.
        id: Its name in the data set, if it has one.
    """

    text: str
    head: Mention
    tail: Mention
    label: str | None
    entities: tuple[Mention, ...] = ()
    id: str | int | None = None


@dataclass(frozen=True)
class TypingExample:
    """A text with a mention and its types.

    Args:
        text: The text.
        mention: What is typed.
        labels: Its types, possibly none; `None` if they are not told.
        entities: Mentions whose entity is told to the model.
        id: Its name in the data set, if it has one.
    """

    text: str
    mention: Mention
    labels: tuple[str, ...] | None
    entities: tuple[Mention, ...] = ()
    id: str | int | None = None


def mark_mentions(text: str, mentions: Sequence[tuple[tuple[int, int], str]]) -> str:
    """Put a marker and a blank on both sides of `((start, end), marker)`, as ERNIE-THU's code does for any encoder.

    Examples:
        >>> mark_mentions("Rome is in Italy", [((0, 4), "#"), ((11, 16), "$")])
        '# Rome # is in $ Italy $'
    """
    ordered = sorted(mentions)
    parts, at = [], 0
    for (start, end), marker in ordered:
        if not at <= start < end <= len(text):
            raise ValueError(
                f"`mentions` must lie in the text's {len(text)} characters without overlap, got {(start, end)}."
            )
        parts += [text[at:start], f"{marker} {text[start:end]} {marker}"]
        at = end
    return "".join([*parts, text[at:]])


def read_relation_examples(
    path: str | Path, unlabelled: bool = False, *, encoding: str = "utf-8"
) -> list[RelationExample]:
    """Read examples of relation classification; the form is told by the fields.

    Args:
        path: `.json` (a list, or FewRel's lists by relation), `.jsonl`, `.txt` (SemEval's, or OpenNRE's JSON
            lines); also `.gz`.
        unlabelled: Records may be without a relation, which is `None` then (default: they are refused).
        encoding: Of the file.

    Examples:
        >>> import json, tempfile
        >>> row = {"tokens": ["Rome", "is", "in", "Italy"], "relation": "country",
        ...        "head": {"id": "Q220", "pos": [0, 1]}, "tail": {"id": "Q38", "pos": [3, 4]}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.jsonl")
        ...     _ = path.write_text(json.dumps(row), encoding="utf-8")
        ...     (example,) = read_relation_examples(path)
        >>> example.text[slice(*example.tail.span)], example.label
        ('Italy', 'country')
    """
    path = Path(path)
    if ".txt" in path.suffixes:
        first = next((line.text for line in iter_lines(path, encoding) if line.text.strip()), "")
        if not first.lstrip().startswith("{"):
            return _examples(_semeval(path, encoding, unlabelled), lambda example: example, path)
    return _examples(_records(path, encoding), lambda record: _relation(record, unlabelled), path)


def read_typing_examples(
    path: str | Path, labels_field: str | None = None, unlabelled: bool = False, *, encoding: str = "utf-8"
) -> list[TypingExample]:
    """Read examples of entity typing; the form is told by the fields.

    Args:
        path: `.json` (a list) or `.jsonl`; also `.gz`.
        labels_field: The field with the types (default: `labels`, else `coarse`, else `types`).
        unlabelled: Records may be without that field; their types are `None` then (default: they are refused).
        encoding: Of the file.
    """
    path = Path(path)

    def convert(record: Any) -> TypingExample:
        return _typing(record, labels_field, unlabelled)

    # The id may be the entity's, which several rows ask about.
    return _examples(_records(path, encoding), convert, path, named=False)


def _examples(rows: Iterable[PlacedRow], convert: Callable[[Any], Any], path: Path, named: bool = True) -> list[Any]:
    def example(record: Any, where: str) -> Any:
        found = convert(record)
        spans = sorted({one.span for one in found.entities})
        if any(second[0] < first[1] for first, second in pairwise(spans)):
            overlapping.append(where)
        return replace(found, id=id_of(record)) if isinstance(record, Mapping) else found

    overlapping: list[str] = []
    examples = list(usable(with_rows(rows, path), example, named=named))
    if overlapping:
        logger.warning(
            "%d records have entities whose mentions overlap, of which the model is told the longest: %s%s.",
            len(overlapping),
            "; ".join(overlapping[:3]),
            "; ..." if len(overlapping) > 3 else "",
        )
    if not examples:
        raise NoRows(f"{path} must have at least one example, got none.")
    return examples


def _records(path: Path, encoding: str) -> Iterator[PlacedRow]:
    """Records of a list, of lists by relation (FewRel's own form, whose key is the label), or of JSON lines."""
    if not {".jsonl", ".ndjson", ".txt"} & set(path.suffixes):
        text = whole_text(path, encoding)
        try:
            content = json_value(text, str(path))
        except ValueError:
            if len(text.split("\n")) < 3:
                raise
        else:
            if isinstance(content, Mapping) and all(map(TYPES["a list of objects"], content.values())):
                for relation, records in content.items():
                    for number, record in enumerate(records, start=1):
                        yield f"{path}, record {number} of {relation}", {**record, "relation": relation}
                return
            content = [content] if isinstance(content, Mapping) else content
            advice = "FewRel's {relation: [objects]} is read too."
            for number, record in enumerate(typed(content, "a list of objects", f"{path}", advice), start=1):
                yield f"{path}, record {number}", record
            return
    number = 0
    for line in iter_lines(path, encoding):
        if line.text.strip():
            number += 1
            try:
                yield f"{path}, record {number}", json_object(line, path)
            except ValueError as error:
                yield f"{path}, line {line.number}", error


def _named(identifier: Any, name: Any) -> dict[str, Any]:
    """Id and name of a mention."""
    if not isinstance(identifier, str | int | None) or not isinstance(name, str | int | None):
        raise ValueError(f"id and name of a mention must be texts, got {identifier!r:.40} and {name!r:.40}.")
    return {"id": None if identifier is None else str(identifier), "name": str(name or "")}


def _of_tokens(tokens: Sequence[str], first: int, behind: int, names: Mapping[str, Any]) -> Mention:
    """A mention in tokens that are joined by blanks."""
    if not 0 <= first < behind <= len(tokens):
        raise ValueError(f"the tokens {first} to {behind} are not among its {len(tokens)} tokens.")
    start = sum(map(len, tokens[:first])) + first
    return Mention(start, start + len(" ".join(tokens[first:behind])), **names)


def _annotation(text: str, values: Any) -> Mention:
    """The original's [id, begin, end, score]."""
    if not TYPES["a list"](values) or len(values) not in (3, 4):
        raise ValueError(f"an entity must be [id, begin, end, score], got {values!r:.60}.")
    identifier, start, end, *score = values
    typed([start, end], "two whole numbers", "begin and end of an entity")
    sure = typed(score[0], "a number", "the score of an entity") if score else 1.0
    check_span(text, (start, end))
    return Mention(start, end, str(identifier), float(sure))


def _side(text: str, tokens: Sequence[str] | None, value: Any, name: str) -> Mention:
    """An argument of a relation: an object with `pos`, or FewRel's [name, id, positions of each mention].

    Positions are characters of a text, or tokens; of several mentions the first one is taken, as FewRel does.
    """
    if isinstance(value, list | tuple) and len(value) == 3:
        value = {"name": value[0], "id": value[1], "indices": value[2]}
    names = _named(typed(value, "an object", f"`{name}`").get("id"), value.get("name", value.get("text")))
    places = value.get("pos", value.get("indices"))
    if "pos" in value and not (places and TYPES["a list"](places) and TYPES["a list"](places[0])):
        first, behind = typed(places, "two whole numbers", f"`pos` of `{name}`")
    else:
        numbers = typed(places, "a list", f"positions of `{name}`")[:1]
        numbers = typed(numbers[0] if numbers else None, "a list of whole numbers", f"positions of `{name}`")
        if not numbers or list(numbers) != list(range(numbers[0], numbers[0] + len(numbers))):
            raise ValueError(f"positions of `{name}` must be neighbours, got {numbers!r:.60}.")
        first, behind = numbers[0], numbers[-1] + 1
    if tokens is None:
        check_span(text, (first, behind))
        return Mention(first, behind, **names)
    return _of_tokens(tokens, first, behind, names)


def _label(record: Mapping[str, Any], field: str, unlabelled: bool) -> str | None:
    return None if unlabelled and record.get(field) in (None, "", -1, "-1") else field_of(record, field, "a text")


def _relation(record: Mapping[str, Any], unlabelled: bool) -> RelationExample:
    label = "relation"
    entities: tuple[Mention, ...] | None = None
    if "ents" in record:
        text, label = field_of(record, "text", "a text"), "label"
        found = [_annotation(text, values) for values in field_of(record, "ents", "a list")]
        if len(found) < 2:
            raise ValueError(f"`ents` must have a head and a tail, got {len(found)}.")
        head, tail = found[:2]
        if "ann" in record:
            entities = tuple(_annotation(text, values) for values in field_of(record, "ann", "a list"))
    elif "subj_start" in record:  # TACRED's ends are inclusive
        tokens = field_of(record, "token", "a list of strings")
        head, tail = (
            _of_tokens(
                tokens,
                field_of(record, f"{side}_start", "a whole number"),
                field_of(record, f"{side}_end", "a whole number") + 1,
                {},
            )
            for side in ("subj", "obj")
        )
        text, entities = " ".join(tokens), ()
    else:
        sides = next(
            (names for names in (("head", "tail"), ("h", "t")) if all(name in record for name in names)), None
        )
        words = next((name for name in ("tokens", "token", "text") if name in record), None)
        if sides is None or words is None:
            raise ValueError(f"is of no known form, with the fields {sorted(map(str, record))}. {_FORMS}")
        spelt = words == "text"
        given = field_of(record, words, "a text" if spelt else "a list of strings")
        text = given if spelt else " ".join(given)
        head, tail = (_side(text, None if spelt else given, record[name], name) for name in sides)
    first, second = sorted((head, tail), key=lambda one: one.span)
    if second.start < first.end:
        raise ValueError(
            f"the mentions {head.span} and {tail.span} overlap ({text[slice(*head.span)]!r:.40} and "
            f"{text[slice(*tail.span)]!r:.40}), and cannot both be marked."
        )
    return RelationExample(
        text, head, tail, _label(record, label, unlabelled), entities or ((head, tail) if entities is None else ())
    )


def _typing(record: Mapping[str, Any], labels_field: str | None, unlabelled: bool) -> TypingExample:
    names = [labels_field] if labels_field is not None else ["labels", "coarse", "types"]
    field = next((name for name in names if name in record), None)
    if field is None and not unlabelled:
        raise ValueError(f"lacks {' or '.join(names)}, and has only {sorted(map(str, record))}.")
    hidden = field is None or (unlabelled and record[field] is None)
    labels = None if hidden else tuple(field_of(record, str(field), "a list of strings"))
    if "sent" in record:
        text = field_of(record, "sent", "a text")
        known = tuple(_annotation(text, values) for values in typed(record.get("ents", []), "a list", "`ents`"))
        start, end = (field_of(record, name, "a whole number") for name in ("start", "end"))
        check_span(text, (start, end))
        return TypingExample(text, Mention(start, end), labels, known)
    tokens = field_of(record, "tokens", "a list of strings")
    first, behind = field_of(record, "pos", "two whole numbers")
    mention = _of_tokens(tokens, first, behind, _named(record.get("id"), record.get("name")))
    return TypingExample(" ".join(tokens), mention, labels, (mention,))


def _semeval(path: Path, encoding: str, unlabelled: bool) -> Iterator[PlacedRow]:
    """The official files: a number and a quoted sentence with tags, the relation, a comment, a blank line."""
    lines = [line.text.strip() for line in iter_lines(path, encoding)]
    found = False
    for number, line in enumerate(lines):
        match = re.fullmatch(r'(\d+)\s+"(.*)"', line)
        if match is None:
            continue
        found = True
        where = f"{path}, line {number + 1}"
        text = ""
        places: dict[str, list[int]] = {"e1": [], "e2": []}
        for part in re.split(r"(</?e[12]>)", match[2]):
            if re.fullmatch(r"</?e[12]>", part):
                places[part.strip("</>")].append(len(text))
            else:
                text += part
        label: str | None = lines[number + 1] if number + 1 < len(lines) else ""
        if unlabelled and (not label or re.match(r"Comment\b|\d+\s+\"", label)):
            label = None
        elif not label:
            yield f"{path}, line {number + 2}", ValueError("the relation is missing.")
            continue
        wrong = [tag for tag, place in places.items() if len(place) != 2 or place[0] >= place[1]]
        if wrong:
            yield where, ValueError(f"the sentence has no <{wrong[0]}>.")
            continue
        names = [text[slice(*place)] for place in places.values()]
        head, tail = (
            Mention(start, end, id=name, name=name) for (start, end), name in zip(places.values(), names, strict=True)
        )
        yield where, RelationExample(text, head, tail, label, (head, tail), int(match[1]))
    if not found:
        raise ValueError(f"{path} must have at least one numbered, quoted sentence, got none. {_FORMS}")


def processor_arguments(record: Mapping[str, Any]) -> dict[str, Any]:
    """Name what a record holds.

    Of FewRel records the two gold entities are the entities, whatever their score, and a begin of 1 is read as 0: the
    published files are wrong there, and the reference does the same.

    Returns:
        `text`, `entities`, `task` and `head`, `tail` or `span`.

    Examples:
        >>> record = {"sent": "He sang.", "start": 0, "end": 2, "ents": [["Q392", 0, 2, 0.9]], "labels": ["person"]}
        >>> processor_arguments(record)
        {'text': 'He sang.', 'entities': [['Q392', 0, 2, 0.9]], 'task': 'typing', 'span': (0, 2)}
    """
    if "sent" in record:
        start, end = (field_of(record, name, "a whole number") for name in ("start", "end"))
        found = list(field_of(record, "ents", "a list"))
        return {"text": field_of(record, "sent", "a text"), "entities": found, "task": "typing", "span": (start, end)}
    if "text" not in record or len(typed(record.get("ents", ()), "a list", "`ents`")) != 2:
        raise ValueError(
            f"`record` must have `sent`, or `text` and two `ents`, got {sorted(record)}. Other data goes to the "
            "processor directly: `processor(text, entities=..., task='relation', head=(0, 9), tail=(16, 35))`."
        )
    mentions = [(begin, end, identifier) for identifier, begin, end, *_ in record["ents"]]
    if "ann" in record:
        entities = list(record["ann"])
    else:
        mentions = [(0 if begin == 1 else begin, end, identifier) for begin, end, identifier in mentions]
        entities = mentions
    head, tail = ((begin, end) for begin, end, _ in mentions)
    return {"text": record["text"], "entities": entities, "task": "relation", "head": head, "tail": tail}
