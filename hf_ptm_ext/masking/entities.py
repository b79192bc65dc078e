"""Corruption of aligned entities (Zhang et al. 2019, section 3.3; the collate function of thunlp/ERNIE).

Each position with an entity draws once: with `replace_prob` it gets an entity drawn uniformly from those of the batch
(its own among them), with `mask_prob` it loses its entity, otherwise it keeps it. Whatever happens, the entity that
was there is to be predicted, as an index into the batch's distinct entities with "none" in front.
"""

import numpy as np

from .checks import check_choice, check_shares
from .replacement import IGNORE_INDEX

SCOPES = ("batch", "row")


def check_entity_fate(replace_prob: float, mask_prob: float) -> None:
    """Raise unless both are probabilities and leave the rest to keeping.

    Examples:
        >>> check_entity_fate(0.05, 0.15)
    """
    check_shares("ERNIE has 0.05 + 0.15.", replace_prob=replace_prob, mask_prob=mask_prob)


def corrupt_entities(
    entity_ids: np.ndarray,
    rng: np.random.Generator,
    replace_prob: float = 0.05,
    mask_prob: float = 0.15,
    scope: str = "batch",
) -> np.ndarray:
    """Corrupt the entities of a batch; only positions with an entity change.

    Args:
        entity_ids: Clean ids `(batch, seq_len)`, 0 = none.
        rng: Draws one number for each position with an entity, then the other entities.
        replace_prob: Probability of another entity (reference: 0.05).
        mask_prob: Probability of no entity (reference: 0.15).
        scope: Other entities are drawn from the distinct ones of the "batch" (reference) or of the "row".

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> corrupt_entities(np.array([[0, 7, 0, 9]]), rng, replace_prob=0.0, mask_prob=1.0)
        array([[0, 0, 0, 0]])
    """
    check_choice("scope", scope, SCOPES)
    result = entity_ids.copy()
    row, column = np.nonzero(entity_ids)
    draw = rng.random(len(row))
    replaced = draw < replace_prob
    masked = ~replaced & (draw < replace_prob + mask_prob)
    result[row[masked], column[masked]] = 0
    rows, columns = row[replaced], column[replaced]
    if not len(rows):
        return result
    if scope == "batch":
        pool = np.unique(entity_ids[row, column])
        result[rows, columns] = pool[rng.integers(len(pool), size=len(rows))]
        return result
    pairs = np.unique(np.stack([row, entity_ids[row, column]], axis=1), axis=0)
    start = np.searchsorted(pairs[:, 0], rows, side="left")
    size = np.searchsorted(pairs[:, 0], rows, side="right") - start
    result[rows, columns] = pairs[start + rng.integers(size), 1]
    return result


def entity_candidates(entity_ids: np.ndarray, include_none: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Find what is predicted, and among what.

    Args:
        entity_ids: Clean ids `(batch, seq_len)`, 0 = none.
        include_none: Put 0 in front of the candidates, which is never a label (reference).

    Returns:
        The distinct ids, ascending, `(num_candidates,)`, and labels `(batch, seq_len)`: the index of the clean id, or
        -100 where there is no entity. A batch without entities has the one candidate 0.

    Examples:
        >>> entity_candidates(np.array([[0, 9, 7, 9]]))
        (array([0, 7, 9]), array([[-100,    2,    1,    2]]))
    """
    present = entity_ids != 0
    candidates = np.unique(entity_ids[present])
    if include_none or not len(candidates):
        candidates = np.concatenate([np.zeros(1, dtype=candidates.dtype), candidates])
    labels = np.full(entity_ids.shape, IGNORE_INDEX, dtype=np.int64)
    labels[present] = np.searchsorted(candidates, entity_ids[present])
    return candidates.astype(np.int64), labels
