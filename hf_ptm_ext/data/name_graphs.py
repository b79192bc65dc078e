"""Triples of words from graphs of numbers: what a name is, for knowledge that is put into a text.

    WordNet   Amsterdam, is a, national capital       instance hypernyms, by lemmas
    Wikidata  boston, is a, city                      types of entities that have a name (CoDEx' files)

Names are written as in running text (New York, the Hague), so that `may` and `us` are not taken for names.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from .triples import read_triples

IS_A = "is a"
# Words that names keep in lower case inside.
SMALL_WORDS = frozenset(
    ("a", "an", "and", "at", "by", "de", "der", "for", "in", "la", "of", "on", "the", "to", "van", "von")
)
INSTANCE, HYPERNYM = "_instance_hypernym", "_hypernym"

TextTriple = tuple[str, str, str]


def title_case(name: str) -> str:
    """Write a lower-cased name as in running text.

    Args:
        name (`str`): The name.

    Returns:
        `str`: with capitals, small words aside.

    Example:

    >>> title_case("university of new york"), title_case("mid-atlantic states")
    ('University of New York', 'Mid-Atlantic States')
    """
    words = name.split()
    return " ".join(
        word if word in SMALL_WORDS and number else "-".join(part[:1].upper() + part[1:] for part in word.split("-"))
        for number, word in enumerate(words)
    )


def wordnet_names(
    relations: str | Path, senses: str | Path, glosses: str | Path, *, depth: int = 2
) -> Iterator[TextTriple]:
    """What the named things of WordNet are: their classes, and the classes of these.

    Args:
        relations (`str` or `Path`): Triples of synsets (WN18RR): `_instance_hypernym` and `_hypernym` are read.
        senses (`str` or `Path`): Lemma, part of speech, synsets in the order of their senses, by tabs. A lemma names
            a thing if that is its first sense.
        glosses (`str` or `Path`): Synset and its text by a tab, the text beginning with the name of the synset.
        depth (`int`, *optional*, defaults to 2): Classes of a thing, upwards: its own first.

    Returns:
        `Iterator[tuple[str, str, str]]`: name, "is a", class.

    Raises:
        ValueError: If `depth` is less than 1, or a file is of another form.
    """
    if depth < 1:
        raise ValueError(f"`depth` must be at least 1, got {depth}.")
    (triples,) = read_triples(relations)
    upwards: dict[str, dict[str, list[str]]] = {INSTANCE: {}, HYPERNYM: {}}
    for head, relation, tail in triples.rows.tolist():
        links = upwards.get(triples.relations[relation])
        if links is not None:
            links.setdefault(triples.entities[head], []).append(triples.entities[tail])
    class_names = {number: text.partition(",")[0].strip() for number, text in _fields(glosses, 2)}
    for lemma, part_of_speech, synsets in _fields(senses, 3):
        first = synsets.replace(",", " ").split()[0]
        classes = upwards[INSTANCE].get(first, []) if part_of_speech == "n" else []
        for _ in range(depth):
            for number in classes:
                if number in class_names:
                    yield title_case(lemma.replace("_", " ")), IS_A, class_names[number]
            classes = [upper for number in classes for upper in upwards[HYPERNYM].get(number, [])[:1]]


def wikidata_names(entities: str | Path, labels: str | Path, *, most_types: int = 2) -> Iterator[TextTriple]:
    """What the named entities of CoDEx are.

    Args:
        entities (`str` or `Path`): JSON lines with `id`, `types` (ids) and, for some, `name`.
        labels (`str` or `Path`): JSON lines with `id` and `label` of the types.
        most_types (`int`, *optional*, defaults to 2): Types of an entity, the first ones.

    Returns:
        `Iterator[tuple[str, str, str]]`: name, "is a", type.
    """
    names = {row["id"]: row["label"] for row in _objects(labels)}
    for row in _objects(entities):
        if row.get("name"):
            for number in [number for number in row["types"] if number in names][:most_types]:
                yield title_case(row["name"]), IS_A, names[number]


def write_triples(path: str | Path, triples: Iterable[TextTriple]) -> int:
    """Write a triple file, each triple once.

    Args:
        path (`str` or `Path`): The file, subject, predicate and object by tabs.
        triples (`Iterable[tuple[str, str, str]]`): The triples.

    Returns:
        `int`: how many were written.

    Raises:
        ValueError: If there is none.

    Example:

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "names.spo"
    >>> write_triples(file, [("Paris", "is a", "city"), ("Paris", "is a", "city")])
    1
    """
    lines = list(dict.fromkeys("\t".join(" ".join(part.split()) for part in triple) for triple in triples))
    if not lines:
        raise ValueError("`triples` must have at least one triple: the files name nothing.")
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return len(lines)


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    path = Path(path)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def _fields(path: str | Path, count: int) -> Iterator[list[str]]:
    for number, line in _lines(path):
        fields = line.split("\t")
        if len(fields) != count or not fields[-1].strip():
            raise ValueError(f"{path}, line {number}, must have {count} fields separated by tabs, got {len(fields)}.")
        yield fields


def _objects(path: str | Path) -> Iterator[dict]:
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}, must be a JSON object ({error}).") from error
        if "id" not in row:
            raise ValueError(f"{path}, line {number}, must have an `id`, got {sorted(row)}.")
        yield row


__all__ = ["title_case", "wikidata_names", "wordnet_names", "write_triples"]
