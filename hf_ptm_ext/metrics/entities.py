"""Precision, recall and F1 of typed spans: an entity is right if its type, its first and its last word are."""

from collections.abc import Collection, Sequence

from .checks import check_pairs
from .relations import f1_score

Span = tuple[str, int, int]


def entity_scores(predictions: Sequence[Collection[Span]], references: Sequence[Collection[Span]]) -> dict[str, float]:
    """Micro scores over all sentences, without any further package.

    Args:
        predictions: predicted spans `(type, first, behind)` of each sentence.
        references: true spans, of as many sentences.

    Returns:
        `precision`, `recall` and `f1` over all entities, `macro_f1` over the types of the truth.

    Raises:
        ValueError: the numbers of sentences differ, or there are none.

    Example:
        >>> scores = entity_scores([[("PER", 0, 2), ("LOC", 3, 4)]], [[("PER", 0, 2), ("ORG", 3, 4)]])
        >>> scores["precision"], scores["recall"], scores["f1"]
        (0.5, 0.5, 0.5)
    """
    check_pairs(predictions, references, "have as many sentences")
    guessed = {(number, *span) for number, spans in enumerate(predictions) for span in spans}
    true = {(number, *span) for number, spans in enumerate(references) for span in spans}
    precision, recall, f1 = _scores(guessed, true)
    types = sorted({kind for _, kind, _, _ in true})
    by_type = [_scores(_of(guessed, kind), _of(true, kind))[2] for kind in types]
    macro = sum(by_type) / len(by_type) if by_type else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "macro_f1": macro}


def _of(spans: set[tuple[int, str, int, int]], kind: str) -> set[tuple[int, str, int, int]]:
    return {span for span in spans if span[1] == kind}


def _scores(guessed: Collection, true: Collection) -> tuple[float, float, float]:
    correct = len(set(guessed) & set(true))
    precision = correct / len(guessed) if guessed else 0.0
    recall = correct / len(true) if true else 0.0
    return precision, recall, f1_score(precision, recall)


__all__ = ["entity_scores"]
