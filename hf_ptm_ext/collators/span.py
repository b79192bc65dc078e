"""Span masking and span-boundary targets (Joshi et al. 2020, SpanBERT, https://arxiv.org/abs/1907.10529).

The rule is `masking.spans`'; one fate per merged span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..masking import (
    boundary_pairs,
    find_segments,
    pack_pairs,
    sample_spans,
    span_budget,
    span_length_probabilities,
)
from ..masking.checks import check_choice
from ..masking.pairs import ENDPOINTS
from .base import MaskingCollator, TokenLayout, check_positive


@dataclass
class DataCollatorForSpanMasking(MaskingCollator):
    """Select spans of words and add the targets of the span boundary objective.

    | column | shape | content |
    | --- | --- | --- |
    | labels | (batch, seq_len) | original ids of all span tokens, -100 elsewhere |
    | span_boundaries | (batch, P, 2) | positions left and right of each span, filler (0, 0) |
    | span_labels | (batch, P, S) | ids of the span's tokens, the first S of them, -100 elsewhere |

    A content block is a run of ordinary tokens between special tokens, within one packed sequence; budgets are per
    block and spans stay inside. A span that touches the edge of its block has no pair ("external" endpoints). As in
    the released code a budget is met exactly, so the last span of a block may end inside a word, a Chinese one too.

    Relations: `DataCollatorForWholeWordMasking` selects words without spans; the columns feed
    `SpanBertForPreTraining`.

    Args:
        replacement_unit: "span": one fate per merged span (the released recipe); the reference's code default is
            "token".
        geometric_p: Parameter of the length law (SpanBERT: 0.2).
        max_span_length: Longest drawn span in words (SpanBERT: 10).
        max_pair_targets: Targets S of each span (SpanBERT's recipe: 15).
        endpoints: "external" (the tokens around the span; released models) or "internal" (its first and last token).
        pair_budget: Fixed number P of pair slots in a row, so that shapes never change; raises when a row has more
            spans. None takes the fullest row of the batch.

    The other arguments are those of `MaskingCollator`. SpanBERT draws random tokens by corpus frequency: pass
    `random_token_counts` for that. For characters as units of a language without word ids use
    `word_boundaries="token"`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
        >>> collator = DataCollatorForSpanMasking(BertTokenizerFast(vocab=vocab), max_pair_targets=4, seed=0)
        >>> batch = collator([[2] + [5, 6] * 10 + [3]])
        >>> (batch["labels"] != -100).sum(), batch["span_boundaries"].shape[2], batch["span_labels"].shape[2]
        (tensor(3), 2, 4)
    """

    replacement_unit: str = "span"
    geometric_p: float = 0.2
    max_span_length: int = 10
    max_pair_targets: int = 15
    endpoints: str = "external"
    pair_budget: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("endpoints", self.endpoints, ENDPOINTS)
        check_positive("pair_budget", self.pair_budget)
        if self.max_pair_targets < 1:
            raise ValueError(f"`max_pair_targets` must be at least 1, got {self.max_pair_targets}. SpanBERT uses 15.")
        self._length_probabilities = span_length_probabilities(self.geometric_p, self.max_span_length)

    @property
    def _needs_words(self) -> bool:
        return True

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        blocks = find_segments(layout.candidates, layout.blocks)
        budget = span_budget(blocks.lengths, self.mlm_probability)
        return sample_spans(
            layout.candidates, layout.blocks, self._word_starts(layout), budget, self._length_probabilities, rng
        )

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        spans = find_segments(selected, layout.blocks)
        with_pair, pairs = boundary_pairs(spans, layout.candidates, layout.blocks, self.endpoints)
        if self.pair_budget is not None:
            self._check_pair_budget(spans.row[with_pair])
        boundaries, labels = pack_pairs(
            layout.input_ids, spans, with_pair, pairs, self.max_pair_targets, self.pair_budget
        )
        return {"span_boundaries": boundaries, "span_labels": labels}

    def _check_pair_budget(self, rows: np.ndarray) -> None:
        """Name the collator's own option when a row has too many pairs."""
        fullest = int(np.bincount(rows, minlength=1).max())
        if self.pair_budget is not None and fullest > self.pair_budget:
            raise ValueError(
                f"`pair_budget` must hold the spans of every row, got {self.pair_budget} for a row with {fullest}. "
                "Raise it: a row of n masked tokens has at most n spans."
            )
