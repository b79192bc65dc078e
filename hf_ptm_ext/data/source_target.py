"""Rows of source and target text: from JSON lines, CSV, TSV, Parquet, SQuAD files, `datasets`, texts line by line."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .bad_rows import usable
from .lines import iter_lines
from .question_answering import squad_rows
from .rows import (
    Files,
    PlacedRow,
    dataset_rows,
    expand_files,
    id_of,
    placed_files,
    read_rows,
    texts_of,
    with_rows,
)
from .task_shapes import generation_row

_TEXTS = "a text or a list of texts"


class SourceTarget(NamedTuple):
    """One example of a sequence-to-sequence task.

    Args:
        source: The text that is read.
        targets: The text that is written, none where it is not told: the first is trained on, all are references.
        source_pair: A second text that is read, such as the answer to ask for; never cut when the source is.
        id: Its name in the data set, if it has one.
    """

    source: str
    targets: tuple[str, ...]
    source_pair: str | None = None
    id: str | int | None = None


def read_source_target(
    files: Files,
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
        files: Paths or glob patterns.
        source_column: Column or JSON field with the source text.
        target_column: Column or field with the target text, or with a list of texts, all of them right.
        source_pair_column: Column or field with a second source text.
        file_format: `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"`, or `"squad"`: question-answering files, nested as
            SQuAD's or one question a line, turned round into question generation. Told from the name by default (`.gz`
            aside), but for `"squad"`.
        encoding: Of files of text.
        max_context_characters: With `"squad"`, cut passages to this many characters around the answer.
        unlabelled: Rows may be without a target, and have no `targets` then.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "rows.tsv"
        >>> _ = file.write_text("text\\tsummary\\na long text\\tshort\\n", encoding="utf-8")
        >>> next(read_source_target(file, "text", "summary"))
        SourceTarget(source='a long text', targets=('short',), source_pair=None, id=None)
    """
    readers = {"squad": partial(_generation_rows, max_context_characters=max_context_characters)}
    rows = read_rows(placed_files(files, file_format, formats=readers), encoding, readers)
    return source_target_rows(rows, source_column, source_pair_column, target_column, unlabelled)


def source_target_rows(
    rows: Iterable[PlacedRow],
    source_column: str,
    source_pair_column: str | None,
    target_column: str,
    unlabelled: bool = False,
) -> Iterator[SourceTarget]:
    """Take the texts out of rows and check them."""

    def example(row: Any, where: str) -> SourceTarget:
        if isinstance(row, SourceTarget):  # made of a question
            return row
        source = texts_of(row, source_column, "source_column", _TEXTS)
        if len(source) > 1:
            raise ValueError(f"`source_column` = {source_column!r} must hold one text, got {len(source)}.")
        pair = None
        if source_pair_column is not None:
            pair = " ".join(texts_of(row, source_pair_column, "source_pair_column", _TEXTS))
        hidden = unlabelled and row.get(target_column) in (None, "", [])
        targets = () if hidden else tuple(texts_of(row, target_column, "target_column", _TEXTS))
        return SourceTarget(source[0], targets, pair, id_of(row))

    return usable(rows, example)


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
    """Read examples from a dataset of the Hub or of a local folder; the rest as in `read_source_target`.

    `path` is an id of the Hub, a folder with data files, or one of `save_to_disk`; `split` may be a slice such as
    `"train[:1%]"`.

    Examples:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> Dataset.from_dict({"source": ["One."], "target": ["1"]}).save_to_disk(folder := tempfile.mkdtemp())
        >>> list(dataset_source_target(folder, split="train"))
        [SourceTarget(source='One.', targets=('1',), source_pair=None, id=None)]
    """
    rows, _ = dataset_rows(path, name, split, revision)
    return source_target_rows(rows, source_column, source_pair_column, target_column, unlabelled)


def _generation_rows(path: Path, encoding: str, *, max_context_characters: int | None) -> Iterator[PlacedRow]:
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


def read_parallel(
    files: Files,
    target_files: Files | None = None,
    *,
    source_column: str = "source",
    target_column: str = "target",
    file_format: str | None = None,
    encoding: str = "utf-8",
) -> Iterator[tuple[str, str]]:
    """Yield sentence pairs of files.

    Args:
        files: Paths or glob patterns. With `target_files`, text with one sentence a line; otherwise files with both
            columns (JSON lines, CSV, TSV, Parquet; `.gz` of the text formats).
        target_files: The translations, line by line, in as many files; `.gz` works.
        source_column: Column or field of the first sentence.
        target_column: Column or field of the second one.
        file_format: `"jsonl"`, `"csv"`, `"tsv"` or `"parquet"`; told from the name by default.
        encoding: Of files of text.

    Returns:
        Pairs without blank ends. Lines that are blank on both sides are left out.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.en").write_text("One.\\nTwo.\\n", encoding="utf-8")
        >>> _ = (folder / "a.de").write_text("Eins.\\nZwei.\\n", encoding="utf-8")
        >>> list(read_parallel(folder / "a.en", folder / "a.de"))
        [('One.', 'Eins.'), ('Two.', 'Zwei.')]
    """
    if target_files is None:
        examples = read_source_target(files, source_column, target_column, file_format=file_format, encoding=encoding)
        for example in examples:
            yield example.source, example.targets[0]
        return
    sources, targets = expand_files(files), expand_files(target_files)
    if len(sources) != len(targets):
        raise ValueError(
            f"`target_files` must be as many as `files`, got {len(targets)} for {len(sources)}. Name one translation "
            "for each file, in the same order."
        )
    pairs = zip(sources, targets, strict=True)
    rows = (row for source, target in pairs for row in with_rows(_aligned(source, target, encoding), source))
    yield from usable(rows, lambda pair, _: pair)


def _aligned(source: Path, target: Path, encoding: str) -> Iterator[PlacedRow]:
    """Lines of two files side by side."""
    for number, (first, second) in enumerate(
        zip_longest(iter_lines(source, encoding), iter_lines(target, encoding)), start=1
    ):
        if first is None or second is None:
            shorter, longer = (source, target) if first is None else (target, source)
            rest = second if first is None else first
            if not rest.text.strip():  # blank lines at the end of one file do no harm
                continue
            raise ValueError(
                f"{shorter} ends before line {number}, and {longer} goes on. Both must have the same lines: check "
                "that they belong together."
            )
        pair = first.text.strip(), second.text.strip()
        if all(pair):
            yield f"{source}, line {number}", pair
        elif any(pair):
            blank = source if pair[1] else target
            reason = "is blank, and its translation is not. Take the line out of both files."
            yield f"{blank}, line {number}", ValueError(reason)
