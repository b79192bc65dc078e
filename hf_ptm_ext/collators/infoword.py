"""Sentences without one of their n-grams, and these n-grams (Kong et al., ICLR 2020, InfoWord,
https://arxiv.org/abs/1910.08350). No code was released: the rule is the paper's, what it leaves open is an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..data.tokenization import special_tokens_of
from ..masking import IGNORE_INDEX, sample_ngrams_of_rows
from .base import TokenLayout, check_positive
from .masked_lm import WITHOUT_REPLACEMENT, DataCollatorForMaskedLanguageModeling


@dataclass
class DataCollatorForInfoWord(DataCollatorForMaskedLanguageModeling):
    """Mask tokens, and beside it make the two views of InfoWord's DIM term.

    | column | shape | value |
    | --- | --- | --- |
    | `input_ids`, `labels` | (batch, seq_len) | those of `DataCollatorForMaskedLanguageModeling` |
    | `sentence_input_ids` | (batch, seq_len) | the text with `[MASK]` in the place of one n-gram, no more |
    | `ngram_input_ids` | (batch, ngrams_per_row, W) | n-grams alone, the first the one that is missing |
    | `ngram_attention_mask` | (batch, ngrams_per_row, W) | 1 on text; W: `max_ngram_length` and special tokens |
    | `ngram_labels` | (batch,) | which n-gram of the batch, row by row, is missing; -100: none could be taken out |

    An n-gram is a run of tokens between special ones that leaves at least one token of the row, every such run of its
    length equally likely. Widths depend on the options alone.

    Relations: `InfoWordModel` (hf_ptm_ext.trainers) reads the batch.

    Args:
        max_ngram_length: Most tokens of an n-gram (10).
        min_ngram_length: Fewest (1); a row too short for it gives what it has.
        ngram_length_weights: How often each length from the fewest to the most is drawn (default: all the same).
        ngrams_per_row: N-grams of each row; those after the first are further negatives of the other rows (1).

    The other arguments are those of `DataCollatorForMaskedLanguageModeling`.

    Raises:
        ValueError: lengths or weights that do not fit, packed rows.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForInfoWord(BertTokenizerFast(vocab=vocab), max_ngram_length=2, min_ngram_length=2,
        ...                                    mlm_probability=0.0, seed=0)
        >>> batch = collator([[2, 5, 6, 5, 3]])
        >>> batch["sentence_input_ids"].tolist(), batch["ngram_input_ids"].tolist(), batch["ngram_labels"].tolist()
        ([[2, 4, 4, 5, 3]], [[[2, 5, 6, 3]]], [0])
    """

    max_ngram_length: int = 10
    min_ngram_length: int = 1
    ngram_length_weights: Sequence[float] | None = None
    ngrams_per_row: int = 1

    _budgets: ClassVar[tuple[str, ...]] = WITHOUT_REPLACEMENT

    def __post_init__(self) -> None:
        for name in ("max_ngram_length", "min_ngram_length", "ngrams_per_row"):
            check_positive(name, getattr(self, name))
        lengths = self.max_ngram_length - self.min_ngram_length + 1
        if lengths < 1:
            raise ValueError(
                f"`min_ngram_length` must not exceed `max_ngram_length` = {self.max_ngram_length}, got "
                f"{self.min_ngram_length}."
            )
        weights = np.ones(lengths) if self.ngram_length_weights is None else np.asarray(self.ngram_length_weights)
        if weights.shape != (lengths,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise ValueError(
                f"`ngram_length_weights` must be {lengths} numbers, not negative and not all 0, one for each length "
                f"from {self.min_ngram_length} to {self.max_ngram_length}, got {self.ngram_length_weights}."
            )
        self._length_law = np.cumsum(weights) / weights.sum()
        super().__post_init__()

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        specials = special_tokens_of(self.tokenizer)
        self._prefix, self._suffix = specials.prefix, specials.suffix

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        if layout.sequence_ids is not None:
            raise ValueError(
                f"`sequence_ids` must not be in the rows, whose first state stands for one sentence, got "
                f"{int(layout.sequence_ids.max(initial=0))} sequences in a row. Leave packing out."
            )
        shape = (len(layout.candidates), self.ngrams_per_row)
        sizes = self.min_ngram_length + np.searchsorted(self._length_law, rng.random(shape), side="right")
        sizes = np.minimum(sizes, np.maximum(layout.candidates.sum(axis=1) - 1, 0)[:, None])
        self._ngrams = sample_ngrams_of_rows(layout.candidates, layout.blocks, sizes, rng)
        return super()._select(layout, rng)

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        ids, (starts, lengths) = layout.input_ids, self._ngrams
        position = np.arange(ids.shape[1])
        missing = (position >= starts[:, :1]) & (position < (starts + lengths)[:, :1])
        before, behind = len(self._prefix), len(self._suffix)
        ngrams = np.full((*starts.shape, before + self.max_ngram_length + behind), self.tokenizer.pad_token_id or 0)
        offset = np.arange(self.max_ngram_length)
        inside = offset < lengths[..., None]
        places = np.where(inside, starts[..., None] + offset, 0)
        found = ids[np.arange(len(ids))[:, None, None], places] if ids.size else np.zeros_like(places)
        ngrams[..., :before] = self._prefix
        ngrams[..., before : before + self.max_ngram_length][inside] = found[inside]
        for number, token in enumerate(self._suffix):
            np.put_along_axis(ngrams, (before + lengths + number)[..., None], token, axis=-1)
        mask = np.arange(ngrams.shape[-1]) < (before + behind + lengths)[..., None]
        own = np.arange(len(ids)) * self.ngrams_per_row
        return {
            "sentence_input_ids": np.where(missing, int(self.tokenizer.mask_token_id), ids),
            "ngram_input_ids": ngrams.astype(np.int64, copy=False),
            "ngram_attention_mask": mask.astype(np.int64),
            "ngram_labels": np.where(lengths[:, 0] > 0, own, IGNORE_INDEX),
        }
