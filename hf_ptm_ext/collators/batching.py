"""Ragged features to rectangular arrays.

Python lists are written row by row into one preallocated numpy array and wrapped by torch without a copy: upstream's
collators spend most of their time in that conversion. A column is per token when in every row its first axis is as
long as the row's `input_ids`; it is padded to the common width. Any other column is per row and stacked.
"""

from __future__ import annotations

from array import array as int_array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

MISSING = object()
# Columns of small integers that tokenizers write and that a row may lack: padding alone describes them.
OPTIONAL_COLUMNS = ("attention_mask", "token_type_ids", "special_tokens_mask")


def collect_columns(features: Sequence[Any]) -> dict[str, list[Any]]:
    """Turn rows into columns."""
    if not len(features):
        raise ValueError(f"`features` must hold at least one row, got {features!r}. Drop empty batches.")
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
    """Give the common width of a batch: the longest row, rounded up, and at least 1."""
    width = max(*lengths, 1) if len(lengths) > 1 else max(lengths[0], 1)
    return -(-width // pad_to_multiple_of) * pad_to_multiple_of if pad_to_multiple_of else width


class RowFrame(NamedTuple):
    """How ragged rows stand in arrays `(batch, width)`: tokens of each, and whether padding is on the left."""

    lengths: list[int]
    width: int
    left: bool

    @classmethod
    def of(
        cls, rows: Sequence[Any], tokenizer: PreTrainedTokenizerBase, pad_to_multiple_of: int | None = None
    ) -> RowFrame:
        """The frame of rows of token ids."""
        lengths = [len(row) for row in rows]
        return cls(lengths, padded_width(lengths, pad_to_multiple_of), tokenizer.padding_side == "left")

    def ids(self, rows: Sequence[Any], pad: int) -> np.ndarray:
        """Write rows of token ids into one array."""
        if min(self.lengths) == self.width:
            full = _full_lists(rows, self.width)
            if full is not None:
                return full
        placed = np.full((len(rows), self.width), pad, dtype=np.int64)
        for index, (row, length) in enumerate(zip(rows, self.lengths, strict=True)):
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
            if self.left:
                placed[index, self.width - length :] = values
            else:
                placed[index, :length] = values
        return placed

    def column(self, name: str, rows: Sequence[Any], pad: int | float) -> np.ndarray:
        """Pad a per-token column, or stack a per-row one."""
        if name in OPTIONAL_COLUMNS:
            small = self._small(name, rows, pad)
            if small is not None:
                return small
        for index, row in enumerate(rows):
            if row is MISSING or row is None:
                raise ValueError(
                    f"`{name}` must be in every feature, row {index} has none. Add it to all rows, or remove the "
                    "column."
                )
        arrays = [_numeric(name, row) for row in rows]
        per_token = all(
            array.ndim and len(array) == length for array, length in zip(arrays, self.lengths, strict=True)
        )
        # An empty list says neither how wide its entries would be nor of which type.
        telling = [array for array in arrays if array.size or not per_token] or arrays[:1]
        shapes = {array.shape[1:] if per_token else array.shape for array in telling}
        if len(shapes) > 1:
            raise ValueError(
                f"`{name}` must have one entry per token or one shape in all rows, got shapes "
                f"{sorted({array.shape for array in arrays})} for rows of {sorted(set(self.lengths))} tokens. Fix or "
                "remove the column."
            )
        # Integers beside floats are floats of the same width as floats alone.
        dtype = np.float32 if any(array.dtype.kind == "f" for array in telling) else np.result_type(*telling)
        if not per_token:
            return np.stack(arrays).astype(dtype, copy=False)
        placed = np.full((len(rows), self.width, *shapes.pop()), pad, dtype=dtype)
        for index, array in enumerate(arrays):
            if array.size:
                placed[index, slice(-len(array), None) if self.left else slice(len(array))] = array
        return placed

    def _small(self, name: str, rows: Sequence[Any], pad: int | float) -> np.ndarray | None:
        """Fast path for lists of 0 .. 255, mostly constant; None where it does not apply."""
        # The special-token mask stays inside the collator; the others become tensors.
        dtype = np.uint8 if name == "special_tokens_mask" else np.int64
        lengths, width, left = self
        placed = np.full((len(rows), width), pad, dtype=dtype)
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
            # Comparing integers is several times faster than converting: try a constant row, then the row before.
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

    def attention_mask(self, input_ids: np.ndarray, pad_token_id: int | None, rows: list[Any] | None) -> np.ndarray:
        """Give the attention mask: the rows' own, and 1 on the text of rows without one."""
        missing = np.array([row is MISSING or row is None for row in rows or [None] * len(self.lengths)])
        if rows is not None and not missing.any():
            return self.column("attention_mask", rows, 0)
        text = self._text(input_ids, pad_token_id, missing).astype(np.int64)
        return text if rows is None else np.where(missing[:, None], text, self.column("attention_mask", rows, 0))

    def _text(self, input_ids: np.ndarray, pad_token_id: int | None, detect: np.ndarray) -> np.ndarray:
        """Positions of text where no attention mask says so; padding of rows that came padded is detected."""
        position = np.arange(self.width)
        size = np.asarray(self.lengths)[:, None]
        inside = position >= self.width - size if self.left else position < size
        if pad_token_id is not None and detect.any():
            text = input_ids != pad_token_id
            after_first = np.logical_or.accumulate(text, axis=1)
            before_last = np.logical_or.accumulate(text[:, ::-1], axis=1)[:, ::-1]
            inside &= (after_first & before_last) | ~detect[:, None]
        return inside


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
            raise TypeError(f"got {row[0]!r}")
        return np.frombuffer(int_array("q", row), dtype=np.int64)
    except (TypeError, OverflowError) as error:
        wrong = next((value for value in row if isinstance(value, bool) or not hasattr(value, "__index__")), row[0])
        raise TypeError(
            f"`input_ids` must be rows of integers, got {wrong!r} ({type(wrong).__name__}) in row {index}. Pass one "
            "list of token ids per feature."
        ) from error


def padding_id(tokenizer: PreTrainedTokenizerBase, frame: RowFrame) -> int:
    """Give the id that fills short rows."""
    pad = tokenizer.pad_token_id
    if pad is None and min(frame.lengths) < frame.width:
        raise ValueError(
            f"`tokenizer` must have a padding token for rows of {min(frame.lengths)} to {frame.width} tokens, got "
            "None. Set `tokenizer.pad_token`."
        )
    return int(pad or 0)


def detectable_pad(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Give the padding id by which rows that came padded can be recognised."""
    roles = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "unk_token_id", "mask_token_id")
    pad = tokenizer.pad_token_id
    return None if any(getattr(tokenizer, role, None) == pad for role in roles) else pad


def to_array(row: Any) -> np.ndarray:
    """Turn a list, numpy array or tensor into a numpy array."""
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
