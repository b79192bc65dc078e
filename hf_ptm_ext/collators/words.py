"""Where a collator's words come from: a `word_ids` column, the tokenizer's own marks, or every token for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..masking import word_starts, word_starts_from_ids
from .batching import MISSING
from .vocabulary import VocabularyTables

WORD_BOUNDARIES = ("auto", "column", "tokenizer", "token")


def take_word_rows(columns: dict[str, list[Any]], word_boundaries: str, seen: bool = False) -> list[Any] | None:
    """Take the `word_ids` column out of a batch if it is to be used, or say why it cannot be.

    Args:
        columns: From `collect_columns`; the column is removed in any case.
        word_boundaries: One of `WORD_BOUNDARIES`.
        seen: Whether earlier batches had the column: then "auto" needs it too.

    Returns:
        The rows, -1 where a fast encoding has None; None if words do not come from the column.

    Raises:
        ValueError: If the column is needed and not in every row.

    Example:
        >>> take_word_rows({"word_ids": [[None, 0, None]]}, "auto")
        [[-1, 0, -1]]
        >>> take_word_rows({"word_ids": [[None, 0, None]]}, "tokenizer") is None
        True
    """
    rows = columns.pop("word_ids", None)
    if word_boundaries in ("tokenizer", "token"):
        return None
    if rows is not None and not any(row is MISSING or row is None for row in rows):
        return [_without_none(row) for row in rows]
    reason = None
    if rows is not None:
        reason = "some rows have it and some have not"
    elif word_boundaries == "column":
        reason = "`word_boundaries` is 'column'"
    elif seen:
        reason = "earlier batches had it"
    if reason is not None:
        raise ValueError(
            f"`word_ids` must be a column of every feature ({reason}), got the columns {sorted(columns)}. A "
            "Trainer drops columns that the model's forward does not name: set `remove_unused_columns=False` in "
            "TrainingArguments. `hf_ptm_ext.data.segmentation.WordIds` writes the column."
        )
    return None


def find_word_starts(
    input_ids: np.ndarray,
    candidates: np.ndarray,
    blocks: np.ndarray,
    word_ids: np.ndarray | None,
    word_boundaries: str,
    tables: VocabularyTables,
    tokenizer_name: str,
) -> np.ndarray:
    """Mark the first piece of every word.

    Args:
        input_ids: Token ids `(batch, seq_len)`.
        candidates: Boolean `(batch, seq_len)`, the maskable tokens.
        blocks: Boolean `(batch, seq_len)`, first token of every content block.
        word_ids: int `(batch, seq_len)` from the column, -1 = no word; None where words do not come from it.
        word_boundaries: One of `WORD_BOUNDARIES`.
        tables: Tables of the tokenizer.
        tokenizer_name: For the message.

    Returns:
        Boolean `(batch, seq_len)`; false outside `candidates`.

    Raises:
        ValueError: If the tokenizer has no word boundaries and nothing else gives them.

    Example:
        >>> from transformers import BertTokenizerFast
        >>> from hf_ptm_ext.collators import vocabulary_tables
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
        >>> tables = vocabulary_tables(BertTokenizerFast(vocab=vocab))
        >>> text, first = np.ones((1, 3), dtype=bool), np.array([[True, False, False]])
        >>> find_word_starts(np.array([[5, 6, 5]]), text, first, None, "auto", tables, "BertTokenizer").astype(int)
        array([[1, 0, 1]])
    """
    if word_ids is not None:
        return word_starts_from_ids(word_ids, candidates, blocks)
    if word_boundaries == "token":
        return candidates
    if tables.is_continuation is None:
        raise ValueError(
            f"`tokenizer` ({tokenizer_name}) must mark word boundaries in its pieces ('##', 'Ġ', '▁', '</w>' or "
            "'@@'), got none and no `word_ids` column. Add the column with `hf_ptm_ext.data.segmentation.WordIds` and "
            "keep it with `remove_unused_columns=False`."
        )
    return word_starts(input_ids, candidates, blocks, tables.is_continuation, tables.ends_word)


def _without_none(row: Any) -> Any:
    """Word ids with -1 where a fast encoding has None."""
    if isinstance(row, list) and None in row:
        return [-1 if word is None else word for word in row]
    return row
