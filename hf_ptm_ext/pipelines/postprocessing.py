"""From the logits of all windows of a data set to one answer a question, with the n best beside it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .spans_question_answering import best_spans, log_partition, whole_characters

_NO_ANSWER: dict[str, Any] = {"text": "", "start": 0, "end": 0}


def postprocess_qa_predictions(
    examples: Iterable[Mapping[str, Any]],
    features: Iterable[Mapping[str, Any]],
    predictions: tuple[np.ndarray, np.ndarray],
    *,
    version_2_with_negative: bool = False,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    null_score_diff_threshold: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """Choose an answer for each question.

    The rule for unanswerable questions is BERT's (run_squad.py): the score of "no answer" is its least one over the
    windows of a question, and it wins where it is more than the threshold above the best span.

    Args:
        examples: rows with `id` and `context`.
        features: their windows as `SquadFeatures` makes them: `example_id`, `offset_mapping`, `null_index`.
        predictions: start and end logits, `(windows, seq_len)` each; what lies behind a window's end is not read.
        version_2_with_negative: whether there are questions without an answer (default False, as SQuAD 1.1).
        n_best_size: how many answers are kept for each question (default 20).
        max_answer_length: most tokens of an answer (default 30).
        null_score_diff_threshold: how much better than the best span "no answer" must be (default 0, in logits).

    Returns:
        Question id -> `text`, `start` and `end` (characters), `probability` among all spans of the passage, `n_best`
        (the same of each candidate, with `score`, the sum of its logits), and with `version_2_with_negative`
        `null_score_diff`, by how much "no answer" is better than the best span. A question without any candidate
        has an empty text.

    Examples:
        >>> example = {"id": "q", "context": "In Bern."}
        >>> feature = {"example_id": "q", "offset_mapping": [(0, 0), (0, 2), (3, 7), (7, 8)], "null_index": 0}
        >>> logits = np.array([[0.0, 1.0, 5.0, 0.0]]), np.array([[0.0, 1.0, 4.0, 2.0]])
        >>> postprocess_qa_predictions([example], [feature], logits)["q"]["text"]
        'Bern'
    """
    start, end = (np.asarray(one, dtype=np.float64) for one in predictions)
    rows = list(features)
    if not len(rows) == len(start) == len(end):
        raise ValueError(
            f"`predictions` must have a row for each of the {len(rows)} features, got {len(start)} and {len(end)}. "
            "Predict on the features in their own order."
        )
    offsets = [np.asarray(row["offset_mapping"], dtype=np.int64).reshape(-1, 2) for row in rows]
    nulls = np.array([row["null_index"] for row in rows], dtype=np.int64)
    windows: dict[str, list[int]] = {}
    answerable, counted = np.zeros(start.shape, dtype=bool), np.zeros(start.shape, dtype=bool)
    for number, (row, places) in enumerate(zip(rows, offsets, strict=True)):
        answerable[number, : len(places)] = places[:, 1] > places[:, 0]
        counted[number, row["null_index"]] = True
        windows.setdefault(row["example_id"], []).append(number)
    counted |= answerable
    spans = best_spans(start, end, answerable, n_best_size, max_answer_length) if rows else None

    found: dict[str, dict[str, Any]] = {}
    for example in examples:
        numbers = windows.get(example["id"])
        if numbers is None:
            raise ValueError(
                f"`features` has no window of the example {example['id']!r}. Make them of these examples."
            )
        if example["id"] in found:
            raise ValueError(
                f"`examples` must have an id each, got {example['id']!r} twice. Translations of data often share "
                "ids: predict on one language at a time, or number the rows."
            )
        total = log_partition(start[numbers], end[numbers], counted[numbers])
        n_best = _n_best(spans, numbers, offsets, example["context"], total, n_best_size)
        best = n_best[0] if n_best else {**_NO_ANSWER, "probability": 0.0, "score": -np.inf}
        answer = {name: best[name] for name in ("text", "start", "end", "probability")}
        if version_2_with_negative:
            null = float((start[numbers, nulls[numbers]] + end[numbers, nulls[numbers]]).min())
            difference = null - best["score"]
            if difference > null_score_diff_threshold:
                answer = {**_NO_ANSWER, "probability": float(np.exp(null - total))}
            answer["null_score_diff"] = difference
        found[example["id"]] = {**answer, "n_best": n_best}
    return found


def _n_best(
    spans: Any, numbers: Sequence[int], offsets: Sequence[np.ndarray], context: str, total: float, size: int
) -> list[dict[str, Any]]:
    """The best spans of all windows of one question; a span that two windows have is one, with the better score."""
    candidates = []
    for number in numbers:
        known = np.isfinite(spans.scores[number])
        firsts, lasts = spans.starts[number][known], spans.ends[number][known]
        begins, behinds = offsets[number][firsts, 0], offsets[number][lasts, 1]
        candidates += list(zip(spans.scores[number][known].tolist(), begins.tolist(), behinds.tolist(), strict=True))
    chosen: dict[tuple[int, int], dict[str, Any]] = {}
    for score, start, end in sorted(candidates, key=lambda one: (-one[0], one[1], one[2])):
        if len(chosen) == size:
            break
        start, end = whole_characters(context, start, end)
        if (start, end) not in chosen:
            chosen[start, end] = {
                "text": context[start:end],
                "start": start,
                "end": end,
                "score": score,
                "probability": float(np.exp(score - total)),
            }
    return list(chosen.values())
