"""K-BERT's own entity score, to compare with its published numbers: spans without their types.

The published script (https://github.com/autoliuweijie/K-BERT, run_kbert_ner.py) counts, over the tags of a batch laid
end to end: a true span begins at a B or S tag and ends before the next padding, O or begin; a predicted span begins at
a predicted B or S on a real token of the text. Positions whose true label is [ENT] (knowledge) are passed over, begins
predicted on them count as predictions all the same, and types are never compared. For a real score take
`entity_scores` or `SeqEval`.
"""

from collections.abc import Sequence

from .checks import check_pairs
from .relations import f1_score

PADDING, KNOWLEDGE, OUTSIDE = "[PAD]", "[ENT]", "O"
_Span = tuple[int, int]


def kbert_span_counts(predictions: Sequence[str], references: Sequence[str]) -> tuple[int, int, int]:
    """Count as the published script does, for the tags of one batch laid end to end.

    Args:
        predictions: predicted labels, also on padding and knowledge.
        references: true labels, `[PAD]` on padding and `[ENT]` on knowledge.

    Returns:
        Numbers of correct, predicted and true spans.

    Raises:
        ValueError: the numbers of labels differ, or there are none.

    Example:
        >>> kbert_span_counts(["B-LOC", "I-LOC", "O"], ["B-PER", "I-PER", "O"])  # the type is not compared
        (1, 1, 1)
    """
    if len(predictions) != len(references):
        raise ValueError(
            f"`predictions` and `references` must be as many labels, got {len(predictions)} and {len(references)}."
        )
    check_pairs(predictions, references)
    true = _spans(references, references)
    predicted = _spans(predictions, references)
    begins = sum(
        _begins(label) and reference != PADDING for label, reference in zip(predictions, references, strict=True)
    )
    return sum(span in true for span in predicted), begins, len(true)


def kbert_span_scores(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The published script's precision, recall and F1 over batches.

    Args:
        predictions: predicted labels of each batch, laid end to end.
        references: true labels of each batch.

    Returns:
        `precision`, `recall`, `f1`; 0 where nothing is predicted or true.

    Raises:
        ValueError: the numbers of batches or of labels differ, or there are none.

    Example:
        >>> kbert_span_scores([["B-LOC", "O"]], [["B-PER", "O"]])["f1"]
        1.0
    """
    check_pairs(predictions, references)
    counts = [kbert_span_counts(*batch) for batch in zip(predictions, references, strict=True)]
    correct, guessed, true = (sum(column) for column in zip(*counts, strict=True))
    precision, recall = correct / guessed if guessed else 0.0, correct / true if true else 0.0
    return {"precision": precision, "recall": recall, "f1": f1_score(precision, recall)}


def _begins(label: str) -> bool:
    return label[:1] in ("B", "S")


def _spans(labels: Sequence[str], references: Sequence[str]) -> set[_Span]:
    """Spans `(first, last)` of labels; where the truth is knowledge they go on."""
    spans = set()
    for first, label in enumerate(labels):
        if not _begins(label) or references[first] in (PADDING, KNOWLEDGE):
            continue
        last = first
        while last + 1 < len(labels):
            here = labels[last + 1]
            if references[last + 1] != KNOWLEDGE and (here in (PADDING, OUTSIDE) or _begins(here)):
                break
            last += 1
        spans.add((first, last))
    return spans


__all__ = ["kbert_span_counts", "kbert_span_scores"]
