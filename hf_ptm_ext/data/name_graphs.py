"""WordNet and Wikidata as knowledge for texts: triples of words from graphs of numbers, and a linker of nouns.

    WordNet   Amsterdam, is a, national capital       instance hypernyms, by lemmas
    Wikidata  boston, is a, city                      types of entities that have a name (CoDEx' files)

Nouns are linked to WordNet by lemma and first sense: the simplest linker with a knowledge graph. Names are written as
in running text (New York, the Hague), so that `may` and `us` are not taken for names.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ..files import write_whole
from .lines import iter_lines, json_object
from .rows import with_rows
from .triples import read_triples

IS_A = "is a"
# Words that names keep in lower case inside.
SMALL_WORDS = frozenset(
    ("a", "an", "and", "at", "by", "de", "der", "for", "in", "la", "of", "on", "the", "to", "van", "von")
)
# ending -> what may stand in its place (WordNet's own rules of detachment for nouns)
ENDINGS = {"s": "", "ses": "s", "xes": "x", "zes": "z", "ches": "ch", "shes": "sh", "men": "man", "ies": "y"}
INSTANCE, HYPERNYM = "_instance_hypernym", "_hypernym"

TextTriple = tuple[str, str, str]


def title_case(name: str) -> str:
    """Write a lower-cased name as in running text."""
    words = name.split()
    return " ".join(
        word if word in SMALL_WORDS and number else "-".join(part[:1].upper() + part[1:] for part in word.split("-"))
        for number, word in enumerate(words)
    )


def wordnet_names(
    relations: str | Path, senses: str | Path, glosses: str | Path, *, depth: int = 2, encoding: str = "utf-8"
) -> Iterator[TextTriple]:
    """What the named things of WordNet are: their classes, and the classes of these."""
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
    """What the named entities of CoDEx are."""
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
    """Write a triple file, each triple once."""
    lines = list(dict.fromkeys("\t".join(" ".join(part.split()) for part in triple) for triple in triples))
    if not lines:
        raise ValueError(f"`triples` must have at least one triple, got none for {path}: the files name nothing.")
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return len(lines)


def _fields(path: str | Path, count: int, encoding: str, form: str = "") -> Iterator[list[str]]:
    """Lines of fields, of which the last is not empty."""
    for line in iter_lines(Path(path), encoding):
        fields = line.text.split("\t")
        if line.text.strip():
            if len(fields) != count or not fields[-1].replace(",", " ").strip():
                form = form or f"have {count} fields separated by tabs"
                raise ValueError(f"{path}, line {line.number}, must {form}, got {line.text[:60]!r}.")
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


class NounLinker:
    """From a noun phrase to the first noun sense of the phrase, or of its last word.

    Args:
        path: `lemma<TAB>part of speech<TAB>synsets in the order of their senses` lines, also `.gz`.
        encoding: Of the file.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "senses.tsv")
        ...     _ = file.write_text("story\\tn\\t06369829 07221094\\nstory book\\tn\\t06420000\\n", encoding="utf-8")
        ...     link = NounLinker(file)
        >>> link("Two Stories"), link("story books"), link("xyzzy")
        ('06369829', '06420000', None)
    """

    def __init__(self, path: str | Path, encoding: str = "utf-8"):
        path = Path(path)
        self._senses: dict[str, str] = {}
        for lemma, part_of_speech, synsets in _fields(path, 3, encoding, "be a lemma, a part of speech and synsets"):
            if part_of_speech == "n":
                self._senses.setdefault(lemma.replace("_", " "), synsets.replace(",", " ").split()[0])
        if not self._senses:
            raise ValueError(f"{path} must have nouns (part of speech n), got none.")

    def __call__(self, phrase: str) -> str | None:
        """Link a phrase."""
        words = phrase.lower().split()
        for start in dict.fromkeys((0, max(len(words) - 1, 0))):
            for lemma in self._lemmas(" ".join(words[start:])):
                if lemma in self._senses:
                    return self._senses[lemma]
        return None

    @staticmethod
    def _lemmas(noun: str) -> list[str]:
        return [noun, *(noun[: -len(end)] + other for end, other in ENDINGS.items() if noun.endswith(end))]
