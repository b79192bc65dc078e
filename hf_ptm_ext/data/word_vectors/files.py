"""Files of word vectors: word2vec's text and binary, GloVe's, fastText's, gensim's, and safetensors.

Text has a word and its numbers a line, split by single blanks; in word2vec's the first line says how many words and
numbers there are. Words may have blanks (a few of GloVe's 840B do), so lines are split from the right. Of a word that
is there twice the first is taken, as gensim does. Nothing that a file names is executed.
"""

import codecs
import gzip
import logging
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..lines import bare_name, check_encoding, iter_lines, open_bytes, refuse_no_text
from .fasttext import MAGIC, FastTextFile, read_fasttext
from .keyed_vectors import read_keyed_vectors
from .subwords import Subwords

logger = logging.getLogger(__name__)

FORMATS = (
    *("word2vec-text", "word2vec-binary", "glove-text", "glove-binary", "fasttext-bin", "fasttext-vec"),
    *("gensim-kv", "safetensors"),
)
_BLOCK = 1 << 22  # bytes read at once
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?\s*(\d+)[ \t]+(\d+)[ \t]*\r?\n")
_LONGEST = 1 << 20  # bytes of a word
_SEEN = 1 << 16  # bytes that the format is told by


class Asked(NamedTuple):
    """Which words are wanted, and how they are written."""

    limit: int | None
    restrict_to: Set[str] | None
    encoding: str
    errors: str


def read_vectors(path: Path, format: str, asked: Asked) -> FastTextFile:
    """Read a file of word vectors; `format` is one of `FORMATS` or "auto"."""
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"`format` must be auto or one of {', '.join(FORMATS)}, got {format!r}.")
    if asked.limit is not None and (not isinstance(asked.limit, int) or asked.limit < 1):
        raise ValueError(f"`limit` must be a whole number, at least 1, got {asked.limit!r}.")
    try:
        codecs.lookup_error(asked.errors)
    except LookupError as error:
        raise ValueError(f"`errors` must be strict, ignore or replace, got {asked.errors!r}.") from error
    try:
        return _read(path, format, asked)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: the compressed file is broken or cut off ({error}). Fetch it again.") from error


def _read(path: Path, format: str, asked: Asked) -> FastTextFile:
    with open_bytes(path) as file:
        ahead = file.read(_SEEN)
        if not ahead:
            raise ValueError(f"{path} is empty: damaged, or no file of word vectors.")
        if format == "auto":
            format = _format_of(path, ahead)
        if format == "safetensors":
            return _wanted(_read_safetensors(path), path, asked)
        if format == "gensim-kv":
            return _wanted(read_keyed_vectors(path), path, asked)
        if format == "glove-binary":
            return _wanted(_read_glove_binary(path, asked), path, asked)
        file.seek(0)
        if format == "fasttext-bin":
            return _wanted(read_fasttext(file, path, asked.encoding, asked.errors), path, asked)
        refuse_no_text(ahead, path)
        if format == "word2vec-binary":
            return _joined(_binary_blocks(file, path), path, asked)
        check_encoding(asked.encoding)
        try:
            return _joined(_text_blocks(file, path, format), path, asked)
        except ValueError:
            for _ in iter_lines(path, asked.encoding if asked.errors == "strict" else "latin-1"):
                pass  # which tells what is no text at all
            raise


def _format_of(path: Path, ahead: bytes) -> str:
    """The format of a file by its beginning."""
    ending = bare_name(path).suffix
    if int.from_bytes(ahead[:4], "little") == MAGIC:
        return "fasttext-bin"
    if ending == ".safetensors":
        return "safetensors"
    if ahead[:1] == b"\x80" or ending in (".kv", ".model", ".pkl"):
        return "gensim-kv"
    header = _HEADER.match(ahead)
    if header is None:
        lines = ending in (".txt", ".vec") or re.match(rb"[^\n]+ [-+.0-9eE]+ *\r?(\n|$)", ahead)
        return "glove-text" if lines else "gensim-kv" if ending != ".bin" else "glove-binary"
    numbers = ahead[ahead.find(b" ", header.end()) + 1 :][: 4 * int(header[2])]
    text = re.fullmatch(rb"[-+]?[.0-9nNiI][-+.0-9eEnaifINFA \r]*(\n.*)?", numbers, re.DOTALL)
    return "word2vec-text" if text else "word2vec-binary"


class _Block(NamedTuple):
    """Some words, and their numbers as the file has them."""

    first: int  # the line, or the number, of its first word
    words: list[bytes]
    bodies: Any  # of text the rest of each line, else the table
    width: int
    text: bool

    def place(self, path: Path, number: int) -> str:
        return f"{path}, {'line' if self.text else 'word'} {self.first + number}"

    def decoded(self, path: Path, asked: Asked) -> list[str]:
        whole = b"\0".join(self.words)
        if whole.count(b"\0") != len(self.words) - 1:
            number = next(number for number, word in enumerate(self.words) if b"\0" in word)
            raise ValueError(f"{self.place(path, number)}: {self.words[number]!r} has a zero byte.")
        try:
            return whole.decode(asked.encoding, asked.errors).split("\0")
        except UnicodeDecodeError as error:
            number = whole.count(b"\0", 0, error.start)
            raise ValueError(
                f"{self.place(path, number)}: {self.words[number]!r} is not {asked.encoding}. Name its `encoding` "
                "(such as 'latin-1'), or set `errors` to 'ignore' or 'replace'."
            ) from error

    def rows(self, kept: Sequence[int], path: Path) -> np.ndarray:
        whole = len(kept) == len(self.bodies)
        if not self.text:
            table = self.bodies if whole else self.bodies[np.array(kept)]
        else:
            columns = _columns(self.bodies if whole else [self.bodies[number] for number in kept], self.width)
            table = np.stack([self._row(number, path) for number in kept]) if columns is None else columns
        if not np.isfinite(table).all():
            wrong = kept[int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])]
            raise ValueError(f"{self.place(path, wrong)}: the vector has a number that is NaN or infinite.")
        return table

    def _row(self, number: int, path: Path) -> np.ndarray:
        try:
            with np.errstate(over="ignore"):
                return np.array(self.bodies[number].split(b" "), dtype=np.float32)
        except ValueError as error:
            raise ValueError(
                f"{self.place(path, number)}: a word and {self.width} numbers expected, got "
                f"{self.bodies[number][:60].decode(errors='replace')!r}."
            ) from error


def _columns(bodies: list[bytes], width: int) -> np.ndarray | None:
    """The numbers of lines of text by Arrow's reader; none if it cannot read them."""
    import pyarrow
    from pyarrow import csv

    names = [str(number) for number in range(width)]
    try:
        found = csv.read_csv(
            pyarrow.BufferReader(b"\n".join(bodies)),
            csv.ReadOptions(column_names=names, use_threads=False, block_size=2 * _BLOCK),
            csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.float32()), null_values=[]),
        )
    except pyarrow.ArrowInvalid:
        return None
    return np.stack([column.to_numpy() for column in found.columns], axis=1)


def _text_blocks(file: BinaryIO, path: Path, format: str) -> Iterator[_Block]:
    lines = file.readlines(_BLOCK)
    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    blanks = [line.rstrip(b" \r\n").count(b" ") for line in lines[:1000]]
    header = None if format == "glove-text" else _HEADER.fullmatch(lines[0].rstrip(b"\r\n") + b"\n")
    if header is not None and len(lines) > 1 and blanks[1] < int(header[2]) and format == "auto":
        header = None
    if format == "word2vec-text" and header is None:
        raise ValueError(
            f"{path}, line 1: must say how many words there are and of how many numbers, got {lines[0][:40]!r}. "
            "GloVe's files do not: `format='glove-text'`."
        )
    width = int(header[2]) if header else Counter(blanks).most_common(1)[0][0]
    if not width or (header and len(lines) > 1 and min(blanks[1:]) > width):
        told = f"line 1 says {width} numbers" if header else "no line has numbers behind blanks"
        raise ValueError(
            f"{path}, line {min(2, len(lines))}: a word and its numbers expected, split by single blanks, got "
            f"{lines[min(2, len(lines)) - 1][:40]!r}, and {told}."
        )
    lines, number = lines[1:] if header else lines, 1 if header else 0
    while lines:
        words, bodies = list[bytes](), list[bytes]()
        for place, line in enumerate(lines, number + 1):
            line = line.rstrip(b" \r\n")
            cells = line.count(b" ")
            if cells == width:
                word, _, body = line.partition(b" ")
            elif cells > width > 0:
                word, *rest = line.rsplit(b" ", width)
                body = b" ".join(rest)
            elif not line and place > number and not b"".join(lines[place - number :]).strip():
                break  # empty lines at the end
            else:
                raise ValueError(
                    f"{path}, line {place}: a word and {width} numbers expected, got {cells + 1} fields. Is the file "
                    "cut off?"
                )
            words.append(word)
            bodies.append(body)
        yield _Block(number + 1, words, bodies, width, text=True)
        number += len(words)
        lines = file.readlines(_BLOCK)
    if header and number - 1 != int(header[1]):
        raise ValueError(
            f"{path}, line {number}: the file ends behind {number - 1} words, and its first line says "
            f"{int(header[1])}. Fetch it again."
        )


def _binary_blocks(file: BinaryIO, path: Path) -> Iterator[_Block]:
    data = file.read(_BLOCK)
    header = _HEADER.match(data)
    if header is None:
        raise ValueError(f"{path}: must begin with the numbers of words and of their numbers, got {data[:40]!r}.")
    promised, width = int(header[1]), int(header[2])
    place, number, size = header.end(), 0, 4 * width + 1
    while number < promised:
        words, ends, last = list[bytes](), list[int](), len(data) - size
        while number + len(words) < promised:
            end = data.find(b" ", place)
            if not 0 <= end <= last:
                break
            words.append(data[place:end])
            ends.append(end + 1)
            place = end + size
        if words:
            rows = sliding_window_view(np.frombuffer(data, np.uint8), size - 1)[np.array(ends)]
            # The tool itself writes a line break behind each vector.
            bare = [word.lstrip(b"\n") for word in words]
            yield _Block(number + 1, bare, rows.view("<f4"), width, text=False)
        number += len(words)
        if number < promised:
            if end < 0 and len(data) - place > _LONGEST:
                raise ValueError(f"{path} is damaged: word {number + 1} has no end. Fetch it again.")
            more = file.read(_BLOCK)
            if not more:
                raise ValueError(f"{path}: ends in word {number + 1} of {promised}: it is cut off. Fetch it again.")
            data, place = data[place:] + more, 0


def _joined(blocks: Iterator[_Block], path: Path, asked: Asked) -> FastTextFile:
    """The words that are wanted, the first of each."""
    seen: dict[str, None] = {}
    rows, twice, read = [], [], 0
    for block in blocks:
        words, before = block.decoded(path, asked), len(seen)
        if asked.limit is not None:
            words = words[: asked.limit - read]
        read += len(words)
        new = dict.fromkeys(words)
        if asked.restrict_to is None and len(new) == len(words) and seen.keys().isdisjoint(new):
            seen |= new
            kept: Sequence[int] = range(len(words))
        else:
            kept = []
            for number, word in enumerate(words):
                if word in seen:
                    twice.append(block.place(path, number))
                elif asked.restrict_to is None or word in asked.restrict_to:
                    seen[word] = None
                    kept.append(number)
        if len(seen) > before:
            rows.append(block.rows(kept, path))
        if read == asked.limit:
            break
    if twice:
        logger.warning("%s: a word that was there before is left out, as are %d more.", twice[0], len(twice) - 1)
    if not seen:
        raise ValueError(f"{path} has no word that was asked for, of {read} words.")
    return FastTextFile(list(seen), np.concatenate(rows), None)


def _wanted(found: FastTextFile, path: Path, asked: Asked) -> FastTextFile:
    """The same of a file that is read as a whole."""
    words, own, subwords = found
    last = len(words) if asked.limit is None else asked.limit
    places = [
        place for place, word in enumerate(words[:last]) if asked.restrict_to is None or word in asked.restrict_to
    ]
    if not places:
        raise ValueError(f"{path} has no word that was asked for, of {len(words)} words.")
    table = np.asarray(own[np.array(places)], dtype=np.float32)
    if not np.isfinite(table).all():
        raise ValueError(f"{path} has vectors with numbers that are NaN or infinite.")
    return FastTextFile([words[place] for place in places], table, subwords)


# ---- others ----


def _read_glove_binary(path: Path, asked: Asked) -> FastTextFile:
    """The sum of both vectors of each word; the words are in `vocab.txt` beside the file."""
    names = path.with_name("vocab.txt")
    if not names.is_file():
        raise FileNotFoundError(f"{path} looks like GloVe's binary, whose words are in {names}, which is missing.")
    words = [line.text.rpartition(" ")[0] for line in iter_lines(names, asked.encoding)]
    with open_bytes(path) as file:
        values = np.frombuffer(file.read(), "<f8")
    if not words or not values.size or values.size % (2 * len(words)) or values.size < 4 * len(words):
        raise ValueError(f"{path} has {values.size} numbers, which are not two rows for each of {len(words)} words.")
    both = values.reshape(2, len(words), -1)[:, :, :-1]
    return FastTextFile(words, both.sum(axis=0).astype(np.float32), None)


def write_safetensors(path: Path, found: FastTextFile) -> None:
    """Write words, their rows and n-grams."""
    tensors = {"vectors": np.ascontiguousarray(found.own), "words": _as_bytes("\0".join(found.words))}
    metadata = {"format": "np"}
    if found.subwords is not None:
        ours = found.subwords
        tensors["ngrams"] = np.ascontiguousarray(ours.table[np.arange(len(ours.table))])
        metadata |= {name: str(getattr(ours, name)) for name in ("min_n", "max_n", "buckets")}
        if ours.kept is not None:
            tensors["kept"] = np.array(list(ours.kept.items()), dtype=np.int64).reshape(-1, 2)
    save_file(tensors, path, metadata)


def _as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _read_safetensors(path: Path) -> FastTextFile:
    try:
        with safe_open(path, "np") as file:
            metadata, names = file.metadata() or {}, set(file.keys())
            if not {"vectors", "words"} <= names:
                raise ValueError(f"it has {', '.join(sorted(names)) or 'nothing'}, not `vectors` and `words`")
            words = file.get_tensor("words").tobytes().decode().split("\0")
            own, subwords = file.get_tensor("vectors"), None
            if "ngrams" in names:
                low, high, buckets = (int(metadata[name]) for name in ("min_n", "max_n", "buckets"))
                kept = dict(file.get_tensor("kept").tolist()) if "kept" in names else None
                subwords = Subwords(file.get_tensor("ngrams"), low, high, buckets, kept)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is no file of word vectors ({error}). `WordVectors.save` writes one.") from error
    if own.ndim != 2 or len(own) != len(words):
        raise ValueError(f"{path} is no file of word vectors (vectors {own.shape} for {len(words)} words).")
    return FastTextFile(words, own, subwords)
