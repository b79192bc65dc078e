"""Sentence pairs that translate each other: two text files line by line, or two columns of JSON lines and tables."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from os import PathLike
from pathlib import Path

from .bad_rows import usable
from .lines import iter_lines
from .readers import expand_files
from .rows import PlacedRow, with_rows
from .source_target import read_source_target


def read_parallel(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    target_files: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    *,
    source_column: str = "source",
    target_column: str = "target",
    file_format: str | None = None,
    encoding: str = "utf-8",
) -> Iterator[tuple[str, str]]:
    """Yield sentence pairs of files.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths or glob patterns. With `target_files`, text with one
            sentence a line; otherwise files with both columns (JSON lines, CSV, TSV, Parquet; `.gz` of the text
            formats).
        target_files (`str`, `PathLike` or a sequence of them, *optional*): The translations, line by line, in as many
            files; `.gz` works.
        source_column (`str`, *optional*, defaults to `"source"`): Column or field of the first sentence.
        target_column (`str`, *optional*, defaults to `"target"`): Column or field of the second one.
        file_format (`str`, *optional*): `"jsonl"`, `"csv"`, `"tsv"` or `"parquet"`; told from the name by default.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.

    Returns:
        `Iterator[tuple[str, str]]`: pairs without blank ends. Lines that are blank on both sides are left out.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: If the files are not equally many, one has more lines than the other, a sentence stands against a
            blank line, or a column is missing or empty. The message names file and line.

    Example:

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


__all__ = ["read_parallel"]
