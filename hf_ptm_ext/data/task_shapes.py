"""Rows for two task types that have no data set of their own: copying from one text, and tagging with two texts."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
        records (`Iterable[Mapping]`): Rows with a text and one or several summaries, as SciTLDR's.
        text_column (`str`, *optional*, defaults to `"source"`): Where the text is.
        target_column (`str`, *optional*, defaults to `"targets"`): Where the summary or the list of them is.

    Returns:
        `Iterator[dict]`: `id`, `context` (the text) and `answers` in SQuAD's form: the sentence with the best F1 of
        words against any summary, the first of several.

    Raises:
        ValueError: If a record lacks a field or has no text.

    Example:

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
        records (`Iterable[Mapping]`): Rows with `tokens`, `head` and `tail` (`{"pos": [first, behind]}`) and
            `relation`, as FewRel's.
        names (`Mapping[str, str]`, *optional*): What a relation is called in words (default: its own name).

    Returns:
        `Iterator[dict]`: `tokens`, `relation` (in words) and `tags` (B-HEAD, I-HEAD, B-TAIL, I-TAIL, O).

    Raises:
        ValueError: If a record lacks a field, or its spans overlap or lie outside the sentence.

    Example:

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


__all__ = ["extraction_rows", "relation_tagging_rows"]
