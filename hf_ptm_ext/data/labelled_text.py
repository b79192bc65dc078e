"""Texts, or pairs of texts, with one label each: what a sequence classifier is trained on.

A row has no label where the column is missing, empty or -1, by which data sets of the Hub hide the labels of a test
set: one rule for CSV, TSV, JSON lines, Parquet and `datasets`. Such rows are refused unless they may be unlabelled.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from .bad_rows import usable
from .rows import PlacedRow, column_of, dataset_rows, id_of, placed_dataset_rows, placed_rows, typed

NO_LABEL = ("-1", "-1.0")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")


class LabelledText(NamedTuple):
    """One example of text classification.

    Args:
        text: the text.
        label: its class by name, or its score as it is written; `None` without one.
        pair: a second text, such as the hypothesis of an inference or an answer to rank.
        group: what the example belongs to, such as the question whose answers are ranked.
        id: its name in the data set, if it has one.
    """

    text: str
    label: str | None
    pair: str | None = None
    group: str | None = None
    id: str | int | None = None


class TextColumns(NamedTuple):
    """Which columns hold what.

    Args:
        text: the text.
        label: its class.
        pair: a second text, `None` without one.
        group: what the row belongs to, `None` if it stands for itself.
    """

    text: str = "text"
    label: str = "label"
    pair: str | None = None
    group: str | None = None


def read_labelled_texts(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    columns: TextColumns = TextColumns(),  # noqa: B008 (a tuple)
    *,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = False,
    scores: bool = False,
) -> Iterator[LabelledText]:
    """Read examples from JSON lines, CSV, TSV or Parquet.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths or glob patterns.
        columns (`TextColumns`, *optional*): Their columns, `text` and `label` by default.
        file_format (`str`, *optional*): `"jsonl"`, `"csv"`, `"tsv"` or `"parquet"`; told from the names by default
            (`.gz` aside).
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.
        unlabelled (`bool`, *optional*, defaults to `False`): Rows may be without a label, which is `None` then.
        scores (`bool`, *optional*, defaults to `False`): Labels are numbers to predict, among which -1 is one.

    Returns:
        `Iterator[LabelledText]`: the examples in the order of the files.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: If a file cannot be read, a column is missing, or a row has no text or no label. The message names
            file, row and column.

    Example:

    >>> import tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "reviews.tsv"
    >>> _ = file.write_text("label\\ttext_a\\n1\\ta good book\\n", encoding="utf-8")
    >>> list(read_labelled_texts(file, TextColumns("text_a")))
    [LabelledText(text='a good book', label='1', pair=None, group=None, id=None)]
    """
    rows = placed_rows(files, file_format, encoding)
    yield from labelled_texts(rows, columns, unlabelled=unlabelled, scores=scores)


def dataset_labelled_texts(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    columns: TextColumns = TextColumns(),  # noqa: B008 (a tuple)
    revision: str | None = None,
    unlabelled: bool = False,
    scores: bool = False,
) -> Iterator[LabelledText]:
    """Read examples from a dataset of the Hub or of a local folder.

    Args:
        path (`str` or `PathLike`): An id of the Hub, a folder with data files, or a folder written by `save_to_disk`.
        name (`str`, *optional*): Configuration of the dataset.
        split (`str`): Its split, also slices such as `"train[:1%]"`.
        columns (`TextColumns`, *optional*): Its columns. Numbers of a `ClassLabel` column become its names.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_labelled_texts`.
        scores (`bool`, *optional*, defaults to `False`): As in `read_labelled_texts`.

    Returns:
        `Iterator[LabelledText]`: the examples.

    Raises:
        ValueError: If the split or a column is missing, or a row has no text or no label.

    Example:

    >>> import tempfile
    >>> from datasets import ClassLabel, Dataset, Features, Value
    >>> features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    >>> folder = tempfile.mkdtemp()
    >>> Dataset.from_dict({"text": ["Read it."], "label": [1]}, features=features).save_to_disk(folder)
    >>> [example.label for example in dataset_labelled_texts(folder, split="train")]
    ['good']
    """
    rows = dataset_rows(path, name, split=split, revision=revision)
    names = getattr(rows.features.get(columns.label), "names", None)
    yield from labelled_texts(
        placed_dataset_rows(rows, path, split), columns, names, unlabelled=unlabelled, scores=scores
    )


def labelled_texts(
    rows: Iterable[PlacedRow],
    columns: TextColumns,
    names: Sequence[str] | None = None,
    *,
    unlabelled: bool = False,
    scores: bool = False,
) -> Iterator[LabelledText]:
    """Take texts and labels out of rows and check them.

    Args:
        rows (`Iterable[tuple[str, Mapping]]`): The place of each row, for messages, and the row.
        columns (`TextColumns`): Where text, label, pair and group are.
        names (`Sequence[str]`, *optional*): Names of labels that are numbers.
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_labelled_texts`.
        scores (`bool`, *optional*, defaults to `False`): As in `read_labelled_texts`.

    Returns:
        `Iterator[LabelledText]`: the examples.

    Raises:
        ValueError: If a column is missing, or a text or label is missing, blank or of another type.
    """

    def example(row: Mapping[str, Any], where: str) -> LabelledText:
        group = None if columns.group is None else column_of(row, columns.group, "group_column")
        if not isinstance(group, str | int | None) or (group is None and columns.group is not None):
            raise ValueError(f"column {columns.group!r} must be a name or a number, got {group!r:.60}.")
        return LabelledText(
            _text(row, columns.text, "text_column"),
            _label(row, columns.label, names, unlabelled, scores),
            None if columns.pair is None else _text(row, columns.pair, "pair_column"),
            None if group is None else str(group),
            id_of(row),
        )

    yield from usable(rows, example)


def _text(row: Mapping[str, Any], column: str, argument: str) -> str:
    value = column_of(row, column, argument)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"column {column!r} is empty. Give every row a text, or take the row out.")
    return typed(value, "a text", f"column {column!r}", f"Set `{argument}` to a column of texts.").strip()


def _label(
    row: Mapping[str, Any],
    column: str,
    names: Sequence[str] | None,
    unlabelled: bool,
    scores: bool,
) -> str | None:
    if unlabelled and column not in row:
        return None
    value = column_of(row, column, "label_column")
    if not isinstance(value, str | int | float | None):
        raise ValueError(
            f"column {column!r} must hold a label (a word or a number), got {type(value).__name__}. Set "
            "`label_column` to the column of classes, or take the row out."
        )
    label = "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()
    if not label or (not scores and label in NO_LABEL):
        if unlabelled:
            return None
        raise ValueError(
            f"column {column!r} {f'has no label ({label})' if label else 'is empty'}. Take another split, "
            f"give every row a label{' (a class of that number: a name)' * bool(label)}, or take the row out."
        )
    if names is not None and isinstance(value, int):
        if not 0 <= value < len(names):
            raise ValueError(f"column {column!r} has {value}, and its classes are 0 to {len(names) - 1}.")
        label = names[value]
    if scores and not NUMBER.fullmatch(label):
        raise ValueError(
            f"column {column!r} must be a number for `task` = regression, got {label!r}. Set `label_column`, or take "
            "the row out."
        )
    return label


__all__ = ["LabelledText", "TextColumns", "dataset_labelled_texts", "labelled_texts", "read_labelled_texts"]
