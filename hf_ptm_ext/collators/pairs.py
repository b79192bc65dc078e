"""Rows with a source and a target text: which columns they come in, and their ids without special tokens."""

from __future__ import annotations

from typing import Any

from ..masking import IGNORE_INDEX
from .batching import to_array

# Columns of a feature that say nothing about the row that is assembled of it.
CONSUMED = (
    *("source_ids", "target_ids", "input_ids", "labels", "attention_mask", "token_type_ids", "special_tokens_mask"),
    *("offset_mapping", "position_ids", "word_ids", "decoder_input_ids", "decoder_attention_mask"),
)


def check_assembled(word_boundaries: str) -> None:
    """Refuse words from a column, which an assembled row has not."""
    if word_boundaries == "column":
        raise ValueError(
            f"`word_boundaries` must not be {word_boundaries!r} here: the row is assembled and has no such column. "
            "Use 'tokenizer'."
        )


def source_and_target(
    feature: Any, index: int, begin_id: int | None, end_id: int | None, pad_id: int | None
) -> tuple[list[int], list[int]]:
    """Token ids of one feature without special tokens at the ends.

    Two pairs of columns are understood: `source_ids` and `target_ids`, ids without special tokens; or `input_ids` and
    `labels`, as sequence-to-sequence scripts tokenise (`tokenizer(source, text_target=target)`), from which a leading
    begin token, a trailing end token, padding, and -100 are taken off.
    """
    columns = sorted(feature) if hasattr(feature, "keys") else []
    for names in (("source_ids", "target_ids"), ("input_ids", "labels")):
        if any(name in columns and feature[name] is not None for name in names):
            break
    missing = [name for name in names if name not in columns or feature[name] is None]
    if missing:
        raise ValueError(
            f"`{missing[0]}` must be in every feature, row {index} has the columns {columns}. Pass `source_ids` "
            "and `target_ids`, or `input_ids` and `labels`. A Trainer drops columns that the model's forward does "
            "not name: set `remove_unused_columns=False` in TrainingArguments."
        )
    first, second = (id_list(name, feature[name], index) for name in names)
    if names[0] == "source_ids":
        for name, ids in zip(names, (first, second), strict=True):
            if ids and (ids[0] == begin_id or ids[-1] == end_id):
                raise ValueError(
                    f"`{name}` must have no special tokens at the ends, got ids {ids[0]} ... {ids[-1]} in row "
                    f"{index}. Tokenise with add_special_tokens=False, or use the columns `input_ids` and `labels`."
                )
        return first, second
    if feature.get("attention_mask") is not None:
        mask = id_list("attention_mask", feature["attention_mask"], index)
        if len(mask) != len(first):
            raise ValueError(
                f"`attention_mask` must have one entry per token, got {len(mask)} for {len(first)} in row {index}."
            )
        first = [token for token, kept in zip(first, mask, strict=True) if kept]
    second = [token for token in second if token != IGNORE_INDEX]
    return stripped(first, begin_id, end_id, pad_id), stripped(second, begin_id, end_id, pad_id)


def stripped(ids: list[int], begin_id: int | None, end_id: int | None, pad_id: int | None) -> list[int]:
    """Take padding at both ends, one leading begin token and one trailing end token off."""
    begin, end = 0, len(ids)
    if pad_id is not None:
        while begin < end and ids[begin] == pad_id:
            begin += 1
        while begin < end and ids[end - 1] == pad_id:
            end -= 1
    if begin < end and ids[begin] == begin_id:
        begin += 1
    if begin < end and ids[end - 1] == end_id:
        end -= 1
    return ids[begin:end]


def id_list(name: str, values: Any, index: int) -> list[int]:
    """One row of integers as a list."""
    array = to_array(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"`{name}` must be a row of integers, got shape {array.shape}, type {array.dtype} in row {index}. Pass "
            "one row of token ids per feature."
        )
    ids: list[int] = array.tolist()
    return ids
