"""Mentions in a text and who they may be: a dictionary of candidates with priors (Peters et al. 2019, section 4.1).

Rows of a knowledge base: 0 padding, 1 unknown, 2 null, 3 mask, then the entities in their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .annotations_ernie_thu import DictionaryLinker
from .entity_vocab_ernie_thu import ExternalId, FilePath, TextList, read_arrays, write_arrays
from .matcher_core import fold_case

CANDIDATES_FORMAT = "entity_candidates"
SPECIAL = ("@@PADDING@@", "@@UNKNOWN@@", "@@NULL@@", "@@MASK@@")
UNKNOWN, NULL, MASK = 1, 2, 3
OPTIONS = ("ignore_case", "whole_words", "max_candidates", "null_prior")  # that a file keeps

Known = Mapping[str, Mapping[ExternalId, float] | Iterable[ExternalId]]


class CandidateMention(NamedTuple):
    """A mention in a text."""

    start: int  # in characters
    end: int  # exclusive
    entities: tuple[int, ...]  # rows of the knowledge base's table, the likeliest first
    priors: tuple[float, ...]  # their sum is 1


class EntityCandidateGenerator:
    """Finds the mentions of a dictionary, leftmost and longest, on ERNIE-THU's linker; each has its candidates.

    Args:
        mentions: mention -> entities with their weights (counts or probabilities, above 0), or entities that are
            equally likely.
        entities: all entities in the order of the table's rows (default: those of the mentions, as they come).
        max_candidates: of one mention, the likeliest (reference: 30).
        null_prior: share of the null entity, which is then a candidate of every mention (default 0: none). With the
            softmax loss a mention can stand for nothing only so.
        ignore_case: whether upper and lower case are the same (default).
        whole_words: whether a mention must not begin or end inside a word.

    Raises:
        ValueError: a weight is not above 0, or an entity is not among `entities`.

    Examples:
        >>> find = EntityCandidateGenerator({"Paris": {"Q90": 9, "Q830149": 1}, "Texas": ["Q1439"]})
        >>> find(["paris, Texas"])
        [[CandidateMention(start=0, end=5, entities=(4, 5), priors=(0.9, 0.1)),
          CandidateMention(start=7, end=12, entities=(6,), priors=(1.0,))]]
        >>> find.entity_vocab_size, find.ids_of([5])
        (7, ['Q830149'])
    """

    def __init__(
        self,
        mentions: Known,
        entities: Iterable[ExternalId] | None = None,
        *,
        max_candidates: int = 30,
        null_prior: float = 0.0,
        ignore_case: bool = True,
        whole_words: bool = True,
    ):
        if max_candidates < 1:
            raise ValueError(f"`max_candidates` must be at least 1, got {max_candidates}.")
        if not 0 <= null_prior < 1:
            raise ValueError(f"`null_prior` must be a share in [0, 1), got {null_prior}.")
        self.max_candidates, self.null_prior = max_candidates, null_prior
        merged: dict[str, dict[str, float]] = {}
        for mention, known in mentions.items():
            if isinstance(known, str):
                raise ValueError(f"`mentions` must map to lists of entities, got {known!r} for {mention!r}.")
            weights = known if isinstance(known, Mapping) else dict.fromkeys(known, 1.0)
            own = merged.setdefault(fold_case(mention) if ignore_case else mention, {})
            for entity, weight in weights.items():
                if not 0 < weight < float("inf"):
                    raise ValueError(
                        f"`mentions`: weights must be above 0, got {weight} for {entity!r} of {mention!r}."
                    )
                own[str(entity)] = own.get(str(entity), 0.0) + float(weight)
        named = dict.fromkeys(entity for known in merged.values() for entity in known)
        self.entities = [str(entity) for entity in (named if entities is None else entities)]
        rows = {entity: row for row, entity in enumerate(self.entities, len(SPECIAL))}
        lacking = [entity for entity in named if entity not in rows]
        if lacking:
            raise ValueError(f"`entities` must have every entity of `mentions`, and lacks {lacking[:3]}.")
        self._rows = rows
        self.mentions = list(merged)
        self.candidates = [self._ranked(known, rows) for known in merged.values()]
        self.linker = DictionaryLinker(
            [(mention, number) for number, mention in enumerate(self.mentions)],
            ignore_case=ignore_case,
            whole_words=whole_words,
        )

    @classmethod
    def from_table(cls, table: Any, **options: Any) -> "EntityCandidateGenerator":
        """Of an `EntityTable` or `EntityVocabulary` with titles: who is called so, all equally likely.

        Entity i of the generator is row i + 1 of the table, as `KnowBertModel.set_entity_table` puts them.
        """
        vocabulary = getattr(table, "vocabulary", table)
        mentions: dict[str, list[str]] = {}
        ids = [str(name) for name in vocabulary.ids_of(range(1, len(vocabulary)))]
        for title, row in vocabulary.titles():
            mentions.setdefault(title, []).append(ids[row - 1])
        if not mentions:
            raise ValueError(f"`table` must have titles to find mentions by, got {len(mentions)}.")
        return cls(mentions, ids, **options)

    @classmethod
    def from_senses(cls, senses: Mapping[str, Sequence[ExternalId]], **options: Any) -> "EntityCandidateGenerator":
        """Of a WordNet: lemma -> synsets in the order of their senses, the first of which is the most usual.

        Without counts the prior of sense k is proportional to 1 / k.
        """
        known = {lemma: {one: 1 / rank for rank, one in enumerate(found, 1)} for lemma, found in senses.items()}
        return cls(known, **options)

    def _ranked(
        self, known: Mapping[str, float], rows: Mapping[str, int]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        best = sorted(known.items(), key=lambda pair: -pair[1])[: self.max_candidates]
        total = sum(weight for _, weight in best)
        pairs = [(rows[entity], (1 - self.null_prior) * weight / total) for entity, weight in best]
        pairs += [(NULL, self.null_prior)] * (self.null_prior > 0)
        return tuple(row for row, _ in pairs), tuple(prior for _, prior in pairs)

    @property
    def entity_vocab_size(self) -> int:
        """Rows of the knowledge base's table, special ones included."""
        return len(SPECIAL) + len(self.entities)

    def row_of(self, entity: ExternalId) -> int:
        """The row of an entity; `UNKNOWN` for others."""
        return self._rows.get(str(entity), UNKNOWN)

    def ids_of(self, rows: Iterable[int]) -> list[str]:
        """The entities of rows."""
        names = [*SPECIAL, *self.entities]
        return [names[int(row)] for row in rows]

    def __call__(self, texts: Sequence[str]) -> list[list[CandidateMention]]:
        """Find mentions."""
        return [
            [CandidateMention(one.start, one.end, *self.candidates[int(one.id)]) for one in found]
            for found in self.linker(texts)
        ]

    def permuted(self, seed: int = 0) -> "EntityCandidateGenerator":
        """The same mentions with other entities in their places, as a control of what entities add."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        order = np.random.default_rng(seed).permutation(len(self.entities)) + len(SPECIAL)
        swap = np.concatenate([np.arange(len(SPECIAL)), order])
        other.candidates = [(tuple(int(swap[row]) for row in rows), priors) for rows, priors in self.candidates]
        return other

    def save(self, path: FilePath) -> Path:
        """Write the dictionary as a safetensors file; equal dictionaries give equal bytes."""
        counts = [len(rows) for rows, _ in self.candidates]
        arrays: dict[str, np.ndarray] = {
            "candidate_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "candidate_rows": np.array([row for rows, _ in self.candidates for row in rows], dtype=np.int32),
            "candidate_priors": np.array([one for _, priors in self.candidates for one in priors], dtype=np.float32),
        }
        for prefix, texts in (("mention", self.mentions), ("entity", self.entities)):
            stored = TextList.build(texts)
            arrays |= {f"{prefix}_blob": stored.blob, f"{prefix}_offsets": stored.offsets}
        options = {
            "ignore_case": str(self.linker.matcher.ignore_case).lower(),
            "whole_words": str(self.linker.matcher.whole_words).lower(),
            "max_candidates": str(self.max_candidates),
            "null_prior": repr(float(self.null_prior)),
        }
        return write_arrays(path, arrays, {"format": CANDIDATES_FORMAT, **options})

    @classmethod
    def from_file(cls, path: FilePath) -> "EntityCandidateGenerator":
        """Read a dictionary that `save` wrote."""
        arrays, said = read_arrays(path)
        if said.get("format") != CANDIDATES_FORMAT:
            raise ValueError(f"{path} is not a file of `EntityCandidateGenerator.save`, got {said.get('format')!r}.")
        names = [f"{kind}_{part}" for kind in ("mention", "entity") for part in ("blob", "offsets")]
        names += [f"candidate_{part}" for part in ("offsets", "rows", "priors")]
        damage = f"{path} is damaged: {{}}. Write it again."
        if lacking := [name for name in names if name not in arrays] + [name for name in OPTIONS if name not in said]:
            raise ValueError(damage.format(f"it lacks {', '.join(lacking)}"))
        none = np.zeros(0, dtype=np.int64)
        mentions, entities = (
            list(TextList(arrays[f"{prefix}_blob"], arrays[f"{prefix}_offsets"], none, none))
            for prefix in ("mention", "entity")
        )
        options: dict[str, Any] = {name: said[name] == "true" for name in ("ignore_case", "whole_words")}
        options |= {"max_candidates": int(said["max_candidates"]), "null_prior": float(said["null_prior"])}
        made = cls(dict.fromkeys(mentions, ()), entities, **options)
        rows, priors, bounds = (
            arrays["candidate_rows"].tolist(),
            arrays["candidate_priors"].tolist(),
            arrays["candidate_offsets"],
        )
        size = made.entity_vocab_size
        fits = len(bounds) == len(mentions) + 1 and len(rows) == len(priors) and all(0 < row < size for row in rows)
        if not fits or not np.isfinite(priors).all():
            raise ValueError(damage.format(f"its candidates are none of its {size} rows, or have no priors"))
        if bounds[0] != 0 or bounds[-1] != len(rows) or (np.diff(bounds) < 0).any():
            raise ValueError(damage.format(f"its mentions and its {len(rows)} candidates do not fit each other"))
        made.candidates = [
            (tuple(rows[begin:end]), tuple(priors[begin:end])) for begin, end in pairwise(bounds.tolist())
        ]
        return made
