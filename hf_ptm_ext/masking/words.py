"""Words: runs of pieces that belong together, from tables over the vocabulary or from a word-id column.

A word is a start piece and the continuation pieces that follow it. Three tokenizer conventions fit one rule:

    piece starts a word  <=>  not is_continuation[piece]  or  ends_word[piece before]  or  first of its block

WordPiece "##x" and byte-level BPE or SentencePiece pieces without their space mark are continuations; with suffix
conventions ("x</w>", "x@@") every piece is a continuation and `ends_word` says where the word is over. The first token
of a block always starts a word: a row cut in mid-word must not glue its first piece to whatever came before.
"""

from __future__ import annotations

import numpy as np

from ._checks import check_same_shape
from .segments import previous


def word_starts(
    input_ids: np.ndarray,
    candidates: np.ndarray,
    blocks: np.ndarray,
    is_continuation: np.ndarray,
    ends_word: np.ndarray | None = None,
) -> np.ndarray:
    """Mark the first piece of every word, by tables over the vocabulary.

    Args:
        input_ids: Token ids `(batch, seq_len)`.
        candidates: Boolean `(batch, seq_len)`, the maskable tokens.
        blocks: Boolean `(batch, seq_len)`, first token of every block (`block_starts`).
        is_continuation: Boolean `(vocab_size,)`, true for pieces that continue the word before them.
        ends_word: Boolean `(vocab_size,)`, true for pieces after which a new word begins in any case.

    Returns:
        Boolean `(batch, seq_len)`; false outside `candidates`.

    Raises:
        ValueError: If the shapes differ.

    Example:
        >>> ids = np.array([[0, 2, 1, 2, 2, 0]])  # [CLS] ##x y ##x ##x [SEP]
        >>> candidates = ids > 0
        >>> blocks = np.array([[0, 1, 0, 0, 0, 0]], dtype=bool)
        >>> word_starts(ids, candidates, blocks, np.array([False, False, True])).astype(int)
        array([[0, 1, 1, 0, 0, 0]])
    """
    check_same_shape("input_ids", input_ids, "candidates", candidates)
    check_same_shape("blocks", blocks, "candidates", candidates)
    starts = ~is_continuation.take(input_ids)
    if ends_word is not None:
        starts |= previous(ends_word.take(input_ids), False)
    starts |= blocks
    starts &= candidates
    return starts


def word_starts_from_ids(word_ids: np.ndarray, candidates: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Mark the first piece of every word, by a column that numbers the words.

    Neighbours with one id are one word; an id that comes back later is another word. Callers remove positions with a
    negative id ("no word") from `candidates` first.

    Args:
        word_ids: int `(batch, seq_len)`, word of each token.
        candidates: Boolean `(batch, seq_len)`, the maskable tokens.
        blocks: Boolean `(batch, seq_len)`, first token of every block (`block_starts`).

    Returns:
        Boolean `(batch, seq_len)`; false outside `candidates`.

    Raises:
        ValueError: If the shapes differ.

    Example:
        >>> ids = np.array([[-1, 0, 0, 1, -1]])
        >>> word_starts_from_ids(ids, ids >= 0, np.array([[0, 1, 0, 0, 0]], dtype=bool)).astype(int)
        array([[0, 1, 0, 1, 0]])
    """
    check_same_shape("word_ids", word_ids, "candidates", candidates)
    check_same_shape("blocks", blocks, "candidates", candidates)
    return candidates & (blocks | (word_ids != previous(word_ids, -1)))
