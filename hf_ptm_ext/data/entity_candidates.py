"""Dictionaries of mentions and their candidate entities, from files."""

from collections.abc import Iterable
from pathlib import Path

from .lines import iter_lines
from .rows import expand_files

PARTS_OF_SPEECH = ("n", "v", "a", "s", "r")  # WordNet's


def read_entity_candidates(
    files: str | Path | Iterable[str | Path], encoding: str = "utf-8"
) -> dict[str, dict[str, float]]:
    """Read mentions with their candidates, as `EntityCandidateGenerator` takes them: mention -> entity -> weight.

    Args:
        files: Text, also .gz: lines of `mention <TAB> entity`, or of `mention <TAB> entity <TAB> count or probability`
            (1 if left out); or WordNet's senses, `lemma <TAB> part of speech <TAB> synsets in the order of their
            senses`.
        encoding: Of the files.

    Returns:
        Weights of the candidates of each mention, summed over lines. The k-th synset of a lemma has the weight 1 / k.

    Raises:
        ValueError: A line has other fields, or there is none.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "mentions.tsv")
        ...     _ = file.write_text("Paris\\tQ90\\t3\\nParis\\tQ830149\\t1\\n", encoding="utf-8")
        ...     read_entity_candidates(file)
        {'Paris': {'Q90': 3.0, 'Q830149': 1.0}}
    """
    paths = [Path(file) for file in expand_files([files] if isinstance(files, str | Path) else [*files])]
    mentions: dict[str, dict[str, float]] = {}
    for path in paths:
        for line in iter_lines(path, encoding):
            if not line.text.strip():
                continue
            fields = line.text.rstrip("\r\n").split("\t")
            where = f"{path}, line {line.number}"
            if len(fields) not in (2, 3) or not fields[0].strip() or not fields[1].strip():
                raise ValueError(f"{where} must be `mention<TAB>entity[<TAB>weight]`, got {line.text.strip()[:60]!r}.")
            mention, entity, *more = (field.strip() for field in fields)
            if more and entity in PARTS_OF_SPEECH:
                synsets = more[0].replace(",", " ").split()
                weights = {synset: 1 / rank for rank, synset in enumerate(synsets, 1)}
                mention = mention.replace("_", " ")
            else:
                weights = {entity: weight_of(more[0], where) if more else 1.0}
            own = mentions.setdefault(mention, {})
            for name, weight in weights.items():
                own[name] = own.get(name, 0.0) + weight
    if not mentions:
        raise ValueError(f"{', '.join(map(str, paths))} must have a mention with a candidate, got none.")
    return mentions


def weight_of(text: str, where: str) -> float:
    """A count or probability."""
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ValueError(f"{where} must end in a weight above 0, got {text[:40]!r}.")
    return weight
