"""Scores of classes, types and numbers as the data sets' own scorers give them.

fewrel       accuracy over all classes (the supervised setting of ERNIE-THU also quotes macro P, R, F1)
semeval2010  macro F1 over the relations of the key without Other, with directions (official (9+1)-way score): a
             prediction of the right relation in the wrong direction is neither right nor forgiven
tacred       micro P, R, F1 without the negative class (NA, no_relation)
types        strict accuracy (the predicted set is exactly the true one), loose macro (precision and recall of each
             example's set, averaged, then their F1), loose micro (over all pairs of example and type), as the scripts
             of FIGER and Open Entity compute them (Ling and Weld, AAAI 2012)
dbqa         mean reciprocal rank, as NLPCC-DBQA and K-BERT's script for it count it
sts-b        correlations and the mean squared error
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .checks import check_pairs, f1_score, precision_recall_f1

NEGATIVE = ("NA", "no_relation", "Other")
DIRECTION = re.compile(r"\(e\d,e\d\)$")


def classification_scores(predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """All scores of single-label classification.

    Returns:
        `accuracy`; `macro_f1`, the mean F1 of the classes of the truth; `matthews_correlation`.

    Examples:
        >>> scores = classification_scores([1, 0, 1, 0], [1, 0, 0, 0])
        >>> {name: round(value, 3) for name, value in scores.items()}
        {'accuracy': 0.75, 'macro_f1': 0.733, 'matthews_correlation': 0.577}
    """
    check_pairs(predictions, references)
    return {
        "accuracy": _accuracy(predictions, references),
        "macro_f1": macro_f1(predictions, references),
        "matthews_correlation": matthews_correlation(predictions, references),
    }


def matthews_correlation(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    """Correlation of classes (Matthews 1975; Gorodkin 2004 for several); 0 if one side has one class only.

    Examples:
        >>> matthews_correlation(["a", "b"], ["b", "a"]), matthews_correlation(["a", "a"], ["b", "a"])
        (-1.0, 0.0)
    """
    check_pairs(predictions, references)
    total = len(references)
    correct = sum(p == r for p, r in zip(predictions, references, strict=True))
    guessed, true = Counter(predictions), Counter(references)
    covariance = correct * total - sum(guessed[label] * count for label, count in true.items())
    spread = [total**2 - sum(count**2 for count in counts.values()) for counts in (guessed, true)]
    return covariance / math.sqrt(spread[0] * spread[1]) if all(spread) else 0.0


def relation_scores(
    predictions: Sequence[str], references: Sequence[str], negative: Collection[str] = NEGATIVE
) -> dict[str, float]:
    """All scores of relation classification.

    Args:
        predictions: Predicted labels.
        references: True labels, as many.
        negative: Classes that stand for "no relation".

    Returns:
        `accuracy`; `macro_f1` over all true classes, Other and NA included; `micro_precision`, `micro_recall` and
        `micro_f1` without the negative classes (TACRED's); `semeval_f1` (SemEval-2010's official score; labels that
        name no direction count as one direction).

    Examples:
        >>> scores = relation_scores(["A(e1,e2)", "A(e2,e1)", "Other"], ["A(e1,e2)", "A(e1,e2)", "B(e1,e2)"])
        >>> round(scores["accuracy"], 4), scores["micro_precision"], scores["semeval_f1"]
        (0.3333, 0.5, 0.25)
    """
    check_pairs(predictions, references)
    # The negative classes are no predictions and no truths.
    precision, recall, f1 = precision_recall_f1(
        sum(p == r and r not in negative for p, r in zip(predictions, references, strict=True)),
        sum(p not in negative for p in predictions),
        sum(r not in negative for r in references),
    )
    return {
        "accuracy": _accuracy(predictions, references),
        "macro_f1": macro_f1(predictions, references),
        "micro_precision": precision,
        "micro_recall": recall,
        "micro_f1": f1,
        "semeval_f1": semeval_f1(predictions, references, negative),
    }


def _accuracy(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    return float(np.mean([p == r for p, r in zip(predictions, references, strict=True)]))


def macro_f1(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    """Mean F1 of the classes that occur in the truth."""
    right = Counter(r for p, r in zip(predictions, references, strict=True) if p == r)
    return _mean_f1(right, Counter(predictions), Counter(references))


def semeval_f1(predictions: Sequence[str], references: Sequence[str], negative: Collection[str] = ("Other",)) -> float:
    """SemEval-2010 task 8's official score: macro F1 over relations, directions taken into account, without Other."""
    same = [r for p, r in zip(predictions, references, strict=True) if p == r]
    right, guessed, true = (
        Counter(DIRECTION.sub("", label) for label in labels) for labels in (same, predictions, references)
    )
    return _mean_f1(right, guessed, true, negative)


def _mean_f1(right: Counter, guessed: Counter, true: Counter, leave_out: Collection[str] = ()) -> float:
    """Mean F1 of the classes of the truth, from how often each is right, predicted and true."""
    names = sorted(set(true) - set(leave_out))
    scores = [precision_recall_f1(right[name], guessed[name], true[name])[2] for name in names]
    return float(np.mean(scores)) if scores else 0.0


def predicted_types(logits: ArrayLike, always_one: bool = False) -> np.ndarray:
    """Decide which types hold: boolean `(examples, types)`, the logit is above 0.

    Args:
        logits: `(examples, types)`.
        always_one: Also take the type of the highest logit, so that each example has one (the reference, for FIGER
            alone).

    Examples:
        >>> predicted_types([[-1.0, -2.0]]).tolist(), predicted_types([[-1.0, -2.0]], always_one=True).tolist()
        ([[False, False]], [[True, False]])
    """
    logits = np.asarray(logits)
    if logits.ndim != 2 or not logits.size:
        raise ValueError(f"`logits` must be (examples, types), at least one of each, got shape {logits.shape}.")
    chosen = logits > 0
    if always_one:
        chosen[np.arange(len(logits)), logits.argmax(axis=1)] = True
    return chosen


def typing_scores(predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """Strict accuracy, loose macro and loose micro scores of entity typing, from boolean `(examples, types)`.

    Returns:
        `accuracy`, and `macro_` and `micro_` with `precision`, `recall`, `f1`. An example without predicted types has
        precision 0, one without true types recall 0, as in the reference.

    Examples:
        >>> scores = typing_scores([[1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 1]])
        >>> scores["accuracy"], scores["macro_precision"], scores["micro_recall"]
        (0.0, 0.75, 0.6666666666666666)
    """
    predicted, true = np.asarray(predictions, dtype=bool), np.asarray(references, dtype=bool)
    if predicted.shape != true.shape or predicted.ndim != 2 or not len(true):
        raise ValueError(
            f"`predictions` and `references` must be (examples, types) of one shape, got {predicted.shape} and "
            f"{true.shape}."
        )
    both = (predicted & true).sum(axis=1)
    guessed, wanted = predicted.sum(axis=1), true.sum(axis=1)
    macro = [float(np.divide(both, of, out=np.zeros(len(true)), where=of > 0).mean()) for of in (guessed, wanted)]
    micro = precision_recall_f1(float(both.sum()), float(guessed.sum()), float(wanted.sum()))
    scores = {"accuracy": float((predicted == true).all(axis=1).mean())}
    for kind, values in (("macro", (*macro, f1_score(*macro))), ("micro", micro)):
        scores |= {f"{kind}_{name}": value for name, value in zip(("precision", "recall", "f1"), values, strict=True)}
    return scores


def mean_reciprocal_rank(scores: Sequence[float], relevant: Sequence[bool | int], groups: Sequence[Hashable]) -> float:
    """Mean over the groups of 1 / rank of the best-ranked relevant row, 0 for a group without one.

    Args:
        scores: Of each row, such as the probability that it answers the question; equal ones keep their order.
        relevant: Whether the row is right.
        groups: What the row belongs to, such as its question.

    Examples:
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


def regression_scores(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """All scores of regression.

    Returns:
        `pearson` and `spearman` (of ranks, equal values share theirs), 0 if one side has one value only; `mse`.

    Examples:
        >>> scores = regression_scores([0.1, 0.2, 0.9], [1.0, 2.0, 3.0])
        >>> round(scores["pearson"], 3), round(scores["spearman"], 3), round(scores["mse"], 3)
        (0.918, 1.0, 2.82)
    """
    guessed, true = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (predictions, references))
    check_pairs(guessed, true)
    values = np.concatenate([guessed, true])
    if not np.isfinite(values).all():
        wrong = values[~np.isfinite(values)][0]
        raise ValueError(f"`predictions` and `references` must be finite numbers, got {wrong}.")
    return {
        "pearson": _correlation(guessed, true),
        "spearman": _correlation(_ranks(guessed), _ranks(true)),
        "mse": float(((guessed - true) ** 2).mean()),
    }


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; the mean rank for equal values."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
