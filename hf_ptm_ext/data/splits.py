"""Held-out documents, chosen by their content: the same on every machine, in any order, also in a stream."""

import hashlib
import math
from collections.abc import Sequence


def document_digest(document: Sequence[str], seed: int = 0) -> float:
    """Return a number in [0, 1) that depends on the text of a document and the seed only.

    Args:
        document (`Sequence[str]`): Its sentences.
        seed (`int`, *optional*, defaults to 0): Another seed gives another, independent number.

    Returns:
        `float`: uniform over documents.

    Example:

    >>> document_digest(["A sentence."]) == document_digest(["A sentence."])
    True
    """
    text = "\n".join((str(seed), *document))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()) / 2**48


def is_held_out(document: Sequence[str], fraction: float, seed: int = 0) -> bool:
    """Say whether a document of a stream belongs to the held-out part.

    Each document decides for itself, so the share is `fraction` only on average. Equal documents fall on the
    same side.

    Args:
        document (`Sequence[str]`): Its sentences.
        fraction (`float`): Expected share of held-out documents, in [0, 1].
        seed (`int`, *optional*, defaults to 0): Which documents.

    Returns:
        `bool`: True for held-out documents.

    Raises:
        ValueError: If `fraction` is out of range.

    Example:

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
        documents (`Sequence[Sequence[str]]`): At least two documents.
        fraction (`float`, *optional*, defaults to 0.05): Share of held-out documents, in (0, 1). Rounded up to whole
            documents; at least one document stays on each side.
        seed (`int`, *optional*, defaults to 0): Which documents.

    Returns:
        `tuple[list[list[str]], list[list[str]]]`: training and held-out documents, each in the order given. Equal
        documents fall on the same side where both sides can stay non-empty.

    Raises:
        ValueError: If there are fewer than two documents or `fraction` is outside (0, 1).

    Example:

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
