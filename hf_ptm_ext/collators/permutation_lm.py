"""Permutation language modelling (Yang et al. 2019, XLNet, https://arxiv.org/abs/1906.08237).

The rules are `masking.permutation`'s. Upstream's collator of this name writes the mask token into the content stream,
so that later targets never see earlier ones, raises for odd lengths, drops the attention mask, and maps targets by an
L x L identity; this one trains the same model, `XLNetLMHeadModel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..masking import (
    find_segments,
    fixed_label_positions,
    inverse_size_probabilities,
    permutation_mask,
    sample_context_ngrams,
    selected_labels,
)
from .base import MaskingCollator, TokenLayout, check_positive


@dataclass
class DataCollatorForPermutationLanguageModeling(MaskingCollator):
    """Choose targets and an order in which they are predicted; the text itself stays as it is.

    | column | shape | content |
    | --- | --- | --- |
    | input_ids | (batch, seq_len) | the content stream: the original ids everywhere |
    | perm_mask | (batch, seq_len, seq_len) | true where position i must not see position j |
    | target_mapping | (batch, P, seq_len) | 1 at the position of each target |
    | labels | (batch, P) | the targets' ids, -100 in slots without one |

    The halves of a row are permuted on their own; as in the reference the first sees nothing of the second, which sees
    all of the first. Of the T tokens of a row, special tokens included, round(T * mlm_probability) are targets, at
    most all that can be.

    Relations: `DataCollatorForMaskedLanguageModeling` hides tokens from all others; MASS and UniLM's pseudo-masked
    rows predict them in a fixed order.

    Args:
        mlm_probability: Share of targets (XLNet: 85 of 512 tokens).
        max_ngram_size: Longest n-gram, p(n) in proportion to 1/n (XLNet: 5).
        context: Tokens around an n-gram for each of its tokens (XLNet: 6).
        whole_words: n-grams of words, as the paper says; false: of pieces from a word's beginning, as the code does.
        label_budget: Fixed number P of targets of a row; None takes the fullest row of the batch.

    `mask_replace_prob`, `random_replace_prob` and `replacement_unit` are not read: nothing is replaced. The other
    arguments are those of `MaskingCollator`. Packed rows are refused: the model does not keep sequences apart.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForPermutationLanguageModeling(BertTokenizerFast(vocab=vocab), seed=0)
        >>> batch = collator([[5, 6, 5, 6, 5, 6, 5, 6, 3, 2], [5, 6, 5, 3, 2]])
        >>> batch["perm_mask"].shape, batch["target_mapping"].shape, (batch["labels"] != -100).sum(dim=1)
        (torch.Size([2, 10, 10]), torch.Size([2, 2, 10]), tensor([2, 1]))
    """

    mlm_probability: float = 1 / 6
    max_ngram_size: int = 5
    context: int = 6
    whole_words: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("context", self.context)
        self._sizes = inverse_size_probabilities(self.max_ngram_size)

    @property
    def _needs_words(self) -> bool:
        return True

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        segments = layout.blocks | (layout.candidates & _second_half_begins(layout.text))
        found = find_segments(layout.candidates, segments)
        ends = np.cumsum(found.lengths)
        row_begins = np.searchsorted(found.row, found.row, side="left")
        ends -= (ends - found.lengths)[row_begins]
        # Shares of special tokens come with the text beside them: all budgets of a row sum to its own.
        share = self.mlm_probability * layout.text.sum(axis=1) / np.maximum(layout.candidates.sum(axis=1), 1)
        budget = np.rint(ends * share[found.row]) - np.rint((ends - found.lengths) * share[found.row])
        return sample_context_ngrams(
            layout.candidates,
            self._word_starts(layout),
            segments,
            budget.astype(np.int64),
            self._sizes,
            rng,
            context=self.context,
            whole_words=self.whole_words,
        )

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        rng = self.next_generator()
        layout, batch = self._lay_out(self._prepare(features, rng))
        if layout.sequence_ids is not None:
            raise ValueError(
                "`sequence_ids` must not be given for permutation language modelling: XLNet does not keep the "
                f"sequences of a row apart, got {int(layout.sequence_ids.max(initial=0))} in a row. Give one a row."
            )
        selected = self._select(layout, rng)
        labels = selected_labels(layout.input_ids, selected)
        slots = self.label_budget or max(int(selected.sum(axis=1).max(initial=0)), 1)
        positions = fixed_label_positions(labels, slots)
        halves = (np.cumsum(_second_half_begins(layout.text), axis=1) > 0).astype(np.int64)
        functional = layout.text & self._tables.never_masked.take(layout.input_ids)
        batch["perm_mask"] = permutation_mask(selected, functional, halves, rng)
        batch["target_mapping"] = (positions[:, :, None] == np.arange(labels.shape[1])).astype(np.float32)
        batch["labels"] = np.take_along_axis(labels, positions, axis=1)
        return batch


def _second_half_begins(text: np.ndarray) -> np.ndarray:
    """Mark the first token behind the middle of each row's text, boolean `(batch, seq_len)`."""
    number = np.cumsum(text, axis=1)
    return text & (number == (number[:, -1:] + 1) // 2 + 1)
