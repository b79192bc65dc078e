"""A source with some of its documents left out, such as those held out for evaluation."""

from collections.abc import Callable, Iterator
from typing import Any

from .readers import Document
from .sources import as_document_source, beginning_of


class FilteredDocuments:
    """The documents of a source that a function keeps; the place in the source is its own.

    Args:
        documents: see `as_document_source`.
        keep: from a document to whether it stays; the same for the same document.

    Example:
        >>> source = FilteredDocuments([["one"], ["two", "lines"]], lambda document: len(document) == 1)
        >>> list(source)
        [['one']]
    """

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
