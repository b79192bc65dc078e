"""Readers of triple files as people have them.

    .spo .tsv .txt   subject TAB predicate TAB object, one triple a line (the original project's form)
    .csv             the same with commas and quotation marks
    .jsonl           {"subject": ..., "predicate": ..., "object": ...} or ["subject", "predicate", "object"] a line;
                     an object may be a list of objects

All in UTF-8, with or without `.gz`. A byte-order mark, Windows line ends and blanks around a field do no harm; empty
lines and repeated triples are counted, a header is left out as a malformed line. The original project's reader repeats
the triple before a malformed line; this one skips the line, or raises.
"""

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from .texts_kbert import text_lines

logger = logging.get_logger(__name__)

POLICIES = ("warn", "error")
_FIELDS = ("subject", "predicate", "object")
# What the first line of a table says if it names the columns.
_HEADERS = (_FIELDS, ("head", "relation", "tail"), ("s", "p", "o"), ("h", "r", "t"))
_MARKS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars", " ": "blanks"}
_SHOWN = 5
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # which no file can hold


class Triple(NamedTuple):
    """A fact.

    Args:
        subject: what it is about.
        predicate: how the two belong together; may be empty.
        object: what is said.
    """

    subject: str
    predicate: str
    object: str


@dataclass(frozen=True)
class ReadingReport:
    """What a reader found in a file.

    Args:
        path: the file.
        lines: how many lines it has.
        kept: triples, each counted once.
        duplicates: lines that repeat a triple.
        empty: lines of nothing but blanks.
        malformed: (number of the line from 1, what is wrong with it) of each line that was left out.

    Example:
        >>> print(ReadingReport("graph.spo", 9, 5, 1, 1, ((6, "1 field"), (8, "4 fields"))))
        graph.spo: 9 lines, 5 kept, 1 duplicate, 2 malformed (line 6: 1 field; line 8: 4 fields), 1 empty
    """

    path: str
    lines: int
    kept: int
    duplicates: int
    empty: int
    malformed: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        where = f" ({shown(self.malformed)})" if self.malformed else ""
        plural = "" if self.duplicates == 1 else "s"
        return (
            f"{self.path}: {self.lines} lines, {self.kept} kept, {self.duplicates} duplicate{plural}, "
            f"{len(self.malformed)} malformed{where}, {self.empty} empty"
        )


def shown(malformed: Sequence[tuple[int, str]]) -> str:
    """Name the first few malformed lines.

    Args:
        malformed: (number, reason) of each.

    Returns:
        One line of text.
    """
    more = "; ..." if len(malformed) > _SHOWN else ""
    return "; ".join(f"line {number}: {reason}" for number, reason in malformed[:_SHOWN]) + more


def read_triples(
    path: str | os.PathLike[str], on_malformed: str = "warn", encoding: str = "utf-8"
) -> tuple[list[Triple], ReadingReport]:
    """Read one triple file.

    Args:
        path: the file; its name tells the form.
        on_malformed: what to do about lines that are no triple: "warn" (default; skip them, and log their number and
            numbers once) or "error".
        encoding: of the file.

    Returns:
        The triples in the order of the file, each once, and the report.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the form is unknown, the text is of another encoding, a line is malformed under "error", or there
            is no triple.
    """
    if on_malformed not in POLICIES:
        raise ValueError(f"`on_malformed` must be one of {', '.join(POLICIES)}, got {on_malformed!r}.")
    path = Path(path)
    parse = parser_of(path)
    lines = list(text_lines(path, "triple file", encoding))
    triples: list[Triple] = []
    malformed: list[tuple[int, str]] = []
    empty = 0
    for number, line in enumerate(lines, start=1):
        line = line.strip()
        if not line:
            empty += 1
            continue
        try:
            found = parse(line)
            if number == 1 and tuple(part.lower() for part in found[0]) in _HEADERS:
                raise _MalformedLineError("a header")
            triples += found
        except _MalformedLineError as error:
            malformed.append((number, str(error)))
    distinct = list(dict.fromkeys(triples))
    report = ReadingReport(str(path), len(lines), len(distinct), len(triples) - len(distinct), empty, tuple(malformed))
    if malformed:
        message = (
            f"{path} must have {FORMS[_form_of(path)]} on every line; {len(malformed)} "
            f"{'lines are' if len(malformed) > 1 else 'line is'} malformed: {shown(malformed)}."
        )
        if on_malformed == "error":
            raise ValueError(f"{message} Mend the file, or leave the lines out with on_malformed='warn'.")
        logger.warning(f"{message} Left out; `on_malformed='error'` stops at them.")
    if not distinct:
        advice = _advice(_form_of(path), lines[malformed[0][0] - 1].strip()) if malformed else ""
        raise ValueError(
            f"{path} must have at least one triple, got {report}.{advice} For a model without knowledge: kg=None."
        )
    return distinct, report


def _advice(form: str, line: str) -> str:
    """What to do about a file of which every line is malformed, as far as one of them tells."""
    if form == "json":
        return " Write one triple a line, not one array of them." if line.startswith("[") else ""
    for mark, name in _MARKS.items():
        if name != form and line.count(mark) >= 2:
            suffix = {"tabs": ".tsv", "commas": ".csv"}.get(name)
            remedy = f"rename it to {suffix}" if suffix else f"put {form} in their place"
            return f" Its fields seem to be separated by {name}: {remedy}."
    return ""


class _MalformedLineError(ValueError):
    """What is wrong with a line."""


def _checked(fields: Sequence[Any]) -> Triple:
    if len(fields) != len(_FIELDS):
        raise _MalformedLineError(f"{len(fields)} field{'' if len(fields) == 1 else 's'}")
    for name, value in zip(_FIELDS, fields, strict=True):
        if not isinstance(value, str):
            raise _MalformedLineError(f"{name} {value!r} is not text")
        if _HALF_CHARACTER.search(value):
            raise _MalformedLineError(f"{name} has half a character, {value!r:.40}")
    triple = Triple(*(value.strip() for value in fields))
    if not triple.subject or not triple.object:
        raise _MalformedLineError(f"no {'object' if triple.subject else 'subject'}")
    return triple


def _parse_tabs(line: str) -> list[Triple]:
    return [_checked(line.split("\t"))]


def _parse_commas(line: str) -> list[Triple]:
    try:
        return [_checked(next(csv.reader([line], strict=True, skipinitialspace=True)))]
    except csv.Error as error:
        raise _MalformedLineError(str(error)) from error


def _parse_json(line: str) -> list[Triple]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise _MalformedLineError(f"no JSON ({error.msg})") from error
    except RecursionError as error:
        raise _MalformedLineError("no JSON (nested too deeply)") from error
    except ValueError as error:
        raise _MalformedLineError("no JSON (a number of too many digits)") from error
    if isinstance(value, dict):
        missing = [name for name in ("subject", "object") if name not in value]
        if missing:
            raise _MalformedLineError(f"no {missing[0]}")
        value = [value["subject"], value.get("predicate", ""), value["object"]]
    if not isinstance(value, list):
        raise _MalformedLineError(f"{type(value).__name__} in place of an object or a list")
    if len(value) == len(_FIELDS) and isinstance(value[2], list):
        if not value[2]:
            raise _MalformedLineError("no object")
        return [_checked([*value[:2], one]) for one in value[2]]
    return [_checked(value)]


FORMS = {
    "tabs": "subject, predicate and object, separated by tabs,",
    "commas": "subject, predicate and object, separated by commas,",
    "json": 'a JSON object with "subject", "predicate" and "object", or a list of these three,',
}
_PARSERS: dict[str, Callable[[str], list[Triple]]] = {
    "tabs": _parse_tabs,
    "commas": _parse_commas,
    "json": _parse_json,
}
_SUFFIXES = {".spo": "tabs", ".tsv": "tabs", ".txt": "tabs", ".csv": "commas", ".jsonl": "json", ".json": "json"}


def _form_of(path: Path) -> str:
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"{path} must end in one of {', '.join(_SUFFIXES)} (or that and .gz), or be a "
            f"`knowledge_graph.safetensors`; got {suffix!r}. Rename it."
        )
    return _SUFFIXES[suffix.lower()]


def parser_of(path: Path) -> Callable[[str], list[Triple]]:
    """Choose the parser of a line by the name of the file.

    Args:
        path: the file.

    Returns:
        Function of a line without blanks around it.

    Raises:
        ValueError: the name has another ending.
    """
    return _PARSERS[_form_of(path)]


def iterate_mapping(mapping: Any) -> Iterator[Triple]:
    """Read triples from a dictionary.

    Args:
        mapping: subject -> object or objects, or subject -> {predicate -> object or objects}, or subject -> list of
            (predicate, object).

    Returns:
        The triples.

    Raises:
        TypeError: a value is of another form.
    """
    for subject, value in mapping.items():
        for predicate, objects in value.items() if hasattr(value, "items") else [("", value)]:
            for one in [objects] if isinstance(objects, str) else objects:
                pair = (predicate, one) if isinstance(one, str) else tuple(one)
                if len(pair) != 2:
                    raise TypeError(f"`{subject}` must have objects or (predicate, object) pairs, got {one!r}.")
                yield Triple(subject, *pair)


__all__ = ["ReadingReport", "Triple", "read_triples"]
