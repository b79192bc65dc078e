"""Documents from files: `.txt`, `.jsonl` (both also `.gz`) and Parquet, lazily, with a position to start again from.

A document is a list of sentences (or lines, or paragraphs: whatever the file has on a line), each a string without
line breaks. In text files a blank line ends a document. What a row of JSON lines or Parquet holds is one document:
a string, cut at its line breaks, or a list of strings.
"""

import glob
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .lines import check_encoding, iter_lines, json_object

Document = list[str]
"""A document: its sentences."""

_FORMATS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}


class Position(NamedTuple):
    """Where a reader stands: bytes (text, JSON lines) or rows (Parquet) read, and lines read."""

    offset: int
    line: int


START = Position(0, 0)


def sentences_of(value: Any, where: str) -> Document:
    """Turn the text column of a row into a document.

    Args:
        value (`Any`): A string (cut at its line breaks), a list of strings, or None (no text).
        where (`str`): The place that an error names.

    Returns:
        `list[str]`: the sentences that are not blank, stripped. May be empty.

    Raises:
        ValueError: If the value is neither.

    Example:

    >>> sentences_of("One.\\n\\nTwo. ", "row 1")
    ['One.', 'Two.']
    """
    if value is None:
        return []
    lines = value.split("\n") if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError(f"{where}: the text must be a string or a list of strings, got {type(value).__name__}.")
    return [text for line in lines for part in line.split("\n") if (text := part.strip())]


def expand_files(files: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    """Turn a path, a glob pattern or a list of them into a list of existing files.

    Args:
        files (`str`, `PathLike` or a sequence of them): `**` in a pattern matches folders of any depth.

    Returns:
        `list[Path]`: in the order given, the matches of each pattern sorted.

    Raises:
        FileNotFoundError: If a path or pattern matches no file. The message names it.
        ValueError: If the list is empty.

    Example:

    >>> expand_files("no/such/*.txt")
    Traceback (most recent call last):
        ...
    FileNotFoundError: `files`: nothing matches 'no/such/*.txt'. Check the path; the working folder is ...
    """
    patterns = [files] if isinstance(files, str | PathLike) else list(files)
    if not patterns:
        raise ValueError("`files` must name at least one file, got an empty list.")
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
                f"`files`: nothing matches {str(pattern)!r}. Check the path; the working folder is {Path.cwd()}."
            )
        paths += matches
    return paths


def file_format_of(path: Path) -> str:
    """Return `"text"`, `"jsonl"` or `"parquet"`, from the end of the file's name.

    Args:
        path (`Path`): A `.gz` at its end is skipped.

    Returns:
        `str`: the format.

    Raises:
        ValueError: If the name ends in something else.

    Example:

    >>> file_format_of(Path("corpus.jsonl.gz"))
    'jsonl'
    """
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix.lower() not in _FORMATS:
        raise ValueError(
            f"{path}: cannot tell the format from the ending {name.suffix!r}. Known: {', '.join(_FORMATS)} and .gz of "
            'the text formats. Rename the file or set `file_format` to "text", "jsonl" or "parquet".'
        )
    return _FORMATS[name.suffix.lower()]


def text_documents(
    path: Path,
    position: Position = START,
    *,
    encoding: str = "utf-8",
    document_separator: str = "blank_line",
    max_document_lines: int = 128,
) -> Iterator[tuple[Document, Position]]:
    """Yield the documents of a text file, each with the position behind it.

    Args:
        path (`Path`): One sentence a line; gzip if the name ends in `.gz`.
        position (`Position`, *optional*): Where to begin; a position yielded before.
        encoding (`str`, *optional*, defaults to `"utf-8"`): The file's encoding.
        document_separator (`str`, *optional*, defaults to `"blank_line"`): `"blank_line"`, or `"line"`: each line is
            a document.
        max_document_lines (`int`, *optional*, defaults to 128): A longer document is handed on in pieces of this many
            lines. So a file without blank lines needs little memory and can be shuffled and split, in pieces.

    Returns:
        `Iterator[tuple[list[str], Position]]`: documents without blank lines.

    Raises:
        ValueError: As `iter_lines`.
    """
    limit = 1 if document_separator == "line" else max_document_lines
    document: Document = []
    for line in iter_lines(path, encoding, position.offset, position.line):
        if text := line.text.strip():
            document.append(text)
        if document and (not text or len(document) == limit):
            yield document, Position(line.end, line.number)
            document = []
    if document:
        yield document, Position(line.end, line.number)


def jsonl_documents(
    path: Path, position: Position = START, *, encoding: str = "utf-8", text_column: str = "text"
) -> Iterator[tuple[Document, Position]]:
    """Yield the documents of a file of JSON lines, each with the position behind it.

    Args:
        path (`Path`): One object a line; gzip if the name ends in `.gz`. Blank lines are skipped.
        position (`Position`, *optional*): Where to begin; a position yielded before.
        encoding (`str`, *optional*, defaults to `"utf-8"`): The file's encoding.
        text_column (`str`, *optional*, defaults to `"text"`): The field with the text: a string or a list of strings.
            Objects whose text is null or blank are skipped.

    Returns:
        `Iterator[tuple[list[str], Position]]`: one document per object.

    Raises:
        ValueError: If a line is no JSON object, lacks the field or holds no text in it, and as `iter_lines`.
    """
    for line in iter_lines(path, encoding, position.offset, position.line):
        if not line.text.strip():
            continue
        where, row = f"{path}, line {line.number}", json_object(line, path)
        if text_column not in row:
            raise ValueError(
                f"{where}: no field {text_column!r}, only {sorted(row)}. Set `text_column` to one of them."
            )
        if document := sentences_of(row[text_column], f"{where}, field {text_column!r}"):
            yield document, Position(line.end, line.number)


def parquet_documents(
    path: Path, position: Position = START, *, text_column: str = "text"
) -> Iterator[tuple[Document, Position]]:
    """Yield the documents of a Parquet file, each with the position behind it.

    Args:
        path (`Path`): Only the text column is read, row group by row group.
        position (`Position`, *optional*): Where to begin, `offset` in rows; row groups before it are not read.
        text_column (`str`, *optional*, defaults to `"text"`): A column of strings or lists of strings. Null and blank
            rows are skipped.

    Returns:
        `Iterator[tuple[list[str], Position]]`: one document per row.

    Raises:
        ValueError: If the file is not Parquet or lacks the column.
        ValueError: If the column holds no text.
    """
    with reading_parquet(path) as file:
        names = file.schema_arrow.names
        if text_column not in names:
            raise ValueError(f"{path}: no column {text_column!r}, only {names}. Set `text_column` to one of them.")
        row = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if row + size <= position.offset:
                row += size
                continue
            for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[text_column]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    if row <= position.offset:
                        continue
                    if document := sentences_of(value, f"{path}, row {row}, column {text_column!r}"):
                        yield document, Position(row, row)


@contextmanager
def reading_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what goes wrong while it is read names it.

    Args:
        path (`Path`): The file.

    Returns:
        `pyarrow.parquet.ParquetFile`.

    Raises:
        ValueError: If it is none.
    """
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


class FileDocuments:
    """The documents of one or many files, with a position that can be saved and loaded.

    The protocol is the one of `datasets.IterableDataset`: iterate, ask `state_dict()` at any time, and give it to
    `load_state_dict()` of an equal object: its next iteration goes on behind the last document. Plain text, JSON lines
    and Parquet go on at once; gzip is decompressed up to the place, once. A new iteration without a loaded state
    starts from the beginning.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths and glob patterns; `.txt`, `.jsonl` (`.json`,
            `.ndjson`), each also with `.gz`, and `.parquet`, also mixed.
        file_format (`str`, *optional*): `"text"`, `"jsonl"` or `"parquet"` for all files, whatever their names are.
            By default the name of each file tells.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Encoding of text and JSON lines.
        text_column (`str`, *optional*, defaults to `"text"`): Field of JSON lines or column of Parquet.
        document_separator (`str`, *optional*, defaults to `"blank_line"`): For text files: a blank line ends a
            document (the format of BERT and SpanBERT), or, with `"line"`, each line is a document.
        max_document_lines (`int`, *optional*, defaults to 128): For text files: longer documents, and so files
            without blank lines, are handed on in pieces of this many lines.

    Raises:
        FileNotFoundError: If a path or pattern matches no file, at construction.
        ValueError: For a wrong option at construction; while reading, for an empty, blank, binary, broken or wrongly
            encoded file. The message names the file and the line or row.

    Example:

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("One.\\nTwo.\\n\\nThree.\\n", encoding="utf-8")
    >>> _ = (folder / "b.jsonl").write_text('{"text": "Four.\\\\nFive."}\\n', encoding="utf-8")
    >>> documents = FileDocuments([folder / "a.txt", folder / "*.jsonl"])
    >>> list(documents)
    [['One.', 'Two.'], ['Three.'], ['Four.', 'Five.']]
    >>> next(iter(documents))
    ['One.', 'Two.']
    >>> resumed = FileDocuments([folder / "a.txt", folder / "*.jsonl"])
    >>> resumed.load_state_dict(documents.state_dict())
    >>> list(resumed)
    [['Three.'], ['Four.', 'Five.']]
    """

    def __init__(
        self,
        files: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        file_format: str | None = None,
        encoding: str = "utf-8",
        text_column: str = "text",
        document_separator: str = "blank_line",
        max_document_lines: int = 128,
    ) -> None:
        if file_format not in (None, "text", "jsonl", "parquet"):
            raise ValueError(f'`file_format` must be "text", "jsonl", "parquet" or None, got {file_format!r}.')
        if document_separator not in ("blank_line", "line"):
            raise ValueError(f'`document_separator` must be "blank_line" or "line", got {document_separator!r}.')
        if max_document_lines < 1:
            raise ValueError(f"`max_document_lines` must be at least 1, got {max_document_lines}.")
        check_encoding(encoding)
        self.files = expand_files(files)
        self.formats = [file_format or file_format_of(path) for path in self.files]
        self.encoding = encoding
        self.text_column = text_column
        self.document_separator = document_separator
        self.max_document_lines = max_document_lines
        self._start = self._place = (0, START)

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents, from the loaded state if there is one."""
        (first, position), self._start = self._start, (0, START)
        self._place = (first, position)
        for index in range(first, len(self.files)):
            behind = position
            for document, behind in self._read(index, position):
                self._place = (index, behind)
                yield document
            if behind == START:
                raise ValueError(f"{self.files[index]}: the file has no text. Take it out or fill it.")
            position = START

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the last document: plain ints and strings."""
        index, position = self._place
        return {"file": index, "offset": position.offset, "line": position.line, "files": self._fingerprint()}

    def beginning(self) -> dict[str, Any]:
        """Return the place before the first document, wherever reading stands."""
        return {"file": 0, "offset": START.offset, "line": START.line, "files": self._fingerprint()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at a saved place.

        Args:
            state (`dict`): From `state_dict()` of an object with the same files.

        Raises:
            ValueError: If the files or their sizes are not those of the state.
        """
        if state["files"] != self._fingerprint():
            raise ValueError(
                "`files`: the names or sizes of the files are not those of the saved state, so reading cannot go on "
                "where it stopped. Use the same files in the same order, or start without the state."
            )
        self._start = self._place = (state["file"], Position(state["offset"], state["line"]))

    def _read(self, index: int, position: Position) -> Iterator[tuple[Document, Position]]:
        path = self.files[index]
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: the file is empty. Take it out or fill it.")
        if self.formats[index] == "parquet":
            return parquet_documents(path, position, text_column=self.text_column)
        if self.formats[index] == "jsonl":
            return jsonl_documents(path, position, encoding=self.encoding, text_column=self.text_column)
        return text_documents(
            path,
            position,
            encoding=self.encoding,
            document_separator=self.document_separator,
            max_document_lines=self.max_document_lines,
        )

    def _fingerprint(self) -> str:
        sizes = [(path.name, path.stat().st_size) for path in self.files]
        options = (self.encoding, self.text_column, self.document_separator, self.max_document_lines, self.formats)
        return hashlib.blake2b(json.dumps([sizes, options]).encode("utf-8"), digest_size=8).hexdigest()


def read_documents(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    file_format: str | None = None,
    encoding: str = "utf-8",
    text_column: str = "text",
    document_separator: str = "blank_line",
    max_document_lines: int = 128,
) -> Iterator[Document]:
    """Yield the documents of one or many files.

    Args:
        files (`str`, `PathLike` or a sequence of them): See `FileDocuments`, also for the other arguments.
        file_format (`str`, *optional*): `"text"`, `"jsonl"` or `"parquet"`; by default the file's name tells.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Encoding of text and JSON lines.
        text_column (`str`, *optional*, defaults to `"text"`): Field of JSON lines or column of Parquet.
        document_separator (`str`, *optional*, defaults to `"blank_line"`): `"blank_line"` or `"line"`.
        max_document_lines (`int`, *optional*, defaults to 128): Longer documents of text files come in pieces.

    Returns:
        `Iterator[list[str]]`: documents of sentences.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: See `FileDocuments`.

    Example:

    >>> from hf_ptm_ext.data import embedded_corpus_path
    >>> sum(len(document) for document in read_documents(embedded_corpus_path("en")))
    14272
    """
    return iter(
        FileDocuments(
            files,
            file_format=file_format,
            encoding=encoding,
            text_column=text_column,
            document_separator=document_separator,
            max_document_lines=max_document_lines,
        )
    )
