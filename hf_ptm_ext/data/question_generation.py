"""Question answering turned round: from a passage and an answer to the question (UniLM, Dong et al. 2019, 3.2)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .question_answering import checked_answers
from .rows import field_of


def question_generation_rows(
    records: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, max_context_characters: int | None = None
) -> Iterator[dict[str, str]]:
    """Turn SQuAD-shaped data, of any language, into rows for question generation.

    UniLM reads [CLS] passage [SEP] answer [SEP] and writes the question, so passage and answer stay two texts: the
    tokenizer joins them, and only the passage is cut when both are too long.

    Args:
        records (`Mapping` or `Iterable[Mapping]`): SQuAD's nested object (`data`, `paragraphs`, `qas`), or one record
            per question: `id`, `context`, `question` and `answers`, which is `{"text": [...], "answer_start": [...]}`
            or a list of `{"text", "answer_start"}`.
        max_context_characters (`int`, *optional*): Longer passages are cut to this many characters around the answer,
            so that a limit of tokens does not cut the answer out of its passage. Default: whole passages.

    Returns:
        `Iterator[dict[str, str]]`: `id`, `source` (the passage), `source_pair` (the first answer) and `target` (the
        question). Questions without an answer, as in SQuAD 2.0, are left out.

    Raises:
        ValueError: If a record lacks a field or an answer is not where its passage should have it.

    Example:

    >>> record = {"id": "1", "context": "Bern is in Switzerland.", "question": "Where is Bern?",
    ...           "answers": {"text": ["Switzerland"], "answer_start": [11]}}
    >>> next(question_generation_rows([record]))["source_pair"]
    'Switzerland'
    >>> next(question_generation_rows([record], max_context_characters=15))["source"]
    'in Switzerland.'
    """
    if max_context_characters is not None and max_context_characters < 1:
        raise ValueError(f"`max_context_characters` must be positive, got {max_context_characters}.")
    for number, record in enumerate(_questions(records), start=1):
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
        context = _window(context, start, len(text), max_context_characters)
    return {"source": context, "source_pair": text, "target": question}


def _questions(records: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """One flat record per question."""
    if not isinstance(records, Mapping):
        yield from records
        return
    if "data" not in records:
        yield records
        return
    for article in records["data"]:
        for paragraph in article.get("paragraphs", ()):
            for question in paragraph.get("qas", ()):
                yield {"context": paragraph["context"], **question}


def _window(context: str, start: int, length: int, size: int) -> str:
    """At most `size` characters with the answer in their middle, moved to lie within the passage."""
    begin = max(min(start + length // 2 - size // 2, len(context) - size), 0)
    begin = min(begin, start)  # the answer's beginning stays, whatever its length
    return context[begin : begin + size]


__all__ = ["question_generation_rows"]
