"""A knowledge graph for injection: which objects belong to a word (Liu et al. 2020, https://arxiv.org/abs/1909.07606).

    graph = KnowledgeGraph.from_files("HowNet.spo", "medical.jsonl")
    graph.lookup("北京", max_entities=2)

The objects of a word come in the order in which they first appear, each once. (The original project keeps them in a
hash set, so which two of five are injected differs from run to run there.)

It is saved as `knowledge_graph.safetensors`: every text once, in one UTF-8 array with offsets, and the triples as
numbers, grouped by subject. Nothing in it can be executed, and equal graphs give equal bytes.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from .matcher_kbert import is_spaced
from .triples_kbert import ReadingReport, Triple, iterate_mapping, read_triples

KNOWLEDGE_GRAPH_FILE = "knowledge_graph.safetensors"
_FORMAT = "knowledge_graph"
_VERSION = 1
_ARRAYS = ("text_blob", "text_offsets", "subjects", "starts", "predicates", "objects")
_SHOWN = 5


class KnowledgeGraph:
    """An unchanging set of triples, looked up by subject.

    Args:
        triples: (subject, predicate, object); repeated ones count once, blanks around a part are stripped.

    Attributes:
        reports: what the readers found, for each file that the graph was read from.

    Raises:
        TypeError: a triple is not three texts.
        ValueError: there is no triple, or one without subject or object.

    Example:
        >>> graph = KnowledgeGraph([("北京", "是", "首都"), ("北京", "人口", "万"), ("北京", "是", "首都")])
        >>> len(graph), graph.lookup("北京"), graph.lookup("北京", max_entities=1, use_predicate=True)
        (2, ['首都', '万'], ['是首都'])
        >>> graph.lookup("北京", predicates=["人口"]), graph.lookup("南京")
        (['万'], [])
    """

    def __init__(self, triples: Iterable[tuple[str, str, str]]):
        groups: dict[str, dict[tuple[str, str], None]] = {}
        for triple in triples:
            subject, predicate, object_ = _checked(triple)
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
        """Make a graph of triples.

        Args:
            triples: (subject, predicate, object).
            predicates: allow-list; `None` (default) takes all.

        Returns:
            The graph.
        """
        graph = cls(triples)
        return graph if predicates is None else graph.filter(predicates)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], *, predicates: Collection[str] | None = None) -> "KnowledgeGraph":
        """Make a graph of a dictionary.

        Args:
            mapping: subject -> object or list of objects, or subject -> {predicate -> object or list of objects}.
            predicates: allow-list; `None` (default) takes all.

        Returns:
            The graph.

        Example:
            >>> KnowledgeGraph.from_dict({"Paris": {"capital of": "France", "on": ["Seine"]}}).lookup("Paris")
            ['France', 'Seine']
        """
        return cls.from_triples(iterate_mapping(mapping), predicates=predicates)

    @classmethod
    def from_files(
        cls,
        *paths: str | os.PathLike[str],
        predicates: Collection[str] | None = None,
        on_malformed: str = "warn",
        encoding: str = "utf-8",
    ) -> "KnowledgeGraph":
        """Read one graph from several files.

        Args:
            paths: `.spo`, `.tsv`, `.txt`, `.csv`, `.jsonl` (each perhaps with `.gz`; see `triples_kbert`), files that
                `save` wrote, or folders with one, such as a tokenizer's. Objects of earlier files come first.
            predicates: allow-list; `None` (default) takes all.
            on_malformed: "warn" (default) leaves malformed lines out and logs them once a file, "error" raises.
            encoding: of files of text.

        Returns:
            The graph; `graph.reports` counts lines.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a file is of another encoding, has no triple, has malformed lines under "error", or is damaged;
                or the allow-list leaves nothing.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = Path(folder, "graph.spo")
            ...     _ = path.write_text("北京\\t是\\t首都\\n", encoding="utf-8")
            ...     graph = KnowledgeGraph.from_files(path)
            >>> graph.lookup("北京"), graph.reports[0].lines
            (['首都'], 1)
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
            triples, report = read_triples(path, on_malformed, encoding)
            parts.append(triples)
            reports.append(report)
        graph = parts[0] if len(parts) == 1 and isinstance(parts[0], cls) else cls(chain.from_iterable(parts))
        if predicates is not None:
            graph = graph.filter(predicates)
        graph.reports = tuple(reports)
        return graph

    def filter(self, predicates: Collection[str]) -> "KnowledgeGraph":
        """Keep some predicates only.

        Args:
            predicates: allow-list.

        Returns:
            A new graph.

        Raises:
            ValueError: a predicate is none of the graph's.
        """
        self.check_predicates(predicates)
        wanted = frozenset(predicates)
        return type(self)(triple for triple in self if triple.predicate in wanted)

    def check_predicates(self, predicates: Collection[str], name: str = "predicates") -> None:
        """Refuse a list with predicates that the graph does not have.

        Args:
            predicates: the list.
            name: of the option that it is, for messages.

        Raises:
            TypeError: it is one text.
            ValueError: it is empty, or a predicate is none of the graph's.
        """
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
        """What is known of a word, as the texts that are injected.

        Args:
            word: exactly as the subject is written.
            max_entities: how many texts at most; `None` (default) for all.
            use_predicate: whether the predicate stands before the object (default False, as the original project has
                it for tagging; True as for classification), or the predicates that do.
            predicates: allow-list; `None` (default) takes all.
            separator: between predicate and object; `None` (default) is a blank where two letters of a script with
                spaces would meet, else nothing ("" in the original project).

        Returns:
            The texts in the order of first appearance, each once; none if the word is no subject.
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
        """What `save` writes.

        Returns:
            A safetensors file.
        """
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
        """Write the graph, aside first and renamed when complete.

        Args:
            path: the file, or a folder, which gets a `knowledge_graph.safetensors`.

        Returns:
            The file.
        """
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
        """Read a graph that `save` wrote.

        Args:
            path: the file.
            sha256: what the file must have, if given.

        Returns:
            The graph.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it has another sha256, is another kind of file, or is damaged.
        """
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


def _checked(triple: Any) -> Triple:
    if len(triple) != 3 or not all(isinstance(part, str) for part in triple):
        raise TypeError(f"`triples` must be (subject, predicate, object) texts, got {triple!r}.")
    subject, predicate, object_ = triple
    stripped = Triple(subject.strip(), predicate.strip(), object_.strip())
    if not stripped.subject or not stripped.object:
        raise ValueError(f"`triples` must have a subject and an object each, got {tuple(triple)!r}.")
    return stripped


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
        if numbers.ndim != 1 or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(texts)):
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
    if blob.dtype != np.uint8 or offsets.ndim != 1 or not len(offsets):
        raise ValueError("its texts are of another type")
    if offsets[0] != 0 or offsets[-1] != len(blob) or (np.diff(offsets) < 0).any():
        raise ValueError("its texts are cut off")
    whole = blob.tobytes().decode("utf-8", "surrogatepass")
    # A character begins at every byte that continues none.
    characters = np.zeros(len(blob) + 1, dtype=np.int64)
    np.cumsum((blob & 0xC0) != 0x80, out=characters[1:])
    return [whole[begin:end] for begin, end in pairwise(characters[offsets].tolist())]


__all__ = ["KnowledgeGraph"]
