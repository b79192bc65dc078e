"""What every sequence-to-sequence denoising collator does around its own noise.

    features -> flat rows -> NOISE -> input_ids, attention_mask | decoder_input_ids, labels

A subclass supplies the noise (`_corrupt`). The target is a text of its own, so unlike in `base` the label column has
its own width, and tokens may go, come and move.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..masking import IGNORE_INDEX, RandomTokens, Segments, index_ranges, pad_ragged, row_offsets, uniform_tokens
from .base import BatchCollator
from .batching import MISSING, RowFrame, collect_columns, padded_width
from .vocabulary import VocabularyTables

# Columns of tokenizers and of earlier collators that have no meaning for the noisy text.
CONSUMED = ("labels", "token_type_ids", "special_tokens_mask", "offset_mapping", "decoder_input_ids")


@dataclass
class FlatRows:
    """A batch as noise sees it: rows laid end to end, without padding."""

    tokens: np.ndarray  # ids `(total,)`; maybe a view of `input_ids`, so not to be written to
    lengths: np.ndarray  # tokens of each row, int64 `(batch,)`
    text: np.ndarray  # where they were in the padded batch, boolean `(batch, seq_len)`
    input_ids: np.ndarray  # the padded batch `(batch, seq_len)`
    frame: RowFrame  # how the rows stand in it
    columns: dict[str, list[Any]]  # the other columns, rows as they came

    def body(self, never_masked: np.ndarray) -> Segments:
        """Find what lies between the special tokens at both ends of each row."""
        start = row_offsets(self.lengths)
        stop = start + self.lengths
        # One step inwards for each special token at an end; there are few.
        while (outer := np.flatnonzero(start < stop)).size:
            outer = outer[never_masked[self.tokens[start[outer]]]]
            if not outer.size:
                break
            start[outer] += 1
        while (outer := np.flatnonzero(start < stop)).size:
            outer = outer[never_masked[self.tokens[stop[outer] - 1]]]
            if not outer.size:
                break
            stop[outer] -= 1
        empty = start == stop
        start[empty] = stop[empty] = (row_offsets(self.lengths) + (self.lengths + 1) // 2)[empty]
        return Segments(np.arange(len(start)), start, stop)

    def inside(self, body: Segments) -> np.ndarray:
        """Mark the flat tokens of bodies."""
        begin = row_offsets(self.lengths)
        marked = np.ones(len(self.tokens), dtype=bool)
        marked[index_ranges(begin, body.start - begin)] = False
        marked[index_ranges(body.stop, begin + self.lengths - body.stop)] = False
        return marked


@dataclass
class DenoisingCollator(BatchCollator):
    """Base of the sequence-to-sequence denoising collators: batching, columns, randomness.

    Args:
        tokenizer: Fast or slow tokenizer.
        pad_to_multiple_of: Pad inputs and labels each to a multiple of this length.
        pad_values: Padding value of per-token columns by name, where a collator keeps such columns; 0 for others.
        return_tensors: "pt" or "np".
        seed: Seed of all draws, with epoch, process, worker and call (see `collators.randomness`); None: fresh
            entropy.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> class Autoencoding(DenoisingCollator):
        ...     def _corrupt(self, rows, rng):
        ...         return self._encoder_side(rows, rows.tokens, rows.lengths)
        >>> Autoencoding(BertTokenizerFast(vocab=vocab))([[2, 5, 6, 3]])["input_ids"].tolist()
        [[2, 5, 6, 3]]
    """

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    pad_to_multiple_of: int | None = None
    pad_values: dict[str, int | float] = field(default_factory=dict)
    return_tensors: str = "pt"
    seed: int | None = None

    # Columns that a collator reads and no model's forward names; `PtmTrainer` keeps them.
    input_columns: ClassVar[tuple[str, ...]] = ()

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        rows = self._flatten(features)
        return self._corrupt(rows, self.next_generator())

    def _corrupt(self, rows: FlatRows, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Give the columns of the batch."""
        raise NotImplementedError(f"`{type(self).__name__}._corrupt` must give the batch. Subclasses define it.")

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        if self.tokenizer.pad_token_id is None:
            raise ValueError(
                f"`tokenizer` must have a padding token, got {type(self.tokenizer).__name__} without one: rows differ "
                "in length after the noise. Set `tokenizer.pad_token`."
            )
        self._pad_id = int(self.tokenizer.pad_token_id)

    def _flatten(self, features: Sequence[Any]) -> FlatRows:
        """Lay the rows end to end."""
        columns = collect_columns(features)
        for name in CONSUMED:
            columns.pop(name, None)
        if "sequence_ids" in columns:
            raise ValueError(
                f"`sequence_ids`: {type(self).__name__} makes a source and a target of each row, so a row cannot hold "
                "several sequences. Do not pack the rows."
            )
        ids = columns.pop("input_ids")
        frame = RowFrame.of(ids, self.tokenizer, self.pad_to_multiple_of)
        input_ids = frame.ids(ids, self._pad_id)
        mask_rows = columns.pop("attention_mask", None)
        if mask_rows is None and min(frame.lengths) == frame.width and not (input_ids == self._detectable_pad).any():
            text = np.ones(input_ids.shape, dtype=bool)  # full rows, by far the most
            tokens, lengths = input_ids.ravel(), np.full(len(ids), frame.width, dtype=np.int64)
        else:
            text = frame.attention_mask(input_ids, self._detectable_pad, mask_rows) != 0
            if self._detectable_pad is not None:  # a mask of ones over padded rows does not make text of them
                text &= input_ids != self._detectable_pad
            tokens, lengths = input_ids[text], text.sum(axis=1)
        size = len(self._tables.special)
        if tokens.size and (tokens.max() >= size or tokens.min() < 0):
            raise ValueError(
                f"`input_ids` must be in [0, {size}), the vocabulary, got ids from {tokens.min()} to {tokens.max()}. "
                "Use the tokenizer that made these ids."
            )
        return FlatRows(tokens, lengths, text, input_ids, frame, columns)

    def _encoder_side(self, rows: FlatRows, tokens: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """`input_ids` and `attention_mask` of noisy rows, and the columns of one value or shape per row."""
        batch = {
            "input_ids": self._padded(tokens, lengths, self._pad_id, self.tokenizer.padding_side == "left"),
            "attention_mask": self._padded(np.ones_like(tokens), lengths, 0, self.tokenizer.padding_side == "left"),
        }
        for name, values in rows.columns.items():
            if per_token(values, rows.frame.lengths):
                raise ValueError(
                    f"`{name}` has one entry per token, and {type(self).__name__} deletes and moves tokens. Remove "
                    f"the column with `dataset.remove_columns({name!r})`."
                )
            batch[name] = rows.frame.column(name, values, 0)
        return batch

    def _decoder_side(self, targets: np.ndarray, lengths: np.ndarray, start_id: int) -> dict[str, np.ndarray]:
        """`labels`, and `decoder_input_ids`: the same behind a start token."""
        labels = self._padded(targets, lengths, IGNORE_INDEX)
        if labels.base is not None:  # a view: of the rows themselves, which may be the encoder's input too
            labels = labels.copy()
        shifted = np.empty_like(labels)
        shifted[:, :1] = start_id
        shifted[:, 1:] = np.where(labels[:, :-1] == IGNORE_INDEX, self._pad_id, labels[:, :-1])
        return {"decoder_input_ids": shifted, "labels": labels}

    def _padded(self, values: np.ndarray, lengths: np.ndarray, fill: int, left: bool = False) -> np.ndarray:
        """Rows of one width, at least 1."""
        width = padded_width([int(lengths.max(initial=0))], self.pad_to_multiple_of)
        return pad_ragged(values, lengths, fill, width, left)


def per_token(rows: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Say whether a column has one entry per token in every row."""
    return all(
        row is not MISSING and hasattr(row, "__len__") and getattr(row, "ndim", 1) and len(row) == size
        for row, size in zip(rows, sizes, strict=True)
    )


def end_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Give the token that ends a text."""
    for token in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        if token is not None:
            return int(token)
    raise ValueError(
        f"`tokenizer` must have an end token, got {type(tokenizer).__name__} without eos and separator. Set "
        "`tokenizer.eos_token`."
    )


def random_tokens_from(
    tokenizer: PreTrainedTokenizerBase, tables: VocabularyTables, first_random_id: int | None
) -> RandomTokens:
    """Give the uniform law of random replacement."""
    size = len(tables.special)
    vocabulary = {index: piece for piece, index in tokenizer.get_vocab().items() if 0 <= index < size}
    excluded = np.ones(size, dtype=bool)
    excluded[list(vocabulary)] = False
    if first_random_id is None:
        excluded |= tables.special
        excluded[[index for index, piece in vocabulary.items() if re.fullmatch(r"\[unused\d+\]", piece)]] = True
    else:
        if isinstance(first_random_id, bool) or not isinstance(first_random_id, int | np.integer):
            raise TypeError(f"`first_random_id` must be an integer or None, got {first_random_id!r}. Pass an id.")
        if not 0 <= first_random_id < size:
            raise ValueError(
                f"`first_random_id` must be in [0, {size}), the vocabulary, got {first_random_id}. None leaves out "
                "special tokens."
            )
        excluded[:first_random_id] = True
    return uniform_tokens(size, excluded)
