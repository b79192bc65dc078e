"""Objects that pickle the same before and after use, so that `datasets.map` finds its cache again."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class WorkedOut(dict[Any, Any]):
    """What follows from the rest of an object: it is not pickled, and has no part in a fingerprint of `datasets`.

    Example:
        >>> import pickle
        >>> pickle.loads(pickle.dumps(WorkedOut({"table": 1})))
        {}
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@contextmanager
def backend_as_it_was(tokenizer: Any) -> Iterator[None]:
    """Context: truncation and padding of one call do not stay in the tokenizer.

    Args:
        tokenizer: a fast one.
    """
    backend = tokenizer._tokenizer
    truncation, padding, split = backend.truncation, backend.padding, backend.encode_special_tokens
    try:
        yield
    finally:
        backend.encode_special_tokens = split
        if truncation is None:
            backend.no_truncation()
        else:
            backend.enable_truncation(**truncation)
        if padding is None:
            backend.no_padding()
        else:
            backend.enable_padding(**padding)


def leaving_the_backend(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a method of a tokenizer, or of what has one, runs in `backend_as_it_was`."""

    @functools.wraps(method)
    def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
        with backend_as_it_was(getattr(self, "tokenizer", self)):
            return method(self, *args, **kwargs)

    return outer
