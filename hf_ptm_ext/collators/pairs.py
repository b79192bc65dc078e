"""Rows with a source and a target text: which columns they come in, and their ids without special tokens."""

from __future__ import annotations

from typing import Any

from ..masking import IGNORE_INDEX
from .batching import to_array


def source_and_target(
    feature: Any, index: int, begin_id: int | None, end_id: int | None, pad_id: int | None
) -> tuple[list[int], list[int]]:
    """Token ids of one feature without special tokens at the ends.

    Two pairs of columns are understood: `source_ids` and `target_ids`, ids without special tokens; or `input_ids` and
    `labels`, as sequence-to-sequence scripts tokenise (`tokenizer(source, text_target=target)`), from which a leading
    begin token, a trailing end token, padding, and -100 are taken off.

    Args:
        feature: A mapping.
        index: Row of the feature, for messages.
        begin_id: Id that a tokenizer puts in front of a text ([CLS]); None if it puts none.
        end_id: Id that it puts behind ([SEP]); None if it puts none.
        pad_id: Id of padding at both ends, from `detectable_pad`; None: there is none.

    Returns:
        Source and target.

    Raises:
        TypeError: If the ids are no integers.
        ValueError: If a column is missing, or `source_ids` or `target_ids` have special tokens at their ends.

    Example:
        >>> source_and_target({"input_ids": [2, 5, 3], "labels": [2, 6, 3, -100]}, 0, 2, 3, None)
        ([5], [6])
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
    """Take padding at both ends, one leading begin token and one trailing end token off.

    Args:
        ids: Token ids.
        begin_id: As in `source_and_target`.
        end_id: As in `source_and_target`.
        pad_id: As in `source_and_target`.

    Returns:
        What is left.

    Example:
        >>> stripped([0, 2, 5, 3, 0], 2, 3, 0)
        [5]
    """
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
    """One row of integers as a list.

    Args:
        name: Column of the row, for messages.
        values: List, numpy array or tensor.
        index: Row, for messages.

    Returns:
        The integers.

    Raises:
        TypeError: If the values are no row of integers.

    Example:
        >>> id_list("source_ids", (5, 6), 0)
        [5, 6]
    """
    array = to_array(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"`{name}` must be a row of integers, got shape {array.shape}, type {array.dtype} in row {index}. Pass "
            "one row of token ids per feature."
        )
    ids: list[int] = array.tolist()
    return ids
