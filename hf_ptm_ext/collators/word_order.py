"""Tokens out of their order beside masked ones (Wang et al. 2020, StructBERT, https://arxiv.org/abs/1908.04577).

Of the trigrams of a row without a masked or special token 5 % are shuffled; the token that stood at each of their
places is predicted there by the same head. The code of the pre-training is not public: the rule is the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..masking import check_probability, find_segments, roberta_budget
from ..masking.ragged import row_positions, shuffled_within_groups
from .base import TokenLayout, check_positive
from .masked_lm import WITHOUT_REPLACEMENT, DataCollatorForMaskedLanguageModeling


@dataclass
class DataCollatorForWordOrder(DataCollatorForMaskedLanguageModeling):
    """Mask tokens, and shuffle some n-grams of the others.

    | input | becomes | label |
    | --- | --- | --- |
    | selected token | [MASK] / random / itself (0.8/0.1/0.1) | its id |
    | token of a shuffled n-gram | a token of the n-gram | its id |
    | other token, special token, padding | itself | -100 |

    Both have one loss, a mean over all labels; the paper adds two means. Sentences beside it: `data.structural_pairs`.

    Relations: `DataCollatorForMaskedLanguageModeling` without the shuffled ones; `DataCollatorForTextInfilling`
    permutes whole sentences.

    Args:
        shuffle_prob: Share of a row's n-grams that are shuffled (StructBERT: 0.05), rounded up or down so that it is
            their mean; those that overlap one are left out.
        shuffle_size: Tokens of an n-gram (StructBERT: 3).

    The other arguments are those of `DataCollatorForMaskedLanguageModeling`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, "c": 7}
        >>> tokenizer = BertTokenizerFast(vocab=vocab)
        >>> collator = DataCollatorForWordOrder(tokenizer, mlm_probability=0, shuffle_prob=1, seed=0)
        >>> batch = collator([[2, 5, 6, 7, 3]])
        >>> sorted(batch["input_ids"][0].tolist()), batch["labels"].tolist()
        ([2, 3, 5, 6, 7], [[-100, 5, 6, 7, -100]])
    """

    shuffle_prob: float = 0.05
    shuffle_size: int = 3

    _budgets: ClassVar[tuple[str, ...]] = WITHOUT_REPLACEMENT

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability("shuffle_prob", self.shuffle_prob)
        check_positive("shuffle_size", self.shuffle_size)
        if self.shuffle_size < 2:
            raise ValueError(f"`shuffle_size` must be at least 2, got {self.shuffle_size}. StructBERT has 3.")
        self._shuffled = np.zeros((0, self.shuffle_size), dtype=np.int64)  # of the batch that is being made

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        masked = super()._select(layout, rng)
        self._shuffled = places = self._ngrams(layout, masked, rng)
        shuffled = np.zeros(masked.size, dtype=bool)
        shuffled[places] = True
        return masked | shuffled.reshape(masked.shape)

    def _replace(self, layout: TokenLayout, selected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        places, flat = self._shuffled, layout.input_ids.reshape(-1)
        masked = selected.copy()
        masked.reshape(-1)[places] = False
        corrupted = super()._replace(layout, masked, rng)
        order = np.argsort(rng.random(places.shape), axis=1)
        corrupted.reshape(-1)[places] = flat[np.take_along_axis(places, order, axis=1)]
        return corrupted

    def _ngrams(self, layout: TokenLayout, masked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Flat places of the n-grams to shuffle, `(n-grams, shuffle_size)`; no two overlap."""
        free, size = layout.candidates & ~masked, self.shuffle_size
        runs = find_segments(free, layout.blocks)
        counts = np.maximum(runs.lengths - size + 1, 0)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = np.repeat(runs.row * free.shape[1] + runs.start, counts) + offsets
        row = np.repeat(runs.row, counts)
        sizes = np.bincount(row, minlength=len(free))
        drawn = row_positions(sizes) < np.repeat(roberta_budget(sizes, self.shuffle_prob, rng), sizes)
        taken, chosen = bytearray(free.size), []
        for begin in begins[shuffled_within_groups(row, len(free), rng)[drawn]].tolist():
            if taken.find(1, begin, begin + size) < 0:
                taken[begin : begin + size] = b"\x01" * size
                chosen.append(begin)
        return np.array(chosen, dtype=np.int64)[:, None] + np.arange(size)
