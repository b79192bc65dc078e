"""Documents from files: `.txt`, `.jsonl` (both also `.gz`) and Parquet, lazily, with a position to start again from.

A document is a list of sentences (or lines, or paragraphs: whatever the file has on a line), each a string without
line breaks. In text files a blank line ends a document. What a row of JSON lines or Parquet holds is one document:
a string, cut at its line breaks, or a list of strings.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .lines import Line, check_encoding, iter_lines, json_object
from .rows import JSON_LINES, Files, check_column, expand_files, format_of, reading_parquet

Document = list[str]
"""A document: its sentences."""

_FORMATS = {".txt": "text", ".text": "text", **JSON_LINES, ".parquet": "parquet"}
# The two small real corpora that travel inside the package. English: 1,992 abstracts of SciTLDR (Apache-2.0).
# Chinese: passages of Wikipedia by way of CMRC 2018 (CC BY-SA 4.0). Sources: `corpora/NOTICE.md` beside the files.
_EMBEDDED = {"en": "english.txt.gz", "zh": "chinese.txt.gz"}


class Position(NamedTuple):
    """Where a reader stands: bytes (text, JSON lines) or rows (Parquet) read, and lines read."""

    offset: int
    line: int


START = Position(0, 0)


def sentences_of(value: Any, where: str) -> Document:
    """Turn the text column of a row into a document."""
    if value is None:
        return []
    lines = value.split("\n") if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError(f"{where}: the text must be a string or a list of strings, got {type(value).__name__}.")
    return [text for line in lines for part in line.split("\n") if (text := part.strip())]


class FileDocuments:
    """The documents of one or many files, with a position that can be saved and loaded.

    The protocol is the one of `datasets.IterableDataset`: iterate, ask `state_dict()` at any time, and give it to
    `load_state_dict()` of an equal object: its next iteration goes on behind the last document. Plain text, JSON lines
    and Parquet go on at once; gzip is decompressed up to the place, once.

    Args:
        files: Paths and glob patterns of `.txt`, `.jsonl` (`.json`, `.ndjson`), also with `.gz`, and `.parquet`,
            also mixed.
        file_format: `"text"`, `"jsonl"` or `"parquet"` for all files. By default the name of each file tells.
        encoding: Encoding of text and JSON lines.
        text_column: Field of JSON lines or column of Parquet.
        document_separator: For text files: a blank line ends a document (the format of BERT and SpanBERT), or, with
            `"line"`, each line is a document.
        max_document_lines: For text files: longer documents, and files without blank lines, come in pieces of so
            many lines.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.txt"
        >>> _ = file.write_text("One.\\nTwo.\\n\\nThree.\\n", encoding="utf-8")
        >>> documents, resumed = FileDocuments(file), FileDocuments(file)
        >>> next(iter(documents))
        ['One.', 'Two.']
        >>> resumed.load_state_dict(documents.state_dict())
        >>> list(resumed)
        [['Three.']]
    """

    def __init__(
        self,
        files: Files,
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
        self.formats = [file_format or format_of(path, _FORMATS) for path in self.files]
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
        """Let the next iteration begin at a saved place."""
        if state["files"] != self._fingerprint():
            raise ValueError(
                "`files`: the names or sizes of the files are not those of the saved state, got "
                f"{[path.name for path in self.files]}, so reading cannot go on where it stopped. Use the same files "
                "in the same order, or start without the state."
            )
        self._start = self._place = (state["file"], Position(state["offset"], state["line"]))

    def _read(self, index: int, position: Position) -> Iterator[tuple[Document, Position]]:
        """The documents of a file from a position on, each with the position behind it."""
        path = self.files[index]
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: the file is empty. Take it out or fill it.")
        if self.formats[index] == "parquet":
            return self._parquet(path, position)
        lines = iter_lines(path, self.encoding, position.offset, position.line)
        return self._jsonl(path, lines) if self.formats[index] == "jsonl" else self._text(lines)

    def _text(self, lines: Iterable[Line]) -> Iterator[tuple[Document, Position]]:
        limit = 1 if self.document_separator == "line" else self.max_document_lines
        document: Document = []
        for line in lines:
            if text := line.text.strip():
                document.append(text)
            if document and (not text or len(document) == limit):
                yield document, Position(line.end, line.number)
                document = []
        if document:
            yield document, Position(line.end, line.number)

    def _jsonl(self, path: Path, lines: Iterable[Line]) -> Iterator[tuple[Document, Position]]:
        column = self.text_column
        for line in lines:
            if not line.text.strip():
                continue
            where, row = f"{path}, line {line.number}", json_object(line, path)
            check_column(column, row, "text_column", f"{where}: ")
            if document := sentences_of(row[column], f"{where}, field {column!r}"):
                yield document, Position(line.end, line.number)

    def _parquet(self, path: Path, position: Position) -> Iterator[tuple[Document, Position]]:
        column = self.text_column
        with reading_parquet(path) as file:
            names = file.schema_arrow.names
            check_column(column, names, "text_column", f"{path}: ")
            row = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if row + size <= position.offset:
                    row += size
                    continue
                for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                    for value in batch.column(0).to_pylist():
                        row += 1
                        if row <= position.offset:
                            continue
                        if document := sentences_of(value, f"{path}, row {row}, column {column!r}"):
                            yield document, Position(row, row)

    def _fingerprint(self) -> str:
        sizes = [(path.name, path.stat().st_size) for path in self.files]
        options = (self.encoding, self.text_column, self.document_separator, self.max_document_lines, self.formats)
        return hashlib.blake2b(json.dumps([sizes, options]).encode("utf-8"), digest_size=8).hexdigest()


def read_documents(files: Files, **options: Any) -> Iterator[Document]:
    """Yield the documents of one or many files; the options are those of `FileDocuments`.

    Examples:
        >>> sum(len(document) for document in read_documents(embedded_corpus_path("en")))
        14272
    """
    return iter(FileDocuments(files, **options))


def embedded_corpus_path(language: str) -> Path:
    """Return the path of the embedded corpus, a sentence a line, for `read_documents`.

    Args:
        language: `"en"` (abstracts of SciTLDR) or `"zh"` (passages of Wikipedia).

    Examples:
        >>> embedded_corpus_path("zh").name
        'chinese.txt.gz'
    """
    if language not in _EMBEDDED:
        raise ValueError(f"`language` must be one of {sorted(_EMBEDDED)}, got {language!r}.")
    return Path(__file__).parent / "corpora" / _EMBEDDED[language]


def embedded_corpus(language: str) -> list[Document]:
    """Read the embedded corpus of a language, `"en"` or `"zh"`.

    Examples:
        >>> len(embedded_corpus("en"))
        1992
    """
    with gzip.open(embedded_corpus_path(language), "rt", encoding="utf-8") as file:
        return [document.split("\n") for document in file.read().strip("\n").split("\n\n")]
