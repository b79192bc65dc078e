"""Lines of a text file, plain or gzip, with their byte positions: the ground that every file reader stands on.

Lines are split at the byte `\\n` and decoded one by one, so that a reader can start again at any byte offset and
every error can name file, line and byte.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

MAX_LINE_BYTES = 16 * 2**20
"""A longer line is refused: such a file has no line breaks, and reading it would fill the memory."""

_GZIP_MAGIC = b"\x1f\x8b"


class Line(NamedTuple):
    """One line: its text without the line break, its number from 1, and the offset of the byte behind it."""

    text: str
    number: int
    end: int


def check_encoding(encoding: str) -> None:
    """Raise unless the encoding exists and writes a line break as the single byte `\\n`.

    Args:
        encoding (`str`): Any of Python's text encodings, such as `"utf-8"`, `"gb18030"` or `"latin-1"`.

    Raises:
        ValueError: If it does not.

    Example:

    >>> check_encoding("gb18030")
    >>> check_encoding("utf-16")
    Traceback (most recent call last):
        ...
    ValueError: `encoding` must write a line break as one byte (...), got 'utf-16'. Convert the file to UTF-8.
    """
    try:
        codecs.lookup(encoding)
        line_break = "\n".encode(encoding)
    except LookupError as error:
        raise ValueError(
            f"`encoding` must be a text encoding that Python knows, got {encoding!r}. Use 'utf-8'."
        ) from error
    if line_break != b"\n":
        raise ValueError(
            "`encoding` must write a line break as one byte (utf-8, gb18030, big5, latin-1, ...), "
            f"got {encoding!r}. Convert the file to UTF-8."
        )


def iter_lines(path: Path, encoding: str = "utf-8", start: int = 0, start_line: int = 0) -> Iterator[Line]:
    """Yield the lines of a file from a byte offset on.

    Args:
        path (`Path`): A text file; gzip if the name ends in `.gz`.
        encoding (`str`, *optional*, defaults to `"utf-8"`): See `check_encoding`.
        start (`int`, *optional*, defaults to 0): Offset in bytes of the (uncompressed) text, the `end` of a line.
            Plain files are entered there at once; gzip files are decompressed up to there, once.
        start_line (`int`, *optional*, defaults to 0): Number of lines before `start`.

    Returns:
        `Iterator[Line]`: the lines, blank ones included. A byte-order mark at the start of the file is removed.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is binary, is not text in this encoding, is a broken gzip file, or has a line of more
            than 16 MiB. The message names the file, the line and the byte.

    Example:

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.txt"
    >>> path.write_bytes("Grüße\\r\\n中文".encode())
    15
    >>> [tuple(line) for line in iter_lines(path)]
    [('Grüße', 1, 9), ('中文', 2, 15)]
    >>> next(iter_lines(path, start=9, start_line=1)).text
    '中文'
    """
    number, end = start_line, start
    try:
        with _open_bytes(path) as file:
            if start:
                file.seek(start)
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield Line(_decode(raw, path, encoding, number, end), number, end + len(raw))
                end += len(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: the gzip file is broken or cut off behind line {number} ({error}). Fetch or compress it again."
        ) from error


def _open_bytes(path: Path) -> BinaryIO:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file. Check the path.")
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _decode(raw: bytes, path: Path, encoding: str, number: int, offset: int) -> str:
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(
            f"{path}, line {number}: the line has more than {MAX_LINE_BYTES // 2**20} MiB. Write one sentence or "
            "paragraph a line."
        )
    if number == 1 and raw.startswith(_GZIP_MAGIC):
        raise ValueError(f"{path}: the file is gzip-compressed. Give it a name that ends in `.gz`.")
    if (zero := raw.find(b"\0")) >= 0:
        raise ValueError(
            f"{path}, line {number}: byte {offset + zero} is 0, so this is a binary file or UTF-16/32 text. "
            "Convert it to UTF-8 text."
        )
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: byte {offset + error.start} (0x{raw[error.start]:02x}) is not {encoding} text. "
            "Set `encoding` to the file's encoding (such as 'gb18030' or 'latin-1'), or convert the file to UTF-8; "
            "if it is no text at all, take it out."
        ) from error
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text.rstrip("\r\n")
