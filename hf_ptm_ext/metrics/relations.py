"""Scores of relation classification as the data sets' own scorers give them.

fewrel      accuracy over all classes (the supervised setting of ERNIE-THU also quotes macro P, R, F1)
semeval2010 macro F1 over the relations of the key without Other, with directions (official (9+1)-way score): a
            prediction of the right relation in the wrong direction is neither right nor forgiven
tacred      micro P, R, F1 without the negative class (NA, no_relation)
"""

import re
from collections.abc import Collection, Sequence

import numpy as np

from .checks import check_pairs

NEGATIVE = ("NA", "no_relation", "Other")
DIRECTION = re.compile(r"\(e\d,e\d\)$")


def relation_scores(
    predictions: Sequence[str], references: Sequence[str], negative: Collection[str] = NEGATIVE
) -> dict[str, float]:
    """All scores of relation classification.

    Args:
        predictions: predicted labels.
        references: true labels, as many.
        negative: classes that stand for "no relation".

    Returns:
        `accuracy`; `macro_f1` over all true classes, Other and NA included; `micro_precision`, `micro_recall` and
        `micro_f1` without the negative classes (TACRED's); `semeval_f1` (SemEval-2010's official score; labels that
        name no direction count as one direction).

    Raises:
        ValueError: the numbers of labels differ, or there are none.

    Example:
        >>> scores = relation_scores(["A(e1,e2)", "A(e2,e1)", "Other"], ["A(e1,e2)", "A(e1,e2)", "B(e1,e2)"])
        >>> round(scores["accuracy"], 4), scores["micro_precision"], scores["semeval_f1"]
        (0.3333, 0.5, 0.25)
    """
    check_pairs(predictions, references)
    precision, recall, f1 = micro_without(predictions, references, negative)
    return {
        "accuracy": float(np.mean([p == r for p, r in zip(predictions, references, strict=True)])),
        "macro_f1": macro_f1(predictions, references),
        "micro_precision": precision,
        "micro_recall": recall,
        "micro_f1": f1,
        "semeval_f1": semeval_f1(predictions, references, negative),
    }


def f1_score(precision: float, recall: float) -> float:
    """Harmonic mean, 0 if both are 0.

    Args:
        precision: share of predictions that are right.
        recall: share of truths that are found.

    Returns:
        F1.

    Example:
        >>> f1_score(0.5, 1.0), f1_score(0.0, 0.0)
        (0.6666666666666666, 0.0)
    """
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def micro_without(
    predictions: Sequence[str], references: Sequence[str], negative: Collection[str]
) -> tuple[float, float, float]:
    """TACRED's precision, recall and F1: the negative classes are no predictions and no truths.

    Args:
        predictions: predicted labels.
        references: true labels.
        negative: classes that stand for "no relation".

    Returns:
        Precision (0 without a prediction), recall, F1.

    Example:
        >>> micro_without(["x", "NA", "x"], ["x", "x", "NA"], {"NA"})
        (0.5, 0.5, 0.5)
    """
    check_pairs(predictions, references)
    correct = sum(p == r and r not in negative for p, r in zip(predictions, references, strict=True))
    guessed = sum(p not in negative for p in predictions)
    true = sum(r not in negative for r in references)
    precision, recall = correct / guessed if guessed else 0.0, correct / true if true else 0.0
    return precision, recall, f1_score(precision, recall)


def macro_f1(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Mean F1 of the classes that occur in the truth.

    Args:
        predictions: predicted labels.
        references: true labels.

    Returns:
        The mean.

    Example:
        >>> macro_f1(["a", "a"], ["a", "b"])
        0.3333333333333333
    """
    check_pairs(predictions, references)
    scores = []
    for label in sorted(set(references)):
        correct = sum(p == r == label for p, r in zip(predictions, references, strict=True))
        guessed, true = list(predictions).count(label), list(references).count(label)
        scores.append(f1_score(correct / guessed if guessed else 0.0, correct / true))
    return float(np.mean(scores))


def semeval_f1(predictions: Sequence[str], references: Sequence[str], negative: Collection[str] = ("Other",)) -> float:
    """SemEval-2010 task 8's official score: macro F1 over relations, directions taken into account, without Other.

    Args:
        predictions: labels such as `Cause-Effect(e1,e2)`.
        references: the key.
        negative: classes that are left out of the mean.

    Returns:
        Mean of the F1 of each relation of the key, both its directions taken together: right only with the right
        direction, and a wrong direction counts against precision and recall.

    Example:
        >>> semeval_f1(["A(e2,e1)"], ["A(e1,e2)"])
        0.0
    """
    check_pairs(predictions, references)
    relations = [DIRECTION.sub("", label) for label in predictions], [DIRECTION.sub("", label) for label in references]
    names = sorted(set(relations[1]) - set(negative))
    scores = []
    for name in names:
        correct = sum(
            p == r and relation == name for p, r, relation in zip(predictions, references, relations[1], strict=True)
        )
        guessed, true = (labels.count(name) for labels in relations)
        scores.append(f1_score(correct / guessed if guessed else 0.0, correct / true))
    return float(np.mean(scores)) if scores else 0.0


__all__ = ["f1_score", "macro_f1", "micro_without", "relation_scores", "semeval_f1"]
