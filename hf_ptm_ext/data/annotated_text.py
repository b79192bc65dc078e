"""Text with marked mentions: examples of relation classification and entity typing, from the files people have.

    relations   FewRel (`tokens`, `head`, `tail`, `relation`), ERNIE-THU's FewRel and TACRED (`text`, `ents`, `label`,
                `ann`), TACRED (`token`, `subj_start`...), SemEval-2010 task 8 (`<e1>`, `<e2>` in numbered sentences)
    types       lists of tokens (`tokens`, `pos`, `labels`), ERNIE-THU's FIGER and Open Entity (`sent`, `start`, ...)

Spans are characters of the text, end exclusive. Words are joined by blanks.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .lines import iter_lines, json_object, json_value, whole_text
from .rows import id_of


@dataclass(frozen=True)
class Mention:
    """A place in a text that names an entity.

    Args:
        start: first character.
        end: behind the last one.
        id: the entity, `None` if nobody knows.
        score: how sure the linker was.
        name: how a data set calls the entity, `""` if it does not.
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
        text: the text.
        head: first argument of the relation.
        tail: second argument.
        label: the relation, `None` if it is not told.
        entities: mentions whose entity is told to the model.
        id: its name in the data set, if it has one.
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
        text: the text.
        mention: what is typed.
        labels: its types, possibly none; `None` if they are not told.
        entities: mentions whose entity is told to the model.
        id: its name in the data set, if it has one.
    """

    text: str
    mention: Mention
    labels: tuple[str, ...] | None
    entities: tuple[Mention, ...] = ()
    id: str | int | None = None


def mark_mentions(text: str, mentions: Sequence[tuple[tuple[int, int], str]]) -> str:
    """Put a marker and a blank on both sides of mentions, as ERNIE-THU's code does for any encoder.

    Args:
        text: the text.
        mentions: (start, end) and the marker of each; they do not overlap.

    Returns:
        The marked text.

    Raises:
        ValueError: mentions overlap or lie outside the text.

    Example:
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


def read_relation_examples(path: str | Path, unlabelled: bool = False) -> list[RelationExample]:
    """Read examples of relation classification; the form is told by the fields.

    Args:
        path: `.json` (a list), `.jsonl`, or SemEval's `.txt`; also `.gz`.
        unlabelled: records may be without a relation, which is `None` then (default: they are refused).

    Returns:
        The examples in order.

    Raises:
        ValueError: a record is of no known form or has spans outside its text; with its number.

    Example:
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
        return list(_semeval(path, unlabelled))
    return _converted(path, lambda record: _relation(record, unlabelled))


def read_typing_examples(
    path: str | Path, labels_field: str | None = None, unlabelled: bool = False
) -> list[TypingExample]:
    """Read examples of entity typing; the form is told by the fields.

    Args:
        path: `.json` (a list) or `.jsonl`; also `.gz`.
        labels_field: the field with the types (default: `labels`, else `coarse`, else `types`).
        unlabelled: records may be without that field; their types are `None` then (default: they are refused).

    Returns:
        The examples in order.

    Raises:
        ValueError: a record is of no known form or has spans outside its text; with its number.
    """
    return _converted(Path(path), lambda record: _typing(record, labels_field, unlabelled))


def _converted(path: Path, convert: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
    examples = []
    for number, record in enumerate(_records(path), start=1):
        try:
            examples.append(replace(convert(record), id=id_of(record)))
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
            reason = f"lacks {error.args[0]}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}, record {number}: {reason}") from error
    if not examples:
        raise ValueError(f"{path} must have at least one example, got none.")
    return examples


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    if ".jsonl" in path.suffixes:
        yield from (json_object(line, path) for line in iter_lines(path) if line.text.strip())
        return
    records = json_value(whole_text(path), str(path))
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"{path} must hold a list of JSON objects.")
    yield from records


def _texts(record: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """A list of strings: a string in its place would be taken letter by letter."""
    value = record[field]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"`{field}` must be a list of strings, got {value!r:.60}.")
    return tuple(value)


def _text(record: Mapping[str, Any], field: str) -> str:
    value = record[field]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{field}` must be a text, got {value!r:.60}.")
    return value


def _joined(tokens: Sequence[str]) -> tuple[str, list[int], list[int]]:
    """The text, and where each token starts and ends in it."""
    starts, ends, at = [], [], 0
    for token in tokens:
        starts.append(at)
        ends.append(at + len(token))
        at += len(token) + 1
    return " ".join(tokens), starts, ends


def _of_tokens(tokens: Sequence[str], first: int, behind: int, record: Mapping[str, Any]) -> Mention:
    _, starts, ends = _joined(tokens)
    if not 0 <= first < behind <= len(tokens):
        raise ValueError(f"the tokens {first} to {behind} are not among its {len(tokens)} tokens.")
    return Mention(starts[first], ends[behind - 1], record.get("id"), name=str(record.get("name") or ""))


def _checked(text: str, mention: Mention) -> Mention:
    if not 0 <= mention.start < mention.end <= len(text):
        raise ValueError(f"the span {mention.span} is not in its text of {len(text)} characters.")
    return mention


def _annotation(text: str, values: Sequence[Any]) -> Mention:
    """The original's [id, begin, end, score]."""
    identifier, start, end, *score = values
    return _checked(text, Mention(int(start), int(end), str(identifier), float(score[0]) if score else 1.0))


def _label(record: Mapping[str, Any], field: str, unlabelled: bool) -> str | None:
    return None if unlabelled and record.get(field) in (None, "", -1, "-1") else _text(record, field)


def _relation(record: Mapping[str, Any], unlabelled: bool) -> RelationExample:
    if "ents" in record:
        text = _text(record, "text")
        head, tail = (_annotation(text, values) for values in record["ents"][:2])
        known = [_annotation(text, values) for values in record["ann"]] if "ann" in record else [head, tail]
        return RelationExample(text, head, tail, _label(record, "label", unlabelled), tuple(known))
    if "subj_start" in record:  # TACRED's ends are inclusive
        tokens = _texts(record, "token")
        head, tail = (
            _of_tokens(tokens, record[f"{side}_start"], record[f"{side}_end"] + 1, {}) for side in ("subj", "obj")
        )
        return RelationExample(" ".join(tokens), head, tail, _label(record, "relation", unlabelled))
    tokens = _texts(record, "tokens")
    head, tail = (_of_tokens(tokens, *record[side]["pos"], record[side]) for side in ("head", "tail"))
    return RelationExample(" ".join(tokens), head, tail, _label(record, "relation", unlabelled), (head, tail))


def _typing(record: Mapping[str, Any], labels_field: str | None, unlabelled: bool) -> TypingExample:
    names = [labels_field] if labels_field is not None else ["labels", "coarse", "types"]
    field = next((name for name in names if name in record), None)
    if field is None and not unlabelled:
        raise KeyError(" or ".join(names))
    labels = None if unlabelled and (field is None or record[field] is None) else _texts(record, field)
    if "sent" in record:
        text = _text(record, "sent")
        known = tuple(_annotation(text, values) for values in record.get("ents", ()))
        return TypingExample(text, _checked(text, Mention(record["start"], record["end"])), labels, known)
    tokens = _texts(record, "tokens")
    mention = _of_tokens(tokens, *record["pos"], record)
    return TypingExample(" ".join(tokens), mention, labels, (mention,))


def _semeval(path: Path, unlabelled: bool = False) -> Iterator[RelationExample]:
    """The official files: a number and a quoted sentence with tags, the relation, a comment, a blank line."""
    lines = [line.text.strip() for line in iter_lines(path)]
    found = False
    for number, line in enumerate(lines):
        match = re.fullmatch(r'(\d+)\s+"(.*)"', line)
        if match is None:
            continue
        sentence, spans = match[2], {}
        for tag in ("e1", "e2"):
            inside = re.search(rf"<{tag}>(.*?)</{tag}>", sentence)
            if inside is None:
                raise ValueError(f"{path}, line {number + 1}: the sentence has no <{tag}>.")
        text = ""
        for part in re.split(r"(</?e[12]>)", sentence):
            if re.fullmatch(r"</?e[12]>", part):
                spans.setdefault(part.strip("</>"), []).append(len(text))
            else:
                text += part
        label = lines[number + 1] if number + 1 < len(lines) else ""
        if unlabelled and (not label or re.match(r'Comment\b|\d+\s+"', label)):
            label = None
        elif not label:
            raise ValueError(f"{path}, line {number + 2}: the relation is missing.")
        head, tail = (
            Mention(*spans[tag], id=text[slice(*spans[tag])], name=text[slice(*spans[tag])]) for tag in ("e1", "e2")
        )
        found = True
        yield RelationExample(text, head, tail, label, (head, tail), int(match[1]))
    if not found:
        raise ValueError(f"{path} must have at least one numbered, quoted sentence, got none.")


__all__ = [
    "Mention",
    "RelationExample",
    "TypingExample",
    "mark_mentions",
    "read_relation_examples",
    "read_typing_examples",
]
