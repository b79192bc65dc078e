"""Questions with passages and answers: SQuAD-shaped data of any language, nested or one record a question."""

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .bad_rows import usable
from .lines import json_value, whole_text
from .rows import (
    TYPES,
    Files,
    PlacedRow,
    column_of,
    dataset_rows,
    field_of,
    id_of,
    placed_files,
    read_rows,
    typed,
)

CMRC_NAMES = {"query_text": "question", "query_id": "id"}


class QuestionExample(NamedTuple):
    """One question.

    Args:
        id: Its name.
        question: Its text, empty if there is none.
        context: The passage.
        answers: Right answers, with the character of the passage at which each begins; `None` if they are not told.
        named: Whether the data set gives the name; the id is the place otherwise.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    named: bool = True

    def row(self) -> dict[str, Any]:
        """The example in the flat form of `datasets`.

        Examples:
            >>> QuestionExample("1", "Who?", "Jane did.", (("Jane", 0),)).row()["answers"]
            {'text': ['Jane'], 'answer_start': [0]}
        """
        answers = self.answers or ()
        texts, starts = [text for text, _ in answers], [start for _, start in answers]
        return {
            "id": self.id,
            "question": self.question,
            "context": self.context,
            "answers": {"text": texts, "answer_start": starts},
        }


class QuestionColumns(NamedTuple):
    """Which columns hold what.

    Args:
        question: The question; `None` if there is none, and something is copied from one text.
        context: The passage.
        answers: `{"text": [...], "answer_start": [...]}`, or a list of `{"text", "answer_start"}`.
    """

    question: str | None = "question"
    context: str = "context"
    answers: str = "answers"


def read_question_examples(
    files: Files,
    columns: QuestionColumns = QuestionColumns(),  # noqa: B008 (a tuple)
    *,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = False,
) -> Iterator[QuestionExample]:
    """Read questions from SQuAD's nested JSON (CMRC 2018, DRCD, XQuAD, MLQA), CMRC's own, JSON lines or Parquet.

    Args:
        files: Paths or glob patterns.
        columns: Columns of flat records (default: SQuAD's names).
        file_format: `"squad"`, `"jsonl"` or `"parquet"`; by default told from the names (`.gz` aside), and a `.json`
            file by what is in it.
        encoding: Of files of text.
        unlabelled: Questions may be without a field of answers, or with answers at -1 (CMRC's public test set); their
            answers are `None` then.

    Examples:
        >>> import json, tempfile
        >>> file = Path(tempfile.mkdtemp()) / "dev.json"
        >>> paragraph = {"context": "Jane did.", "qas": [
        ...     {"id": "1", "question": "Who?", "answers": [{"text": "Jane", "answer_start": 0}]}]}
        >>> _ = file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}), encoding="utf-8")
        >>> next(read_question_examples(file)).answers
        (('Jane', 0),)
    """
    found = placed_files(files, file_format, formats=("squad",))
    # A .json file may be nested whatever it is called.
    placed = ((path, "squad" if ".json" in path.suffixes[-2:] else kind) for path, kind in found)
    return question_examples(read_rows(placed, encoding, {"squad": squad_rows}), columns, unlabelled)


def dataset_question_examples(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    columns: QuestionColumns = QuestionColumns(),  # noqa: B008 (a tuple)
    revision: str | None = None,
    unlabelled: bool = False,
) -> Iterator[QuestionExample]:
    """Read questions from a dataset of the Hub or of a local folder; the rest as in `read_question_examples`.

    `path` is an id of the Hub, a folder with data files, or one of `save_to_disk`; `split` may be a slice such as
    `"train[:1%]"`.

    Examples:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> rows = Dataset.from_list([QuestionExample("1", "Who?", "Jane did.", (("Jane", 0),)).row()])
        >>> rows.save_to_disk(folder := tempfile.mkdtemp())
        >>> [example.question for example in dataset_question_examples(folder, split="train")]
        ['Who?']
    """
    rows, _ = dataset_rows(path, name, split, revision)
    return question_examples(rows, columns, unlabelled)


def question_examples(
    rows: Iterable[PlacedRow], columns: QuestionColumns, unlabelled: bool = False
) -> Iterator[QuestionExample]:
    """Take questions out of flat records and check them."""

    def example(row: Mapping[str, Any], where: str) -> QuestionExample:
        texts = {}
        for argument, column in (("question_column", columns.question), ("context_column", columns.context)):
            if column is not None:
                value = column_of(row, column, argument)
                advice = f"Set `{argument}` to a column of texts, or take the row out."
                texts[argument] = typed(value, "a text", f"column {column!r}", advice)
        context = texts["context_column"]
        found: tuple[tuple[str, int], ...] | None = None
        if row.get("is_impossible") is True:
            found = ()
        elif not unlabelled or (columns.answers in row and not _hidden(row[columns.answers], context)):
            value = column_of(row, columns.answers, "answers_column")
            found = tuple(checked_answers(value, columns.answers, context))
        name = id_of(row)
        question = texts.get("question_column", "")
        return QuestionExample(str(where if name is None else name), question, context, found, name is not None)

    return usable(rows, example)


def _hidden(value: Any, context: str) -> bool:
    """Whether answers stand in for those that are not told: all of them begin at -1, or are not in the passage."""
    starts = value.get("answer_start") if isinstance(value, Mapping) else value
    starts = starts if isinstance(starts, list | tuple) else [starts]
    starts = [one.get("answer_start") if isinstance(one, Mapping) else one for one in starts]
    starts = [context.find(one) if isinstance(one, str) else one for one in starts]
    return bool(starts) and all(start == -1 for start in starts)


def checked_answers(value: Any, column: str, context: str) -> Iterator[tuple[str, int]]:
    """Answers and where they begin, in one of SQuAD's forms or CMRC's (texts alone, which are looked up)."""
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if not isinstance(texts, list | tuple) and not isinstance(starts, list | tuple):
            texts, starts = [texts], [starts]
        texts = typed(texts, "a list", f"column {column!r}: `text`")
        starts = typed(starts, "a list", f"column {column!r}: `answer_start`")
        if len(texts) != len(starts):
            raise ValueError(
                f"column {column!r} must have an `answer_start` for each `text`, got {len(starts)} for {len(texts)}."
            )
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list | tuple) and all(isinstance(answer, Mapping) for answer in value):
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in value]
    elif isinstance(value, list | tuple) and all(isinstance(answer, str) for answer in value):
        pairs = [(text, context.find(text)) for text in value]
    elif value is None:
        pairs = []
    else:
        raise ValueError(
            f"column {column!r} must hold SQuAD's answers, {{'text': [...], 'answer_start': [...]}} or a "
            f"list of {{'text', 'answer_start'}}, got {type(value).__name__}. Set `answers_column`."
        )
    for text, start in pairs:
        if not TYPES["a text"](text) or not TYPES["a whole number"](start):
            raise ValueError(f"an answer must have a text and an `answer_start`, got {text!r:.60}, {start!r:.60}.")
        if start < 0:
            raise ValueError(
                f"`answer_start` must be 0 or more, got {start}: the passage lacks the answer {text!r:.60}."
            )
        if context[start : start + len(text)] != text:
            raise ValueError(
                f"the passage has {context[start : start + len(text)]!r:.60} at character {start}, where the answer "
                f"{text!r:.60} should be. Correct `answer_start`, or take the row out."
            )
        yield text, start


def squad_rows(path: Path, encoding: str) -> Iterator[PlacedRow]:
    """Flat records of SQuAD's nested file, of a list of records, or of JSON lines."""
    text = whole_text(path, encoding)
    try:
        content: Any = json_value(text, str(path))
    except ValueError:
        if "\n" not in text.strip():
            raise
        yield from read_rows([(path, "jsonl")], encoding)
        return
    nested = content.get("data") if isinstance(content, Mapping) and "question" not in content else None
    records = nested if nested is not None else content if isinstance(content, list) else [content]
    count = 0
    for number, article in enumerate(typed(records, "a list", f"{path}: `data`", "SQuAD's is one."), start=1):
        where = f"{path}, record {number}"
        try:
            questions = questions_of(article)
        except ValueError as error:
            yield where, error
            continue
        for row in questions:
            count += 1
            yield (where if row is article else f"{path}, question {count} ({row.get('id', 'no id')})"), row


def questions_of(article: Any) -> list[dict[str, Any]]:
    """Flat records of an article with paragraphs (SQuAD), of a paragraph (CMRC's own form), or of a question."""
    typed(article, "an object", "it")
    if "paragraphs" not in article and "qas" not in article:
        return [article]
    rows: list[dict[str, Any]] = []
    for paragraph in field_of(article, "paragraphs", "a list of objects") if "paragraphs" in article else [article]:
        context = paragraph.get("context", paragraph.get("context_text"))
        for question in field_of(paragraph, "qas", "a list of objects"):
            names = {CMRC_NAMES.get(name, name): value for name, value in question.items()}
            rows.append({"context": context, **names})
            if question.get("is_impossible") is True:
                rows[-1]["answers"] = []
    return rows
