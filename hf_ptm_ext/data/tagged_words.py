"""Sentences of words with one tag each: what a tagger is trained on.

    JSON lines, Parquet, datasets   a list of words and a list of tags
    TSV, CSV                        words and tags separated by one blank (K-BERT's NER files)
    CoNLL                           a word a line, its tag in the last column, a blank line behind a sentence

What a word is is the data's business: Chinese sets have characters.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .lines import check_encoding, iter_lines
from .rows import PlacedRow, column_of, dataset_rows, id_of, placed_dataset_rows, placed_files, read_rows, with_rows

CONLL = {".conll": "conll", ".bio": "conll", ".iob": "conll", ".iob2": "conll", ".bioes": "conll", ".txt": "conll"}
DOCUMENT_START = "-DOCSTART-"


class TaggedWords(NamedTuple):
    """One sentence.

    Args:
        words: its words.
        tags: one each; `None` without any.
        pair: words of a second text that stands beside it and has no tags, such as a question.
        id: its name in the data set, if it has one.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    pair: tuple[str, ...] | None = None
    id: str | int | None = None


def read_tagged_words(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    words_column: str = "tokens",
    tags_column: str = "tags",
    *,
    pair_column: str | None = None,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = False,
) -> Iterator[TaggedWords]:
    """Read sentences from JSON lines, Parquet, TSV, CSV or CoNLL files.

    Args:
        files (`str`, `PathLike` or a sequence of them): Paths or glob patterns.
        words_column (`str`, *optional*, defaults to `"tokens"`): Column with the words: a list, or a text whose words
            are separated by one blank each, so that a word may be white space of another kind.
        tags_column (`str`, *optional*, defaults to `"tags"`): Column with the tags, likewise.
        pair_column (`str`, *optional*): Column with a second text, likewise; CoNLL files have none.
        file_format (`str`, *optional*): `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"` or `"conll"`; told from the names by
            default.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of files of text.
        unlabelled (`bool`, *optional*, defaults to `False`): Sentences may be without tags, which are `None` then: no
            column of them, an empty one, -1 for every word, or CoNLL lines of a word alone.

    Returns:
        `Iterator[TaggedWords]`: the sentences in the order of the files.

    Raises:
        FileNotFoundError: If a path or pattern matches no file.
        ValueError: If a file cannot be read, a column is missing, or words and tags are not as many. The message names
            file and row.

    Example:

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "test.conll"
    >>> _ = file.write_text("Anna NNP B-PER\\nsings VBZ O\\n", encoding="utf-8")
    >>> list(read_tagged_words(file))
    [TaggedWords(words=('Anna', 'sings'), tags=('B-PER', 'O'), pair=None, id=None)]
    """
    check_encoding(encoding)
    for path, kind in placed_files(files, file_format, CONLL):
        if kind == "conll":
            if pair_column is not None:
                raise ValueError(f"`pair_column` = {pair_column!r}: {path} is a CoNLL file, which has no second text.")
            yield from with_rows(_conll_sentences(path, encoding, unlabelled), path)
        else:
            yield from tagged_words(
                read_rows(path, kind, encoding),
                words_column,
                tags_column,
                pair_column=pair_column,
                unlabelled=unlabelled,
            )


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
    """Read sentences from a dataset of the Hub or of a local folder.

    Args:
        path (`str` or `PathLike`): An id of the Hub, a folder with data files, or a folder written by `save_to_disk`.
        name (`str`, *optional*): Configuration of the dataset.
        split (`str`): Its split, also slices such as `"train[:1%]"`.
        words_column (`str`, *optional*, defaults to `"tokens"`): As in `read_tagged_words`.
        tags_column (`str`, *optional*, defaults to `"tags"`): As in `read_tagged_words`; numbers of `ClassLabel`
            become its names.
        pair_column (`str`, *optional*): As in `read_tagged_words`.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_tagged_words`.

    Returns:
        `Iterator[TaggedWords]`: the sentences.

    Raises:
        ValueError: If the split or a column is missing, or words and tags are not as many.

    Example:

    >>> import tempfile
    >>> from datasets import Dataset
    >>> folder = tempfile.mkdtemp()
    >>> Dataset.from_dict({"tokens": [["Anna"]], "ner_tags": [["B-PER"]]}).save_to_disk(folder)
    >>> list(dataset_tagged_words(folder, split="train", tags_column="ner_tags"))
    [TaggedWords(words=('Anna',), tags=('B-PER',), pair=None, id=None)]
    """
    rows = dataset_rows(path, name, split=split, revision=revision)
    names = getattr(getattr(rows.features.get(tags_column), "feature", None), "names", None)
    placed = placed_dataset_rows(rows, path, split)
    yield from tagged_words(placed, words_column, tags_column, names, pair_column, unlabelled)


def tagged_words(
    rows: Iterable[PlacedRow],
    words_column: str,
    tags_column: str,
    names: Sequence[str] | None = None,
    pair_column: str | None = None,
    unlabelled: bool = False,
) -> Iterator[TaggedWords]:
    """Take words and tags out of rows and check them.

    Args:
        rows (`Iterable[tuple[str, Mapping]]`): The place of each row, for messages, and the row.
        words_column (`str`): Where the words are.
        tags_column (`str`): Where the tags are.
        names (`Sequence[str]`, *optional*): Names of tags that are numbers.
        pair_column (`str`, *optional*): Where a second text is.
        unlabelled (`bool`, *optional*, defaults to `False`): As in `read_tagged_words`.

    Returns:
        `Iterator[TaggedWords]`: the sentences.

    Raises:
        ValueError: If a column is missing or holds something else, or words and tags are not as many.
    """
    for where, row in rows:
        words = _items(row, words_column, "words_column", where)
        if unlabelled and _without_tags(row.get(tags_column)):
            sentence = _sentence(words, words, where)._replace(tags=None, id=id_of(row))
        else:
            tags = _items(row, tags_column, "tags_column", where, names)
            sentence = _sentence(words, tags, where)._replace(id=id_of(row))
        if pair_column is not None:
            sentence = sentence._replace(pair=tuple(_items(row, pair_column, "pair_column", where)))
        yield sentence


def _without_tags(value: Any) -> bool:
    """Whether a column of tags has none: nothing, or -1 for every word."""
    items = value.split() if isinstance(value, str) else value
    return not items or (isinstance(items, list | tuple) and all(item in (-1, "-1") for item in items))


def _items(
    row: Mapping[str, Any], column: str, argument: str, where: str, names: Sequence[str] | None = None
) -> list[str]:
    value = column_of(row, column, argument, where)
    items = value.split(" ") if isinstance(value, str) else value
    if names is not None and isinstance(items, list) and all(isinstance(item, int) for item in items):
        if not all(0 <= item < len(names) for item in items):
            raise ValueError(f"{where}: column {column!r} has {items}, and its tags are 0 to {len(names) - 1}.")
        items = [names[item] for item in items]
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError(
            f"{where}: column {column!r} must hold a list of words, or words separated by one blank, got "
            f"{type(value).__name__}. Set `{argument}` to such a column."
        )
    return list(items)


def _sentence(words: Sequence[str], tags: Sequence[str], where: str) -> TaggedWords:
    if len(words) != len(tags):
        raise ValueError(
            f"{where}: must have a tag for each word, got {len(words)} words and {len(tags)} tags. Mend the row or "
            "take it out."
        )
    if not words or "" in words or "" in tags:
        raise ValueError(f"{where}: has {'an empty word or tag' if words else 'no word'}. Mend it or take it out.")
    return TaggedWords(tuple(words), tuple(tags))


def _conll_sentence(words: list[str], tags: list[str], where: str) -> TaggedWords:
    return _sentence(words, tags, where) if tags else _sentence(words, words, where)._replace(tags=None)


def _conll_sentences(path: Path, encoding: str, unlabelled: bool = False) -> Iterator[TaggedWords]:
    words: list[str] = []
    tags: list[str] = []
    begin = 1
    for line in iter_lines(path, encoding):
        # Blanks and tabs only: other white space may be a word.
        text = line.text.strip(" \t\r\n")
        fields = text.split("\t") if "\t" in text else re.split(" +", text)
        if not text or fields[0] == DOCUMENT_START:
            if words:
                yield _conll_sentence(words, tags, f"{path}, line {begin}")
            words, tags, begin = [], [], line.number + 1
            continue
        if unlabelled and len(fields) == 1 and not tags:
            words.append(fields[0])
            continue
        if len(fields) < 2:
            raise ValueError(
                f"{path}, line {line.number}: must have a word and, in the last column, its tag; got "
                f"{text[:40]!r}. Blank lines separate sentences."
            )
        words.append(fields[0])
        tags.append(fields[-1])
    if words:
        yield _conll_sentence(words, tags, f"{path}, line {begin}")


__all__ = ["TaggedWords", "dataset_tagged_words", "read_tagged_words", "tagged_words"]
