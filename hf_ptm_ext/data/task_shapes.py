"""Data sets of one task turned into rows of another, which has none of its own.

summaries            copying from one text
relations            tagging with two texts
question answering   question generation (UniLM, Dong et al. 2019, 3.2)
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .question_answering import checked_answers, questions_of
from .rows import field_of

_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s|$)|[。！？]|$)", re.DOTALL)
_WORD = re.compile(r"\w+")
HEAD, TAIL, OUTSIDE = "HEAD", "TAIL", "O"
SIDES = ("head", "tail")


def extraction_rows(
    records: Iterable[Mapping[str, Any]], text_column: str = "source", target_column: str = "targets"
) -> Iterator[dict[str, Any]]:
    """Turn summaries into extraction: the sentence of the text that is most like its summary.

    Args:
        records: Rows with a text and one or several summaries, as SciTLDR's.
        text_column: Where the text is.
        target_column: Where the summary or the list of them is.

    Returns:
        `id`, `context` (the text) and `answers` in SQuAD's form: the sentence with the best F1 of words against any
        summary, the first of several.

    Examples:
        >>> record = {"source": "We thank all. A new net is fast.", "targets": ["a fast net"]}
        >>> next(extraction_rows([record]))["answers"]
        {'text': ['A new net is fast.'], 'answer_start': [14]}
    """
    for number, record in enumerate(records, start=1):
        try:
            text = field_of(record, text_column, "a text")
            targets = field_of(record, target_column, "a text or a list of texts")
        except ValueError as error:
            raise ValueError(f"record {number}: {error} Name the column.") from error
        summaries = [_bag(target) for target in ([targets] if isinstance(targets, str) else targets)]
        sentences = list(_SENTENCE.finditer(text))
        if not sentences:
            raise ValueError(f"record {number}: `{text_column}` must have a sentence, got {text!r}.")
        best = max(sentences, key=lambda found: max(_f1(_bag(found[0]), summary) for summary in summaries))
        answers = {"text": [best[0]], "answer_start": [best.start()]}
        yield {"id": str(record.get("id", number)), "context": text, "answers": answers}


def relation_tagging_rows(
    records: Iterable[Mapping[str, Any]], names: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Turn relation classification round: given a sentence and a relation, tag the relation's two arguments.

    Args:
        records: Rows with `tokens`, `head` and `tail` (`{"pos": [first, behind]}`) and `relation`, as FewRel's.
        names: What a relation is called in words (default: its own name).

    Returns:
        `tokens`, `relation` (in words) and `tags` (B-HEAD, I-HEAD, B-TAIL, I-TAIL, O).

    Examples:
        >>> record = {"tokens": ["Rome", "is", "in", "Italy"], "relation": "P17",
        ...           "head": {"pos": [0, 1]}, "tail": {"pos": [3, 4]}}
        >>> next(relation_tagging_rows([record], {"P17": "country"}))
        {'tokens': ['Rome', 'is', 'in', 'Italy'], 'relation': 'country', 'tags': ['B-HEAD', 'O', 'O', 'B-TAIL']}
    """
    for number, record in enumerate(records, start=1):
        try:
            tokens = list(field_of(record, "tokens", "a list of strings"))
            sides = [field_of(field_of(record, side, "an object"), "pos", "two whole numbers") for side in SIDES]
            relation = field_of(record, "relation", "a text")
        except ValueError as error:
            raise ValueError(f"record {number}: {error}") from error
        tags = [OUTSIDE] * len(tokens)
        for kind, (first, behind) in zip((HEAD, TAIL), sides, strict=True):
            if not 0 <= first < behind <= len(tokens) or any(tag != OUTSIDE for tag in tags[first:behind]):
                raise ValueError(
                    f"record {number}: spans must lie in the {len(tokens)} words without overlap, got "
                    f"{[first, behind]} for the {kind.lower()}."
                )
            tags[first:behind] = [f"B-{kind}", *[f"I-{kind}"] * (behind - first - 1)]
        yield {"tokens": tokens, "relation": (names or {}).get(relation, relation), "tags": tags}


def _bag(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def _f1(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 0.0


def question_generation_rows(
    records: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, max_context_characters: int | None = None
) -> Iterator[dict[str, str]]:
    """Turn SQuAD-shaped data, of any language, into rows for question generation.

    UniLM reads [CLS] passage [SEP] answer [SEP] and writes the question, so passage and answer stay two texts: the
    tokenizer joins them, and only the passage is cut when both are too long.

    Args:
        records: SQuAD's nested object (`data`, `paragraphs`, `qas`), or one record per question: `id`, `context`,
            `question` and `answers`, which is `{"text": [...], "answer_start": [...]}` or a list of `{"text",
            "answer_start"}`.
        max_context_characters: Longer passages are cut to this many characters around the answer, so that a limit of
            tokens does not cut the answer out of its passage. Default: whole passages.

    Returns:
        `id`, `source` (the passage), `source_pair` (the first answer) and `target` (the question). Questions without
        an answer, as in SQuAD 2.0, are left out.

    Examples:
        >>> record = {"id": "1", "context": "Bern is in Switzerland.", "question": "Where is Bern?",
        ...           "answers": {"text": ["Switzerland"], "answer_start": [11]}}
        >>> next(question_generation_rows([record]))["source_pair"]
        'Switzerland'
        >>> next(question_generation_rows([record], max_context_characters=15))["source"]
        'in Switzerland.'
    """
    if max_context_characters is not None and max_context_characters < 1:
        raise ValueError(f"`max_context_characters` must be positive, got {max_context_characters}.")
    for number, record in enumerate(_flat_questions(records), start=1):
        name = str(record.get("id", number))
        try:
            row = generation_row(record, max_context_characters)
        except ValueError as error:
            raise ValueError(f"question {name}: {error}") from error
        if row is not None:
            yield {"id": name, **row}


def generation_row(record: Mapping[str, Any], max_context_characters: int | None) -> dict[str, str] | None:
    """One question turned round; `None` without an answer."""
    context, question = (field_of(record, field, "a text") for field in ("context", "question"))
    answer = next(checked_answers(field_of(record, "answers", "anything"), "answers", context), None)
    if answer is None:
        return None
    text, start = answer
    if max_context_characters is not None:
        context = _window_around(context, start, len(text), max_context_characters)
    return {"source": context, "source_pair": text, "target": question}


def _flat_questions(records: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """One flat record per question."""
    if not isinstance(records, Mapping):
        yield from records
        return
    for article in records.get("data", [records]):
        yield from questions_of(article)


def _window_around(context: str, start: int, length: int, size: int) -> str:
    """At most `size` characters with the answer in their middle, moved to lie within the passage."""
    begin = max(min(start + length // 2 - size // 2, len(context) - size), 0)
    begin = min(begin, start)  # the answer's beginning stays, whatever its length
    return context[begin : begin + size]
