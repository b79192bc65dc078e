"""Mean reciprocal rank, as NLPCC-DBQA and K-BERT's script for it count it."""

from collections.abc import Hashable, Sequence


def mean_reciprocal_rank(scores: Sequence[float], relevant: Sequence[bool | int], groups: Sequence[Hashable]) -> float:
    """Mean over the groups of 1 / rank of the best-ranked relevant row.

    Args:
        scores: of each row, such as the probability that it answers the question; rows of equal score keep their
            order.
        relevant: whether the row is right.
        groups: what the row belongs to, such as its question.

    Returns:
        Between 0 and 1; a group without a relevant row counts 0.

    Raises:
        ValueError: the numbers differ, or there are none.

    Example:
        >>> mean_reciprocal_rank([0.9, 0.2, 0.1, 0.8], [0, 1, 0, 1], ["q1", "q1", "q2", "q2"])
        0.75
    """
    if not len(scores) == len(relevant) == len(groups) or not len(scores):
        raise ValueError(
            "`scores`, `relevant` and `groups` must be as many and at least one, got "
            f"{len(scores)}, {len(relevant)} and {len(groups)}."
        )
    rows: dict[Hashable, list[tuple[float, bool]]] = {}
    for score, right, group in zip(scores, relevant, groups, strict=True):
        rows.setdefault(group, []).append((float(score), bool(right)))
    total = 0.0
    for members in rows.values():
        ranked = [right for _, right in sorted(members, key=lambda row: -row[0])]
        total += 1 / (ranked.index(True) + 1) if True in ranked else 0.0
    return total / len(rows)


__all__ = ["mean_reciprocal_rank"]
