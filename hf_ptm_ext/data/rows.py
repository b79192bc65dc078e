"""Rows of tables: mappings from column to value, from JSON lines, CSV, TSV, Parquet and `datasets`, with their places.

The place of a row (file and line) is what a message about the row names.
"""

import csv
import glob
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from ..hints import did_you_mean, similar_path
from .lines import MAX_LINE_BYTES, bare_name, iter_lines, json_object, json_value, whole_text

JSON_LINES = dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
FORMATS = {**JSON_LINES, ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}

# Columns in which data sets number or name their rows, the first that a row has.
ID_COLUMNS = ("id", "guid", "idx", "index", "uid", "qid", "example_id", "ID", "Id")

Files = str | PathLike[str] | Sequence[str | PathLike[str]]
PlacedRow = tuple[str, Any]
"""Where a row stands, and the row: a mapping, or the `ValueError` that reading it raised (see `usable`)."""

RowReader = Callable[[Path, str], Iterator[PlacedRow]]
"""From a file and its encoding to its rows."""


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


class NoRows(ValueError):
    """A file has no row."""


def with_rows(rows: Iterable[Any], path: str | PathLike[str]) -> Iterator[Any]:
    """Refuse a file without any row."""
    row = None
    for row in rows:
        yield row
    if row is None:
        raise NoRows(f"{path}: the file has no rows. Take it out or fill it.")


def read_rows(
    files: Iterable[tuple[Path, str]], encoding: str = "utf-8", readers: Mapping[str, RowReader] | None = None
) -> Iterator[PlacedRow]:
    """Read the rows of files of known formats; `readers` know further formats, or others of the same name."""
    known = {**_READERS, **(readers or {})}
    for path, file_format in files:
        yield from with_rows(known[file_format](path, encoding), path)


def placed_files(
    files: Files,
    file_format: str | None = None,
    endings: Mapping[str, str] = FORMATS,
    formats: Collection[str] = (),
) -> Iterator[tuple[Path, str]]:
    """Expand paths and patterns, and tell the format of each file: by its ending, if all have not the one named."""
    known = sorted({*endings.values(), *formats})
    if file_format is not None and file_format not in known:
        raise ValueError(f"`file_format` must be one of {', '.join(known)}, got {file_format!r}.")
    for path in expand_files(files):
        yield path, file_format or format_of(path, endings)


def expand_files(files: Files) -> list[Path]:
    """Turn a path, a glob pattern or a list of them into a list of existing files, the matches of each sorted.

    Args:
        files: `**` in a pattern matches folders of any depth.

    Examples:
        >>> expand_files("no/such/*.txt")
        Traceback (most recent call last):
            ...
        FileNotFoundError: `files`: nothing matches 'no/such/*.txt'. Check the path; the working folder is ...
    """
    patterns = [files] if isinstance(files, str | PathLike) else list(files)
    if not patterns:
        raise ValueError(f"`files` must name at least one file, got {files!r}.")
    paths: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            raise ValueError(f"`files`: {path} is a folder. Name its files, for example '{path.as_posix()}/*.txt'.")
        if path.exists() and not path.is_file():
            raise ValueError(f"`files`: {path} is no regular file. Write what it gives into one.")
        matches = [path] if path.is_file() else [Path(name) for name in glob.glob(str(pattern), recursive=True)]
        matches = [match for match in sorted(matches) if match.is_file()]
        if not matches:
            raise FileNotFoundError(
                f"`files`: nothing matches {str(pattern)!r}.{similar_path(path)} Check the path; the working "
                f"folder is {Path.cwd()}."
            )
        paths += matches
    return paths


def format_of(path: Path, endings: Mapping[str, str]) -> str:
    """The format of a file by the end of its name, `.gz`, `.bz2`, `.xz` and `.zip` aside."""
    name = bare_name(path)
    if name.suffix.lower() not in endings:
        raise ValueError(
            f"{path}: cannot tell the format from the ending {name.suffix!r}. Known: {', '.join(endings)} and .gz of "
            "the text formats. Rename the file or set `file_format`."
        )
    return endings[name.suffix.lower()]


def open_dataset(
    path: str | PathLike[str], name: str | None = None, *, split: str, revision: str | None = None, **options: Any
) -> Any:
    """Open a dataset of the Hub, of a folder with data files, or of `save_to_disk`."""
    import datasets

    if (Path(path) / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(path))
        if split not in splits:
            raise ValueError(f"`split` must be one of {list(splits)} in {path}, got {split!r}.")
        return splits[split]
    if (Path(path) / "state.json").is_file():
        return datasets.load_from_disk(str(path))
    return datasets.load_dataset(str(path), name, split=split, revision=revision, **options)


def dataset_rows(
    path: str | PathLike[str], name: str | None, split: str, revision: str | None
) -> tuple[Iterator[PlacedRow], Mapping[str, Any]]:
    """The rows of a dataset with their places, and its features."""
    dataset = open_dataset(path, name, split=split, revision=revision)
    rows = ((f"{path}, {split} row {number}", row) for number, row in enumerate(dataset, start=1))
    return rows, dataset.features


def typed(value: Any, kind: str, name: str, advice: str = "") -> Any:
    """Check the type of a field."""
    if not TYPES[kind](value):
        got = (
            f"{value!r:.60}"
            if isinstance(value, str | int | float | None)
            else f"{type(value).__name__} {value!r:.60}"
        )
        raise ValueError(f"{name} must be {kind}, got {got}.{f' {advice}' if advice else ''}")
    return value


def field_of(record: Any, field: str, kind: str) -> Any:
    """Take a field of a type out of a record."""
    if field not in typed(record, "an object", "the record"):
        raise ValueError(f"lacks `{field}`, and has only {sorted(map(str, record))}.")
    return typed(record[field], kind, f"`{field}`")


def column_of(row: Mapping[str, Any], column: str, argument: str) -> Any:
    """Take a value out of a row."""
    check_column(column, row, argument)
    return row[column]


def check_column(column: str, known: Iterable[str], argument: str, where: str = "") -> None:
    """Refuse a column that is not there; `where` stands before the message."""
    if column not in (names := sorted(map(str, known))):
        meant = did_you_mean(column, names)
        raise ValueError(f"{where}no column {column!r}, only {names}.{meant} Set `{argument}` to one of them.")


def texts_of(row: Mapping[str, Any], column: str, argument: str, kind: str = "a text") -> list[str]:
    """The texts of a column, stripped; none is an error."""
    value = column_of(row, column, argument)
    if value is None or isinstance(value, str):
        texts = [value or ""]
    else:
        texts = typed(value, kind, f"column {column!r}", f"Set `{argument}` to a column of texts.")
    if not (found := [text.strip() for text in texts if text.strip()]):
        raise ValueError(f"column {column!r} is empty. Give every row a text, or take the row out.")
    return found


def class_name(value: int, names: Sequence[str], column: str, what: str) -> str:
    """The name of a class of `datasets`' `ClassLabel`."""
    if not 0 <= value < len(names):
        raise ValueError(f"column {column!r} has {value}, and its {what} are 0 to {len(names) - 1}.")
    return names[value]


def id_of(row: Mapping[str, Any]) -> str | int | None:
    """The name that a data set gives a row, as it stands there; `None` if it gives none."""
    found = (row[name] for name in ID_COLUMNS if isinstance(row.get(name), str | int) and row[name] != "")
    return next(found, None)


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
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for line in iter_lines(path, encoding):
            number = line.number
            yield f"{line.text}\n"

    # The module's own limit, 128 KiB, is less than a long text; a line has one of its own.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    # Tab-separated files have no quoting: a quotation mark is text.
    quoting: Any = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.DictReader(lines(), delimiter=delimiter, quoting=quoting)
    try:
        names = reader.fieldnames or ()
        if len(set(names)) < len(names):
            raise ValueError(f"{path}, line {number}: must name different columns, got {list(names)}.")
        for row in reader:
            where = f"{path}, line {number}"
            if None in row or None in row.values():
                reason = (
                    f"{where}: must have the {len(names)} columns of the first line, which names them. Check "
                    "delimiters and quotation marks; of a word a line it is `file_format` = conll."
                )
                yield where, ValueError(reason)
            else:
                yield where, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {number}: cannot be read ({error}).") from error


@contextmanager
def reading_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what goes wrong while it is read names it."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: cannot be read as Parquet ({reason}). Is it cut off or of another format?"
        ) from error


def _parquet_rows(path: Path, encoding: str) -> Iterator[PlacedRow]:
    number = 0
    with reading_parquet(path) as file:
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row


_READERS: dict[str, RowReader] = {
    "jsonl": _jsonl_rows,
    "csv": lambda path, encoding: _table_rows(path, encoding, ","),
    "tsv": lambda path, encoding: _table_rows(path, encoding, "\t"),
    "parquet": _parquet_rows,
}
