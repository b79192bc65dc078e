"""Lines of text files that others wrote: what is no text is told by file and line before anything is made of it."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

_LFS = b"version https://git-lfs"
_HTML = (b"<!doctype html", b"<html")
_CHUNK, _LONGEST = 2**20, 2**28
# More than so many bytes out of each packed one, behind the first few MiB, is a bomb: text gives 3 to 10.
_MOST_UNPACKED, _UNPACKED_UNASKED = 200, 2**23


def text_lines(path: str | PathLike[str], what: str = "file", encoding: str = "utf-8") -> Iterator[str]:
    r"""The lines of a text, packed or not, without breaks (`\n` or `\r\n`) and byte-order mark; `what` it is, for
    errors.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = path.write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    >>> list(text_lines(path))
    ['one', 'two']
    """
    path = Path(path)
    try:
        breaks = "\n".encode(encoding)
    except LookupError:
        breaks = b""
    if breaks != b"\n":
        raise ValueError(
            f"`encoding` must be one that writes a line break as one byte, got {encoding!r}. Use 'utf-8'."
        )
    name = "UTF-8" if encoding == "utf-8" else encoding
    if not path.is_file():
        if path.exists():
            raise ValueError(f"{path} must be a file, got {'a folder' if path.is_dir() else 'no regular file'}.")
        raise FileNotFoundError(f"There is no {what} {path}.")
    for number, raw in enumerate(_raw_lines(path), start=1):
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
            _refuse_no_text(path, raw)
        if b"\0" in raw:
            raise ValueError(
                f"{path} must be text, got a zero byte in line {number}: it is binary, or UTF-16. Save it as UTF-8."
            )
        try:
            yield raw.decode(encoding).removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} must be {name}, got byte {raw[error.start]:#04x} in line {number}. Set `encoding` to the "
                "file's, or save it as UTF-8; of a Chinese file it may be GB18030: `iconv -f gb18030 -t utf-8`."
            ) from error


def _refuse_no_text(path: Path, raw: bytes) -> None:
    if raw.startswith(_LFS):
        raise ValueError(f"{path} must be the file itself, got a pointer of Git LFS. Fetch it: `git lfs pull`.")
    if raw.lstrip().lower().startswith(_HTML):
        raise ValueError(f"{path} must be the file itself, got a page of HTML. Download it again.")


def _raw_lines(path: Path) -> Iterator[bytes]:
    rest = b""
    try:
        for chunk in _chunks(path):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST:
                raise ValueError(f"{path} must have lines of at most {_LONGEST // 2**20} MiB.")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} must be packed by gzip, as its name says, got: {error}. Download it again, or rename it."
        ) from error
    if rest:
        yield rest


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as packed:
        file = gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed
        unpacked = 0
        while chunk := file.read(_CHUNK):
            unpacked += len(chunk)
            if file is not packed and unpacked > max(_UNPACKED_UNASKED, _MOST_UNPACKED * packed.tell()):
                raise ValueError(
                    f"{path} unpacks to more than {_MOST_UNPACKED} times its size, which is no text. If it is right, "
                    "unpack it first."
                )
            yield chunk
