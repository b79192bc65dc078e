"""Metrics of classification, ranking and tagging, against libraries, hand-made cases and the reference's counts."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import classification_report
from seqeval.scheme import IOB2
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, mean_squared_error

from hf_ptm_ext import metrics
from hf_ptm_ext.data import spans_of
from hf_ptm_ext.metrics import (
    Classification,
    MeanReciprocalRank,
    SeqEval,
    classification_scores,
    entity_scores,
    kbert_span_counts,
    kbert_span_scores,
    mean_reciprocal_rank,
)

GOLDEN = Path(__file__).parents[1] / "goldens" / "kbert-a.json"
LABELS = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])
PAIRS_OF_TAGS = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30))
def test_scores_of_labels_are_those_of_scikit_learn(pairs):
    predictions, references = map(list, zip(*pairs, strict=True))
    scores = classification_scores(predictions, references)
    assert scores["accuracy"] == pytest.approx(accuracy_score(references, predictions))
    truth = sorted(set(references))
    expected = f1_score(references, predictions, labels=truth, average="macro", zero_division=0)
    assert scores["macro_f1"] == pytest.approx(expected)
    # scikit-learn divides by zero, and so returns 0, in the same cases.
    assert scores["matthews_correlation"] == pytest.approx(matthews_corrcoef(references, predictions), abs=1e-12)


def test_labels_may_be_numbers_or_words():
    assert Classification().compute(predictions=[1, 0], references=[1, 1])["accuracy"] == 0.5
    assert Classification().compute(predictions=["x"], references=["x"])["macro_f1"] == 1.0
    with pytest.raises(ValueError, match="as many and at least one, got 0 and 0"):
        classification_scores([], [])


@settings(max_examples=80, deadline=None)
@given(PAIRS_OF_TAGS)
def test_scores_of_entities_are_those_of_seqeval(sentences):
    predictions = [[predicted for predicted, _ in sentence] for sentence in sentences]
    references = [[true for _, true in sentence] for sentence in sentences]
    for mode, strict in (("strict", True), ("default", False)):
        expected = SeqEval().compute(predictions=predictions, references=references, mode=mode)
        scores = entity_scores(
            *([spans_of(tags, strict=strict) for tags in side] for side in (predictions, references))
        )
        for name in ("precision", "recall", "f1"):
            assert scores[name] == pytest.approx(expected[f"overall_{name}"]), (mode, name)


@pytest.mark.filterwarnings("ignore")
def test_macro_f1_is_over_the_types_of_the_truth():
    references = [["B-X", "O", "B-Y", "I-Y"], ["B-X"]]
    predictions = [["B-X", "O", "B-Y", "O"], ["B-X"]]
    spans = ([spans_of(tags, strict=True) for tags in side] for side in (predictions, references))
    report = classification_report(references, predictions, mode="strict", scheme=IOB2, output_dict=True)
    assert entity_scores(*spans)["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])


def test_types_and_both_ends_of_an_entity_must_be_right():
    truth = [["B-PER", "I-PER", "O"]]
    for wrong in (["B-LOC", "I-LOC", "O"], ["B-PER", "O", "O"], ["B-PER", "I-PER", "I-PER"], ["O", "B-PER", "O"]):
        assert SeqEval().compute(predictions=[wrong], references=truth)["overall_f1"] == 0.0
    scores = SeqEval().compute(predictions=[["B-LOC", "I-LOC", "B-PER"]], references=[["B-LOC", "I-LOC", "O"]])
    assert (scores["LOC"]["f1"], scores["overall_precision"], scores["overall_recall"]) == (1.0, 0.5, 1.0)


def test_schemes_and_modes_of_entities():
    iob1 = [["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]]
    assert SeqEval().compute(predictions=iob1, references=iob1, scheme="IOB1")["overall_f1"] == 1.0
    # A tag that begins nothing is no entity in the strict mode, and one in conlleval's.
    wild, truth = [["O", "I-PER"]], [["O", "B-PER"]]
    assert SeqEval().compute(predictions=wild, references=truth)["overall_f1"] == 0.0
    assert SeqEval().compute(predictions=wild, references=truth, mode="default")["overall_f1"] == 1.0
    with pytest.raises(ValueError, match="`scheme` must be one of IOB1, IOB2"):
        SeqEval().compute(predictions=wild, references=truth, scheme="BIO")
    with pytest.raises(ValueError, match="sentence 0 has 2 and 1"):
        SeqEval().compute(predictions=wild, references=[["O"]])
    with pytest.raises(ValueError, match="as many sentences"):
        entity_scores([], [])


def test_spans_without_types_are_counted_as_the_published_script_counts():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["ner_metric"]
    names = {number: name for name, number in golden["labels_map"].items()}
    batches = []
    for case in golden["cases"]:
        batch = [[names[number] for number in case[side]] for side in ("predictions", "gold")]
        counts = kbert_span_counts(*batch)
        assert counts == (case["n_correct"], case["n_pred"], case["n_gold"]), case["note"]
        batches.append(batch)
    predictions, references = zip(*batches, strict=True)
    sums = {name: sum(case[name] for case in golden["cases"]) for name in ("n_correct", "n_pred", "n_gold")}
    scores = kbert_span_scores(predictions, references)
    assert scores["precision"] == sums["n_correct"] / sums["n_pred"]
    assert scores["recall"] == sums["n_correct"] / sums["n_gold"]


def test_spans_without_types_may_run_over_the_end_of_a_sentence():
    # The tags of a batch are one sequence: without padding between them, nothing ends a span.
    assert kbert_span_counts(["B-X", "I-X", "I-X"], ["B-X", "I-X", "I-X"]) == (1, 1, 1)
    # Predicted padding ends a span, predicted begins on padding do not count.
    assert kbert_span_counts(["B-X", "[PAD]", "B-X"], ["B-X", "O", "[PAD]"]) == (1, 1, 1)
    with pytest.raises(ValueError, match="as many labels, got 1 and 2"):
        kbert_span_counts(["O"], ["O", "O"])


def test_reciprocal_rank_of_the_best_right_answer():
    # q1: right at ranks 2 and 3; q2: none right; q3: right at rank 1.
    scores, right = [0.2, 0.9, 0.1, 0.5, 0.4], [1, 0, 1, 0, 1]
    groups = ["q1", "q1", "q1", "q2", "q3"]
    assert mean_reciprocal_rank(scores, right, groups) == pytest.approx((1 / 2 + 0 + 1) / 3)
    metric = MeanReciprocalRank().compute(predictions=scores, references=right, groups=groups)
    assert metric == {"mrr": pytest.approx(0.5)}
    with pytest.raises(ValueError, match="got 1, 2 and 1"):
        mean_reciprocal_rank([0.1], [0, 1], ["q"])


# ---- nothing to score ----

NOTHING = {
    "classification_scores": ([], []),
    "entity_scores": ([], []),
    "kbert_span_counts": ([], []),
    "kbert_span_scores": ([], []),
    "link_prediction_scores": (np.zeros(0),),
    "matthews_correlation": ([], []),
    "mean_reciprocal_rank": ([], [], []),
    "predicted_types": ([],),
    "question_answering_scores": ([], []),
    "random_scores": (np.zeros(0, dtype=int),),
    "regression_scores": ([], []),
    "relation_scores": ([], []),
    "typing_scores": ([], []),
}


@pytest.mark.parametrize(
    "name", [name for name in metrics.__all__ if name.endswith(("scores", "counts"))] + [*NOTHING]
)
def test_a_function_without_anything_to_score_says_so(name):
    with pytest.raises(ValueError, match="must"):
        getattr(metrics, name)(*NOTHING[name])


@pytest.mark.parametrize(
    "name", [name for name in metrics.__all__ if name[0].isupper() and name not in ("UnigramBaseline", "LinkRanks")]
)
def test_a_metric_without_anything_to_score_says_so(name):
    more = {"groups": []} if name == "MeanReciprocalRank" else {}
    with pytest.raises(ValueError, match="must"):
        getattr(metrics, name)().compute(predictions=[], references=[], **more)


def test_empty_predictions_are_counted(caplog):
    """They score nothing and are not left out of the mean."""
    texts = {"predictions": ["", "a b c d"], "references": ["a b", "a b c d"]}
    assert metrics.Rouge().compute(**texts)["rouge1"] == 0.5
    assert metrics.SacreBleu().compute(**texts)["ref_len"] == 6
    assert metrics.QuestionAnswering().compute(predictions=["", "b"], references=[["b"], ["b"]])["f1"] == 0.5
    assert caplog.text.count("1 of 2 predictions are empty") == 3


def test_correlations_of_numbers():
    """As scipy gives them, with ties."""
    guessed, true = [1.0, 2.0, 2.0, 4.0, 0.5, 3.0], [2.0, 1.0, 3.0, 5.0, 5.0, 4.5]
    scores = metrics.regression_scores(guessed, true)
    assert scores["pearson"] == pytest.approx(pearsonr(guessed, true).statistic, abs=1e-12)
    assert scores["spearman"] == pytest.approx(spearmanr(guessed, true).statistic, abs=1e-12)
    assert scores["mse"] == pytest.approx(mean_squared_error(true, guessed))
    assert metrics.regression_scores([1.0, 1.0], [0.0, 2.0])["pearson"] == 0.0
