"""Ragged features to rectangular arrays.

Python lists are written row by row into one preallocated numpy array and wrapped by torch without a copy: upstream's
collators spend most of their time in that conversion. A column is per token when in every row its first axis is as
long as the row's `input_ids`; it is padded to the common width. Any other column is per row and stacked.
"""

from __future__ import annotations

from array import array as int_array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

MISSING = object()
# Columns of small integers that tokenizers write and that a row may lack: padding alone describes them.
OPTIONAL_COLUMNS = ("attention_mask", "token_type_ids", "special_tokens_mask")


def collect_columns(features: Sequence[Any]) -> dict[str, list[Any]]:
    """Turn rows into columns.

    Args:
        features: Mappings (dict, BatchEncoding) with at least `input_ids`, or plain rows of token ids (list, numpy
            array, tensor).

    Returns:
        Column name to its rows; `MISSING` where a row lacks a column that other rows have.

    Raises:
        ValueError: If there are no features or a feature has no `input_ids`.

    Example:
        >>> collect_columns([[5, 6], {"input_ids": [7]}])
        {'input_ids': [[5, 6], [7]]}
    """
    if not len(features):
        raise ValueError("`features` must hold at least one row, got none. Drop empty batches.")
    columns: dict[str, list[Any]] = {}
    for index, feature in enumerate(features):
        row = feature if isinstance(feature, Mapping) or hasattr(feature, "keys") else {"input_ids": feature}
        for name in row:
            if name not in columns:
                columns[name] = [MISSING] * index
            columns[name].append(row[name])
        for rows in columns.values():
            if len(rows) == index:
                rows.append(MISSING)
    rows = columns.get("input_ids", [MISSING])
    if any(row is MISSING or row is None for row in rows):
        raise ValueError(
            f"`input_ids` must be in every feature, got the columns {sorted(columns)}. Tokenise the text first."
        )
    return columns


def padded_width(lengths: Sequence[int], pad_to_multiple_of: int | None = None) -> int:
    """Give the common width of a batch: the longest row, rounded up, and at least 1.

    Args:
        lengths: Tokens of each row.
        pad_to_multiple_of: Round up to a multiple of this; None for no rounding.

    Returns:
        The width.

    Example:
        >>> padded_width([3, 9], 8), padded_width([0])
        (16, 1)
    """
    width = max(*lengths, 1) if len(lengths) > 1 else max(lengths[0], 1)
    return -(-width // pad_to_multiple_of) * pad_to_multiple_of if pad_to_multiple_of else width


def place_ids(rows: Sequence[Any], lengths: Sequence[int], width: int, pad: int, left: bool) -> np.ndarray:
    """Write rows of token ids into one array.

    Args:
        rows: Lists, numpy arrays or tensors of integers.
        lengths: Tokens of each row.
        width: Width of the batch.
        pad: Id of padding.
        left: Pad on the left.

    Returns:
        int64 `(batch, width)`.

    Raises:
        TypeError: If a row does not hold integers.

    Example:
        >>> place_ids([[5, 6], [7]], [2, 1], 3, 0, left=False)
        array([[5, 6, 0],
               [7, 0, 0]])
    """
    if min(lengths) == width:
        full = _full_lists(rows, width)
        if full is not None:
            return full
    placed = np.full((len(rows), width), pad, dtype=np.int64)
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if not length:
            continue
        if isinstance(row, list):
            values = _ids_of_list(row, index)
        else:
            values = to_array(row)
            if values.ndim != 1 or values.dtype.kind not in "iu":
                raise TypeError(
                    f"`input_ids` must be rows of integers, got shape {values.shape}, type {values.dtype} in row "
                    f"{index}. Pass one row of token ids per feature."
                )
        if left:
            placed[index, width - length :] = values
        else:
            placed[index, :length] = values
    return placed


def place_column(
    name: str, rows: Sequence[Any], lengths: Sequence[int], width: int, pad: int | float, left: bool
) -> np.ndarray:
    """Pad a per-token column, or stack a per-row one.

    Args:
        name: Name of the column, for messages.
        rows: One entry per feature.
        lengths: Tokens of each row.
        width: Width of the batch.
        pad: Value for padding.
        left: Pad on the left.

    Returns:
        `(batch, width, ...)` or `(batch, ...)`; integers as int64, floats as float32, booleans as they are.

    Raises:
        ValueError: If a row lacks the column, its entries are no numbers, or it is neither one entry per token nor of
            one shape in all rows.

    Example:
        >>> place_column("entity_ids", [[1, 2], [3]], [2, 1], 3, 0, left=False)
        array([[1, 2, 0],
               [3, 0, 0]])
        >>> place_column("sample_id", [4, 5], [2, 1], 3, 0, left=False)
        array([4, 5])
    """
    if name in OPTIONAL_COLUMNS:
        small = _place_small(name, rows, lengths, width, pad, left)
        if small is not None:
            return small
    for index, row in enumerate(rows):
        if row is MISSING or row is None:
            raise ValueError(
                f"`{name}` must be in every feature, row {index} has none. Add it to all rows, or remove the column."
            )
    arrays = [_numeric(name, row) for row in rows]
    per_token = all(array.ndim and len(array) == length for array, length in zip(arrays, lengths, strict=True))
    # An empty list says neither how wide its entries would be nor of which type.
    telling = [array for array in arrays if array.size or not per_token] or arrays[:1]
    shapes = {array.shape[1:] if per_token else array.shape for array in telling}
    if len(shapes) > 1:
        raise ValueError(
            f"`{name}` must have one entry per token or one shape in all rows, got shapes "
            f"{sorted({array.shape for array in arrays})} for rows of {sorted(set(lengths))} tokens. Fix or remove "
            "the column."
        )
    # Integers beside floats are floats of the same width as floats alone.
    dtype = np.float32 if any(array.dtype.kind == "f" for array in telling) else np.result_type(*telling)
    if not per_token:
        return np.stack(arrays).astype(dtype, copy=False)
    placed = np.full((len(rows), width, *shapes.pop()), pad, dtype=dtype)
    for index, array in enumerate(arrays):
        if not array.size:
            continue
        if left:
            placed[index, width - len(array) :] = array
        else:
            placed[index, : len(array)] = array
    return placed


def _full_lists(rows: Sequence[Any], width: int) -> np.ndarray | None:
    """Fast path for lists of one length, written one behind the other; None where it does not apply."""
    values = int_array("q")
    for row in rows:
        if type(row) is not list or type(row[0]) is bool:
            return None
        try:
            values.fromlist(row)
        except (TypeError, OverflowError):
            return None  # the slow path says which value is wrong
    return np.frombuffer(values, dtype=np.int64).reshape(len(rows), width)


def _ids_of_list(row: list[Any], index: int) -> np.ndarray:
    """A list of token ids as an array; `array.array` takes what is an integer and refuses floats and strings."""
    try:
        if type(row[0]) is bool:
            raise TypeError("got bool")
        return np.frombuffer(int_array("q", row), dtype=np.int64)
    except (TypeError, OverflowError) as error:
        wrong = next((value for value in row if isinstance(value, bool) or not hasattr(value, "__index__")), row[0])
        raise TypeError(
            f"`input_ids` must be rows of integers, got {wrong!r} ({type(wrong).__name__}) in row {index}. Pass one "
            "list of token ids per feature."
        ) from error


def _place_small(
    name: str, rows: Sequence[Any], lengths: Sequence[int], width: int, pad: int | float, left: bool
) -> np.ndarray | None:
    """Fast path for lists of 0 .. 255, mostly constant; None where it does not apply."""
    # The special-token mask stays inside the collator; the others become tensors.
    placed = np.full((len(rows), width), pad, dtype=np.uint8 if name == "special_tokens_mask" else np.int64)
    before: list[int] | None = None
    inside_before = placed[0]
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if row is MISSING or row is None:
            continue
        if len(row) != length:
            return None
        inside = placed[index, width - length :] if left else placed[index, :length]
        if not isinstance(row, list):
            array = to_array(row)
            if array.ndim != 1 or array.dtype.kind not in "iub":
                return None
            inside[:] = array
        elif not length:
            continue
        # Comparing integers is several times faster than converting them: try a constant row, then the row before.
        elif type(row[0]) is int and row[0] == row[length // 2] and row.count(row[0]) == length:
            inside[:] = row[0]
        elif row == before:
            inside[:] = inside_before
        else:
            try:
                inside[:] = np.frombuffer(bytes(row), dtype=np.uint8)
            except (TypeError, ValueError):
                return None
            before, inside_before = row, inside
    return placed


def text_positions(
    input_ids: np.ndarray, lengths: Sequence[int], left: bool, pad_token_id: int | None, detect: np.ndarray
) -> np.ndarray:
    """Mark the positions of text where no attention mask says so.

    Args:
        input_ids: `(batch, width)`.
        lengths: Tokens of each row as it came.
        left: Rows were padded on the left.
        pad_token_id: Rows that came padded are recognised by leading and trailing runs of this id; None for no
            detection.
        detect: Boolean `(batch,)`, rows where the runs count as padding.

    Returns:
        Boolean `(batch, width)`.

    Example:
        >>> text_positions(np.array([[0, 5, 0, 6, 0]]), [5], False, 0, np.array([True])).astype(int)
        array([[0, 1, 1, 1, 0]])
    """
    width = input_ids.shape[1]
    position = np.arange(width)
    size = np.asarray(lengths)[:, None]
    inside = position >= width - size if left else position < size
    if pad_token_id is not None and detect.any():
        text = input_ids != pad_token_id
        after_first = np.logical_or.accumulate(text, axis=1)
        before_last = np.logical_or.accumulate(text[:, ::-1], axis=1)[:, ::-1]
        inside &= (after_first & before_last) | ~detect[:, None]
    return inside


def padding_id(tokenizer: PreTrainedTokenizerBase, lengths: Sequence[int], width: int) -> int:
    """Give the id that fills short rows.

    Args:
        tokenizer: Its padding token is used.
        lengths: Tokens of each row.
        width: Width of the batch.

    Returns:
        The id; 0 for a tokenizer without padding token where nothing is to be filled.

    Raises:
        ValueError: If rows are to be filled and there is no padding token.

    Example:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "[PAD]": 4}
        >>> padding_id(BertTokenizerFast(vocab=vocab), [2, 3], 3)
        4
    """
    pad = tokenizer.pad_token_id
    if pad is not None:
        return int(pad)
    if min(lengths) < width:
        raise ValueError(
            f"`tokenizer` must have a padding token for rows of {min(lengths)} to {width} tokens, got None. "
            "Set `tokenizer.pad_token`."
        )
    return 0


def detectable_pad(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Give the padding id by which rows that came padded can be recognised.

    Args:
        tokenizer: Fast or slow tokenizer.

    Returns:
        The id of padding; None if there is none or it is another special token too.

    Example:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
        >>> detectable_pad(BertTokenizerFast(vocab=vocab))
        0
        >>> detectable_pad(BertTokenizerFast(vocab=vocab, pad_token="[SEP]")) is None
        True
    """
    roles = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "unk_token_id", "mask_token_id")
    pad = tokenizer.pad_token_id
    return None if any(getattr(tokenizer, role, None) == pad for role in roles) else pad


def attention_mask(
    input_ids: np.ndarray, lengths: Sequence[int], left: bool, pad_token_id: int | None, rows: list[Any] | None
) -> np.ndarray:
    """Give the attention mask: the rows' own, and 1 on the text of rows without one.

    Args:
        input_ids: `(batch, width)`.
        lengths: Tokens of each row as it came.
        left: Rows were padded on the left.
        pad_token_id: From `detectable_pad`; a row without mask that came padded is recognised by it.
        rows: The `attention_mask` column, `MISSING` or None where a row has none; None if there is no column.

    Returns:
        int64 `(batch, width)`.

    Raises:
        ValueError: If the column cannot be padded.

    Example:
        >>> attention_mask(np.array([[5, 6, 0], [7, 0, 0]]), [2, 1], False, 0, [[1, 0], MISSING])
        array([[1, 0, 0],
               [1, 0, 0]])
    """
    missing = np.array([True] * len(lengths) if rows is None else [row is MISSING or row is None for row in rows])
    width = input_ids.shape[1]
    if rows is not None and not missing.any():
        return place_column("attention_mask", rows, lengths, width, 0, left)
    text = text_positions(input_ids, lengths, left, pad_token_id, missing).astype(np.int64)
    if rows is None:
        return text
    return np.where(missing[:, None], text, place_column("attention_mask", rows, lengths, width, 0, left))


def to_array(row: Any) -> np.ndarray:
    """Turn a list, numpy array or tensor into a numpy array.

    Args:
        row: The values.

    Returns:
        The array; memory is shared where possible.

    Example:
        >>> to_array(torch.tensor([1, 2]))
        array([1, 2])
    """
    if isinstance(row, torch.Tensor):
        return row.detach().cpu().numpy()
    return np.asarray(row)


def _numeric(name: str, row: Any) -> np.ndarray:
    """One row of an extra column, as int64, float32 or bool."""
    try:
        array = to_array(row)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must hold numbers in rectangular rows, got {str(row)[:60]}. Remove it.") from error
    if array.dtype.kind in "iu" or array.size == 0:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind == "b":
        return array
    raise ValueError(
        f"`{name}` must hold numbers to become a tensor, got {str(row)[:60]!r}. Remove the column with "
        f"`dataset.remove_columns({name!r})`."
    )
