"""Triples of words from graphs of numbers: what a name is, for knowledge that is put into a text.

    WordNet   Amsterdam, is a, national capital       instance hypernyms, by lemmas
    Wikidata  boston, is a, city                      types of entities that have a name (CoDEx' files)

Names are written as in running text (New York, the Hague), so that `may` and `us` are not taken for names.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from .lines import iter_lines, json_object
from .rows import with_rows
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
    relations: str | Path, senses: str | Path, glosses: str | Path, *, depth: int = 2, encoding: str = "utf-8"
) -> Iterator[TextTriple]:
    """What the named things of WordNet are: their classes, and the classes of these.

    Args:
        relations (`str` or `Path`): Triples of synsets (WN18RR): `_instance_hypernym` and `_hypernym` are read.
        senses (`str` or `Path`): Lemma, part of speech, synsets in the order of their senses, by tabs. A lemma names
            a thing if that is its first sense.
        glosses (`str` or `Path`): Synset and its text by a tab, the text beginning with the name of the synset.
        depth (`int`, *optional*, defaults to 2): Classes of a thing, upwards: its own first.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of the files.

    Returns:
        `Iterator[tuple[str, str, str]]`: name, "is a", class.

    Raises:
        ValueError: If `depth` is less than 1, or a file is of another form.
    """
    if depth < 1:
        raise ValueError(f"`depth` must be at least 1, got {depth}.")
    (triples,) = read_triples(relations, encoding=encoding)
    upwards: dict[str, dict[str, list[str]]] = {INSTANCE: {}, HYPERNYM: {}}
    for head, relation, tail in triples.rows.tolist():
        links = upwards.get(triples.relations[relation])
        if links is not None:
            links.setdefault(triples.entities[head], []).append(triples.entities[tail])
    class_names = {
        number: text.partition(",")[0].strip()
        for number, text in with_rows(_fields(glosses, 2, encoding), Path(glosses))
    }
    for lemma, part_of_speech, synsets in with_rows(_fields(senses, 3, encoding), Path(senses)):
        first = synsets.replace(",", " ").split()[0]
        classes = upwards[INSTANCE].get(first, []) if part_of_speech == "n" else []
        for _ in range(depth):
            for number in classes:
                if number in class_names:
                    yield title_case(lemma.replace("_", " ")), IS_A, class_names[number]
            classes = [upper for number in classes for upper in upwards[HYPERNYM].get(number, [])[:1]]


def wikidata_names(
    entities: str | Path, labels: str | Path, *, most_types: int = 2, encoding: str = "utf-8"
) -> Iterator[TextTriple]:
    """What the named entities of CoDEx are.

    Args:
        entities (`str` or `Path`): JSON lines with `id`, `types` (ids) and, for some, `name`.
        labels (`str` or `Path`): JSON lines with `id` and `label` of the types.
        most_types (`int`, *optional*, defaults to 2): Types of an entity, the first ones.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of the files.

    Returns:
        `Iterator[tuple[str, str, str]]`: name, "is a", type.
    """
    names = {
        row["id"]: row["label"]
        for row in with_rows(_objects(labels, encoding, "label"), Path(labels))
        if row.get("label")
    }
    for row in with_rows(_objects(entities, encoding, "name"), Path(entities)):
        types = row.get("types", [])
        if not isinstance(types, list) or not all(isinstance(one, str) for one in types):
            raise ValueError(f"{entities}: `types` of {row['id']} must be a list of ids, got {types!r:.60}.")
        if row.get("name"):
            for number in [number for number in types if number in names][:most_types]:
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


def _fields(path: str | Path, count: int, encoding: str) -> Iterator[list[str]]:
    for line in iter_lines(Path(path), encoding):
        fields = line.text.split("\t")
        if line.text.strip() and (len(fields) != count or not fields[-1].replace(",", " ").strip()):
            raise ValueError(
                f"{path}, line {line.number}, must have {count} fields separated by tabs, got {len(fields)}."
            )
        if line.text.strip():
            yield fields


def _objects(path: str | Path, encoding: str, *texts: str) -> Iterator[dict]:
    """JSON lines whose named fields are texts, where they are there."""
    for line in iter_lines(Path(path), encoding):
        if line.text.strip():
            row = json_object(line, Path(path))
            wrong = [
                name for name in ("id", *texts) if not isinstance(row.get(name, "" if name in texts else None), str)
            ]
            if wrong:
                raise ValueError(f"{path}, line {line.number}, must have a text as `{wrong[0]}`, got {sorted(row)}.")
            yield row


__all__ = ["title_case", "wikidata_names", "wordnet_names", "write_triples"]
