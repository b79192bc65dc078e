"""Candidates: which positions may be masked at all, and how they fall into blocks and groups.

Never a candidate: special tokens ([CLS], [SEP], bos, eos, padding, a [MASK] that is already in the text), positions
that a mask column rules out. An unknown token ([UNK]) is an ordinary candidate, as in BERT.
"""

import numpy as np

from .checks import check_same_shape
from .segments import first_positions, previous


def candidate_mask(
    input_ids: np.ndarray,
    never_masked: np.ndarray,
    real_tokens: np.ndarray | None = None,
    special_tokens_mask: np.ndarray | None = None,
) -> np.ndarray:
    """Mark the positions that masking may choose, boolean `(batch, seq_len)`.

    Args:
        input_ids: Token ids `(batch, seq_len)`.
        never_masked: Boolean table `(vocab_size,)`, true for ids that are never masked.
        real_tokens: `(batch, seq_len)`, non-zero on text and zero on padding (an attention mask).
        special_tokens_mask: `(batch, seq_len)`, non-zero where the caller forbids masking; adds to the table.

    Examples:
        >>> table = np.array([True, False, False])
        >>> candidate_mask(np.array([[0, 1, 2, 0]]), table).astype(int)
        array([[0, 1, 1, 0]])
    """
    if input_ids.size and (input_ids.max() >= len(never_masked) or input_ids.min() < 0):
        raise ValueError(
            f"`input_ids` must be in [0, {len(never_masked)}), the vocabulary, got ids from {input_ids.min()} to "
            f"{input_ids.max()}. Use the tokenizer that made these ids."
        )
    candidates = ~never_masked.take(input_ids)
    if real_tokens is not None:
        check_same_shape("real_tokens", real_tokens, "input_ids", input_ids)
        candidates &= real_tokens != 0
    if special_tokens_mask is not None:
        check_same_shape("special_tokens_mask", special_tokens_mask, "input_ids", input_ids)
        candidates &= special_tokens_mask == 0
    return candidates


def block_starts(candidates: np.ndarray, sequence_ids: np.ndarray | None = None) -> np.ndarray:
    """Mark the first token of every content block, boolean `(batch, seq_len)`.

    A block is a maximal run of candidates; in packed rows it also ends where the sequence changes.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        sequence_ids: `(batch, seq_len)`, number of the packed sequence of each token, 0 = padding.

    Examples:
        >>> block_starts(np.array([[False, True, True, False, True]])).astype(int)
        array([[0, 1, 0, 0, 1]])
    """
    if sequence_ids is None:
        return first_positions(candidates)
    check_same_shape("sequence_ids", sequence_ids, "candidates", candidates)
    return first_positions(candidates, sequence_ids != previous(sequence_ids, 0))


def check_sequences(sequence_ids: np.ndarray) -> None:
    """Raise unless every packed sequence is one run of neighbouring positions.

    A block-diagonal mask would let the pieces of a torn sequence see each other, kernels of variable length would not,
    and the budget would count them as one. Padding may be anywhere.

    Examples:
        >>> check_sequences(np.array([[1, 1, 2, 0], [0, 1, 2, 2]]))
        >>> check_sequences(np.array([[1, 1, 2, 2, 1, 1]]))
        Traceback (most recent call last):
        ...
        ValueError: `sequence_ids` must number each sequence in one run, got sequence 1 in two places in row 0. ...
    """
    if not sequence_ids.size:
        return
    if sequence_ids.min() < 0:
        raise ValueError(
            f"`sequence_ids` must be 1..S with 0 for padding, got {sequence_ids.min()}. Use 0 for padding."
        )
    changes = sequence_ids != previous(sequence_ids, 0)
    row, column = np.nonzero(changes & (sequence_ids > 0))
    begun = sequence_ids[row, column]
    # Usually the runs of a row count up; only where they do not is it worth asking whether an id comes back.
    if not ((np.diff(row) == 0) & (np.diff(begun) <= 0)).any():
        return
    order = np.lexsort((begun, row))
    twice = (np.diff(row[order]) == 0) & (np.diff(begun[order]) == 0)
    if twice.any():
        at = order[int(twice.argmax())]
        raise ValueError(
            f"`sequence_ids` must number each sequence in one run, got sequence {begun[at]} in two places in row "
            f"{row[at]}. Give each sequence of a row its own number, and keep its tokens together."
        )


def sequence_groups(shape: tuple[int, int], sequence_ids: np.ndarray | None = None) -> tuple[np.ndarray, int]:
    """Number the sequences of a batch: a row is one sequence, a packed row holds several.

    Budgets that count whole sequences (BERT's) are drawn per group, so packing changes no probability.

    Args:
        shape: `(batch, seq_len)`.
        sequence_ids: `(batch, seq_len)`, 1..S within a row and 0 = padding, or None for one sequence a row.

    Returns:
        Group of each position, int64 `(batch, seq_len)`, and the number of groups (some may be empty).

    Raises:
        ValueError: If the shapes differ or a sequence id is negative.

    Examples:
        >>> sequence_groups((1, 4), np.array([[1, 1, 2, 0]]))
        (array([[1, 1, 2, 0]]), 3)
    """
    rows = np.arange(shape[0], dtype=np.int64)[:, None]
    if sequence_ids is None:
        return np.broadcast_to(rows, shape), shape[0]
    if sequence_ids.shape != tuple(shape):
        raise ValueError(
            f"`sequence_ids` must have shape {tuple(shape)}, got {sequence_ids.shape}. Pad it like the ids."
        )
    if sequence_ids.size and sequence_ids.min() < 0:
        raise ValueError(
            f"`sequence_ids` must be 1..S with 0 for padding, got {sequence_ids.min()}. Use 0 for padding."
        )
    per_row = int(sequence_ids.max(initial=0)) + 1
    return rows * per_row + sequence_ids, shape[0] * per_row
