"""Rows of source and target text, from JSON lines, CSV, TSV, Parquet, SQuAD files and `datasets`."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .lines import check_encoding, iter_lines
from .question_generation import question_generation_rows
from .readers import expand_files

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
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
    known = sorted({*FORMATS.values(), "squad"})
    if file_format is not None and file_format not in known:
        raise ValueError(f"`file_format` must be one of {', '.join(known)}, got {file_format!r}.")
    columns = (source_column, source_pair_column, target_column)
    for path in expand_files(files):
        kind = file_format or _format_of(path)
        if kind == "squad":
            rows: Iterable[tuple[str, Mapping[str, Any]]] = _squad_rows(path, encoding, max_context_characters)
            yield from source_target_rows(rows, *SQUAD_COLUMNS)
        else:
            yield from source_target_rows(_READERS[kind](path, encoding), *columns)


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
    import datasets

    if (Path(path) / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(path))
        if split not in splits:
            raise ValueError(f"`split` must be one of {list(splits)} in {path}, got {split!r}.")
        rows = splits[split]
    elif (Path(path) / "state.json").is_file():
        rows = datasets.load_from_disk(str(path))
    else:
        rows = datasets.load_dataset(str(path), name, split=split, revision=revision)
    placed = ((f"{path}, {split} row {number}", row) for number, row in enumerate(rows, start=1))
    yield from source_target_rows(placed, source_column, source_pair_column, target_column)


def _texts(row: Mapping[str, Any], column: str, argument: str, where: str) -> list[str]:
    """The texts of a column, stripped; none is an error."""
    if column not in row:
        raise ValueError(f"{where}: no column {column!r}, only {sorted(row)}. Set `{argument}` to one of them.")
    value = row[column]
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


def _format_of(path: Path) -> str:
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix.lower() not in FORMATS:
        raise ValueError(
            f"{path}: cannot tell the format from the ending {name.suffix!r}. Known: {', '.join(FORMATS)} and .gz of "
            "the text formats. Rename the file or set `file_format`."
        )
    return FORMATS[name.suffix.lower()]


def _jsonl_rows(path: Path, encoding: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for line in iter_lines(path, encoding):
        if not line.text.strip():
            continue
        where = f"{path}, line {line.number}"
        try:
            row = json.loads(line.text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{where}: not a JSON object ({error}). Write one object a line.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{where}: must be a JSON object, got {type(row).__name__}. Write one object a line.")
        yield where, row


def _text_of(path: Path, encoding: str) -> str:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    try:
        return raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte {error.start} is not {encoding} text. Set `encoding` to the file's encoding, or convert "
            "the file to UTF-8."
        ) from error


def _table_rows(path: Path, encoding: str, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Tab-separated files have no quoting: a quotation mark is text.
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.DictReader(io.StringIO(_text_of(path, encoding), newline=""), delimiter=delimiter, quoting=quoting)
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise ValueError(
                    f"{where}: must have the {len(reader.fieldnames or ())} columns of the first line, which names "
                    "them. Check delimiters and quotation marks."
                )
            yield where, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: cannot be read ({error}).") from error


def _parquet_rows(path: Path, encoding: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{path}: cannot be read as Parquet ({error}). Is it cut off or of another format?"
        ) from error


def _squad_rows(
    path: Path, encoding: str, max_context_characters: int | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        records: Any = json.loads(_text_of(path, encoding))
    except json.JSONDecodeError:
        records = [row for _, row in _jsonl_rows(path, encoding)]
    rows = question_generation_rows(records, max_context_characters=max_context_characters)
    try:
        for row in rows:
            yield f"{path}, question {row['id']}", row
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


_READERS = {
    "jsonl": _jsonl_rows,
    "csv": lambda path, encoding: _table_rows(path, encoding, ","),
    "tsv": lambda path, encoding: _table_rows(path, encoding, "\t"),
    "parquet": _parquet_rows,
}


__all__ = ["SourceTarget", "dataset_source_target", "read_source_target", "source_target_rows"]
