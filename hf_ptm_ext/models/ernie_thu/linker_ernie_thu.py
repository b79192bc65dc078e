"""Link texts to entities by a dictionary of titles, without a service: for one's own knowledge graph, and offline.

Every mention whose words are exactly a title becomes an annotation (leftmost, longest; see `matcher_ernie_thu`). It
knows no context: a title of several entities means the first of them. Any other linker can take its place, as a
function from a list of texts to a list of lists of annotations.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .annotations_ernie_thu import EntityAnnotation
from .entity_vocab_ernie_thu import EntityVocabulary, ExternalId, TextList
from .matcher_ernie_thu import ErnieThuMatcher
from .storage_ernie_thu import read_arrays, write_arrays

LINKER_FORMAT = "dictionary_linker"


class DictionaryLinker:
    """A linker that knows titles.

    Args:
        titles: title -> external id, as a mapping or (title, id) pairs; of equal titles the first one counts.
        ignore_case: whether upper and lower case are the same.
        whole_words: whether a title must not begin or end inside a word; of no effect in scripts without spaces.
        min_length: titles with fewer characters are left out.
        backend: as in `ErnieThuMatcher`.

    Raises:
        TypeError: a title is not text.
        ValueError: a title is empty.

    Example:
        >>> linker = DictionaryLinker({"Bob Dylan": "Q392", "巴黎": "Q90"})
        >>> linker(["Bob Dylan", "我在巴黎"])
        [[EntityAnnotation(start=0, end=9, id='Q392', score=1.0)],
         [EntityAnnotation(start=2, end=4, id='Q90', score=1.0)]]
    """

    def __init__(
        self,
        titles: Mapping[str, ExternalId] | Iterable[tuple[str, ExternalId]],
        *,
        ignore_case: bool = False,
        whole_words: bool = True,
        min_length: int = 1,
        backend: str = "auto",
    ):
        pairs = list(titles.items() if isinstance(titles, Mapping) else titles)
        pairs = [(title, identifier) for title, identifier in pairs if not title or len(title) >= min_length]
        self.titles = [title for title, _ in pairs]
        self.ids = [identifier for _, identifier in pairs]
        self.min_length = min_length
        self.matcher = ErnieThuMatcher(self.titles, ignore_case=ignore_case, whole_words=whole_words, backend=backend)

    @classmethod
    def from_vocabulary(cls, vocabulary: EntityVocabulary, **options: Any) -> "DictionaryLinker":
        """Make a linker of the titles of an entity vocabulary.

        Args:
            vocabulary: with titles; an `EntityTable` has one as `table.vocabulary`.
            options: as in the class.

        Returns:
            The linker.

        Raises:
            ValueError: the vocabulary has no titles.
        """
        if not vocabulary.num_titles:
            raise ValueError("`vocabulary` must have titles to link by. Give `titles` when making the entity table.")
        titles, rows = zip(*vocabulary.titles(), strict=True)
        ids = vocabulary.ids_of(rows)
        return cls([(title, name) for title, name in zip(titles, ids, strict=True) if name is not None], **options)

    def __call__(self, texts: Sequence[str]) -> list[list[EntityAnnotation]]:
        """Link texts.

        Args:
            texts: a batch.

        Returns:
            The annotations of each text, from left to right, with score 1.
        """
        ids = self.ids
        return [
            [EntityAnnotation(begin, end, ids[number]) for begin, end, number in matches]
            for matches in self.matcher.find_all(texts)
        ]

    def __len__(self) -> int:
        """Number of titles."""
        return len(self.matcher)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the dictionary as a safetensors file; equal dictionaries give equal bytes.

        Args:
            path: the file.

        Returns:
            The path.
        """
        distinct = {str(identifier): None for identifier in self.ids}
        number = {identifier: index for index, identifier in enumerate(distinct)}
        arrays = {
            **_text_arrays("title", self.titles),
            **_text_arrays("id", distinct),
            "title_ids": np.array([number[str(identifier)] for identifier in self.ids], dtype=np.int32),
        }
        options = {
            "ignore_case": str(self.matcher.ignore_case).lower(),
            "whole_words": str(self.matcher.whole_words).lower(),
            "min_length": str(self.min_length),
        }
        return write_arrays(path, arrays, {"format": LINKER_FORMAT, **options})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, backend: str = "auto") -> "DictionaryLinker":
        """Read a dictionary that `save` wrote.

        Args:
            path: the file.
            backend: as in `ErnieThuMatcher`.

        Returns:
            The linker; integer ids are texts now, which mean the same to a vocabulary.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is another kind of file, or damaged.
        """
        arrays, metadata = read_arrays(path)
        if metadata.get("format") != LINKER_FORMAT:
            raise ValueError(f"{path} is not a file of `DictionaryLinker.save`, got {metadata.get('format')!r}.")
        titles, ids = (_texts_of(arrays, prefix) for prefix in ("title", "id"))
        return cls(
            [(title, ids[index]) for title, index in zip(titles, arrays["title_ids"], strict=True)],
            ignore_case=metadata["ignore_case"] == "true",
            whole_words=metadata["whole_words"] == "true",
            min_length=int(metadata["min_length"]),
            backend=backend,
        )


def _text_arrays(prefix: str, texts: Iterable[str]) -> dict[str, np.ndarray]:
    """Blob and offsets alone: a linker reads all its titles anyway."""
    listed = TextList.build(texts)
    return {f"{prefix}_blob": listed.blob, f"{prefix}_offsets": listed.offsets}


def _texts_of(arrays: Mapping[str, np.ndarray], prefix: str) -> list[str]:
    none = np.zeros(0, dtype=np.int64)
    return list(TextList(np.array(arrays[f"{prefix}_blob"]), arrays[f"{prefix}_offsets"], none, none))
