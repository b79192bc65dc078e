"""What the tokenizer can be told, and the graph that it is given or was saved with."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .knowledge_graph_kbert import KNOWLEDGE_GRAPH_FILE, KnowledgeGraph
from .lexicon_kbert import frozen_predicates

GRANULARITIES = ("wordpiece", "char")
REFERENCES = ("classification", "ner")
NO_LABEL = -100


class _Saved:
    """Stands for what was saved with the tokenizer."""

    def __repr__(self) -> str:
        return "<as saved>"

    def __reduce__(self) -> str:
        return "SAVED"


SAVED = _Saved()


@dataclass(frozen=True)
class CallOptions:
    """What a call of the tokenizer may change; see there.

    Args:
        kg: the graph, or `None`.
        max_entities: objects of a word.
        use_predicate: whether, or which, predicates are written.
        predicates: allow-list, or `None`.
        knowledge_truncation: what gives way.
        knowledge_label: label of injected tokens.
        return_knowledge_mask: whether that column is wanted.
        return_source_index: whether that column is wanted.
        word_labels: labels of words.
        padding_label: label of padding.
    """

    kg: Any
    max_entities: int
    use_predicate: Any
    predicates: Any
    knowledge_truncation: str
    knowledge_label: int
    return_knowledge_mask: bool = False
    return_source_index: bool = False
    word_labels: Any = None
    padding_label: int = NO_LABEL


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of an option's.

    Args:
        name: of the option.
        value: what was given.
        choices: what there is.

    Raises:
        ValueError: it is none of them.
    """
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")


def check_count(name: str, value: Any) -> None:
    """Refuse what is no number of things.

    Args:
        name: of the option.
        value: what was given.

    Raises:
        ValueError: it is no whole number, or a negative one.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"`{name}` must be 0 or more, a whole number, got {value!r}.")


def listed(value: Any) -> Any:
    """An option as tokenizer_config.json can hold it: predicates as a sorted list.

    Args:
        value: `None`, a truth value, or a collection of texts.

    Returns:
        The value, or a list.
    """
    value = frozen_predicates(value)
    return sorted(value) if isinstance(value, frozenset) else value


def as_graph(kg: Any) -> KnowledgeGraph | None:
    """A graph, or what one is read from.

    Graphs are told by what they can do, because a checkpoint's copy of the class is another class.

    Args:
        kg: a graph, a path or paths of triple files, or `None`.

    Returns:
        The graph, or `None`.

    Raises:
        TypeError: it is none of these.
    """
    if kg is None or hasattr(kg, "lookup"):
        return kg
    if isinstance(kg, str | os.PathLike):
        return KnowledgeGraph.from_files(kg)
    if isinstance(kg, list | tuple):
        return KnowledgeGraph.from_files(*kg)
    raise TypeError(
        f"`kg` must be a `KnowledgeGraph`, a path or paths of triple files, or None, got {type(kg).__name__}. Make "
        "one with `KnowledgeGraph.from_dict` or `.from_triples`."
    )


def load_graph(kg: Any, file: str | None, sha256: Any) -> KnowledgeGraph | None:
    """The graph that a tokenizer was given, or the one that it was saved with.

    Args:
        kg: as in `as_graph`, or `SAVED`.
        file: path of the saved graph, if there is one.
        sha256: what that must have; `None` if the tokenizer was saved without a graph, `SAVED` if nobody says.

    Returns:
        The graph, or `None`.

    Raises:
        ValueError: the saved graph is missing or different.
    """
    if kg is not SAVED:
        return as_graph(kg)
    if sha256 is None or (sha256 is SAVED and file is None):
        return None
    if file is None or not os.path.isfile(file):
        raise ValueError(
            f"`{KNOWLEDGE_GRAPH_FILE}` must be beside tokenizer_config.json, which names its sha256 {sha256}; it is "
            "missing. Restore it, pass the graph as `kg`, or pass kg=None for a tokenizer without knowledge."
        )
    return KnowledgeGraph.from_file(file, sha256=None if sha256 is SAVED else sha256)
