"""A knowledge graph for injection: which objects belong to a word (Liu et al. 2020, https://arxiv.org/abs/1909.07606).

It is saved as `knowledge_graph.safetensors`: every text once, in one UTF-8 array with offsets, and the triples as
numbers, grouped by subject; equal graphs give equal bytes.
"""

import csv
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save
from transformers.utils import logging

from .matcher_core import is_spaced
from .texts_core import text_lines

logger = logging.get_logger(__name__)

KNOWLEDGE_GRAPH_FILE = "knowledge_graph.safetensors"
_FORMAT = "knowledge_graph"
_VERSION = 1
_ARRAYS = ("text_blob", "text_offsets", "subjects", "starts", "predicates", "objects")
_SHOWN = 5


class Triple(NamedTuple):
    """A fact: what it is about, how the two belong together (perhaps ""), and what is said."""

    subject: str
    predicate: str
    object: str


@dataclass(frozen=True)
class ReadingReport:
    """What a reader found in a file; `malformed` has number (from 1) and fault of each line that was left out."""

    path: str
    lines: int
    kept: int
    duplicates: int
    empty: int
    malformed: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        where = f" ({_shown(self.malformed)})" if self.malformed else ""
        plural = "" if self.duplicates == 1 else "s"
        return (
            f"{self.path}: {self.lines} lines, {self.kept} kept, {self.duplicates} duplicate{plural}, "
            f"{len(self.malformed)} malformed{where}, {self.empty} empty"
        )


class KnowledgeGraph:
    """An unchanging set of triples, looked up by subject.

    Args:
        triples: (subject, predicate, object); repeated ones count once, blanks around a part are stripped.

    Attributes:
        reports: what the readers found, for each file that the graph was read from.

    Raises:
        TypeError: a triple is not three texts.
        ValueError: there is no triple, or one without subject or object.

    Examples:
        >>> graph = KnowledgeGraph([("北京", "是", "首都"), ("北京", "人口", "万"), ("北京", "是", "首都")])
        >>> len(graph), graph.lookup("北京"), graph.lookup("北京", max_entities=1, use_predicate=True)
        (2, ['首都', '万'], ['是首都'])
        >>> graph.lookup("北京", predicates=["人口"]), graph.lookup("南京")
        (['万'], [])
    """

    def __init__(self, triples: Iterable[tuple[str, str, str]]):
        groups: dict[str, dict[tuple[str, str], None]] = {}
        for triple in triples:
            if len(triple) != 3 or not all(isinstance(part, str) for part in triple):
                raise TypeError(f"`triples` must be (subject, predicate, object) texts, got {triple!r}.")
            subject, predicate, object_ = (part.strip() for part in triple)
            if not subject or not object_:
                raise ValueError(f"`triples` must have a subject and an object each, got {tuple(triple)!r}.")
            groups.setdefault(subject, {})[predicate, object_] = None
        if not groups:
            raise ValueError(
                "`triples` must have at least one triple, got none. For a model without knowledge: kg=None."
            )
        numbers: dict[str, int] = {}
        number = numbers.setdefault
        subjects, starts, predicates, objects = [], [0], [], []
        for subject, pairs in groups.items():
            subjects.append(number(subject, len(numbers)))
            for predicate, object_ in pairs:
                predicates.append(number(predicate, len(numbers)))
                objects.append(number(object_, len(numbers)))
            starts.append(len(objects))
        self._fill(list(numbers), np.array(subjects), np.array(starts), np.array(predicates), np.array(objects))

    def _fill(self, texts: list[str], subjects: Any, starts: Any, predicates: Any, objects: Any) -> None:
        self._texts = texts
        self._subjects, self._predicates, self._objects = (
            part.astype(np.int32) for part in (subjects, predicates, objects)
        )
        self._starts = starts.astype(np.int64)
        self._numbers = {texts[text]: place for place, text in enumerate(self._subjects.tolist())}
        self.reports: tuple[ReadingReport, ...] = ()
        self._sha256: str | None = None

    # ---- making one ----

    @classmethod
    def from_triples(
        cls, triples: Iterable[tuple[str, str, str]], *, predicates: Collection[str] | None = None
    ) -> "KnowledgeGraph":
        """Make a graph of triples, or of those alone whose predicate is in an allow-list."""
        graph = cls(triples)
        return graph if predicates is None else graph.filter(predicates)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], *, predicates: Collection[str] | None = None) -> "KnowledgeGraph":
        """Make a graph of a dictionary.

        Args:
            mapping: subject -> object or list of objects, or subject -> {predicate -> object or list of objects}.
            predicates: allow-list; `None` (default) takes all.

        Examples:
            >>> KnowledgeGraph.from_dict({"Paris": {"capital of": "France", "on": ["Seine"]}}).lookup("Paris")
            ['France', 'Seine']
        """
        return cls.from_triples(_triples_of_mapping(mapping), predicates=predicates)

    @classmethod
    def from_files(
        cls,
        *paths: str | os.PathLike[str],
        predicates: Collection[str] | None = None,
        on_malformed: str = "warn",
        encoding: str = "utf-8",
    ) -> "KnowledgeGraph":
        """Read one graph from several files, in UTF-8 unless `encoding` says otherwise, packed by `.gz` or not.

            .spo .tsv .txt   subject TAB predicate TAB object, one triple a line (the original project's form)
            .csv             the same with commas and quotation marks
            .jsonl .json     {"subject": ..., "predicate": ..., "object": ... or [...]} or a list of the three a line

        Args:
            paths: files of triples, files that `save` wrote, or folders with one, such as a tokenizer's. Objects of
                earlier files come first.
            predicates: allow-list; `None` (default) takes all.
            on_malformed: "warn" (default) leaves malformed lines out, a header among them, and logs them once a file,
                "error" raises.
            encoding: of files of text.

        Returns:
            The graph; `graph.reports` counts lines.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a file is of another form or encoding, has no triple, has malformed lines under "error", or is
                damaged; or the allow-list leaves nothing.
        """
        if not paths:
            raise ValueError("`paths` must name at least one file, got none. For a model without knowledge: kg=None.")
        reports: list[ReadingReport] = []
        parts: list[Iterable[tuple[str, str, str]]] = []
        for path in map(Path, paths):
            if path.is_dir():
                path = path / KNOWLEDGE_GRAPH_FILE
            if path.suffix == ".safetensors":
                parts.append(cls.from_file(path))
                continue
            triples, report = _read_triples(path, on_malformed, encoding)
            parts.append(triples)
            reports.append(report)
        graph = parts[0] if len(parts) == 1 and isinstance(parts[0], cls) else cls(chain.from_iterable(parts))
        if predicates is not None:
            graph = graph.filter(predicates)
        graph.reports = tuple(reports)
        return graph

    def filter(self, predicates: Collection[str]) -> "KnowledgeGraph":
        """A new graph with some of the predicates only."""
        self.check_predicates(predicates)
        wanted = frozenset(predicates)
        return type(self)(triple for triple in self if triple.predicate in wanted)

    def check_predicates(self, predicates: Collection[str], name: str = "predicates") -> None:
        """Refuse a list with predicates that the graph does not have; `name` is the option's, for the message."""
        if isinstance(predicates, str):
            raise TypeError(f"`{name}` must be a collection of texts, got the text {predicates!r}. Pass a list.")
        known = set(self.predicates)
        unknown = sorted(set(predicates) - known)
        if unknown or not predicates:
            have = sorted(known)
            more = ", ..." if len(have) > _SHOWN else ""
            raise ValueError(
                f"`{name}` must name predicates of the graph, got {unknown or 'none'}; it has "
                f"{', '.join(map(repr, have[:_SHOWN]))}{more}."
            )

    # ---- looking up ----

    def lookup(
        self,
        word: str,
        max_entities: int | None = None,
        *,
        use_predicate: bool | Collection[str] = False,
        predicates: Collection[str] | None = None,
        separator: str | None = None,
    ) -> list[str]:
        """What is known of a word, as the texts that are injected, in the order of first appearance, each once.

        Args:
            word: exactly as the subject is written.
            max_entities: how many texts at most; `None` (default) for all.
            use_predicate: whether the predicate stands before the object (default False, as the original project has
                it for tagging; True as for classification), or the predicates that do.
            predicates: allow-list; `None` (default) takes all.
            separator: between predicate and object; `None` (default) is a blank where two letters of a script with
                spaces would meet, else nothing ("" in the original project).
        """
        place = self._numbers.get(word)
        if place is None or max_entities == 0:
            return []
        begin, end = self._starts[place], self._starts[place + 1]
        texts = self._texts
        found: dict[str, None] = {}
        for predicate, object_ in zip(
            self._predicates[begin:end].tolist(), self._objects[begin:end].tolist(), strict=True
        ):
            name = texts[predicate]
            if predicates is not None and name not in predicates:
                continue
            with_name = use_predicate if isinstance(use_predicate, bool) else name in use_predicate
            found[_joined(name, texts[object_], separator) if with_name and name else texts[object_]] = None
            if len(found) == max_entities:
                break
        return list(found)

    @property
    def subjects(self) -> list[str]:
        """The subjects in the order of first appearance."""
        return list(self._numbers)

    @property
    def predicates(self) -> list[str]:
        """The predicates."""
        return [self._texts[number] for number in np.unique(self._predicates)]

    def __contains__(self, word: object) -> bool:
        """Whether a word is a subject."""
        return word in self._numbers

    def __len__(self) -> int:
        """Number of triples."""
        return len(self._objects)

    def __iter__(self) -> Iterator[Triple]:
        """The triples, grouped by subject."""
        texts = self._texts
        rows = zip(self._predicates.tolist(), self._objects.tolist(), strict=True)
        for subject, (begin, end) in zip(self._subjects.tolist(), pairwise(self._starts.tolist()), strict=True):
            for _ in range(end - begin):
                predicate, object_ = next(rows)
                yield Triple(texts[subject], texts[predicate], texts[object_])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __reduce__(self) -> tuple[Any, ...]:
        """As its file: small, quick to make and to read, and the same whatever was asked of the graph before."""
        return _from_bytes, (type(self), self.to_bytes(), self.reports)

    def __deepcopy__(self, memo: dict[int, Any]) -> "KnowledgeGraph":
        """The graph itself: it never changes."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} triples of {len(self._numbers)} subjects)"

    # ---- files ----

    def to_bytes(self) -> bytes:
        """What `save` writes: a safetensors file."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in self._texts]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        arrays = {
            "text_blob": np.frombuffer(b"".join(encoded), dtype=np.uint8),
            "text_offsets": offsets,
            "subjects": self._subjects,
            "starts": self._starts,
            "predicates": self._predicates,
            "objects": self._objects,
        }
        # One entry: the writer keeps no order among several.
        return save(arrays, {_FORMAT: json.dumps({"version": _VERSION})})

    @property
    def sha256(self) -> str:
        """Of the file that `save` writes: the name of the graph's content."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256(self.to_bytes()).hexdigest()
        return self._sha256

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the graph into a file, or into a folder as `knowledge_graph.safetensors`: aside, then renamed."""
        path = Path(path)
        if path.is_dir():
            path = path / KNOWLEDGE_GRAPH_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            aside.write_bytes(self.to_bytes())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        return path

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, sha256: str | None = None) -> "KnowledgeGraph":
        """Read a graph that `save` wrote; a ValueError if it is damaged, or of another sha256 than the one given."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no knowledge graph {path}.")
        data = path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if sha256 is not None and found != sha256:
            raise ValueError(
                f"{path} must have the sha256 {sha256} that the tokenizer was saved with, got {found}. Restore the "
                "file, or pass the graph that you want as `kg`."
            )
        graph = cls.__new__(cls)
        try:
            graph._fill(*_parts_of(data))
        except (SafetensorError, KeyError, ValueError, IndexError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a readable file of `KnowledgeGraph.save` ({error}). Download or write it again; text "
                "files are read by `KnowledgeGraph.from_files`."
            ) from error
        graph._sha256 = found
        return graph


def _from_bytes(cls: type[KnowledgeGraph], data: bytes, reports: tuple[ReadingReport, ...]) -> KnowledgeGraph:
    """The graph that `KnowledgeGraph.to_bytes` was called on."""
    graph = cls.__new__(cls)
    graph._fill(*_parts_of(data))
    graph.reports = reports
    return graph


def _joined(predicate: str, object_: str, separator: str | None) -> str:
    if separator is None:
        separator = " " if is_spaced(predicate[-1]) and is_spaced(object_[0]) else ""
    return f"{predicate}{separator}{object_}"


def _parts_of(data: bytes) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Texts and arrays of a file, checked so that nothing in it can point outside."""
    arrays = load(data)
    blob, offsets, subjects, starts, predicates, objects = (arrays[name] for name in _ARRAYS)
    if wrong := [name for name in _ARRAYS if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu"]:
        raise ValueError(f"`{wrong[0]}` is no list of whole numbers")
    texts = _decode(blob, offsets)
    for numbers in (subjects, predicates, objects):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(texts):
            raise ValueError("a triple names a text that is not there")
    if (
        not len(subjects)
        or len(starts) != len(subjects) + 1
        or starts[0] != 0
        or starts[-1] != len(objects)
        or (np.diff(starts) <= 0).any()
        or len(predicates) != len(objects)
    ):
        raise ValueError("its arrays do not fit each other")
    return texts, subjects, starts, predicates, objects


def _decode(blob: np.ndarray, offsets: np.ndarray) -> list[str]:
    """The texts of one UTF-8 array: decoded as a whole, then cut, which is faster than text by text."""
    if blob.dtype != np.uint8 or not len(offsets):
        raise ValueError("its texts are of another type")
    if offsets[0] != 0 or offsets[-1] != len(blob) or (np.diff(offsets) < 0).any():
        raise ValueError("its texts are cut off")
    whole = blob.tobytes().decode("utf-8", "surrogatepass")
    # A character begins at every byte that continues none.
    characters = np.zeros(len(blob) + 1, dtype=np.int64)
    np.cumsum((blob & 0xC0) != 0x80, out=characters[1:])
    return [whole[begin:end] for begin, end in pairwise(characters[offsets].tolist())]


# ---- files of triples ----

_POLICIES = ("warn", "error")
_SUFFIXES = {".spo": "tabs", ".tsv": "tabs", ".txt": "tabs", ".csv": "commas", ".jsonl": "json", ".json": "json"}
_FORMS = {
    "tabs": "subject, predicate and object, separated by tabs,",
    "commas": "subject, predicate and object, separated by commas,",
    "json": 'a JSON object with "subject", "predicate" and "object", or a list of these three,',
}
# What the first line of a table says if it names the columns.
_HEADERS = (Triple._fields, ("head", "relation", "tail"), ("s", "p", "o"), ("h", "r", "t"))
_MARKS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars", " ": "blanks"}
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # which no file can hold


class _MalformedLineError(ValueError):
    """What is wrong with a line."""


def _read_triples(path: Path, on_malformed: str, encoding: str) -> tuple[list[Triple], ReadingReport]:
    """The triples of a file in their order, each once."""
    if on_malformed not in _POLICIES:
        raise ValueError(f"`on_malformed` must be one of {', '.join(_POLICIES)}, got {on_malformed!r}.")
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"{path} must end in one of {', '.join(_SUFFIXES)} (or that and .gz), or be a "
            f"`knowledge_graph.safetensors`; got {suffix!r}. Rename it."
        )
    form = _SUFFIXES[suffix.lower()]
    lines = [line.strip() for line in text_lines(path, "triple file", encoding)]
    triples: list[Triple] = []
    malformed: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        try:
            found = _PARSERS[form](line) if line else []
            if number == 1 and found and tuple(part.lower() for part in found[0]) in _HEADERS:
                raise _MalformedLineError("a header")
            triples += found
        except _MalformedLineError as error:
            malformed.append((number, str(error)))
    kept = list(dict.fromkeys(triples))
    report = ReadingReport(
        str(path), len(lines), len(kept), len(triples) - len(kept), lines.count(""), tuple(malformed)
    )
    if malformed:
        message = (
            f"{path} must have {_FORMS[form]} on every line; {len(malformed)} "
            f"{'lines are' if len(malformed) > 1 else 'line is'} malformed: {_shown(malformed)}."
        )
        if on_malformed == "error":
            raise ValueError(f"{message} Mend the file, or leave the lines out with on_malformed='warn'.")
        logger.warning(f"{message} Left out; `on_malformed='error'` stops at them.")
    if not kept:
        advice = _advice(form, lines[malformed[0][0] - 1]) if malformed else ""
        raise ValueError(
            f"{path} must have at least one triple, got {report}.{advice} For a model without knowledge: kg=None."
        )
    return kept, report


def _shown(malformed: Sequence[tuple[int, str]]) -> str:
    """Name the first few malformed lines."""
    more = "; ..." if len(malformed) > _SHOWN else ""
    return "; ".join(f"line {number}: {reason}" for number, reason in malformed[:_SHOWN]) + more


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


def _triple_of(fields: Sequence[Any]) -> Triple:
    if len(fields) != len(Triple._fields):
        raise _MalformedLineError(f"{len(fields)} field{'' if len(fields) == 1 else 's'}")
    for name, value in zip(Triple._fields, fields, strict=True):
        if not isinstance(value, str):
            raise _MalformedLineError(f"{name} {value!r} is not text")
        if _HALF_CHARACTER.search(value):
            raise _MalformedLineError(f"{name} has half a character, {value!r:.40}")
    triple = Triple(*(value.strip() for value in fields))
    if not triple.subject or not triple.object:
        raise _MalformedLineError(f"no {'object' if triple.subject else 'subject'}")
    return triple


def _parse_tabs(line: str) -> list[Triple]:
    return [_triple_of(line.split("\t"))]


def _parse_commas(line: str) -> list[Triple]:
    try:
        return [_triple_of(next(csv.reader([line], strict=True, skipinitialspace=True)))]
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
    if len(value) == len(Triple._fields) and isinstance(value[2], list):
        if not value[2]:
            raise _MalformedLineError("no object")
        return [_triple_of([*value[:2], one]) for one in value[2]]
    return [_triple_of(value)]


_PARSERS: dict[str, Callable[[str], list[Triple]]] = {
    "tabs": _parse_tabs,
    "commas": _parse_commas,
    "json": _parse_json,
}


def _triples_of_mapping(mapping: Mapping[str, Any]) -> Iterator[Triple]:
    for subject, value in mapping.items():
        for predicate, objects in value.items() if hasattr(value, "items") else [("", value)]:
            for one in [objects] if isinstance(objects, str) else objects:
                pair = (predicate, one) if isinstance(one, str) else tuple(one)
                if len(pair) != 2:
                    raise TypeError(f"`{subject}` must have objects or (predicate, object) pairs, got {one!r}.")
                yield Triple(subject, *pair)
