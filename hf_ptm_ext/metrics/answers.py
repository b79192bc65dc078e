"""Exact match and F1 of extracted answers: SQuAD's for English, CMRC 2018's for Chinese; and an untrained baseline.

SQuAD (evaluate-v2.0.py, Rajpurkar et al. 2018): lower case without punctuation and articles; F1 of the words as bags;
where one side has no answer, both scores are whether the other has none.

CMRC 2018 (cmrc2018_evaluate.py, Cui et al. 2019): lower case without the script's list of marks; F1 of the longest run
of tokens that both have (not of a bag), a Chinese character or a word of other scripts being a token. The script cuts
other scripts by NLTK; here letters and digits between marks and blanks are a word.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from .checks import check_pairs

SCORINGS = ("squad", "cmrc")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NO_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")  # the script's own list
_TOKENS = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+|[^\w\s]")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；\n])")
_WORDS = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\u3040-\u30ff\u4e00-\u9fff]+")


def normalize_answer(text: str, scoring: str = "squad") -> str:
    """An answer as it is compared: lower case, no punctuation; with "squad" also no articles and double blanks.

    Examples:
        >>> normalize_answer("The  U.S. Army"), normalize_answer("《三国》 第1卷", "cmrc")
        ('us army', '三国 第1卷')
    """
    if scoring == "cmrc":
        return text.lower().strip().translate(_NO_MARKS)
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_tokens(text: str, scoring: str = "squad") -> list[str]:
    """The tokens of which F1 is made."""
    if scoring == "cmrc":
        return _TOKENS.findall(normalize_answer(text, scoring))
    return normalize_answer(text, scoring).split()


def question_answering_scores(
    predictions: Sequence[str], references: Sequence[Sequence[str]], scoring: str = "squad"
) -> dict[str, float]:
    """Exact match and F1, each the best over a question's right answers, averaged over the questions.

    Args:
        predictions: An answer each, "" for none.
        references: All right answers of each question, empty for a question that has none.
        scoring: "squad" (default) or "cmrc".

    Returns:
        `exact_match` and `f1` between 0 and 1; where some questions have an answer and some not, also
        `has_answer_exact_match`, `has_answer_f1` and `no_answer_accuracy`.

    Examples:
        >>> scores = question_answering_scores(["the Rhine", "1815"], [["Rhine river"], ["in 1815", "1815"]])
        >>> scores["exact_match"], round(scores["f1"], 3)
        (0.5, 0.833)
        >>> round(question_answering_scores(["北京市"], [["北京"]], "cmrc")["f1"], 3)
        0.8
    """
    if scoring not in SCORINGS:
        raise ValueError(f"`scoring` must be one of {', '.join(SCORINGS)}, got {scoring!r}.")
    check_pairs(predictions, references)
    exact, f1, answered = [], [], []
    for prediction, answers in zip(predictions, references, strict=True):
        golds = list(answers) or [""]
        exact.append(max(_exact(prediction, gold, scoring) for gold in golds))
        f1.append(max(_f1(prediction, gold, scoring) for gold in golds))
        answered.append(any(golds))
    scores = {"exact_match": _mean(exact), "f1": _mean(f1)}
    if any(answered) and not all(answered):
        with_answer = [number for number, known in enumerate(answered) if known]
        without = [number for number, known in enumerate(answered) if not known]
        scores["has_answer_exact_match"] = _mean([exact[number] for number in with_answer])
        scores["has_answer_f1"] = _mean([f1[number] for number in with_answer])
        scores["no_answer_accuracy"] = _mean([exact[number] for number in without])
    return scores


def best_null_threshold(
    differences: Sequence[float],
    best_answers: Sequence[str],
    references: Sequence[Sequence[str]],
    scoring: str = "squad",
) -> float:
    """The `null_score_diff_threshold` with the best F1 on these questions (SQuAD 2.0's `best_f1_thresh`)."""
    if len(differences) != len(best_answers):
        raise ValueError(f"`differences` must be one an answer, got {len(differences)} for {len(best_answers)}.")
    total = f1 = question_answering_scores([""] * len(references), references, scoring)["f1"] * len(references)
    best = min(differences) - 1.0  # nothing is answered
    order = sorted(range(len(differences)), key=lambda number: differences[number])
    for place, number in enumerate(order):
        one = (references[number],)
        answered, silent = (
            question_answering_scores([text], one, scoring)["f1"] for text in (best_answers[number], "")
        )
        f1 += answered - silent
        last = place + 1 == len(order) or differences[order[place + 1]] > differences[number]
        if last and f1 > total:
            total, best = f1, float(differences[number])
    return best


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))


def _exact(prediction: str, gold: str, scoring: str) -> float:
    return float(normalize_answer(prediction, scoring) == normalize_answer(gold, scoring))


def _f1(prediction: str, gold: str, scoring: str) -> float:
    guessed, right = answer_tokens(prediction, scoring), answer_tokens(gold, scoring)
    if not guessed or not right:
        return float(guessed == right)
    if scoring == "cmrc":
        same = _longest_common_run(guessed, right)
    else:
        same = sum((Counter(guessed) & Counter(right)).values())
    return 2 * same / (len(guessed) + len(right))


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest run of tokens that both have."""
    longest, ends = 0, [0] * (len(second) + 1)
    for token in first:
        ends = [0, *(ends[place] + 1 if token == other else 0 for place, other in enumerate(second))]
        longest = max(longest, *ends)
    return longest


def overlap_answer(question: str, context: str, length: int) -> str:
    """An answer without any training: what stands in the sentence most like the question, and is not in the question.

    Args:
        question: The question.
        context: The passage.
        length: Most words (characters of Chinese and Japanese) of the answer.

    Returns:
        The longest run of words of the sentence that the question does not have, cut to `length`; of the sentence with
        the most of the question's words, the first of several.

    Examples:
        >>> overlap_answer("Who wrote Emma?", "It rained. Jane Austen wrote Emma in 1815.", 2)
        'Jane Austen'
    """
    asked = set(_WORDS.findall(question.lower()))
    best: tuple[float, int] = (-1.0, 0)
    begins = [0, *(match.end() for match in _SENTENCE_ENDS.finditer(context))]
    spans = list(zip(begins, [*begins[1:], len(context)], strict=True))
    for number, (begin, end) in enumerate(spans):
        overlap = len(asked & set(_WORDS.findall(context[begin:end].lower())))
        if overlap > best[0]:
            best = (overlap, number)
    begin, end = spans[best[1]]
    runs: list[list[tuple[int, int]]] = [[]]
    for match in _WORDS.finditer(context, begin, end):
        if match[0].lower() in asked:
            runs.append([])
        else:
            runs[-1].append(match.span())
    run = max(runs, key=len)[:length]
    return context[run[0][0] : run[-1][1]] if run else ""
