"""Rows of source and target text, from JSON lines, CSV, TSV, Parquet, SQuAD files and `datasets`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .bad_rows import usable
from .question_answering import squad_rows
from .question_generation import generation_row
from .rows import (
    PlacedRow,
    column_of,
    dataset_rows,
    id_of,
    placed_dataset_rows,
    placed_files,
    read_rows,
    typed,
    with_rows,
)


class SourceTarget(NamedTuple):
    """One example of a sequence-to-sequence task.

    Args:
        source: the text that is read.
        targets: the text that is written: the first one is trained on, all are references of an evaluation;
            none where they are not told.
        source_pair: a second text that is read, such as the answer to ask for; never cut when the source is.
        id: its name in the data set, if it has one.
    """

    source: str
    targets: tuple[str, ...]
    source_pair: str | None = None
    id: str | int | None = None


def read_source_target(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    source_column: str = "source",
    target_column: str = "target",
    *,
    source_pair_column: str | None = None,
    file_format: str | None = None,
    encoding: str = "utf-8",
    max_context_characters: int | None = None,
    unlabelled: bool = False,
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
        unlabelled (`bool`, *optional*, defaults to `False`): Rows may be without a target, and have no `targets` then.

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
    SourceTarget(source='a long text', targets=('short',), source_pair=None, id=None)
    """

    def rows() -> Iterator[PlacedRow]:
        for path, kind in placed_files(files, file_format, formats=("squad",)):
            if kind == "squad":
                yield from with_rows(_generation_rows(path, encoding, max_context_characters), path)
            else:
                yield from read_rows(path, kind, encoding)

    yield from source_target_rows(rows(), source_column, source_pair_column, target_column, unlabelled)


def source_target_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    source_column: str,
    source_pair_column: str | None,
    target_column: str,
    unlabelled: bool = False,
) -> Iterator[SourceTarget]:
    """Take the texts out of rows and check them.

    Args:
        rows (`Iterable[tuple[str, Mapping]]`): The place of each row, for messages, and the row.
        source_column (`str`): Where the source is.
        source_pair_column (`str`, *optional*): Where the second source text is.
        target_column (`str`): Where the target is: a text or a list of texts.
        unlabelled (`bool`, *optional*, defaults to `False`): Rows may be without a target.

    Returns:
        `Iterator[SourceTarget]`: the examples.

    Raises:
        ValueError: If a column is missing, or a text is missing, blank or no text.

    Example:

    >>> list(source_target_rows([("row 1", {"a": "x", "b": ["y", "z"]})], "a", None, "b"))
    [SourceTarget(source='x', targets=('y', 'z'), source_pair=None, id=None)]
    """

    def example(row: Any, where: str) -> SourceTarget:
        if isinstance(row, SourceTarget):  # made of a question
            return row
        source = _texts(row, source_column, "source_column")
        if len(source) > 1:
            raise ValueError(f"`source_column` = {source_column!r} must hold one text, got {len(source)}.")
        pair = None
        if source_pair_column is not None:
            pair = " ".join(_texts(row, source_pair_column, "source_pair_column"))
        hidden = unlabelled and row.get(target_column) in (None, "", [])
        targets = () if hidden else tuple(_texts(row, target_column, "target_column"))
        return SourceTarget(source[0], targets, pair, id_of(row))

    yield from usable(rows, example)


def dataset_source_target(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    source_column: str = "source",
    target_column: str = "target",
    source_pair_column: str | None = None,
    revision: str | None = None,
    unlabelled: bool = False,
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
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_source_target`.

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
    [SourceTarget(source='One.', targets=('1',), source_pair=None, id=None)]
    """
    rows = placed_dataset_rows(dataset_rows(path, name, split=split, revision=revision), path, split)
    yield from source_target_rows(rows, source_column, source_pair_column, target_column, unlabelled)


def _texts(row: Mapping[str, Any], column: str, argument: str) -> list[str]:
    """The texts of a column, stripped; none is an error."""
    value = column_of(row, column, argument)
    advice = f"Set `{argument}` to a column of texts."
    values = typed("" if value is None else value, "a text or a list of texts", f"column {column!r}", advice)
    values = [values] if isinstance(values, str) else values
    texts = [text.strip() for text in values if text.strip()]
    if not texts:
        raise ValueError(f"column {column!r} is empty. Give every row a text, or take the row out.")
    return texts


def _generation_rows(path: Path, encoding: str, max_context_characters: int | None) -> Iterator[PlacedRow]:
    """Questions turned round, or what is wrong with them; those without an answer are left out."""
    for where, record in squad_rows(path, encoding):
        try:
            row = record if isinstance(record, ValueError) else generation_row(record, max_context_characters)
        except ValueError as error:
            row = error
        if isinstance(row, ValueError):
            yield where, row
        elif row is not None:
            source, pair, target = (row[name].strip() for name in ("source", "source_pair", "target"))
            yield where, SourceTarget(source, (target,), pair, id_of(record))


__all__ = ["SourceTarget", "dataset_source_target", "read_source_target", "source_target_rows"]
