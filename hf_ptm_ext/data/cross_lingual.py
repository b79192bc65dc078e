"""Rows of Unicoder (Huang et al., EMNLP 2019, https://arxiv.org/abs/1909.00964) from sentences and their translations.

    source_ids, target_ids      a pair
    negative_ids                a sentence of the target's language that is like the target and does not mean the same
    mixed_ids, mixed_sides      the document around the pair, its sentences by turns in one language and in the other

No code was released. The paper finds negatives with a small model that was trained on random ones; here they are those
with the most similar vectors, of TF-IDF or of word embeddings.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

PairOfIds = tuple[Sequence[int], Sequence[int]]
"""The token ids of a sentence and of its translation, without special tokens."""

# Sentences whose tokens are looked up at once.
AT_ONCE = 4096


def sentence_vectors(
    sentences: Sequence[Sequence[int]], vocab_size: int, table: np.ndarray | None = None, dim: int = 256, seed: int = 0
) -> np.ndarray:
    """Give each sentence the mean of its tokens' vectors, rare tokens weighted more (IDF), of length 1.

    Args:
        sentences: Token ids of each.
        vocab_size: Length of the vocabulary.
        table: `(vocab_size, dim)`, word embeddings such as `model.get_input_embeddings().weight`; None: random signs,
            with which cosines are nearly those of TF-IDF itself.
        dim: Length of the random ones; their cosines are right to about `dim ** -0.5`.
        seed: Of the random ones.

    Returns:
        float32 `(sentences, dim)`; 0 for a sentence without tokens.

    Examples:
        >>> vectors = sentence_vectors([[5, 6], [6, 5], [7]], 8)
        >>> bool(vectors[0] @ vectors[1] > 0.99), bool(abs(vectors[0] @ vectors[2]) < 0.5)
        (True, True)
    """
    if table is None:
        table = np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.float32), (vocab_size, dim))
    if table.ndim != 2 or len(table) < vocab_size:
        raise ValueError(f"`table` must be one vector for each of {vocab_size} ids, got shape {table.shape}.")
    lengths = np.array([len(sentence) for sentence in sentences])
    flat = np.fromiter((token for sentence in sentences for token in sentence), np.int64, int(lengths.sum()))
    row = np.repeat(np.arange(len(lengths)), lengths)
    in_sentences = np.bincount(np.unique(row * vocab_size + flat) % vocab_size, minlength=vocab_size)
    weight = (np.log((1 + len(lengths)) / (1 + in_sentences)) + 1).astype(np.float32)
    vectors = np.zeros((len(lengths), table.shape[1]), dtype=np.float32)
    known = np.flatnonzero(lengths)
    begins = (np.cumsum(lengths) - lengths)[known]
    for at in range(0, len(known), AT_ONCE):
        some = known[at : at + AT_ONCE]
        part = flat[begins[at] : begins[at] + lengths[some].sum()]
        vectors[some] = np.add.reduceat(weight[part, None] * table[part], begins[at : at + AT_ONCE] - begins[at])
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def hard_negatives(
    pairs: Sequence[PairOfIds], vectors: np.ndarray, generator: np.random.Generator, top: int = 4, pool: int = 2048
) -> np.ndarray:
    """Find for each pair another one whose target is like its own.

    Pairs with an equal source or target are passed over: theirs would be a translation too.

    Args:
        pairs: Sentences and translations.
        vectors: `(pairs, dim)` of the targets, of length 1 (`sentence_vectors`, or any encoder's).
        generator: Draws the pools, and which of the most similar ones it is.
        top: Of how many most similar ones one is drawn.
        pool: Among how many random pairs is searched; time grows with pairs * pool.

    Returns:
        int64 `(pairs,)`, the place of the other pair; -1 where there is none.

    Examples:
        >>> pairs = [([5], [10, 11]), ([6], [10, 12]), ([7], [13, 14])]
        >>> vectors = sentence_vectors([target for _, target in pairs], 15)
        >>> hard_negatives(pairs, vectors, np.random.default_rng(0), top=1)[:2].tolist()
        [1, 0]
    """
    if len(vectors) != len(pairs):
        raise ValueError(f"`vectors` must be one for each of {len(pairs)} pairs, got {len(vectors)}.")
    if top < 1 or pool < 2:
        raise ValueError(f"`top` must be at least 1 and `pool` at least 2, got {top} and {pool}.")
    sides: list[Any] = []
    for side in range(2):
        numbers: dict[tuple[int, ...], int] = {}
        sides.append(np.array([numbers.setdefault(tuple(pair[side]), len(numbers)) for pair in pairs]))
    found = np.full(len(pairs), -1, dtype=np.int64)
    order = generator.permutation(len(pairs))
    for part in np.array_split(order, max(-(-len(pairs) // pool), 1)):
        far = -vectors[part] @ vectors[part].T
        for numbers_of_side in sides:
            far[numbers_of_side[part][:, None] == numbers_of_side[part][None]] = np.inf
        count = min(top, len(part))
        best = np.argpartition(far, count - 1, axis=1)[:, :count]
        allowed = np.isfinite(np.take_along_axis(far, best, axis=1))
        drawn = np.argmax(np.where(allowed, generator.random(best.shape), -1.0), axis=1)
        rows = np.arange(len(part))
        found[part] = np.where(allowed[rows, drawn], part[best[rows, drawn]], -1)
    return found


def alternated_documents(documents: Sequence[Sequence[PairOfIds]], max_tokens: int) -> Iterator[dict[str, list[int]]]:
    """Yield for each pair the document around it, its sentences by turns in their two languages.

    Documents are cut into runs of at most `max_tokens`. In one half of the rows of a run the first sentence stands in
    the source language, in the other half in the target's.

    Args:
        documents: Pairs of each document, in order.
        max_tokens: Most tokens of a row without special tokens; a longer sentence is cut.

    Returns:
        `mixed_ids`, and `mixed_sides`: 0 at tokens of sources, 1 at those of targets; in the order of the pairs.

    Examples:
        >>> documents = [[([5, 5], [15, 15]), ([6], [16])]]
        >>> [row["mixed_ids"] for row in alternated_documents(documents, 10)]
        [[5, 5, 16], [15, 15, 6]]
    """
    for document in documents:
        begin, size = 0, 0
        for place, pair in enumerate([*document, None]):
            longest = max_tokens if pair is None else min(max(map(len, pair)), max_tokens)
            if place and (pair is None or size + longest > max_tokens):
                run = document[begin:place]
                for first in range(len(run)):
                    sentences = [(one[(number + first) % 2], (number + first) % 2) for number, one in enumerate(run)]
                    yield {
                        "mixed_ids": [token for ids, _ in sentences for token in ids][:max_tokens],
                        "mixed_sides": [side for ids, side in sentences for _ in ids][:max_tokens],
                    }
                begin, size = place, 0
            size += longest


def unicoder_rows(
    documents: Sequence[Sequence[PairOfIds]],
    vocab_size: int,
    max_seq_length: int,
    generator: np.random.Generator,
    table: np.ndarray | None = None,
) -> list[dict[str, list[int]]]:
    """Make the rows of `DataCollatorForUnicoder`, one for each pair.

    Args:
        documents: Pairs of each document, in order; sentences of one document are neighbours in mixed rows.
        vocab_size: Length of the vocabulary.
        max_seq_length: Most tokens of a row; each sentence of a pair has half of it, special tokens included.
        generator: Draws the negatives.
        table: Word embeddings for these, as of `sentence_vectors`.

    Examples:
        >>> rows = unicoder_rows([[([5, 6], [15]), ([6], [16])]], 20, 16, np.random.default_rng(0))
        >>> rows[0]["source_ids"], rows[0]["target_ids"], rows[0]["negative_ids"], rows[0]["mixed_sides"]
        ([5, 6], [15], [16], [0, 0, 1])
    """
    limit = max_seq_length // 2 - 2
    if limit < 1:
        raise ValueError(
            f"`max_seq_length` must have room for two sentences with 2 special tokens each, got {max_seq_length}."
        )
    cut = [[(list(source)[:limit], list(target)[:limit]) for source, target in document] for document in documents]
    pairs = [pair for document in cut for pair in document]
    vectors = sentence_vectors([target for _, target in pairs], vocab_size, table)
    others = hard_negatives(pairs, vectors, generator)
    return [
        {
            "source_ids": source,
            "target_ids": target,
            "negative_ids": pairs[other][1] if other >= 0 else [],
            **mixed,
        }
        for (source, target), other, mixed in zip(
            pairs, others.tolist(), alternated_documents(cut, max_seq_length - 2), strict=True
        )
    ]
