"""Sources of documents for a stream: anything to iterate over whose place can be saved and loaded.

The protocol is that of `datasets.IterableDataset`. `FileDocuments` follows it, and so do the lists and the datasets
wrapped here.
"""

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Union, runtime_checkable

from .readers import Document, sentences_of

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


@runtime_checkable
class DocumentSource(Protocol):
    """Documents with a place: iterating starts at the loaded state once, otherwise at the beginning."""

    def __iter__(self) -> Iterator[Document]:
        """Yield documents."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the last document: ints, strings, lists and dicts."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at a saved place."""
        ...


class ListDocuments:
    """Documents in memory, such as `embedded_corpus("en")`, as a source.

    Args:
        documents (`Sequence[Sequence[str]]`): Documents of sentences.

    Example:

    >>> source = ListDocuments([["a"], ["b"]])
    >>> next(iter(source))
    ['a']
    >>> source.load_state_dict(source.state_dict())
    >>> list(source)
    [['b']]
    """

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self.documents = documents
        self._start = self._place = 0

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents, from the loaded place if there is one."""
        start, self._start = self._start, 0
        for index in range(start, len(self.documents)):
            self._place = index + 1
            yield list(self.documents[index])

    def state_dict(self) -> dict[str, Any]:
        """Return the number of documents that were read, and a digest of all."""
        return {"document": self._place, "documents": self._fingerprint}

    def beginning(self) -> dict[str, Any]:
        """Return the place before the first document, wherever reading stands."""
        return {"document": 0, "documents": self._fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at a saved place.

        Args:
            state (`dict`): From `state_dict()` of an object with the same documents.

        Raises:
            ValueError: If the documents are others.
        """
        if state["documents"] != self._fingerprint:
            raise ValueError(
                "`documents` are not those of the saved state, so reading cannot go on where it stopped. Use the same "
                "documents in the same order, or start without the state."
            )
        self._start = self._place = state["document"]

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for document in self.documents:
            digest.update("\n".join((*document, "\n")).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


class DatasetDocuments:
    """The rows of a `datasets` dataset as documents, streaming or not.

    The text of a row is a string, cut at its line breaks, or a list of strings; rows without text are skipped.
    Shuffling is left to `PretrainingStream`: `datasets` loses the content of its shuffle buffer when it resumes.

    Args:
        dataset (`Dataset` or `IterableDataset`): A `Dataset` may be shuffled, an `IterableDataset` may not.
        text_column (`str`, *optional*, defaults to `"text"`): The column with the text.

    Raises:
        TypeError: If it is no dataset, such as a `DatasetDict`.
        ValueError: If the column is missing, or a streaming dataset is shuffled.

    Example:

    >>> from datasets import Dataset
    >>> rows = Dataset.from_dict({"text": ["One.\\nTwo.", "", "Three."]})
    >>> list(DatasetDocuments(rows.to_iterable_dataset()))
    [['One.', 'Two.'], ['Three.']]
    """

    def __init__(self, dataset: Union["Dataset", "IterableDataset"], text_column: str = "text") -> None:
        from datasets import Dataset, IterableDataset

        if not isinstance(dataset, Dataset | IterableDataset):
            got = f"{type(dataset).__name__}{f' of {list(dataset)}' if isinstance(dataset, Mapping) else ''}"
            raise TypeError(f"`dataset` must be a Dataset or IterableDataset, got {got}. Choose a split.")
        self.streaming = isinstance(dataset, IterableDataset)
        if self.streaming and _is_shuffled(dataset._ex_iterable):
            raise ValueError(
                "`dataset` must not be a shuffled IterableDataset: datasets loses the rows in its shuffle buffer when "
                "a run resumes. Leave out `.shuffle()` and set `shuffle_buffer_size` of PretrainingStream."
            )
        if dataset.column_names is not None and text_column not in dataset.column_names:
            raise ValueError(
                f"`text_column` must be a column of the dataset {dataset.column_names}, got {text_column!r}."
            )
        self.dataset = dataset
        self.text_column = text_column
        self._begin = copy.deepcopy(dataset.state_dict()) if self.streaming else {"row": 0, "rows": len(dataset)}
        self._start = self._begin
        self._place = 0
        self._running = False

    @property
    def divided_among_workers(self) -> bool:
        """Whether `datasets` itself gives each worker process of a `DataLoader` its own rows."""
        return self.streaming

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents, from the loaded place if there is one."""
        start, self._start = self._start, self._begin
        rows = self._stream(start) if self.streaming else self._rows(start["row"])
        for number, row in rows:
            where = f"`dataset`, row {number}, column {self.text_column!r}"
            if self.text_column not in row:
                raise ValueError(f"{where}: no such column, only {list(row)}. Set `text_column` to one of them.")
            if document := sentences_of(row[self.text_column], where):
                yield document

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the last row that was read."""
        if not self._running:
            return copy.deepcopy(self._start)
        return copy.deepcopy(self.dataset.state_dict()) if self.streaming else {**self._begin, "row": self._place}

    def beginning(self) -> dict[str, Any]:
        """Return the place before the first document, wherever reading stands."""
        return copy.deepcopy(self._begin)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at a saved place.

        Args:
            state (`dict`): From `state_dict()` of an object with an equal dataset.

        Raises:
            ValueError: If the state is of a dataset of another kind or size.
        """
        if state.keys() != self._begin.keys() or state.get("rows") != self._begin.get("rows"):
            raise ValueError(
                f"`dataset` is not the one of the saved state {state}, so reading cannot go on where it stopped. Use "
                "the same dataset, streaming or not as before, or start without the state."
            )
        self._start, self._running = copy.deepcopy(state), False

    def _stream(self, start: dict[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        self.dataset.load_state_dict(copy.deepcopy(start))
        for number, row in enumerate(self.dataset):
            self._running = True
            yield number, row

    def _rows(self, start: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        if start >= len(self.dataset):
            return
        rest = self.dataset.select_columns([self.text_column]).select(range(start, len(self.dataset)))
        for number, row in enumerate(rest, start=start):
            self._running, self._place = True, number + 1
            yield number, row


def dataset_documents(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str = "train",
    text_column: str = "text",
    streaming: bool = True,
    revision: str | None = None,
) -> DatasetDocuments:
    """Open a dataset of the Hub or of a local folder as a source of documents.

    Args:
        path (`str` or `PathLike`): An id of the Hub, a folder with data files, or a folder written by `save_to_disk`.
        name (`str`, *optional*): Configuration of the dataset.
        split (`str`, *optional*, defaults to `"train"`): Split, also slices such as `"train[:1%]"` if not streaming.
        text_column (`str`, *optional*, defaults to `"text"`): The column with the text.
        streaming (`bool`, *optional*, defaults to `True`): Read while training instead of preparing all first. A
            folder of `save_to_disk` is memory-mapped in either case.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.

    Returns:
        `DatasetDocuments`: the documents.

    Raises:
        ValueError: If the split or column is missing.

    Example:

    >>> import tempfile
    >>> from datasets import Dataset
    >>> folder = tempfile.mkdtemp()
    >>> Dataset.from_dict({"text": ["One.", "Two."]}).save_to_disk(folder)
    >>> list(dataset_documents(folder))
    [['One.'], ['Two.']]
    """
    import datasets

    if (Path(path) / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(path))
        if split not in splits:
            raise ValueError(f"`split` must be one of {list(splits)} in {path}, got {split!r}.")
        return DatasetDocuments(splits[split], text_column)
    if (Path(path) / "state.json").is_file():
        return DatasetDocuments(datasets.load_from_disk(str(path)), text_column)
    loaded = datasets.load_dataset(str(path), name, split=split, streaming=streaming, revision=revision)
    return DatasetDocuments(loaded, text_column)


def as_document_source(documents: Any) -> DocumentSource:
    """Return documents as a source: lists and datasets are wrapped, sources are returned as they are.

    Args:
        documents (`Any`): A `DocumentSource` such as `FileDocuments`, a sequence of documents, or a `datasets`
            dataset with a column `text`.

    Returns:
        `DocumentSource`: the source.

    Raises:
        TypeError: If the place in it cannot be saved, as in a generator.

    Example:

    >>> list(as_document_source([["One.", "Two."]]))
    [['One.', 'Two.']]
    """
    if type(documents).__module__.split(".")[0] == "datasets":
        return DatasetDocuments(documents)
    if isinstance(documents, DocumentSource):
        return documents
    if isinstance(documents, Sequence) and not isinstance(documents, str | bytes):
        return ListDocuments(documents)
    raise TypeError(
        "`documents` must be a FileDocuments, a dataset, or a list of documents, so that its place can be saved; got "
        f"{type(documents).__name__}. Turn it into a list, or give it state_dict() and load_state_dict()."
    )


def beginning_of(source: DocumentSource) -> dict[str, Any]:
    """Return the state of a source at its beginning; sources that cannot tell must not have been read yet.

    Args:
        source (`DocumentSource`): Any source, such as from `as_document_source`.
    """
    return source.beginning() if hasattr(source, "beginning") else source.state_dict()


def _is_shuffled(examples: Any) -> bool:
    """Whether a shuffle buffer is anywhere in the chain of steps of a streaming dataset."""
    if type(examples).__name__ == "BufferShuffledExamplesIterable":
        return True
    inner = [getattr(examples, "ex_iterable", None), *getattr(examples, "ex_iterables", [])]
    return any(_is_shuffled(step) for step in inner if step is not None)
