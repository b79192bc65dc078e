"""The concepts of `finetune --concepts` (KT-NET): which ones the words of a text have, and their vectors."""

from pathlib import Path
from typing import Any

from ..data.lines import iter_lines

KnownRows = dict[str, dict[str, list[int]]]


def named_files(option: str, given: list[str]) -> dict[str, Path]:
    """Knowledge base -> file, of words `NAME=FILE`."""
    found = {}
    for word in given:
        name, _, file = word.partition("=")
        if not name.isidentifier() or not file or name in found:
            raise ValueError(
                f"`{option}` must be NAME=FILE for each knowledge base, such as wn=words.tsv, got {word!r}."
            )
        if not Path(file).is_file():
            raise FileNotFoundError(f"`{option}` = {word} names a file that does not exist.")
        found[name] = Path(file)
    return found


def read_concepts(given: Any) -> tuple[KnownRows, dict[str, Any]]:
    """Knowledge base -> name -> rows of its table, and knowledge base -> table, of the files that options name."""
    files, vectors = (named_files(one, getattr(given, one) or []) for one in ("concepts", "concept_vectors"))
    if list(files) != list(vectors):
        raise ValueError(
            f"`concept_vectors` must name the knowledge bases of `concepts`, {', '.join(files)}, in their order, got "
            f"{', '.join(vectors) or 'none'}."
        )
    tables = {base: _table(file) for base, file in vectors.items()}
    return {base: _rows(base, file, tables[base], given.max_concepts) for base, file in files.items()}, tables


def _table(file: Path) -> Any:
    from ..conversion.entity_tables import EntityTable

    return EntityTable.from_file(file) if file.suffix == ".safetensors" else EntityTable.from_word2vec(file)


def _rows(base: str, file: Path, table: Any, most: int) -> dict[str, list[int]]:
    """Name -> rows of its first concepts that have vectors; names without any are left out."""
    mentions = read_mentions(file)
    names = sorted({one for concepts in mentions.values() for one in concepts})
    row_of = dict(zip(names, map(int, table.rows(names)), strict=True))
    rows = {name: [row_of[one] for one in concepts if row_of[one]][:most] for name, concepts in mentions.items()}
    rows = {name: found for name, found in rows.items() if found}
    if not rows:
        raise ValueError(
            f"`concept_vectors` of {base} have none of the concepts of {file}, such as {names[0]!r}: name the vectors "
            "of the same knowledge base."
        )
    return rows


def read_mentions(path: Path) -> dict[str, list[str]]:
    """Word or name -> its concepts, of lines `word<TAB>concept<TAB>concept ...`; several lines of a word add up."""
    found: dict[str, list[str]] = {}
    for line in iter_lines(path):
        name, *concepts = (cell.strip() for cell in line.text.split("\t"))
        concepts = [one for one in concepts if one]
        if not name and not concepts:
            continue
        if not name or not concepts:
            raise ValueError(
                f"{path}, line {line.number}, must be a word and its concepts, separated by tabs, got "
                f"{line.text.strip()[:60]!r}."
            )
        known = found.setdefault(name, [])
        known += [one for one in concepts if one not in known]
    if not found:
        raise ValueError(f"{path} has no line `word<TAB>concept ...`.")
    return found
