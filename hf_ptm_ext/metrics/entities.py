"""Precision, recall and F1 of spans: an entity is right if its type, its first and its last word are.

K-BERT's own score, to compare with its published numbers, is another one. Its script
(https://github.com/autoliuweijie/K-BERT, run_kbert_ner.py) counts, over the tags of a batch laid end to end: a true
span begins at a B or S tag and ends before the next padding, O or begin; a predicted span begins at a predicted B or S
on a real token of the text. Positions whose true label is [ENT] (knowledge) are passed over, begins predicted on them
count as predictions all the same, and types are never compared.
"""

from collections.abc import Collection, Sequence

from .checks import check_pairs, precision_recall_f1

Span = tuple[str, int, int]
PADDING, KNOWLEDGE, OUTSIDE = "[PAD]", "[ENT]", "O"


def entity_scores(predictions: Sequence[Collection[Span]], references: Sequence[Collection[Span]]) -> dict[str, float]:
    """Micro scores of typed spans over all sentences, without any further package.

    Args:
        predictions: Predicted spans `(type, first, behind)` of each sentence.
        references: True spans, of as many sentences.

    Returns:
        `precision`, `recall` and `f1` over all entities, `macro_f1` over the types of the truth.

    Examples:
        >>> scores = entity_scores([[("PER", 0, 2), ("LOC", 3, 4)]], [[("PER", 0, 2), ("ORG", 3, 4)]])
        >>> scores["precision"], scores["recall"], scores["f1"]
        (0.5, 0.5, 0.5)
    """
    check_pairs(predictions, references, "have as many sentences")
    guessed = {(number, *span) for number, spans in enumerate(predictions) for span in spans}
    true = {(number, *span) for number, spans in enumerate(references) for span in spans}

    def scores_of(kinds: Collection[str]) -> tuple[float, float, float]:
        found, wanted = ({span for span in spans if span[1] in kinds} for spans in (guessed, true))
        return precision_recall_f1(len(found & wanted), len(found), len(wanted))

    precision, recall, f1 = precision_recall_f1(len(guessed & true), len(guessed), len(true))
    by_type = [scores_of([kind])[2] for kind in sorted({kind for _, kind, _, _ in true})]
    macro = sum(by_type) / len(by_type) if by_type else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "macro_f1": macro}


def kbert_span_counts(predictions: Sequence[str], references: Sequence[str]) -> tuple[int, int, int]:
    """Count as K-BERT's published script does, for the tags of one batch laid end to end.

    Args:
        predictions: Predicted labels, also on padding and knowledge.
        references: True labels, `[PAD]` on padding and `[ENT]` on knowledge.

    Returns:
        Numbers of correct, predicted and true spans.

    Examples:
        >>> kbert_span_counts(["B-LOC", "I-LOC", "O"], ["B-PER", "I-PER", "O"])  # the type is not compared
        (1, 1, 1)
    """
    if len(predictions) != len(references):
        raise ValueError(
            f"`predictions` and `references` must be as many labels, got {len(predictions)} and {len(references)}."
        )
    check_pairs(predictions, references)
    true = _untyped_spans(references, references)
    predicted = _untyped_spans(predictions, references)
    begins = sum(
        _begins(label) and reference != PADDING for label, reference in zip(predictions, references, strict=True)
    )
    return sum(span in true for span in predicted), begins, len(true)


def kbert_span_scores(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The published script's precision, recall and F1 over batches; for a real score take `entity_scores`.

    Examples:
        >>> kbert_span_scores([["B-LOC", "O"]], [["B-PER", "O"]])["f1"]
        1.0
    """
    check_pairs(predictions, references)
    counts = [kbert_span_counts(*batch) for batch in zip(predictions, references, strict=True)]
    precision, recall, f1 = precision_recall_f1(*(sum(column) for column in zip(*counts, strict=True)))
    return {"precision": precision, "recall": recall, "f1": f1}


def _begins(label: str) -> bool:
    return label[:1] in ("B", "S")


def _untyped_spans(labels: Sequence[str], references: Sequence[str]) -> set[tuple[int, int]]:
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
