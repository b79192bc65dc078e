"""Ranks of true heads, tails and relations by scores that are dear, such as a forward pass of a triple.

Every triple is scored once, whatever it is asked for: the same question (head and relation) of several triples is one,
and what a question for tails has scored is not scored again by one for heads. Only one relation's overlap is kept.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .link_prediction import check_queries, link_prediction_scores

# triples (number, 3) -> scores (number,), larger is better
Scores = Callable[[np.ndarray], np.ndarray]
TIES = ("realistic", "optimistic", "pessimistic")
HEAD, TAIL = 0, 1
_AT_ONCE = 1 << 16  # triples that are scored by one call


class LinkRanks(NamedTuple):
    """Ranks of link prediction, 1 the best, `(2, triples)`: of the head (KG-BERT's left) and of the tail (right).

    Args:
        raw: Among all candidates.
        filtered: Among those that are not known to be true, too.
        candidates: How many of those there are, the true one included.
    """

    raw: np.ndarray
    filtered: np.ndarray
    candidates: np.ndarray

    def scores(self) -> dict[str, float]:
        """`mrr`, `mean_rank` and `hits@k`, filtered, over heads and tails; of either side, and `raw_`."""
        return {
            **link_prediction_scores(self.filtered.ravel()),
            **_prefixed("raw_", link_prediction_scores(self.raw.ravel())),
            **_prefixed("head_", link_prediction_scores(self.filtered[HEAD])),
            **_prefixed("tail_", link_prediction_scores(self.filtered[TAIL])),
        }


def _prefixed(prefix: str, scores: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in scores.items()}


class _Places:
    """Counts of what is better than the true one and of what is equal to it."""

    def __init__(self, ties: str, tolerance: float):
        if ties not in TIES:
            raise ValueError(f"`ties` must be one of {', '.join(TIES)}, got {ties!r}.")
        self.share, self.tolerance = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[ties], tolerance

    def count(self, scores: np.ndarray, true: np.ndarray) -> np.ndarray:
        """`(2, true)`: how many scores are above each true one, and how many are equal."""
        order, near = np.sort(scores.astype(np.float64)), self.tolerance * (1 + np.abs(true.astype(np.float64)))
        above = len(order) - np.searchsorted(order, true + near, side="right")
        return np.stack([above, len(order) - np.searchsorted(order, true - near, side="left") - above])

    def ranks(self, counts: np.ndarray) -> np.ndarray:
        return np.asarray(1 + counts[0] + self.share * counts[1])


def triple_ranks(
    triples: np.ndarray,
    known: np.ndarray,
    num_entities: int,
    scores: Scores,
    *,
    candidates: str | int = "all",
    ties: str = "realistic",
    tolerance: float = 1e-6,
    seed: int = 0,
) -> LinkRanks:
    """Rank the true head and the true tail of each triple among the entities, every triple scored once.

    Args:
        triples: `(number, 3)` head, relation, tail.
        known: All true triples, the asked ones included or not: training, validation and test data.
        num_entities: Size of the graph.
        scores: Scores of triples, larger is better; asked for some ten thousand at once.
        candidates: `"all"` entities; `"type"`: those that stand on this side of the relation in `known` elsewhere than
            in `triples`; a number: so many drawn entities, the same for every question. The true one is always among
            them.
        ties: What entities with the score of the true one count: none before it (`"optimistic"`), half of them
            (`"realistic"`: a model that scores all alike is no better than chance) or all (`"pessimistic"`).
        tolerance: Scores are equal up to so much, times 1 + the true one's.
        seed: Of drawn candidates.

    Raises:
        ValueError: an option is unknown, there are no triples, or a score is not finite.

    Examples:
        >>> triples, known = np.array([[0, 0, 1]]), np.array([[0, 0, 2]])
        >>> ranks = triple_ranks(triples, known, 3, lambda rows: rows[:, 2] + 0.1 * rows[:, 0])
        >>> ranks.raw.tolist(), ranks.filtered.tolist()  # 2 is true too, so it is taken out
        ([[3.0], [2.0]], [[3.0], [1.0]])
    """
    triples = np.asarray(triples, dtype=np.int64).reshape(-1, 3)
    known = np.asarray(known, dtype=np.int64).reshape(-1, 3)
    check_queries("triples", triples)
    places, drawn = _Places(ties, tolerance), None
    if not isinstance(candidates, str):
        if candidates < 1:
            raise ValueError(f"`candidates` must be at least 1, got {candidates}.")
        draw = np.random.default_rng(seed).permutation(num_entities)
        drawn = np.sort(draw[:candidates])
    elif candidates not in ("all", "type"):
        raise ValueError(f"`candidates` must be all, type or a number, got {candidates!r}.")
    elif candidates == "all":
        drawn = np.arange(num_entities)
    asked = {tuple(row) for row in triples.tolist()} if candidates == "type" else set()
    found = np.zeros((3, 2, len(triples)))
    every = np.unique(np.concatenate([known, triples]), axis=0)
    for relation in np.unique(triples[:, 1]):
        mine = np.flatnonzero(triples[:, 1] == relation)
        true = every[every[:, 1] == relation]
        typed = np.array([row for row in true.tolist() if tuple(row) not in asked], dtype=np.int64).reshape(-1, 3)
        pools = [np.unique(typed[:, side]) if drawn is None else drawn for side in (0, 2)]
        block = _Block(relation, triples[mine], pools, scores, places)
        for side in (TAIL, HEAD):
            found[:, side, mine] = block.ranks(side, true)
    return LinkRanks(found[0], found[1], found[2].astype(np.int64))


class _Block:
    """All questions of one relation; what those for tails score at the asked heads and tails is kept."""

    def __init__(
        self, relation: int, triples: np.ndarray, pools: Sequence[np.ndarray], scores: Scores, places: _Places
    ):
        self.relation, self.pools, self.scores, self.places = relation, pools, scores, places
        self.heads, self.head_of = np.unique(triples[:, 0], return_inverse=True)
        self.tails, self.tail_of = np.unique(triples[:, 2], return_inverse=True)
        self.kept = np.zeros((len(self.heads), len(self.tails)), dtype=np.float32)

    def ranks(self, side: int, true: np.ndarray) -> np.ndarray:
        """`(3, triples)`: raw and filtered ranks, number of candidates."""
        fixed, asked = (self.heads, self.tails) if side == TAIL else (self.tails, self.heads)
        fixed_of, asked_of = (self.head_of, self.tail_of) if side == TAIL else (self.tail_of, self.head_of)
        known = true[np.argsort(true[:, 0 if side == TAIL else 2], kind="stable")]
        keys, answers = (known[:, 0], known[:, 2]) if side == TAIL else (known[:, 2], known[:, 0])
        pool = self.pools[side]
        columns = np.union1d(pool, asked)
        counted, place_of_asked = np.isin(columns, pool), np.searchsorted(columns, asked)
        found = np.zeros((3, len(fixed_of)))
        order = np.argsort(fixed_of, kind="stable")
        bounds = np.searchsorted(fixed_of[order], np.arange(len(fixed) + 1))
        step = max(1, _AT_ONCE // len(columns))
        for first in range(0, len(fixed), step):
            part = np.arange(first, min(first + step, len(fixed)))
            values = self._values(side, fixed[part], part, columns, place_of_asked)
            for row, number in zip(values, part, strict=True):
                queries = order[bounds[number] : bounds[number + 1]]
                start, end = np.searchsorted(keys, [fixed[number], fixed[number] + 1])
                others = np.flatnonzero(np.isin(columns, answers[start:end]) & counted)
                at = place_of_asked[asked_of[queries]]
                own = np.stack([np.zeros(len(at)), counted[at]])  # the true one is equal to itself
                all_of, theirs = self.places.count(row[counted], row[at]), self.places.count(row[others], row[at])
                found[0, queries] = self.places.ranks(all_of - own)
                found[1, queries] = self.places.ranks(all_of - theirs)
                found[2, queries] = len(pool) - len(others) + 1
        return found

    def _values(
        self, side: int, fixed: np.ndarray, part: np.ndarray, columns: np.ndarray, place_of_asked: np.ndarray
    ) -> np.ndarray:
        """Scores `(fixed, columns)`; those of heads take what those of tails have scored."""
        values = np.zeros((len(fixed), len(columns)), dtype=np.float32)
        fresh = np.ones(len(columns), dtype=bool)
        if side == HEAD:
            fresh[place_of_asked] = False
            values[:, place_of_asked] = self.kept[:, part].T
        new = columns[fresh]
        rows = np.empty((len(fixed), len(new), 3), dtype=np.int64)
        rows[..., 0 if side == TAIL else 2], rows[..., 1] = fixed[:, None], self.relation
        rows[..., 2 if side == TAIL else 0] = new[None]
        if rows.size:
            given = np.asarray(self.scores(rows.reshape(-1, 3)), dtype=np.float32)
            if not np.isfinite(given).all():
                raise ValueError(f"`scores` must be finite numbers, got {given[~np.isfinite(given)][0]}.")
            values[:, fresh] = given.reshape(len(fixed), len(new))
        if side == TAIL:
            self.kept[part] = values[:, place_of_asked]
        return values


def relation_ranks(
    logits: np.ndarray,
    true: Sequence[int],
    others: Sequence[Sequence[int]],
    *,
    ties: str = "realistic",
    tolerance: float = 1e-6,
) -> tuple[np.ndarray, np.ndarray]:
    """Rank the true relation of each pair of entities.

    Args:
        logits: `(pairs, relations)`.
        true: Number of the true relation of each pair.
        others: Numbers of all relations that are known to hold for it, the true one included or not.
        ties: See `triple_ranks`.
        tolerance: See `triple_ranks`.

    Returns:
        Raw and filtered ranks, `(pairs,)`, 1 is best.

    Examples:
        >>> raw, filtered = relation_ranks(np.array([[0.1, 0.5, 0.9]]), [1], [[2]])
        >>> raw.tolist(), filtered.tolist()
        ([2.0], [1.0])
    """
    places, found = _Places(ties, tolerance), []
    for row, own, also in zip(np.asarray(logits), true, others, strict=True):
        every = places.count(row, row[[own]])
        known = places.count(row[sorted({own, *also})], row[[own]])
        found.append((places.ranks(every - np.array([[0], [1]]))[0], places.ranks(every - known)[0]))
    raw, filtered = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return raw, filtered
