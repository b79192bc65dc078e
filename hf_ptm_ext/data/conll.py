"""CoNLL files: a word a line, its columns separated by tabs or blanks, a blank line behind each sentence.

What a file looks like is told from the whole of it: how many columns its lines have, whether the first one counts the
words (CoNLL-U, GermEval), which lines at the head of a sentence are comments.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .lines import iter_lines
from .rows import PlacedRow
from .tag_schemes import OUTSIDE, marked_types

logger = logging.getLogger(__name__)

DOCUMENT_START = "-DOCSTART-"
_PROPERTY = re.compile(r"#\s*\S+ = ")
# CoNLL-U's words of several tokens (1-2) and words that are not written (8.1).
_NO_TOKEN = re.compile(r"\d+[-.]\d+")


class _Line(NamedTuple):
    number: int
    text: str
    fields: list[str]


def conll_rows(
    path: Path,
    encoding: str,
    words: int | None,
    tags: int | None,
    *,
    names: tuple[str, str] = ("tokens", "tags"),
    unlabelled: bool = False,
) -> Iterator[PlacedRow]:
    """Read the sentences of a file."""
    blocks = list(_blocks(path, encoding))
    plain = [line for block in blocks for line in block if not line.text.startswith("#")]
    plain = plain or [line for block in blocks for line in block]
    widths = Counter(len(line.fields) for line in plain)
    width = widths.most_common(1)[0][0] if widths else 0
    tabs = any("\t" in line.text for line in plain)
    known = {line.fields[(tags or width) - 1] for line in plain if len(line.fields) >= max(width, tags or 1)}
    sentences = [_without_comments(block, width, tabs, known, (tags or width) - 1) for block in blocks]
    sentences = [block for block in sentences if block]
    if words != 1 and _is_numbered(sentences, width):
        sentences = _without_numbers(path, sentences, width, words, tags, unlabelled)
        words = 2 if words is None else words
        tags = 3 if tags is None and width > 2 else tags
    elif (
        words is None
        and width > 3
        and all(len({line.fields[0] for line in block}) == 1 < len(block) for block in sentences)
    ):
        raise ValueError(
            f"{path}: the first column is the same in all lines of a sentence, so it names something else than words. "
            "Name the columns of words and tags by their numbers: `words_column`, `tags_column`."
        )
    elif tags is None:
        _tell_other_tags(path, plain, width)
    for block in sentences:
        where = f"{path}, line {block[0].number}"
        try:
            yield where, dict(zip(names, _columns(block, words, tags, width, unlabelled), strict=False))
        except _BadLine as error:
            yield f"{path}, line {error.number}", ValueError(str(error))


class _BadLine(ValueError):
    def __init__(self, number: int, reason: str):
        super().__init__(reason)
        self.number = number


def _blocks(path: Path, encoding: str) -> Iterator[list[_Line]]:
    block: list[_Line] = []
    for line in iter_lines(path, encoding):
        # Blanks and tabs only: other white space may be a word.
        text = line.text.strip(" \t\r\n")
        fields = [field.strip(" ") for field in text.split("\t")] if "\t" in text else re.split(" +", text)
        if text and fields[0] != DOCUMENT_START:
            block.append(_Line(line.number, text, fields))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _without_comments(block: list[_Line], width: int, tabs: bool, known: set[str], place: int) -> list[_Line]:
    """A sentence from its first line that is no comment on; inside it `#` is a word."""
    for number, line in enumerate(block):
        fields = line.text.split("\t") if tabs else line.fields
        tag = fields[place] if 0 <= place < len(fields) else ""
        named = not (tabs and "\t" in line.text) and _PROPERTY.match(line.text)
        like_others = tag in known or tag in (OUTSIDE, fields[0]) or bool(marked_types([tag]))
        if not line.text.startswith("#") or (len(fields) == width and like_others and not named):
            return block[number:]
    return []


def _is_numbered(sentences: list[list[_Line]], width: int) -> bool:
    """Whether the first column counts the words of (nearly) every sentence: from 0, 1 or the last number on."""
    if width < 2 or max(map(len, sentences), default=0) < 2:
        return False
    counting, behind = 0, 0
    for block in sentences:
        numbers = [re.split("[-.]", line.fields[0])[-1] for line in _tokens(block)]
        starts = [
            first for first in (0, 1, behind) if numbers == [str(first + place) for place in range(len(numbers))]
        ]
        counting += bool(starts)
        behind = (starts or [0])[0] + len(numbers)
    return 10 * counting >= 9 * len(sentences)


def _tokens(block: list[_Line]) -> list[_Line]:
    """Lines whose number is none of several or of no word, unless all are: numbers of sentence and word."""
    return [line for line in block if not _NO_TOKEN.fullmatch(line.fields[0])] or block


def _without_numbers(
    path: Path, sentences: list[list[_Line]], width: int, words: int | None, tags: int | None, unlabelled: bool
) -> list[list[_Line]]:
    """Sentences whose lines are words, of a file whose first column counts them."""
    if tags is None and (width > 3 or (width == 2 and not unlabelled)):
        last = f"and has columns 2 to {width} beside" if width > 2 else "and there is one other only"
        raise ValueError(
            f"{path}: the first column counts the words, {last}. Name those of the words and of the tags by their "
            "numbers: `words_column` = 2, `tags_column` = 3 (GermEval) or 4 (CoNLL-U)."
        )
    if words is None or tags is None:
        logger.warning(
            "%s: the first column counts the words and is skipped; words are column %d, tags column %d.",
            path,
            words or 2,
            tags or 3,
        )
    kept = [_tokens(block) for block in sentences]
    if left := sum(map(len, sentences)) - sum(map(len, kept)):
        logger.warning("%s: %d lines numbered as 1-2 or 8.1 are no words and are left out.", path, left)
    return [block for block in kept if block]


def _tell_other_tags(path: Path, lines: list[_Line], width: int) -> None:
    """Say that another column than the last has tags of spans: of the same types, or it alone."""
    columns = [{line.fields[place] for line in lines if len(line.fields) == width} for place in range(width)]
    types = [marked_types(column) for column in columns]
    whole = [
        bool(found) and all(marked_types([tag]) for tag in column - {OUTSIDE})
        for found, column in zip(types, columns, strict=True)
    ]
    if sole := [place + 1 for place in range(width - 1) if whole[place] and not types[-1]]:
        logger.warning(
            "%s: column %d has tags of spans, and the last one, %d, which is read, has none. Name the columns of "
            "words and tags by their numbers with `words_column` and `tags_column`.",
            path,
            sole[0],
            width,
        )
    others = [place + 1 for place in range(1, width - 1) if types[place] & types[-1]]
    if others:
        logger.warning(
            "%s: columns %s and %d have tags of the same types; the last one is read. Name another by its number with "
            "`tags_column`.",
            path,
            ", ".join(map(str, others)),
            width,
        )


def _columns(block: list[_Line], words: int | None, tags: int | None, width: int, unlabelled: bool) -> list[list[str]]:
    """Words and tags of a sentence, or words alone."""
    place = (words or 1) - 1
    without = unlabelled and all(len(line.fields) < (tags or max(place + 2, 2)) for line in block)
    for line in block:
        count = len(line.fields)
        if count <= place or (not without and count < (tags or 2)):
            raise _BadLine(
                line.number,
                f"must have a word and, in {'the last column' if tags is None else f'column {tags}'}, its tag; got "
                f"{line.text[:40]!r}. Blank lines separate sentences.",
            )
        if tags is None and not without and count != width:
            raise _BadLine(line.number, f"must have {width} columns, as most lines, got {count}: {line.text[:40]!r}.")
    found = [[line.fields[place] for line in block]]
    return found if without else [*found, [line.fields[-1 if tags is None else tags - 1] for line in block]]
