"""Exact match and F1 of answers: hand-made cases of SQuAD's and CMRC's rules, and properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.metrics import QuestionAnswering, normalize_answer, overlap_answer, question_answering_scores
from hf_ptm_ext.metrics.answers import answer_tokens

TEXTS = st.text("ab 北京市。the,", max_size=12)


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("The Rhine!", ["rhine"], 1.0, 1.0),
        ("in 1815", ["1815"], 0.0, 2 / 3),
        ("the the", ["a"], 1.0, 1.0),  # articles alone are nothing
        ("Jane Austen Jane", ["Jane Austen"], 0.0, 0.8),  # words are counted
        ("1815", ["in 1815", "the year 1815"], 0.0, 2 / 3),  # the best of several
        ("", [], 1.0, 1.0),
        ("x", [], 0.0, 0.0),
        ("", ["x"], 0.0, 0.0),
        ("U.S.", ["US"], 1.0, 1.0),
        ("half-way", ["halfway"], 1.0, 1.0),
    ],
)
def test_english_is_scored_as_squad_does(prediction, answers, exact, f1):
    scores = question_answering_scores([prediction], [answers])
    assert (scores["exact_match"], scores["f1"]) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("《三国演义》", ["三国演义"], 1.0, 1.0),
        ("北京市", ["北京"], 0.0, 0.8),
        ("京北", ["北京"], 0.0, 0.5),  # a run of tokens, not a bag: one character in common
        ("1994年", ["1994年10月"], 0.0, 2 * 2 / 6),  # a number is one token
        ("Nexon公司", ["nexon"], 0.0, 2 * 1 / 4),
        ("上海", ["北京", "上海市"], 0.0, 0.8),
    ],
)
def test_chinese_is_scored_by_characters_as_cmrc_does(prediction, answers, exact, f1):
    scores = question_answering_scores([prediction], [answers], "cmrc")
    assert (scores["exact_match"], scores["f1"]) == (exact, pytest.approx(f1))


def common_run(first, second):
    """Every run of the first in the second, one by one."""
    runs = [first[begin:end] for begin in range(len(first)) for end in range(begin + 1, len(first) + 1)]
    return max(
        (len(run) for run in runs if any(second[i : i + len(run)] == run for i in range(len(second)))), default=0
    )


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from(["squad", "cmrc"]))
def test_scores_are_symmetric_bounded_and_whole_for_equals(first, second, scoring):
    scores = question_answering_scores([first], [[second]], scoring)
    back = question_answering_scores([second], [[first]], scoring)
    assert scores == pytest.approx(back)
    assert 0 <= scores["exact_match"] <= 1
    if normalize_answer(first, scoring) == normalize_answer(second, scoring):
        assert scores == {"exact_match": 1.0, "f1": 1.0}
    if scoring == "cmrc":
        a, b = answer_tokens(first, scoring), answer_tokens(second, scoring)
        if a and b:
            assert scores["f1"] == pytest.approx(2 * common_run(a, b) / (len(a) + len(b)))


def test_both_kinds_of_questions_have_scores_of_their_own():
    scores = question_answering_scores(["x", "", "y"], [["x"], [], []])
    assert scores["has_answer_f1"] == 1.0
    assert scores["no_answer_accuracy"] == 0.5
    assert scores["exact_match"] == pytest.approx(2 / 3)
    assert QuestionAnswering().compute(predictions=["x", "", "y"], references=[["x"], [], []]) == scores
    assert QuestionAnswering().compute(predictions=["北京市"], references=[["北京"]], scoring="cmrc")["f1"] == 0.8


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="`scoring` must be one of squad, cmrc, got 'bleu'"):
        question_answering_scores(["a"], [["a"]], "bleu")
    with pytest.raises(ValueError, match="as many and at least one, got 1 and 0"):
        question_answering_scores(["a"], [])


def test_the_untrained_answer_is_of_the_sentence_that_is_most_like_the_question():
    context = "Emma came out in 1815. Jane Austen wrote it in Chawton."
    assert overlap_answer("Who wrote it?", context, 2) == "Jane Austen"
    assert overlap_answer("When did Emma come out?", context, 9) == "in 1815"
    assert overlap_answer("谁写了红楼梦", "他走了。曹雪芹写了红楼梦。", 3) == "曹雪芹"
    assert overlap_answer("x", "", 3) == overlap_answer("x", "...", 3) == ""
