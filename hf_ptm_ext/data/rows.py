"""Rows of tables: mappings from column to value, from JSON lines, CSV, TSV, Parquet and `datasets`, with their places.

The place of a row (file and line) is what a message about the row names.
"""

import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .lines import MAX_LINE_BYTES, iter_lines, json_object, json_value, whole_text
from .readers import expand_files, reading_parquet

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}

# Columns in which data sets number or name their rows, the first that a row has.
ID_COLUMNS = ("id", "guid", "idx", "index", "uid", "qid", "example_id", "ID", "Id")

PlacedRow = tuple[str, Any]
"""Where a row stands, and the row: a mapping, or the `ValueError` that reading it raised (see `usable`)."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any, of: type = object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, of) for one in value)


# What a field may have to be: a string is no list of its letters, True is no number.
TYPES: dict[str, Callable[[Any], bool]] = {
    "anything": lambda value: True,
    "a text": lambda value: isinstance(value, str) and bool(value.strip()),
    "a string": lambda value: isinstance(value, str),
    "a list of strings": lambda value: _is_list(value, str),
    "a text or a list of texts": lambda value: isinstance(value, str) or _is_list(value, str),
    "a whole number": _is_number,
    "a list of whole numbers": lambda value: _is_list(value) and all(map(_is_number, value)),
    "two whole numbers": lambda value: _is_list(value) and len(value) == 2 and all(map(_is_number, value)),
    "a number": lambda value: isinstance(value, float) or _is_number(value),
    "a list": _is_list,
    "a list of objects": lambda value: _is_list(value, Mapping),
    "an object": lambda value: isinstance(value, Mapping),
}


def read_rows(path: Path, kind: str, encoding: str = "utf-8") -> Iterator[PlacedRow]:
    """Read the rows of one file.

    Args:
        path (`Path`): The file; files of text may be compressed (`.gz`).
        kind (`str`): `"jsonl"` (an object a line, or one list of objects), `"csv"`, `"tsv"` or `"parquet"`. In CSV and
            TSV the first line names the columns; TSV has no quoting, so that a quotation mark is text.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.

    Returns:
        `Iterator[tuple[str, Mapping]]`: the place of each row and the row.

    Raises:
        ValueError: If the file cannot be read so. The message names file and line.

    Example:

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = file.write_text('text,label\\n"a, b",1\\n', encoding="utf-8")
    >>> [row for _, row in read_rows(file, "csv")]
    [{'text': 'a, b', 'label': '1'}]
    """
    return with_rows(_READERS[kind](path, encoding), path)


class NoRows(ValueError):
    """A file has no row."""


def with_rows(rows: Iterable[Any], path: Path) -> Iterator[Any]:
    """Refuse a file without any row.

    Args:
        rows (`Iterable`): What was read.
        path (`Path`): The file.

    Returns:
        `Iterator`: the rows.

    Raises:
        ValueError: If there is none.
    """
    row = None
    for row in rows:
        yield row
    if row is None:
        raise NoRows(f"{path}: the file has no rows. Take it out or fill it.")


def placed_rows(
    files: str | PathLike[str] | Sequence[str | PathLike[str]], file_format: str | None = None, encoding: str = "utf-8"
) -> Iterator[PlacedRow]:
    """Read the rows of files.

    Args:
        files (`str`, `PathLike` or a sequence of them): As in `placed_files`.
        file_format (`str`, *optional*): As in `placed_files`.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.

    Returns:
        `Iterator[tuple[str, Mapping]]`: the place of each row and the row.
    """
    for path, kind in placed_files(files, file_format):
        yield from read_rows(path, kind, encoding)


def placed_files(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    file_format: str | None = None,
    further: Mapping[str, str] | None = None,
    formats: Collection[str] = (),
) -> Iterator[tuple[Path, str]]:
    """Expand paths and patterns, and tell the format of each file.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths or glob patterns.
        file_format (`str`, *optional*): The format of all; told from the names by default.
        further (`Mapping[str, str]`, *optional*): Endings beside `FORMATS` and their formats.
        formats (`Collection[str]`, *optional*): Formats that no ending tells and that may be named.

    Returns:
        `Iterator[tuple[Path, str]]`: files and formats.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: If the format is unknown.
    """
    endings = {**FORMATS, **(further or {})}
    known = sorted({*endings.values(), *formats})
    if file_format is not None and file_format not in known:
        raise ValueError(f"`file_format` must be one of {', '.join(known)}, got {file_format!r}.")
    for path in expand_files(files):
        yield path, file_format or _format_of(path, endings)


def dataset_rows(
    path: str | PathLike[str], name: str | None = None, *, split: str, revision: str | None = None
) -> Any:
    """Open a dataset of the Hub, of a folder with data files, or of `save_to_disk`.

    Args:
        path (`str` or `PathLike`): An id of the Hub or a folder.
        name (`str`, *optional*): Configuration of the dataset.
        split (`str`): Its split, also slices such as `"train[:1%]"`.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.

    Returns:
        `datasets.Dataset`: the rows.

    Raises:
        ValueError: If the split is missing.

    Example:

    >>> import tempfile
    >>> from datasets import Dataset
    >>> folder = tempfile.mkdtemp()
    >>> Dataset.from_dict({"text": ["One."]}).save_to_disk(folder)
    >>> dataset_rows(folder, split="train")["text"][0]
    'One.'
    """
    import datasets

    if (Path(path) / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(path))
        if split not in splits:
            raise ValueError(f"`split` must be one of {list(splits)} in {path}, got {split!r}.")
        return splits[split]
    if (Path(path) / "state.json").is_file():
        return datasets.load_from_disk(str(path))
    return datasets.load_dataset(str(path), name, split=split, revision=revision)


def placed_dataset_rows(rows: Any, path: str | PathLike[str], split: str) -> Iterator[PlacedRow]:
    """Give the rows of a dataset their places.

    Args:
        rows (`datasets.Dataset`): The rows.
        path (`str` or `PathLike`): What was opened.
        split (`str`): Its split.

    Returns:
        `Iterator[tuple[str, Mapping]]`: the place of each row and the row.
    """
    return ((f"{path}, {split} row {number}", row) for number, row in enumerate(rows, start=1))


def typed(value: Any, kind: str, name: str, advice: str = "") -> Any:
    """Check the type of a field.

    Args:
        value (`Any`): Its value.
        kind (`str`): What it must be, of `TYPES`.
        name (`str`): What an error calls it.
        advice (`str`, *optional*): What to do.

    Returns:
        The value.

    Raises:
        ValueError: If it is something else.

    Example:

    >>> typed("Rome", "a list of strings", "`tokens`")
    Traceback (most recent call last):
        ...
    ValueError: `tokens` must be a list of strings, got 'Rome'.
    """
    if not TYPES[kind](value):
        got = (
            f"{value!r:.60}"
            if isinstance(value, str | int | float | None)
            else f"{type(value).__name__} {value!r:.60}"
        )
        raise ValueError(f"{name} must be {kind}, got {got}.{f' {advice}' if advice else ''}")
    return value


def field_of(record: Any, field: str, kind: str) -> Any:
    """Take a field of a type out of a record.

    Args:
        record (`Any`): An object.
        field (`str`): The field.
        kind (`str`): What it must be, of `TYPES`.

    Returns:
        Its value.

    Raises:
        ValueError: If there is no such field, or it is something else.
    """
    if field not in typed(record, "an object", "the record"):
        raise ValueError(f"lacks `{field}`, and has only {sorted(map(str, record))}.")
    return typed(record[field], kind, f"`{field}`")


def column_of(row: Mapping[str, Any], column: str, argument: str) -> Any:
    """Take a value out of a row.

    Args:
        row (`Mapping[str, Any]`): The row.
        column (`str`): Which value.
        argument (`str`): What a reader has to set to name another column.

    Returns:
        The value.

    Raises:
        ValueError: If there is no such column.

    Example:

    >>> column_of({"text": "One.", "tag": "x"}, "label", "label_column")
    Traceback (most recent call last):
        ...
    ValueError: no column 'label', only ['tag', 'text']. Set `label_column` to one of them.
    """
    if column not in row:
        raise ValueError(f"no column {column!r}, only {sorted(row)}. Set `{argument}` to one of them.")
    return row[column]


def id_of(row: Mapping[str, Any]) -> str | int | None:
    """The name that a data set gives a row, as it stands there; `None` if it gives none.

    Args:
        row (`Mapping[str, Any]`): The row.

    Example:

    >>> id_of({"guid": "dev-7", "text": "One."}), id_of({"text": "One."})
    ('dev-7', None)
    """
    found = (row[name] for name in ID_COLUMNS if isinstance(row.get(name), str | int) and row[name] != "")
    return next(found, None)


def _format_of(path: Path, endings: Mapping[str, str]) -> str:
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix.lower() not in endings:
        raise ValueError(
            f"{path}: cannot tell the format from the ending {name.suffix!r}. Known: {', '.join(endings)} and .gz of "
            "the text formats. Rename the file or set `file_format`."
        )
    return endings[name.suffix.lower()]


def _jsonl_rows(path: Path, encoding: str) -> Iterator[PlacedRow]:
    lines = (line for line in iter_lines(path, encoding) if line.text.strip())
    for place, line in enumerate(lines):
        if place == 0 and line.text.lstrip().startswith("["):
            yield from _list_rows(path, encoding)
            return
        try:
            row: Any = json_object(line, path)
        except ValueError as error:
            row = error
        yield f"{path}, line {line.number}", row


def _list_rows(path: Path, encoding: str) -> Iterator[PlacedRow]:
    for number, row in enumerate(json_value(whole_text(path, encoding), str(path)), start=1):
        wrong = ValueError(f"must be a JSON object, got {type(row).__name__}.")
        yield f"{path}, record {number}", row if isinstance(row, Mapping) else wrong


def _table_rows(path: Path, encoding: str, delimiter: str) -> Iterator[PlacedRow]:
    # Tab-separated files have no quoting: a quotation mark is text.
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for line in iter_lines(path, encoding):
            number = line.number
            yield f"{line.text}\n"

    # The module's own limit, 128 KiB, is less than a long text; a line has one of its own.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    reader = csv.DictReader(lines(), delimiter=delimiter, quoting=quoting)
    try:
        names = reader.fieldnames or ()
        if len(set(names)) < len(names):
            raise ValueError(f"{path}, line {number}: must name different columns, got {list(names)}.")
        for row in reader:
            where = f"{path}, line {number}"
            if None in row or None in row.values():
                yield (
                    where,
                    ValueError(
                        f"{where}: must have the {len(names)} columns of the first line, which names "
                        "them. Check delimiters and quotation marks; of a word a line it is `file_format` = conll."
                    ),
                )
                continue
            yield where, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {number}: cannot be read ({error}).") from error


def _parquet_rows(path: Path, encoding: str) -> Iterator[PlacedRow]:
    number = 0
    with reading_parquet(path) as file:
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row


_READERS: dict[str, Callable[[Path, str], Iterator[PlacedRow]]] = {
    "jsonl": _jsonl_rows,
    "csv": lambda path, encoding: _table_rows(path, encoding, ","),
    "tsv": lambda path, encoding: _table_rows(path, encoding, "\t"),
    "parquet": _parquet_rows,
}


__all__ = [
    "FORMATS",
    "TYPES",
    "PlacedRow",
    "column_of",
    "dataset_rows",
    "field_of",
    "id_of",
    "placed_dataset_rows",
    "placed_files",
    "placed_rows",
    "read_rows",
    "typed",
    "with_rows",
]
