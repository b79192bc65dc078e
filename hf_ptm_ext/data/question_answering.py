"""Questions with passages and answers: SQuAD-shaped data of any language, nested or one record a question."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .lines import check_encoding, json_value, whole_text
from .rows import PlacedRow, column_of, dataset_rows, id_of, placed_dataset_rows, placed_files, read_rows, with_rows


class QuestionExample(NamedTuple):
    """One question.

    Args:
        id: its name.
        question: its text, empty if there is none.
        context: the passage.
        answers: right answers, with the character of the passage at which each begins; empty if there is none, `None`
            if they are not told.
        named: whether the data set gives the name; the id is the place otherwise.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    named: bool = True

    def row(self) -> dict[str, Any]:
        """The example in the flat form of `datasets`.

        Example:
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
        question: the question; `None` if there is none, and something is copied from one text.
        context: the passage.
        answers: `{"text": [...], "answer_start": [...]}`, or a list of `{"text", "answer_start"}`.
    """

    question: str | None = "question"
    context: str = "context"
    answers: str = "answers"


def read_question_examples(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    columns: QuestionColumns = QuestionColumns(),  # noqa: B008 (a tuple)
    *,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = False,
) -> Iterator[QuestionExample]:
    """Read questions from SQuAD's nested JSON (SQuAD, CMRC 2018, XQuAD, MLQA), JSON lines or Parquet.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths or glob patterns.
        columns (`QuestionColumns`, *optional*): Columns of flat records (default: SQuAD's names).
        file_format (`str`, *optional*): `"squad"`, `"jsonl"` or `"parquet"`; by default told from the names (`.gz`
            aside), and a `.json` file by what is in it.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.
        unlabelled (`bool`, *optional*, defaults to `False`): Questions may be without a field of answers, or with
            answers at -1 (CMRC's public test set); their answers are `None` then.

    Returns:
        `Iterator[QuestionExample]`: the questions in the order of the files. Translations of a data set share ids, so
        several files should not be mixed where ids matter.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: If a file cannot be read, a field is missing, or an answer is not where its passage should have it.
            The message names file and question.

    Example:

    >>> import json, tempfile
    >>> file = Path(tempfile.mkdtemp()) / "dev.json"
    >>> paragraph = {"context": "Jane did.", "qas": [
    ...     {"id": "1", "question": "Who?", "answers": [{"text": "Jane", "answer_start": 0}]}]}
    >>> _ = file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}), encoding="utf-8")
    >>> next(read_question_examples(file)).answers
    (('Jane', 0),)
    """
    check_encoding(encoding)
    for path, kind in placed_files(files, file_format, formats=("squad",)):
        if kind == "squad" or path.name.removesuffix(".gz").endswith(".json"):
            yield from question_examples(with_rows(squad_rows(path, encoding), path), columns, unlabelled)
        else:
            yield from question_examples(read_rows(path, kind, encoding), columns, unlabelled)


def dataset_question_examples(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    columns: QuestionColumns = QuestionColumns(),  # noqa: B008 (a tuple)
    revision: str | None = None,
    unlabelled: bool = False,
) -> Iterator[QuestionExample]:
    """Read questions from a dataset of the Hub or of a local folder.

    Args:
        path (`str` or `PathLike`): An id of the Hub, a folder with data files, or a folder written by `save_to_disk`.
        name (`str`, *optional*): Configuration of the dataset.
        split (`str`): Its split, also slices such as `"train[:1%]"`.
        columns (`QuestionColumns`, *optional*): Its columns.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_question_examples`.

    Returns:
        `Iterator[QuestionExample]`: the questions.

    Raises:
        ValueError: As `read_question_examples`.

    Example:

    >>> import tempfile
    >>> from datasets import Dataset
    >>> folder = tempfile.mkdtemp()
    >>> Dataset.from_list([QuestionExample("1", "Who?", "Jane did.", (("Jane", 0),)).row()]).save_to_disk(folder)
    >>> [example.question for example in dataset_question_examples(folder, split="train")]
    ['Who?']
    """
    rows = dataset_rows(path, name, split=split, revision=revision)
    yield from question_examples(placed_dataset_rows(rows, path, split), columns, unlabelled)


def question_examples(
    rows: Iterable[PlacedRow], columns: QuestionColumns, unlabelled: bool = False
) -> Iterator[QuestionExample]:
    """Take questions out of flat records and check them.

    Args:
        rows (`Iterable[tuple[str, Mapping]]`): The place of each record, for messages, and the record.
        columns (`QuestionColumns`): Where question, passage and answers are.
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_question_examples`.

    Returns:
        `Iterator[QuestionExample]`: the questions.

    Raises:
        ValueError: As `read_question_examples`.
    """
    for where, row in rows:
        texts = {}
        for argument, column in (("question_column", columns.question), ("context_column", columns.context)):
            if column is None:
                continue
            value = column_of(row, column, argument, where)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(
                    f"{where}: column {column!r} must hold a text, got {value!r}. Set `{argument}` to a column of "
                    "texts, or take the row out."
                )
            texts[argument] = value
        found: tuple[tuple[str, int], ...] | None = None
        if not unlabelled or (columns.answers in row and not _hidden(row[columns.answers])):
            found = tuple(answers_of(column_of(row, columns.answers, "answers_column", where), columns.answers, where))
        context = texts["context_column"]
        for text, start in found or ():
            if context[start : start + len(text)] != text:
                raise ValueError(
                    f"{where}: the passage has {context[start : start + len(text)]!r} at character {start}, where the "
                    f"answer {text!r} should be. Correct `answer_start`, or take the row out."
                )
        name = id_of(row)
        question = texts.get("question_column", "")
        yield QuestionExample(str(where if name is None else name), question, context, found, name is not None)


def _hidden(value: Any) -> bool:
    """Whether answers stand in for those that are not told: all of them begin at -1."""
    starts = value.get("answer_start") if isinstance(value, Mapping) else value
    starts = starts if isinstance(starts, list | tuple) else [starts]
    starts = [one.get("answer_start") if isinstance(one, Mapping) else one for one in starts]
    return bool(starts) and all(start == -1 for start in starts)


def answers_of(value: Any, column: str, where: str) -> Iterator[tuple[str, int]]:
    """Answers and where they begin, in either of SQuAD's forms; see `question_examples`."""
    if isinstance(value, Mapping):
        lists = value.get("text"), value.get("answer_start")
        pairs = list(zip(*lists, strict=False)) if all(isinstance(one, list | tuple) for one in lists) else [lists]
    elif isinstance(value, list | tuple) and all(isinstance(answer, Mapping) for answer in value):
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in value]
    elif value is None:
        pairs = []
    else:
        raise ValueError(
            f"{where}: column {column!r} must hold SQuAD's answers, {{'text': [...], 'answer_start': [...]}} or a "
            f"list of {{'text', 'answer_start'}}, got {type(value).__name__}. Set `answers_column`."
        )
    for text, start in pairs:
        if not isinstance(text, str) or not text.strip() or isinstance(start, bool) or not isinstance(start, int):
            raise ValueError(f"{where}: an answer must have a text and an `answer_start`, got {text!r}, {start!r}.")
        if start < 0:
            raise ValueError(f"{where}: `answer_start` must be 0 or more, got {start}: the passage lacks the answer.")
        yield text, start


def squad_rows(path: Path, encoding: str) -> Iterator[PlacedRow]:
    """Flat records of SQuAD's nested file, of a list of records, or of JSON lines.

    Args:
        path (`Path`): The file.
        encoding (`str`): Its encoding.

    Returns:
        `Iterator[tuple[str, Mapping]]`: the place of each record, and the record.

    Raises:
        ValueError: If it is no JSON or of another form.
    """
    text = whole_text(path, encoding)
    try:
        content: Any = json_value(text, str(path))
    except ValueError:
        if len(text.splitlines()) < 2:
            raise
        yield from read_rows(path, "jsonl", encoding)
        return
    nested = content.get("data") if isinstance(content, Mapping) and "question" not in content else None
    records = nested if nested is not None else content if isinstance(content, list) else [content]
    for number, article in enumerate(items_of(records, list, "data", path), start=1):
        where = f"{path}, record {number}"
        if not isinstance(article, Mapping):
            raise ValueError(f"{where}: must be a JSON object, got {type(article).__name__}.")
        if "paragraphs" not in article:
            yield where, article
            continue
        for paragraph in items_of(article["paragraphs"], Mapping, "paragraphs", where):
            for question in items_of(paragraph.get("qas", []), Mapping, "qas", where):
                row = {"context": paragraph.get("context"), **question}
                if question.get("is_impossible"):
                    row["answers"] = []
                yield f"{path}, question {question.get('id', '?')}", row


def items_of(value: Any, kind: type, field: str, where: Any) -> list[Any]:
    """A list, which a field must hold; of mappings if `kind` is that."""
    if not isinstance(value, list) or (kind is Mapping and not all(isinstance(one, Mapping) for one in value)):
        raise ValueError(
            f"{where}: `{field}` must be a list{' of objects' if kind is Mapping else ''}, as SQuAD's is."
        )
    return value


__all__ = [
    "QuestionColumns",
    "QuestionExample",
    "dataset_question_examples",
    "question_examples",
    "read_question_examples",
]
