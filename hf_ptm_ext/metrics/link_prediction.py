"""Link prediction: where the true entity stands among all when a triple's head or tail is asked for.

Filtered (Bordes et al. 2013): other true answers are taken out of the ranking. Ties count half, so that a model that
gives every entity the same score is no better than chance.
"""

from collections.abc import Callable

import numpy as np

# (fixed entities, relations, whether the head is asked for) -> distances (queries, num_entities)
Distances = Callable[[np.ndarray, np.ndarray, bool], np.ndarray]
QUERIES_AT_ONCE = 64
HITS = (1, 3, 10)


def filtered_ranks(
    triples: np.ndarray, known: np.ndarray, num_entities: int, distances: Distances
) -> tuple[np.ndarray, np.ndarray]:
    """Rank the true entity of every query; each triple asks for its tail and for its head.

    Args:
        triples: `(num_triples, 3)` head, relation, tail.
        known: All true triples, the asked ones included or not, `(num_known, 3)`.
        num_entities: Size of the graph.
        distances: Gives the distance of every entity from the answer, smaller is better, for a batch of queries.

    Returns:
        Ranks, float64 `(2 * num_triples,)`, 1 is best; and among how many candidates, int64 of the same shape.

    Examples:
        >>> triples = np.array([[0, 0, 1]])
        >>> def distances(entities, relations, heads):
        ...     return np.array([[1.0, 0.5, 0.2]])
        >>> filtered_ranks(triples, np.array([[0, 0, 2]]), 3, distances)  # 2 is true too, so it is taken out
        (array([1., 3.]), array([2, 3]))
    """
    check_queries("triples", triples)
    ranks, candidates = [], []
    known = np.concatenate([np.asarray(known), np.asarray(triples)]).astype(np.int64)
    for heads in (False, True):
        fixed, asked = (2, 0) if heads else (0, 2)
        answers = _Answers(known[:, fixed], known[:, 1], known[:, asked], num_entities)
        for start in range(0, len(triples), QUERIES_AT_ONCE):
            part = triples[start : start + QUERIES_AT_ONCE]
            found = np.array(distances(part[:, fixed], part[:, 1], heads), dtype=np.float32)
            rows = np.arange(len(part))
            true = found[rows, part[:, asked]].copy()
            query, entity = answers.of(part[:, fixed], part[:, 1])
            found[query, entity] = np.inf
            better = (found < true[:, None]).sum(axis=1)
            equal = (found == true[:, None]).sum(axis=1)
            ranks.append(1 + better + equal / 2)
            candidates.append(num_entities - np.bincount(query, minlength=len(part)) + 1)
    return np.concatenate(ranks), np.concatenate(candidates)


def check_queries(name: str, values: np.ndarray) -> None:
    if not len(values):
        raise ValueError(f"`{name}` must have at least one entry, got none.")


class _Answers:
    """All true answers of queries, sorted by query."""

    def __init__(self, fixed: np.ndarray, relation: np.ndarray, asked: np.ndarray, num_entities: int):
        self._num_entities = num_entities
        pairs = np.unique(np.stack([relation * num_entities + fixed, asked]), axis=1)
        self._keys, self._entities = pairs

    def of(self, fixed: np.ndarray, relation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(number of the query, true entity) of every answer."""
        keys = relation * self._num_entities + fixed
        first = np.searchsorted(self._keys, keys, side="left")
        count = np.searchsorted(self._keys, keys, side="right") - first
        query = np.repeat(np.arange(len(keys)), count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return query, self._entities[np.repeat(first, count) + within]


def link_prediction_scores(ranks: np.ndarray) -> dict[str, float]:
    """Turn ranks, 1 the best, into `mrr` (mean of 1 / rank), `mean_rank` and the shares `hits@1`, `hits@3`, `hits@10`.

    Examples:
        >>> scores = link_prediction_scores(np.array([1.0, 2.0, 20.0]))
        >>> round(scores["mrr"], 4), round(scores["hits@10"], 4)
        (0.5167, 0.6667)
    """
    check_queries("ranks", ranks)
    return {
        "mrr": float((1 / ranks).mean()),
        "mean_rank": float(ranks.mean()),
        **{f"hits@{k}": float((ranks <= k).mean()) for k in HITS},
    }


def random_scores(candidates: np.ndarray) -> dict[str, float]:
    """What a random order gives on average, exactly, from each query's number of candidates, the true one included.

    Examples:
        >>> random_scores(np.array([2, 2]))["mrr"]  # rank 1 or 2
        0.75
    """
    check_queries("candidates", candidates)
    harmonic = np.cumsum(1 / np.arange(1, candidates.max() + 1))
    return {
        "mrr": float((harmonic[candidates - 1] / candidates).mean()),
        "mean_rank": float(((candidates + 1) / 2).mean()),
        **{f"hits@{k}": float((np.minimum(k, candidates) / candidates).mean()) for k in HITS},
    }
