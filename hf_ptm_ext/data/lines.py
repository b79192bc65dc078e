"""Lines of a text file, plain or packed, with their byte positions, and JSON: the ground that every reader stands on.

Lines are split at the byte `\\n` and decoded one by one, so that a reader can start again at any byte offset and
every error can name file, line and byte. What is no text for sure is told by its name: a folder, a device, a pointer
of Git LFS, a page of HTML, a file that unpacks without end.
"""

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ..hints import similar_path

MAX_LINE_BYTES = 16 * 2**20
"""A longer line is refused: such a file has no line breaks, and reading it would fill the memory."""

MAX_TEXT_BYTES = 256 * 2**20
"""A larger file is not read as a whole."""

_COMPRESSED = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zip": b"PK\x03\x04"}
_BREAK = b"\n"
_LFS = b"version https://git-lfs"
_HTML = (b"<!doctype html", b"<html")
# More than so many bytes out of each packed one, behind the first few MiB, is a bomb: text gives 3 to 10.
_MOST_UNPACKED, _UNPACKED_UNASKED = 200, 8 * 2**20
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class Line(NamedTuple):
    """One line: its text without the line break, its number from 1, and the offset of the byte behind it."""

    text: str
    number: int
    end: int


def check_encoding(encoding: str) -> None:
    """Raise unless the encoding exists and writes a line break as the single byte `\\n`.

    Examples:
        >>> check_encoding("gb18030")
        >>> check_encoding("utf-16")
        Traceback (most recent call last):
            ...
        ValueError: `encoding` must write a line break as one byte (...), got 'utf-16'. Convert the file to UTF-8.
    """
    try:
        codecs.lookup(encoding)
        line_break = "\n".encode(encoding).removeprefix(codecs.BOM_UTF8)  # of utf-8-sig
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
    """Yield the lines of a file from a byte offset on."""
    check_encoding(encoding)
    number, end = start_line, start
    try:
        with open_bytes(path) as file:
            if start:
                file.seek(start)
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if number == 1:
                    refuse_no_text(raw, path)
                if number == 1 and b"\r" in raw.rstrip(b"\r") and _BREAK not in raw:
                    raise ValueError(f"{path}: its lines end in carriage returns alone. Convert them to line feeds.")
                if len(raw) > MAX_LINE_BYTES:
                    raise ValueError(
                        f"{path}, line {number}: the line has more than {MAX_LINE_BYTES // 2**20} MiB. Write one "
                        "sentence or paragraph a line."
                    )
                yield Line(_decode(raw, path, encoding, number, end).rstrip("\r\n"), number, end + len(raw))
                end += len(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: the compressed file is broken or cut off behind line {number} ({error}). Fetch or compress it "
            "again."
        ) from error


def whole_text(path: Path, encoding: str = "utf-8") -> str:
    """Read a whole file of text, without its byte-order mark; line breaks stay as they are."""
    check_encoding(encoding)
    try:
        with open_bytes(path) as file:
            # In pieces: a read of so much at once would take the memory at once.
            pieces = [file.read(1 << 20)]
            while pieces[-1] and len(pieces) <= MAX_TEXT_BYTES >> 20:
                pieces.append(file.read(1 << 20))
            raw = b"".join(pieces)
            refuse_no_text(raw, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: the compressed file is broken or cut off ({error}). Fetch or compress it again."
        ) from error
    if len(raw) > MAX_TEXT_BYTES:
        raise ValueError(
            f"{path}: the file has more than {MAX_TEXT_BYTES // 2**20} MiB and is read as a whole. Write it as JSON "
            "lines, one record a line."
        )
    return _decode(raw, path, encoding, 1, 0)


def json_value(text: str, where: str, what: str = "valid JSON") -> Any:
    """Parse JSON that others wrote."""
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(f"{where}: not {what} (nested too deeply).") from error
    except ValueError as error:
        reason = str(error).partition(";")[0]
        raise ValueError(f"{where}: not {what} ({reason}).") from error
    if _HALF_CHARACTER.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ValueError(
                f"{where}: has half a character ({half!r}), which no file can hold. Mend the text."
            ) from error
    return value


def json_object(line: Line, path: Path) -> dict[str, Any]:
    """Parse a line of JSON lines."""
    where = f"{path}, line {line.number}"
    row = json_value(line.text, where, "a JSON object, one a line")
    if not isinstance(row, dict):
        raise ValueError(f"{where}: must be a JSON object, got {type(row).__name__}. Write one object a line.")
    return row


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond all numbers")
    return value


class _Unpacked(io.RawIOBase):
    """A compressed file that stops where it unpacks to far more than text does."""

    def __init__(self, path: Path) -> None:
        self.packed = path.open("rb")
        self.path = path
        self.file: Any = self._opened(path.suffix)

    def _opened(self, suffix: str) -> Any:
        if suffix == ".zip":
            try:
                inside = zipfile.ZipFile(self.packed)
            except zipfile.BadZipFile as error:
                raise gzip.BadGzipFile(f"{error}") from error
            names = [name for name in inside.namelist() if not name.endswith("/")]
            if len(names) != 1:
                raise ValueError(f"{self.path}: must hold one file, got {', '.join(names[:5])}. Unpack it first.")
            return zipfile.Path(inside, names[0]).open("rb")
        if suffix == ".gz":
            return gzip.GzipFile(fileobj=self.packed)
        return bz2.BZ2File(self.packed) if suffix == ".bz2" else lzma.LZMAFile(self.packed)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self.file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.file.read1(len(buffer))
        except (OSError, lzma.LZMAError, zipfile.BadZipFile) as error:
            if getattr(error, "errno", None):  # of the disk
                raise
            raise gzip.BadGzipFile(f"{error}") from error
        unpacked, packed = self.file.tell(), self.packed.tell()
        if unpacked > _UNPACKED_UNASKED and unpacked > _MOST_UNPACKED * packed:
            raise ValueError(
                f"{self.path}: unpacks to more than {_MOST_UNPACKED} times its size, which is no text. If it is "
                "right, unpack it first."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.file.close()
        self.packed.close()
        super().close()


def open_bytes(path: Path) -> BinaryIO:
    """Open a regular file, compressed if its name ends so, for reading no more than text would unpack to."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file" if path.exists() else ""
        if what:
            raise ValueError(f"{path}: is {what}. Name a file of text.")
        raise FileNotFoundError(f"{path}: there is no such file.{similar_path(path)} Check the path.")
    if path.suffix in _COMPRESSED:
        return cast(BinaryIO, io.BufferedReader(_Unpacked(path), 1 << 16))
    return path.open("rb")


def bare_name(path: Path) -> Path:
    """A file's name without the ending of what it is compressed with."""
    return path.with_suffix("") if path.suffix in _COMPRESSED else path


def refuse_no_text(raw: bytes, path: Path) -> None:
    """Refuse what stands at the beginning of a file that is no text for sure."""
    for suffix, magic in _COMPRESSED.items():
        if raw.startswith(magic):
            raise ValueError(f"{path}: the file is compressed. Give it a name that ends in `{suffix}`.")
    if raw.startswith(_LFS):
        raise ValueError(f"{path}: is a pointer of Git LFS, not the file itself. Fetch it (`git lfs pull`).")
    if raw[:200].removeprefix(codecs.BOM_UTF8).lstrip().lower().startswith(_HTML):
        raise ValueError(f"{path}: is a page of HTML, such as the error of a download. Fetch the file itself.")


def _decode(raw: bytes, path: Path, encoding: str, number: int, offset: int) -> str:
    """Decode a file from its line `number` on; the place of a byte that is wrong is counted from there."""
    if (zero := raw.find(b"\0")) >= 0:
        raise ValueError(
            f"{path}, line {number + raw.count(_BREAK, 0, zero)}: byte {offset + zero} is 0, so this is a binary file "
            "or UTF-16/32 text. Convert it to UTF-8 text."
        )
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number + raw.count(_BREAK, 0, error.start)}: byte {offset + error.start} "
            f"(0x{raw[error.start]:02x}) is not {encoding} text. Set `encoding` to the file's encoding (such as "
            "'gb18030' or 'latin-1'), or convert the file to UTF-8; if it is no text at all, take it out."
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text
