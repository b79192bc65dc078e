"""Sources of documents for a stream: anything to iterate over whose place can be saved and loaded.

The protocol is that of `datasets.IterableDataset`. `FileDocuments` follows it, and so do the lists and the datasets
wrapped here. Held-out documents are chosen by their content: the same on every machine, in any order, in a stream too.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, Union, runtime_checkable

from .readers import Document, sentences_of
from .rows import check_column, open_dataset

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
        documents: Documents of sentences.

    Examples:
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
        """Let the next iteration begin at a saved place."""
        if state["documents"] != self._fingerprint:
            raise ValueError(
                f"`documents` are not those of the saved state, {state['documents']}, got {self._fingerprint}: "
                "reading cannot go on where it stopped. Use the same documents in the same order, or start without "
                "the state."
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
        dataset: A `Dataset` may be shuffled, an `IterableDataset` may not.
        text_column: The column with the text.

    Examples:
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
                f"`dataset` must not be a shuffled {type(dataset).__name__}: datasets loses the rows in its buffer "
                "when a run resumes. Leave out `.shuffle()` and set `shuffle_buffer_size` of PretrainingStream."
            )
        if dataset.column_names is not None:
            check_column(text_column, dataset.column_names, "text_column", "`dataset`: ")
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
            where = f"`dataset`, row {number}"
            check_column(self.text_column, row, "text_column", f"{where}: ")
            if document := sentences_of(row[self.text_column], f"{where}, column {self.text_column!r}"):
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
        """Let the next iteration begin at a saved place."""
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
    """Open a dataset of the Hub or of a local folder as a source of documents with the text of a column.

    `path` is an id of the Hub, a folder with data files, or one of `save_to_disk`, which is memory-mapped in either
    case; `streaming` reads while training instead of preparing all first, without slices such as `"train[:1%]"`.

    Examples:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> Dataset.from_dict({"text": ["One.", "Two."]}).save_to_disk(folder := tempfile.mkdtemp())
        >>> list(dataset_documents(folder))
        [['One.'], ['Two.']]
    """
    return DatasetDocuments(open_dataset(path, name, split=split, revision=revision, streaming=streaming), text_column)


def as_document_source(documents: Any) -> DocumentSource:
    """Return lists of documents and `datasets` datasets with a column `text` as sources, sources as they are.

    Raises:
        TypeError: If the place in it cannot be saved, as in a generator.

    Examples:
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
    """Return the state of a source at its beginning; sources that cannot tell must not have been read yet."""
    return source.beginning() if hasattr(source, "beginning") else source.state_dict()


def _is_shuffled(examples: Any) -> bool:
    """Whether a shuffle buffer is anywhere in the chain of steps of a streaming dataset."""
    if type(examples).__name__ == "BufferShuffledExamplesIterable":
        return True
    inner = [getattr(examples, "ex_iterable", None), *getattr(examples, "ex_iterables", [])]
    return any(_is_shuffled(step) for step in inner if step is not None)


class FilteredDocuments:
    """The documents of a source that a function keeps; the place in the source is its own."""

    def __init__(self, documents: Any, keep: Callable[[Document], bool]):
        self.source = as_document_source(documents)
        self.keep = keep

    def __iter__(self) -> Iterator[Document]:
        """Yield the kept documents, from the loaded place if there is one."""
        return (document for document in self.source if self.keep(document))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the source."""
        return self.source.state_dict()

    def beginning(self) -> dict[str, Any]:
        """Return the place before the first document of the source."""
        return beginning_of(self.source)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin at a saved place."""
        self.source.load_state_dict(state)


def document_digest(document: Sequence[str], seed: int = 0) -> float:
    """Return a number in [0, 1), uniform over documents, that depends on a document's text and the seed alone.

    Examples:
        >>> document_digest(["A sentence."]) == document_digest(["A sentence."])
        True
    """
    text = "\n".join((str(seed), *document))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()) / 2**48


def is_held_out(document: Sequence[str], fraction: float, seed: int = 0) -> bool:
    """Say whether a document of a stream belongs to the held-out part, an expected share of all.

    Each document decides for itself, so the share is `fraction` only on average, and equal documents fall on one side.

    Examples:
        >>> sum(is_held_out([str(number)], 0.1) for number in range(1000))
        85
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"`fraction` must be in [0, 1], got {fraction}.")
    return document_digest(document, seed) < fraction


def held_out_split(
    documents: Sequence[Sequence[str]], fraction: float = 0.05, seed: int = 0
) -> tuple[list[list[str]], list[list[str]]]:
    """Split a list of documents into a training and a held-out part.

    Args:
        documents: At least two documents.
        fraction: Share of held-out documents, in (0, 1), rounded up; at least one document stays on each side.
        seed: Which documents.

    Returns:
        Training and held-out documents, each in the order given. Equal documents fall on the same side where both
        sides can stay non-empty.

    Examples:
        >>> train, held_out = held_out_split([["a"], ["b"], ["c"], ["d"]], fraction=0.25)
        >>> len(train), len(held_out)
        (3, 1)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"`fraction` must be in (0, 1), got {fraction}.")
    if len(documents) < 2:
        raise ValueError(f"`documents` must hold at least 2 documents to hold one out, got {len(documents)}.")
    digests = [document_digest(document, seed) for document in documents]
    ranked = sorted(digests)
    threshold = ranked[min(math.ceil(fraction * len(documents)), len(documents) - 1) - 1]
    if threshold == ranked[-1]:  # the duplicates of one text would take everything
        chosen = set(range(len(documents) - 1, len(documents)))
    else:
        chosen = {index for index, digest in enumerate(digests) if digest <= threshold}
    train = [list(document) for index, document in enumerate(documents) if index not in chosen]
    return train, [list(documents[index]) for index in sorted(chosen)]
