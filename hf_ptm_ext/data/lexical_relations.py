"""LIBERT's word pairs (Lauscher et al., COLING 2020, https://arxiv.org/abs/1909.02339): synonyms and hypernyms.

A pair is positive if a lexicon has it. A negative keeps one word of a positive pair and puts its nearest neighbour,
among the words of a batch of pairs, in the other's place: close words that are no synonyms are hard to tell apart.
Code of the authors: anlausch/LIBERT.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .lines import iter_lines

Pair = tuple[str, str]
PREFIX = "en_"


def read_lexical_constraints(
    *paths: str | Path, prefix: str = PREFIX, seed: int | None = 0, encoding: str = "utf-8"
) -> list[Pair]:
    """Read pairs of words, two a line with white space between them: `en_happy en_glad`, `en_ice_cream en_dessert`.

    The prefix goes, `_` becomes a blank, letters become small, what is there again is left out, in either order.

    Args:
        paths: Files; gzip too.
        prefix: What the words begin with; words without it are taken as they are.
        seed: Of the order (LIBERT shuffles); None keeps the files'.
        encoding: Of the files.

    Raises:
        ValueError: a line has not two words, or there is none.
    """
    pairs: dict[Pair, None] = {}
    for path in paths:
        for line in iter_lines(Path(path), encoding):
            words = line.text.split()
            if not words:
                continue
            if len(words) != 2:
                raise ValueError(f"{path}, line {line.number}: must have two words, got {line.text[:60]!r}.")
            first, second = (word.removeprefix(prefix).replace("_", " ").strip().lower() for word in words)
            if first and second and first != second and (second, first) not in pairs:
                pairs[first, second] = None
    if not pairs:
        raise ValueError(f"{', '.join(map(str, paths))}: no line has a pair of words, such as `en_happy en_glad`.")
    found = list(pairs)
    if seed is not None:
        found = [found[place] for place in np.random.default_rng(seed).permutation(len(found))]
    return found


def mine_lexical_negatives(
    pairs: Sequence[Pair], vectors: Mapping[str, Any] | Any, batch: int = 32, known: Iterable[Pair] = ()
) -> list[Pair]:
    """Find hard negatives: each word of a pair with the word of its batch that is nearest to it and no relation of it.

    Args:
        pairs: Positive pairs in a drawn order; each `batch` of them are a batch.
        vectors: Word -> its vector (a mapping, `data.augmentation.WordVectors`, gensim's `KeyedVectors`). A term of
            several words has their mean; a word without a vector is looked up in title case, and is never chosen.
        batch: Pairs of a batch (LIBERT: 32).
        known: Further pairs that are related, in either order.

    Returns:
        At most two for each pair, in their order.

    Raises:
        ValueError: `batch` is too small, or no word has a vector.

    Examples:
        >>> vectors = {"happy": [1, 0.1], "glad": [1, 0], "sad": [0.9, 0.3], "gloomy": [0.8, 0.4]}
        >>> mine_lexical_negatives([("happy", "glad"), ("sad", "gloomy")], vectors)
        [('happy', 'sad'), ('glad', 'sad'), ('sad', 'happy'), ('gloomy', 'happy')]
    """
    if batch < 2:
        raise ValueError(f"`batch` must be at least 2, got {batch}: a pair alone has no other words. LIBERT has 32.")
    related = {frozenset(pair) for pair in (*pairs, *known)}
    words = sorted({word for pair in pairs for word in pair})
    table = np.stack([_vector(word, vectors) for word in words]) if words else np.zeros((0, 1), np.float32)
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    if words and not lengths.any():
        raise ValueError(
            f"`vectors` must have the words of the pairs, such as {words[0]!r}, got none of {len(words)}."
        )
    table = table / np.maximum(lengths, 1e-12)
    number = {word: place for place, word in enumerate(words)}
    negatives: list[Pair] = []
    for start in range(0, len(pairs), batch):
        part = pairs[start : start + batch]
        there = sorted({number[word] for pair in part for word in pair})
        near = table[there] @ table[there].T
        near[:, lengths[there, 0] == 0] = -np.inf
        place = {words[index]: row for row, index in enumerate(there)}
        for first, second in part:
            for word, partner in ((first, second), (second, first)):
                other = _nearest(word, partner, near[place[word]], [words[index] for index in there], related)
                negatives += [] if other is None or not lengths[number[word], 0] else [(word, other)]
    return negatives


def _nearest(word: str, partner: str, near: np.ndarray, words: list[str], related: set[frozenset[str]]) -> str | None:
    """The nearest word that is none of the pair and not known to be related."""
    for place in np.argsort(-near, kind="stable"):
        if near[place] == -np.inf:
            return None
        other = words[place]
        if other not in (word, partner) and frozenset((word, other)) not in related:
            return other
    return None


def _vector(term: str, vectors: Any) -> np.ndarray:
    """The mean of the vectors of a term's words; zeros without any."""
    found = []
    for word in term.split():
        key = next((form for form in (word, word.title()) if form in vectors), None)
        found += [] if key is None else [np.asarray(vectors[key], dtype=np.float32)]
    if found:
        return np.mean(found, axis=0)
    return np.zeros_like(np.asarray(vectors[next(iter(_names(vectors)))], dtype=np.float32))


def _names(vectors: Any) -> Iterable[str]:
    """Any words that have vectors."""
    return next((getattr(vectors, name) for name in ("words", "index_to_key") if hasattr(vectors, name)), vectors)


def lexical_relation_rows(pairs: Iterable[Pair], negatives: Iterable[Pair]) -> list[dict[str, Any]]:
    """Rows of positive and negative pairs, as `DataCollatorForLexicalRelations` reads them.

    Examples:
        >>> lexical_relation_rows([("happy", "glad")], [("happy", "sad")])[1]
        {'first': 'happy', 'second': 'sad', 'relation_label': 0}
    """
    labelled = [(pair, 1) for pair in pairs] + [(pair, 0) for pair in negatives]
    return [{"first": first, "second": second, "relation_label": label} for (first, second), label in labelled]
