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
from .rows import (
    Files,
    PlacedRow,
    class_name,
    column_of,
    dataset_rows,
    id_of,
    placed_files,
    read_rows,
    texts_of,
)

NO_LABEL = ("-1", "-1.0")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")


class LabelledText(NamedTuple):
    """One example of text classification.

    Args:
        text: The text.
        label: Its class by name, or its score as it is written; `None` without one.
        pair: A second text, such as the hypothesis of an inference or an answer to rank.
        group: What the example belongs to, such as the question whose answers are ranked.
        id: Its name in the data set, if it has one.
    """

    text: str
    label: str | None
    pair: str | None = None
    group: str | None = None
    id: str | int | None = None


class TextColumns(NamedTuple):
    """Which columns hold what.

    Args:
        text: The text.
        label: Its class.
        pair: A second text, `None` without one.
        group: What the row belongs to, `None` if it stands for itself.
    """

    text: str = "text"
    label: str = "label"
    pair: str | None = None
    group: str | None = None


def read_labelled_texts(
    files: Files,
    columns: TextColumns = TextColumns(),  # noqa: B008 (a tuple)
    *,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = False,
    scores: bool = False,
) -> Iterator[LabelledText]:
    """Read examples from JSON lines, CSV, TSV or Parquet, in the order of the files.

    Args:
        files: Paths or glob patterns.
        columns: Their columns, `text` and `label` by default.
        file_format: `"jsonl"`, `"csv"`, `"tsv"` or `"parquet"`; told from the names by default (`.gz` aside).
        encoding: Of files of text.
        unlabelled: Rows may be without a label, which is `None` then.
        scores: Labels are numbers to predict, among which -1 is one.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "reviews.tsv"
        >>> _ = file.write_text("label\\ttext_a\\n1\\ta good book\\n", encoding="utf-8")
        >>> list(read_labelled_texts(file, TextColumns("text_a")))
        [LabelledText(text='a good book', label='1', pair=None, group=None, id=None)]
    """
    rows = read_rows(placed_files(files, file_format), encoding)
    return labelled_texts(rows, columns, unlabelled=unlabelled, scores=scores)


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
    """Read examples from a dataset of the Hub or of a local folder; the rest as in `read_labelled_texts`.

    `path` is an id of the Hub, a folder with data files, or one of `save_to_disk`; `split` may be a slice such as
    `"train[:1%]"`. Numbers of a `ClassLabel` column become its names.

    Examples:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> Dataset.from_dict({"text": ["Read it."], "label": ["good"]}).save_to_disk(folder := tempfile.mkdtemp())
        >>> [example.label for example in dataset_labelled_texts(folder, split="train")]
        ['good']
    """
    rows, features = dataset_rows(path, name, split, revision)
    names = getattr(features.get(columns.label), "names", None)
    return labelled_texts(rows, columns, names, unlabelled=unlabelled, scores=scores)


def labelled_texts(
    rows: Iterable[PlacedRow],
    columns: TextColumns,
    names: Sequence[str] | None = None,
    *,
    unlabelled: bool = False,
    scores: bool = False,
) -> Iterator[LabelledText]:
    """Take texts and labels out of rows and check them."""

    def example(row: Mapping[str, Any], where: str) -> LabelledText:
        group = None if columns.group is None else column_of(row, columns.group, "group_column")
        if not isinstance(group, str | int | None) or (group is None and columns.group is not None):
            raise ValueError(f"column {columns.group!r} must be a name or a number, got {group!r:.60}.")
        return LabelledText(
            texts_of(row, columns.text, "text_column")[0],
            _label(row, columns.label, names, unlabelled, scores),
            None if columns.pair is None else texts_of(row, columns.pair, "pair_column")[0],
            None if group is None else str(group),
            id_of(row),
        )

    return usable(rows, example)


def _label(
    row: Mapping[str, Any], column: str, names: Sequence[str] | None, unlabelled: bool, scores: bool
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
        label = class_name(value, names, column, "classes")
    if scores and not NUMBER.fullmatch(label):
        raise ValueError(
            f"column {column!r} must be a number for `task` = regression, got {label!r}. Set `label_column`, or take "
            "the row out."
        )
    return label
