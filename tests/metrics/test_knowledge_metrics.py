"""Scores of relations and types: against scikit-learn, against hand-computed tables, at the edges."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from hf_ptm_ext.metrics import EntityTyping, RelationClassification
from hf_ptm_ext.metrics.classification import macro_f1, predicted_types, relation_scores, semeval_f1, typing_scores

LABELS = ["NA", "born_in", "works_for", "part_of"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=40))
def test_scores_of_relations_equal_scikit_learns(pairs):
    predictions, references = map(list, zip(*pairs, strict=True))
    scores = relation_scores(predictions, references, {"NA"})
    assert scores["accuracy"] == pytest.approx(accuracy_score(references, predictions))
    present = sorted(set(references))
    expected = f1_score(references, predictions, labels=present, average="macro", zero_division=0)
    assert scores["macro_f1"] == pytest.approx(expected)
    precision, recall, f1, _ = precision_recall_fscore_support(
        references, predictions, labels=LABELS[1:], average="micro", zero_division=0
    )
    got = [scores[f"micro_{name}"] for name in ("precision", "recall", "f1")]
    assert got == pytest.approx([precision, recall, f1])


def test_the_negative_class_counts_neither_as_hit_nor_as_truth():
    """Four true relations; three guesses, two of them right; the right NA is worth nothing."""
    references = ["born_in", "born_in", "part_of", "works_for", "NA", "NA"]
    predictions = ["born_in", "NA", "part_of", "NA", "NA", "part_of"]
    scores = relation_scores(predictions, references)
    assert scores["micro_precision"] == pytest.approx(2 / 3)
    assert scores["micro_recall"] == pytest.approx(2 / 4)
    assert scores["micro_f1"] == pytest.approx(4 / 7)
    nothing = relation_scores(["NA"] * 6, references)
    assert (nothing["micro_precision"], nothing["micro_recall"], nothing["micro_f1"]) == (0.0, 0.0, 0.0)


def test_semeval_by_hand():
    """A: 3 true (2 right, 1 in the wrong direction), 4 guessed; B: 2 true, 1 right, 1 guessed; Other is left out."""
    references = ["A(e1,e2)", "A(e1,e2)", "A(e2,e1)", "B(e1,e2)", "B(e2,e1)", "Other", "Other"]
    predictions = ["A(e1,e2)", "A(e2,e1)", "A(e2,e1)", "B(e1,e2)", "Other", "A(e1,e2)", "Other"]
    a = 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3)
    b = 2 * (1 / 1) * (1 / 2) / (1 / 1 + 1 / 2)
    assert semeval_f1(predictions, references) == pytest.approx((a + b) / 2)
    # Ignoring directions would forgive the second prediction.
    undirected = macro_f1([p[0] for p in predictions if p != "Other"][:4], [r[0] for r in references][:4])
    assert semeval_f1(predictions, references) < undirected
    # A relation that is only guessed is no relation of the key, and costs precision of none of them.
    assert semeval_f1(["C(e1,e2)"], ["A(e1,e2)"]) == 0.0
    assert semeval_f1(["Other"], ["Other"]) == 0.0


def semeval_port(predictions, references):
    """semeval2010_task8_scorer's (9+1)-way score: the wrong direction stands in a column of its own."""
    matrix, wrong_direction = Counter(), Counter()
    for predicted, true in zip(predictions, references, strict=True):
        names = predicted.partition("(")[0], true.partition("(")[0]
        if names[0] == names[1] and predicted != true:
            wrong_direction[names[1]] += 1
        else:
            matrix[names] += 1
    key = {name.partition("(")[0] for name in references} - {"Other"}
    scores = []
    for name in key:
        proposed = sum(count for (guess, _), count in matrix.items() if guess == name) + wrong_direction[name]
        answered = sum(count for (_, true), count in matrix.items() if true == name) + wrong_direction[name]
        precision, recall = matrix[name, name] / proposed if proposed else 0, matrix[name, name] / answered
        scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    return sum(scores) / len(key) if key else 0.0


DIRECTED = ["Other", *(f"{name}({ends})" for name in ("A", "B", "C") for ends in ("e1,e2", "e2,e1"))]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DIRECTED), st.sampled_from(DIRECTED)), min_size=1, max_size=30))
def test_semeval_is_the_official_scorers(pairs):
    predictions, references = map(list, zip(*pairs, strict=True))
    assert semeval_f1(predictions, references) == pytest.approx(semeval_port(predictions, references))


def test_types_by_hand():
    """Precisions 1, 1/2, none; recalls 1/2, 1, 0: strict accuracy 0, as no set is exactly right."""
    true = [[1, 1, 0], [0, 0, 1], [1, 0, 0]]
    predicted = [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    scores = typing_scores(predicted, true)
    assert scores["accuracy"] == 0.0
    assert scores["macro_precision"] == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert scores["macro_recall"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert scores["macro_f1"] == pytest.approx(0.5)
    assert scores["micro_precision"] == pytest.approx(2 / 3)
    assert scores["micro_recall"] == pytest.approx(2 / 4)
    assert typing_scores(true, true)["accuracy"] == 1.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(2, 5))
def test_scores_of_types_equal_scikit_learns(seed, examples, types):
    rng = np.random.default_rng(seed)
    true, predicted = rng.random((2, examples, types)) < 0.4
    scores = typing_scores(predicted, true)
    precision, recall, f1, _ = precision_recall_fscore_support(true, predicted, average="micro", zero_division=0)
    assert [scores[f"micro_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(
        [precision, recall, f1]
    )
    precision, recall, _, _ = precision_recall_fscore_support(true, predicted, average="samples", zero_division=0)
    assert [scores["macro_precision"], scores["macro_recall"]] == pytest.approx([precision, recall])
    assert scores["accuracy"] == pytest.approx(accuracy_score(true, predicted))


def test_a_logit_above_zero_is_a_type_and_figer_always_has_one():
    logits = [[0.5, -0.1, 0.0], [-3.0, -1.0, -2.0]]
    assert predicted_types(logits).tolist() == [[True, False, False], [False, False, False]]
    assert predicted_types(logits, always_one=True).tolist() == [[True, False, False], [False, True, False]]


def test_both_are_metrics_of_evaluate():
    metric = RelationClassification()
    metric.add_batch(predictions=["NA", "x"], references=["x", "x"])
    assert metric.compute()["micro_recall"] == 0.5
    assert EntityTyping().compute(predictions=[[1, 0]], references=[[1, 0]])["accuracy"] == 1.0


def test_errors():
    with pytest.raises(ValueError, match="as many and at least one, got 1 and 2"):
        relation_scores(["x"], ["x", "y"])
    with pytest.raises(ValueError, match=r"one shape, got \(1, 2\) and \(1, 3\)"):
        typing_scores([[0, 1]], [[0, 1, 1]])
