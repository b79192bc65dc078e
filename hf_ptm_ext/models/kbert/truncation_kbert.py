"""Which part of a text a row keeps when text and knowledge do not both fit.

    keep_text        the text has precedence: branches are dropped whole, the last ones first, and the text is cut only
                     where it is too long without any (default)
    keep_knowledge   a word stays with its branches: the text is cut where it and its knowledge no longer fit
    only_knowledge   as keep_text, but a text that is too long by itself is an error

What is cut from which text of a pair, and from which end, is as in transformers (`truncation`, `truncation_side`).
"""

from collections.abc import Callable

import numpy as np

KNOWLEDGE_TRUNCATIONS = ("keep_text", "keep_knowledge", "only_knowledge")


def kept_sizes(first: int, second: int, room: int, strategy: str) -> tuple[int, int]:
    """How much of each text of a pair is kept, as the tokenizers library decides it.

    Args:
        first: size of the first text.
        second: size of the second text, 0 if there is none.
        room: size that both may have together.
        strategy: "longest_first", "only_first" or "only_second".

    Returns:
        The two sizes.

    Raises:
        ValueError: the text that may be cut is too short for it.

    Example:
        >>> kept_sizes(8, 3, 6, "longest_first"), kept_sizes(8, 3, 6, "only_first")
        ((3, 3), (3, 3))
    """
    excess = first + second - room
    if excess <= 0:
        return first, second
    if strategy == "longest_first":
        short, long = sorted((first, second))
        long = short if short > room else max(short, room - short)
        if short + long > room:
            short = room // 2
            long = room - short
        return (long, short) if first > second else (short, long)
    size = second if strategy == "only_second" else first
    if size <= excess:
        raise ValueError(
            f"`truncation={strategy!r}` must leave a part of that text: it has {size} tokens, and {excess} are too "
            "many for `max_length`. Raise `max_length`, or cut both texts with truncation=True."
        )
    return (first, second - excess) if strategy == "only_second" else (first - excess, second)


def cut_text(cost: np.ndarray, size: int, side: str) -> tuple[int, int]:
    """The part of a text that fits.

    Args:
        cost: `(num_tokens,)` of each token, itself and what hangs behind it.
        size: what the part may cost, apart from branches behind its last word.
        side: "right" or "left", the end from which is cut.

    Returns:
        Begin and end of the part.

    Example:
        >>> cut_text(np.array([1, 4, 1, 1]), 5, "right"), cut_text(np.array([1, 4, 1, 1]), 3, "left")
        ((0, 2), (2, 4))
    """
    length = len(cost)
    if side == "left":
        spent = np.cumsum(cost[::-1])
        return length - int(np.searchsorted(spent, size, side="right")), length
    spent = np.cumsum(cost) - cost + 1
    return 0, int(np.searchsorted(spent, size, side="right"))


def windows(cost: np.ndarray, size: int, stride: int, side: str) -> list[tuple[int, int]]:
    """Parts of a text, in turn, that cover it.

    Args:
        cost: as in `cut_text`.
        size: what a part may cost.
        stride: tokens that neighbouring parts share.
        side: "right" begins at the begin of the text, "left" at its end.

    Returns:
        Begin and end of each.

    Raises:
        ValueError: a part has no more tokens than the next one repeats.

    Example:
        >>> windows(np.ones(7, dtype=int), 4, 1, "right")
        [(0, 4), (3, 7)]
    """
    length, parts = len(cost), []
    begin, end = 0, length
    cut: Callable[[np.ndarray], tuple[int, int]] = lambda part: cut_text(part, size, side)  # noqa: E731
    while True:
        low, high = cut(cost[begin:end])
        parts.append((begin + low, begin + high))
        if (high == end - begin) if side == "right" else low == 0:
            return parts
        if high - low <= stride:
            raise ValueError(
                f"`stride` must be below the number of tokens of a window, got {stride} and a window of {high - low} "
                "tokens. Raise `max_length` or lower `stride`."
            )
        if side == "right":
            begin += high - stride
        else:
            end = begin + low + stride


__all__ = ["KNOWLEDGE_TRUNCATIONS", "cut_text", "kept_sizes", "windows"]
