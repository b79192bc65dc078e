"""Knowledge graphs as arrays: triple files, corrupted triples that are not true, and triples beside rows of text.

A triple file has one `head<TAB>relation<TAB>tail` a line, as Wikidata5M, WN18RR, FB15k-237 and CoDEx come.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .lines import iter_lines

# Rounds of drawing again before the remaining triples are looked at one by one.
ROUNDS = 20
SHOWN = 5


@dataclass(frozen=True)
class Triples:
    """Triples of a knowledge graph, by row numbers.

    Args:
        rows: `(num_triples, 3)` int64: head, relation, tail.
        entities: Name of each entity, in the order of their numbers.
        relations: Name of each relation.
    """

    rows: np.ndarray
    entities: tuple[str, ...]
    relations: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)


def read_triples(*paths: str | Path, encoding: str = "utf-8") -> list[Triples]:
    """Read triple files that share their entities and relations.

    Args:
        paths: `head<TAB>relation<TAB>tail` files, also `.gz`. A byte-order mark, Windows line ends, blank lines and
            blanks around a field do no harm.
        encoding: Of the files.

    Returns:
        One `Triples` per file; all with the entities and relations of all files, sorted by name, so that the numbers
        do not depend on the order of lines.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.tsv")
        ...     _ = path.write_text("cat\\tis a\\tanimal\\ndog\\tis a\\tanimal\\n", encoding="utf-8")
        ...     (triples,) = read_triples(path)
        >>> triples.entities, triples.rows.tolist()
        (('animal', 'cat', 'dog'), [[1, 0, 0], [2, 0, 0]])
    """
    files = [list(_fields(Path(path), encoding)) for path in paths]
    entities = sorted({name for fields in files for head, _, tail in fields for name in (head, tail)})
    relations = sorted({relation for fields in files for _, relation, _ in fields})
    entity_numbers = {name: number for number, name in enumerate(entities)}
    relation_numbers = {name: number for number, name in enumerate(relations)}
    read = []
    for fields in files:
        rows = [(entity_numbers[h], relation_numbers[r], entity_numbers[t]) for h, r, t in fields]
        read.append(Triples(np.array(rows, dtype=np.int64).reshape(-1, 3), tuple(entities), tuple(relations)))
    return read


def _fields(path: Path, encoding: str) -> Iterator[tuple[str, str, str]]:
    wrong: list[int] = []
    found = False
    for line in iter_lines(path, encoding):
        if not line.text.strip():
            continue
        fields = [field.strip() for field in line.text.split("\t")]
        if len(fields) != 3 or not all(fields):
            wrong.append(line.number)
            continue
        found = True
        yield fields[0], fields[1], fields[2]
    if wrong:
        shown = ", ".join(map(str, wrong[:SHOWN])) + (", ..." if len(wrong) > SHOWN else "")
        raise ValueError(
            f"{path} must have head, relation and tail, separated by tabs, on every line; {len(wrong)} "
            f"line{'s have' if len(wrong) > 1 else ' has'} not: {shown}. Mend or remove them."
        )
    if not found:
        raise ValueError(f"{path} must have at least one triple, got an empty file.")


class NegativeSampler:
    """Draws entities that make a triple false ("filtered" corruption), for many triples at once.

    A corrupted triple that is among the known ones is drawn again, so true statements are never taught as false.

    Args:
        known: All triples that are known to be true (training and validation data), `(num_known, 3)`.
        num_entities: Size of the graph; replacements are drawn uniformly from all entities.
        num_relations: Number of relations.

    Examples:
        >>> known = np.array([[0, 0, 1], [0, 0, 2]])
        >>> sampler = NegativeSampler(known, num_entities=4, num_relations=1)
        >>> tails = sampler.draw(np.repeat(known, 50, axis=0), "tail", np.random.default_rng(0))
        >>> sorted(set(tails.tolist()))  # 1 and 2 are true
        [0, 3]
    """

    def __init__(self, known: np.ndarray, num_entities: int, num_relations: int):
        known = np.asarray(known, dtype=np.int64).reshape(-1, 3)
        limits = np.array([num_entities, num_relations, num_entities])
        if len(known) and (known.min() < 0 or (known.max(axis=0) >= limits).any()):
            raise ValueError(
                f"`known` must name entities below {num_entities} and relations below {num_relations}, got numbers up "
                f"to {known.max(axis=0).tolist()}."
            )
        if int(num_entities) ** 2 * int(num_relations) >= 2**63:
            raise ValueError(
                f"`num_entities` squared times `num_relations` must stay below 2**63, got {num_entities} and "
                f"{num_relations}."
            )
        self.num_entities, self.num_relations = int(num_entities), int(num_relations)
        self._keys = np.unique(self._key(known))

    def _key(self, triples: np.ndarray) -> np.ndarray:
        return (triples[:, 0] * self.num_relations + triples[:, 1]) * self.num_entities + triples[:, 2]

    def is_known(self, triples: np.ndarray) -> np.ndarray:
        """Look triples up."""
        if not len(self._keys):
            return np.zeros(len(triples), dtype=bool)
        keys = self._key(triples)
        found = self._keys[np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)]
        return found == keys

    def draw(self, triples: np.ndarray, side: "str | np.ndarray", rng: np.random.Generator) -> np.ndarray:
        """Draw a replacement for the `"head"` or `"tail"` of each triple, or, by booleans, its head where true."""
        triples = np.asarray(triples, dtype=np.int64)
        heads = np.full(len(triples), side == "head") if isinstance(side, str) else np.asarray(side, dtype=bool)
        column = np.where(heads, 0, 2)
        corrupted = triples.copy()
        open_rows = np.arange(len(triples))
        for _ in range(ROUNDS):
            corrupted[open_rows, column[open_rows]] = rng.integers(self.num_entities, size=len(open_rows))
            open_rows = open_rows[self.is_known(corrupted[open_rows])]
            if not len(open_rows):
                break
        for row in open_rows:  # nearly everything is true: choose from what is not
            every = np.repeat(triples[row : row + 1], self.num_entities, axis=0)
            every[:, column[row]] = np.arange(self.num_entities)
            false = np.flatnonzero(~self.is_known(every))
            if not len(false):
                raise ValueError(
                    f"`triples` must each have a false {'head' if heads[row] else 'tail'}; for "
                    f"{triples[row].tolist()} all {self.num_entities} entities are true. Drop this triple."
                )
            corrupted[row, column[row]] = rng.choice(false)
        return corrupted[np.arange(len(triples)), column]


class ZippedRows:
    """Row n is row n of the first set and row n of the second, each modulo its length (fairseq's round robin).

    Args:
        rows: Rows with named columns, such as a `datasets.Dataset` of tokenised text.
        others: Entries that go under one name, such as triples `(num_triples, 3)`.
        name: That name.

    Examples:
        >>> text = [{"input_ids": [1]}, {"input_ids": [2]}, {"input_ids": [3]}]
        >>> rows = ZippedRows(text, [[0, 0, 1], [1, 0, 2]], "triple")
        >>> len(rows), rows[2]
        (3, {'input_ids': [3], 'triple': [0, 0, 1]})
    """

    def __init__(self, rows: Sequence[Any], others: Sequence[Any], name: str):
        for field, values in (("rows", rows), ("others", others)):
            if not len(values):
                raise ValueError(f"`{field}` must have at least one row, got none.")
        self.rows, self.others, self.name = rows, others, name

    def __len__(self) -> int:
        return max(len(self.rows), len(self.others))

    def __getitem__(self, number: int) -> dict[str, Any]:
        if not -len(self) <= number < len(self):
            raise IndexError(f"There is no row {number} among {len(self)}.")
        number %= len(self)
        other = self.others[number % len(self.others)]
        return {**self.rows[number % len(self.rows)], self.name: other.tolist() if hasattr(other, "tolist") else other}
