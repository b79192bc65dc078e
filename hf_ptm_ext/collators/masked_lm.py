"""Masked language modelling, token by token (Devlin et al. 2019, https://arxiv.org/abs/1810.04805; RoBERTa).

Beside what upstream's has: a budget that can be exact, no empty rows, shared fates, random tokens by corpus
frequency, ragged extra columns, packed rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..masking import bernoulli_tokens, bert_budget, drawn_tokens, exact_tokens, roberta_budget, weighted_tokens
from ..masking.checks import check_choice
from ..masking.ragged import row_positions
from .base import MaskingCollator, TokenLayout, check_positive

BUDGETS = ("bernoulli", "exact", "roberta", "electra")
WITHOUT_REPLACEMENT = BUDGETS[:3]


@dataclass
class DataCollatorForMaskedLanguageModeling(MaskingCollator):
    """Select single tokens.

    | input | becomes | label |
    | --- | --- | --- |
    | selected token | [MASK] / random / itself (0.8/0.1/0.1) | its id |
    | other token, special token, padding | itself | -100 |

    Masks are dynamic, as RoBERTa's (Liu et al. 2019, https://arxiv.org/abs/1907.11692): drawn anew each time that a
    row is seen, where BERT's code wrote a few copies of its data with fixed ones. RoBERTa's code: `budget="roberta"`,
    `exclude_special_from_random=True`; `random_token_counts` is its `--freq-weighted-replacement`.

    Relations: `DataCollatorForWholeWordMasking` selects words, `DataCollatorForSpanMasking` spans of words.

    Args:
        budget: "bernoulli": every candidate independently (upstream; default); "exact": BERT's fixed count,
            min(max_predictions, max(1, round_half_even(T * mlm_probability))) of the T tokens of a sequence;
            "roberta": floor(T * mlm_probability + u) with u uniform in [0, 1), whose mean is the share (fairseq);
            "electra": BERT's count of draws with replacement, as ELECTRA's code has them: `label_positions` (batch, P)
            has a slot for each draw, so a token that was drawn twice has two and counts twice there.
        at_least_one: With "bernoulli", give a sequence that came out empty one token; such a sequence has
            probability 0.85^n. Default False, upstream's rule.
        max_predictions: With "exact" and "electra", upper bound of the count (BERT: 20 for length 128); None for no
            bound.
        sample_alpha: Above 0: tokens are drawn in proportion to count ** -alpha, so that rare ones are predicted more
            often (XLM's name and rule; its default is 0). Their number is that of the budget; with "bernoulli",
            XLM's: ceil(mlm_probability * tokens) of the whole batch.
        token_counts: Occurrences of each id in a corpus, `(vocab_size,)`, for `sample_alpha`
            (`masking.count_tokens`); ids without any are not chosen then.

    The other arguments are those of `MaskingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForMaskedLanguageModeling(BertTokenizerFast(vocab=vocab), budget="exact", seed=0)
        >>> batch = collator([[2, 5, 6, 5, 3], [2, 6, 3]])
        >>> (batch["labels"] != -100).sum(dim=1), batch["attention_mask"][1]
        (tensor([1, 1]), tensor([1, 1, 1, 0, 0]))
    """

    budget: str = "bernoulli"
    at_least_one: bool = False
    max_predictions: int | None = None
    sample_alpha: float = 0.0
    token_counts: Sequence[int] | np.ndarray | None = field(default=None, repr=False, compare=False)

    # Of "electra" the places of the labels say which ones count twice; not where others stand beside them.
    _budgets: ClassVar[tuple[str, ...]] = BUDGETS

    def __post_init__(self) -> None:
        self._draws = np.zeros(0, dtype=np.int64)  # of the batch that is being made
        super().__post_init__()
        check_budget(self.budget, self.max_predictions, self._budgets)
        if not (self.sample_alpha >= 0 and math.isfinite(self.sample_alpha)):
            raise ValueError(f"`sample_alpha` must not be negative, got {self.sample_alpha}. XLM's default is 0.")
        if self.sample_alpha and self.budget == "electra":
            raise ValueError(f"`sample_alpha` must be 0 with budget='electra', got {self.sample_alpha}.")
        if self.sample_alpha and self.token_counts is None:
            raise ValueError(
                f"`token_counts` must be given with `sample_alpha` = {self.sample_alpha}. Use "
                "`count_tokens(rows, len(tokenizer))`."
            )
        if self.sample_alpha and self.at_least_one:
            raise ValueError(
                f"`at_least_one` must be False with `sample_alpha`, got {self.at_least_one}: the number is fixed. Use "
                "budget='exact', which gives every sequence one."
            )

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        self._rarity: np.ndarray | None = None
        if self.sample_alpha and self.token_counts is not None:
            counts = np.asarray(self.token_counts, dtype=np.float64)
            if counts.shape != (len(self._tables.special),) or (counts < 0).any():
                raise ValueError(
                    f"`token_counts` must have one count per id, {len(self._tables.special)}, not negative, got shape "
                    f"{counts.shape}. Use `count_tokens(rows, len(tokenizer))`."
                )
            self._rarity = np.where(counts > 0, np.maximum(counts, 1) ** -self.sample_alpha, 0.0)
            self._rarity[self._tables.never_masked] = 0.0

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        candidates, groups, count = layout.candidates, layout.groups(), self._count(layout, rng)
        if self._rarity is not None:
            return weighted_tokens(candidates, self._rarity[layout.input_ids], count, rng, groups)
        if self.budget == "electra":
            self._draws = drawn_tokens(candidates, np.asarray(count), rng, groups)
            selected = np.zeros(candidates.size, dtype=bool)
            selected[self._draws] = True
            return selected.reshape(candidates.shape)
        if self.budget == "bernoulli":
            return bernoulli_tokens(candidates, self.mlm_probability, rng, self.at_least_one, groups)
        return exact_tokens(candidates, np.asarray(count), rng, groups)

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        if self.budget != "electra":
            return {}
        rows, places = np.divmod(self._draws, max(selected.shape[1], 1))
        counts = np.bincount(rows, minlength=len(selected))
        slots = self.label_budget or max(int(counts.max(initial=0)), 1)
        if counts.max(initial=0) > slots or (selected.all(axis=1) & (counts < slots)).any():
            raise ValueError(
                f"`label_budget` must hold the {counts.max(initial=0)} draws of every row, which must have a token "
                f"without any for the slots that remain, got {self.label_budget}. Raise it, or mask less."
            )
        positions = np.repeat(selected.argmin(axis=1)[:, None], slots, axis=1).astype(np.int64)
        positions[rows, row_positions(counts)] = places
        return {"label_positions": positions}

    def _count(self, layout: TokenLayout, rng: np.random.Generator) -> int | np.ndarray:
        """How many tokens of each sequence are selected, or of the whole batch."""
        if self.budget == "bernoulli":
            return math.ceil(self.mlm_probability * int(layout.text.sum()))
        if self.budget == "roberta":
            return roberta_budget(layout.sequence_lengths(), self.mlm_probability, rng)
        return bert_budget(layout.sequence_lengths(), self.mlm_probability, self.max_predictions)


def check_budget(budget: str, max_predictions: int | None, budgets: tuple[str, ...] = BUDGETS[:2]) -> None:
    """Raise unless the budget mode and its bound go together."""
    check_choice("budget", budget, budgets)
    check_positive("max_predictions", max_predictions)
    if budget not in ("exact", "electra") and max_predictions is not None:
        raise ValueError(
            f"`max_predictions` must be None when `budget` is {budget!r}, got {max_predictions}. Use budget='exact'."
        )
