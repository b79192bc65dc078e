"""Rows of source and target text, from JSON lines, CSV, TSV, Parquet, SQuAD files and `datasets`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .lines import check_encoding
from .question_answering import squad_rows
from .question_generation import question_generation_rows
from .rows import column_of, dataset_rows, placed_dataset_rows, placed_files, read_rows, with_rows

# Columns of what `question_generation_rows` makes.
SQUAD_COLUMNS = ("source", "source_pair", "target")


class SourceTarget(NamedTuple):
    """One example of a sequence-to-sequence task.

    Args:
        source: the text that is read.
        targets: the text that is written: the first one is trained on, all are references of an evaluation.
        source_pair: a second text that is read, such as the answer to ask for; never cut when the source is.
    """

    source: str
    targets: tuple[str, ...]
    source_pair: str | None = None


def read_source_target(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    source_column: str = "source",
    target_column: str = "target",
    *,
    source_pair_column: str | None = None,
    file_format: str | None = None,
    encoding: str = "utf-8",
    max_context_characters: int | None = None,
) -> Iterator[SourceTarget]:
    """Read examples from files.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths or glob patterns.
        source_column (`str`, *optional*, defaults to `"source"`): Column or JSON field with the source text.
        target_column (`str`, *optional*, defaults to `"target"`): Column or field with the target text, or with a list
            of texts, all of them right.
        source_pair_column (`str`, *optional*): Column or field with a second source text.
        file_format (`str`, *optional*): `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"`, or `"squad"`: question-answering
            files, nested as SQuAD's or one question a line, turned round into question generation. Told from the
            name by default (`.gz` aside), but for `"squad"`.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.
        max_context_characters (`int`, *optional*): With `"squad"`, cut passages to this many characters around the
            answer.

    Returns:
        `Iterator[SourceTarget]`: the examples in the order of the files.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: If a file cannot be read, a column is missing, or a row has no source or no target. The message
            names file, row and column.

    Example:

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.tsv"
    >>> _ = file.write_text("text\\tsummary\\na long text\\tshort\\n", encoding="utf-8")
    >>> next(read_source_target(file, "text", "summary"))
    SourceTarget(source='a long text', targets=('short',), source_pair=None)
    """
    check_encoding(encoding)
    columns = (source_column, source_pair_column, target_column)
    for path, kind in placed_files(files, file_format, formats=("squad",)):
        if kind == "squad":
            rows: Iterable[tuple[str, Mapping[str, Any]]] = _squad_rows(path, encoding, max_context_characters)
            yield from source_target_rows(rows, *SQUAD_COLUMNS)
        else:
            yield from source_target_rows(read_rows(path, kind, encoding), *columns)


def source_target_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    source_column: str,
    source_pair_column: str | None,
    target_column: str,
) -> Iterator[SourceTarget]:
    """Take the texts out of rows and check them.

    Args:
        rows (`Iterable[tuple[str, Mapping]]`): The place of each row, for messages, and the row.
        source_column (`str`): Where the source is.
        source_pair_column (`str`, *optional*): Where the second source text is.
        target_column (`str`): Where the target is: a text or a list of texts.

    Returns:
        `Iterator[SourceTarget]`: the examples.

    Raises:
        ValueError: If a column is missing, or a text is missing, blank or no text.

    Example:

    >>> list(source_target_rows([("row 1", {"a": "x", "b": ["y", "z"]})], "a", None, "b"))
    [SourceTarget(source='x', targets=('y', 'z'), source_pair=None)]
    """
    for where, row in rows:
        source = _texts(row, source_column, "source_column", where)
        if len(source) > 1:
            raise ValueError(f"{where}: `source_column` = {source_column!r} must hold one text, got {len(source)}.")
        pair = None
        if source_pair_column is not None:
            pair = " ".join(_texts(row, source_pair_column, "source_pair_column", where))
        yield SourceTarget(source[0], tuple(_texts(row, target_column, "target_column", where)), pair)


def dataset_source_target(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    source_column: str = "source",
    target_column: str = "target",
    source_pair_column: str | None = None,
    revision: str | None = None,
) -> Iterator[SourceTarget]:
    """Read examples from a dataset of the Hub or of a local folder.

    Args:
        path (`str` or `PathLike`): An id of the Hub, a folder with data files, or a folder written by `save_to_disk`.
        name (`str`, *optional*): Configuration of the dataset.
        split (`str`): Its split, also slices such as `"train[:1%]"`.
        source_column (`str`, *optional*, defaults to `"source"`): As in `read_source_target`.
        target_column (`str`, *optional*, defaults to `"target"`): As in `read_source_target`.
        source_pair_column (`str`, *optional*): As in `read_source_target`.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.

    Returns:
        `Iterator[SourceTarget]`: the examples.

    Raises:
        ValueError: If the split or a column is missing, or a row has no source or no target.

    Example:

    >>> import tempfile
    >>> from datasets import Dataset
    >>> folder = tempfile.mkdtemp()
    >>> Dataset.from_dict({"source": ["One."], "target": ["1"]}).save_to_disk(folder)
    >>> list(dataset_source_target(folder, split="train"))
    [SourceTarget(source='One.', targets=('1',), source_pair=None)]
    """
    rows = placed_dataset_rows(dataset_rows(path, name, split=split, revision=revision), path, split)
    yield from source_target_rows(rows, source_column, source_pair_column, target_column)


def _texts(row: Mapping[str, Any], column: str, argument: str, where: str) -> list[str]:
    """The texts of a column, stripped; none is an error."""
    value = column_of(row, column, argument, where)
    values = [value] if value is None or isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(text is None or isinstance(text, str) for text in values):
        raise ValueError(
            f"{where}: column {column!r} must hold a text or a list of texts, got {type(value).__name__}. Set "
            f"`{argument}` to a column of texts."
        )
    texts = [text.strip() for text in values if text and text.strip()]
    if not texts:
        raise ValueError(f"{where}: column {column!r} is empty. Give every row a text, or take the row out.")
    return texts


def _squad_rows(
    path: Path, encoding: str, max_context_characters: int | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    records = (row for _, row in with_rows(squad_rows(path, encoding), path))
    rows = question_generation_rows(records, max_context_characters=max_context_characters)
    try:
        for row in rows:
            yield f"{path}, question {row['id']}", row
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from error


__all__ = ["SourceTarget", "dataset_source_target", "read_source_target", "source_target_rows"]
