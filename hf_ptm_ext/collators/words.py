"""Where a collator's words come from: a `word_ids` column, the tokenizer's own marks, or every token for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..data.segmentation import Segmenter, WordIds
from ..masking import block_starts, candidate_mask, find_segments, word_starts, word_starts_from_ids
from .batching import MISSING, RowFrame
from .vocabulary import VocabularyTables, vocabulary_tables

WORD_BOUNDARIES = ("auto", "column", "tokenizer", "token")


def take_word_rows(columns: dict[str, list[Any]], word_boundaries: str, seen: bool = False) -> list[Any] | None:
    """Take the `word_ids` column out of a batch if it is to be used, or say why it cannot be."""
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
    """Mark the first piece of every word."""
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


def placed_word_ids(rows: list[Any], frame: RowFrame) -> np.ndarray:
    """The words of each token, -1 for none, `(batch, seq_len)`."""
    placed = frame.column("word_ids", rows, -1)
    if placed.shape != (len(rows), frame.width):
        raise ValueError(
            f"`word_ids` must have one entry per token, got shape {placed.shape} for {(len(rows), frame.width)} ids."
        )
    return placed


def _without_none(row: Any) -> Any:
    """Word ids with -1 where a fast encoding has None."""
    if isinstance(row, list) and None in row:
        return [-1 if word is None else word for word in row]
    return row


def describe_words(
    tokenizer: PreTrainedTokenizerBase, text: str, segmenter: Segmenter | None = None
) -> list[list[str]]:
    """List the units that whole-word and span masking see in a text: pieces of each, without special tokens.

    Args:
        tokenizer: Fast or slow tokenizer.
        text: Any text.
        segmenter: Function from a text to its words (fast tokenizers only); None uses the tokenizer's own marks.

    Raises:
        ValueError: If the tokenizer has no word boundaries and there is no segmenter.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "light": 5, "##house": 6, ",": 7}
        >>> describe_words(BertTokenizerFast(vocab=vocab), "lighthouse, light")
        [['light', '##house'], [','], ['light']]
    """
    tables = vocabulary_tables(tokenizer)
    if segmenter is None and tables.is_continuation is None:
        raise ValueError(
            f"`tokenizer` ({type(tokenizer).__name__}) must mark word boundaries in its pieces, got none. Pass a "
            "`segmenter`."
        )
    encoded = tokenizer(text) if segmenter is None else WordIds(tokenizer, segmenter)({"text": text})
    word_ids = None if segmenter is None else np.array([encoded["word_ids"]])
    ids = np.array([encoded["input_ids"]], dtype=np.int64).reshape(1, -1)
    candidates = candidate_mask(ids, tables.never_masked)
    if word_ids is not None:
        candidates &= word_ids >= 0
    blocks = block_starts(candidates)
    starts = find_word_starts(ids, candidates, blocks, word_ids, "auto", tables, type(tokenizer).__name__)
    pieces = [str(tokenizer.convert_ids_to_tokens(index)) for index in encoded["input_ids"]]
    words = find_segments(candidates, starts)
    return [pieces[start:stop] for start, stop in zip(words.start, words.stop, strict=True)]
