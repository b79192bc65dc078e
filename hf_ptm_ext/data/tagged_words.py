"""Sentences of words with one tag each: what a tagger is trained on.

    JSON lines, Parquet, datasets   a list of words and a list of tags
    TSV, CSV                        words and tags separated by one blank (K-BERT's NER files)
    CoNLL                           a word a line, its tag in the last column, a blank line behind a sentence
    doccano, CLUENER, brat          a text with entities marked by characters

What a word is is the data's business: Chinese sets have characters.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .bad_rows import usable
from .conll import conll_rows
from .marked_spans import SPAN_FIELDS, TEXT_FIELD, brat_rows, places_of_words, spans_of_field, words_and_tags
from .rows import (
    FORMATS,
    TYPES,
    Files,
    PlacedRow,
    class_name,
    column_of,
    dataset_rows,
    expand_files,
    id_of,
    placed_files,
    read_rows,
    typed,
)

logger = logging.getLogger(__name__)

_FORMATS = {
    **FORMATS,
    **dict.fromkeys((".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".txt"), "conll"),
    ".ann": "brat",
}


class TaggedWords(NamedTuple):
    """One sentence.

    Args:
        words: Its words.
        tags: One each; `None` without any.
        pair: Words of a second text that stands beside it and has no tags, such as a question.
        id: Its name in the data set, if it has one.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    pair: tuple[str, ...] | None = None
    id: str | int | None = None


def read_tagged_words(
    files: Files,
    words_column: str | int = "tokens",
    tags_column: str | int = "tags",
    *,
    pair_column: str | None = None,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = False,
) -> Iterator[TaggedWords]:
    """Read sentences from JSON lines, Parquet, TSV, CSV, CoNLL files or brat's folders, in the order of the files.

    Args:
        files: Paths or glob patterns, or folders of brat's.
        words_column: Column with the words: a list, or a text whose words are separated by one blank each, so that a
            word may be white space of another kind. Of a CoNLL file its number, from 1 (default: the first that does
            not count the words). If rows have no such column but `text`, their entities are marked by characters, see
            `hf_ptm_ext.data.marked_spans`.
        tags_column: Column with the tags, likewise (CoNLL: the last one), or with spans of characters.
        pair_column: Column with a second text, likewise; CoNLL files have none.
        file_format: `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"`, `"conll"` or `"brat"`; told from the names by default.
        encoding: Of files of text.
        unlabelled: Sentences may be without tags, which are `None` then: no column of them, an empty one, -1 for every
            word, or CoNLL lines of a word alone.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "test.conll"
        >>> _ = file.write_text("Anna NNP B-PER\\nsings VBZ O\\n", encoding="utf-8")
        >>> list(read_tagged_words(file))
        [TaggedWords(words=('Anna', 'sings'), tags=('B-PER', 'O'), pair=None, id=None)]
    """
    words_column, tags_column = str(words_column), str(tags_column)

    def conll(path: Path, encoding: str) -> Iterator[PlacedRow]:
        if pair_column is not None:
            raise ValueError(f"`pair_column` = {pair_column!r}: {path} is a CoNLL file, which has no second text.")
        words = _number(words_column, "tokens", "words_column", path)
        tags = _number(tags_column, "tags", "tags_column", path)
        return conll_rows(path, encoding, words, tags, names=(words_column, tags_column), unlabelled=unlabelled)

    readers = {"conll": conll, "brat": lambda path, encoding: brat_rows(path, encoding, unlabelled)}
    if words_column.isdecimal() or tags_column.isdecimal():
        readers["tsv"] = conll
    rows = read_rows(_files(files, file_format), encoding, readers)
    return tagged_words(rows, words_column, tags_column, pair_column=pair_column, unlabelled=unlabelled)


def _files(files: Files, file_format: str | None) -> Iterator[tuple[Path, str]]:
    """Files and their formats; a folder, and a text with a .ann file beside it, are brat's."""
    named = [files] if isinstance(files, str | PathLike) else list(files)
    for one in named or expand_files(named):
        if Path(one).is_dir() and (texts := sorted(Path(one).rglob("*.txt"))):
            yield from ((path, "brat") for path in texts)
            continue
        for path, kind in placed_files(one, file_format, _FORMATS):
            text = file_format is None and path.suffix == ".txt"
            yield path, "brat" if text and path.with_suffix(".ann").is_file() else kind


def _number(column: str, default: str, argument: str, path: Path) -> int | None:
    """The number of a column of a CoNLL file; `None` if none is named."""
    if column == default:
        return None
    if not column.isdecimal() or not 0 < int(column) < 1000:
        raise ValueError(
            f"`{argument}` must be the number of a column, from 1, of the CoNLL file {path}, got {column!r}."
        )
    return int(column)


def dataset_tagged_words(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    words_column: str = "tokens",
    tags_column: str = "tags",
    pair_column: str | None = None,
    revision: str | None = None,
    unlabelled: bool = False,
) -> Iterator[TaggedWords]:
    """Read sentences from a dataset of the Hub or of a local folder; the rest as in `read_tagged_words`.

    `path` is an id of the Hub, a folder with data files, or one of `save_to_disk`; `split` may be a slice such as
    `"train[:1%]"`. Numbers of a `ClassLabel` column become its names.

    Examples:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> Dataset.from_dict({"tokens": [["Anna"]], "tags": [["B-PER"]]}).save_to_disk(folder := tempfile.mkdtemp())
        >>> list(dataset_tagged_words(folder, split="train"))
        [TaggedWords(words=('Anna',), tags=('B-PER',), pair=None, id=None)]
    """
    rows, features = dataset_rows(path, name, split, revision)
    names = getattr(getattr(features.get(tags_column), "feature", None), "names", None)
    return tagged_words(rows, words_column, tags_column, names, pair_column, unlabelled)


def tagged_words(
    rows: Iterable[PlacedRow],
    words_column: str,
    tags_column: str,
    names: Sequence[str] | None = None,
    pair_column: str | None = None,
    unlabelled: bool = False,
) -> Iterator[TaggedWords]:
    """Take words and tags out of rows and check them."""
    cut: list[str] = []
    lengths: Counter[int] = Counter()

    def example(row: Mapping[str, Any], where: str) -> TaggedWords:
        text, spans = _marked(row, words_column, tags_column)
        if text is not None:
            words = [text[start:end] for start, end in places_of_words(text)]
            tags = None
            if row.get(spans) is not None or (spans in row and not unlabelled):
                words, tags = words_and_tags(text, spans_of_field(row[spans], text), cut)
            elif not unlabelled:
                column_of(row, tags_column, "tags_column")
        else:
            words = _items(row, words_column, "words_column")
            hidden = unlabelled and _without_tags(row.get(tags_column))
            tags = None if hidden else _items(row, tags_column, "tags_column", names)
        _check_sentence(words, words if tags is None else tags)
        lengths[len(words)] += 1
        pair = None if pair_column is None else tuple(_items(row, pair_column, "pair_column"))
        return TaggedWords(tuple(words), None if tags is None else tuple(tags), pair, id_of(row))

    yield from usable(rows, example)
    if lengths[1] > 2 and len(lengths) == 1:
        logger.warning(
            "All %d sentences have one word. A file with a word a line is read as `file_format` = conll.", lengths[1]
        )
    if cut:
        logger.warning(
            "%d spans begin or end inside a word, such as %s; the word is cut there.", len(cut), ", ".join(cut[:3])
        )


def _marked(row: Mapping[str, Any], words_column: str, tags_column: str) -> tuple[str | None, str]:
    """The text of a row whose entities are marked by characters, and the field with them; `None` for other rows."""
    field = TEXT_FIELD if words_column == "tokens" and words_column not in row else words_column
    named = tags_column in row or tags_column != "tags"
    fields = sorted((name for name in SPAN_FIELDS if name in row), key=lambda name: not row[name])
    spans = tags_column if named or not fields else fields[0]  # one that marks something before an empty one
    text, value = row.get(field), row.get(spans)
    marked = isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and all(isinstance(one, list | tuple | Mapping) for one in value)
    )
    # A list without anything marks nothing in a text, and lacks the tags of words.
    meant = (marked and (value or field == TEXT_FIELD)) or (field != words_column and (not named or spans not in row))
    return (typed(text, "a text", f"`{field}`") if meant and isinstance(text, str) else None), spans


def _without_tags(value: Any) -> bool:
    """Whether a column of tags has none: nothing, or -1 for every word."""
    items = value.split() if isinstance(value, str) else value
    return not items or (isinstance(items, list | tuple) and all(item in (-1, "-1") for item in items))


def _items(row: Mapping[str, Any], column: str, argument: str, names: Sequence[str] | None = None) -> list[str]:
    items: Any = column_of(row, column, argument)
    if isinstance(items, str):
        items = items.split(" ")
    if names is not None and TYPES["a list of whole numbers"](items):
        items = [class_name(item, names, column, "tags") for item in items]
    advice = f"Words separated by one blank are one too. Set `{argument}` to such a column."
    return list(typed(items, "a list of strings", f"column {column!r}", advice))


def _check_sentence(words: Sequence[str], tags: Sequence[str]) -> None:
    if len(words) != len(tags):
        raise ValueError(
            f"must have a tag for each word, got {len(words)} words and {len(tags)} tags. Mend the row or take it out."
        )
    if not words or "" in words or "" in tags:
        raise ValueError(f"has {'an empty word or tag' if words else 'no word'}. Mend it or take it out.")
