"""Masked language modelling, token by token (Devlin et al. 2019, https://arxiv.org/abs/1810.04805; RoBERTa).

Beside what upstream's has: a budget that can be exact, no empty rows, shared fates, random tokens by corpus
frequency, ragged extra columns, packed rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..masking import bernoulli_tokens, bert_budget, exact_tokens
from ..masking.checks import check_choice
from .base import MaskingCollator, TokenLayout, check_positive

BUDGETS = ("bernoulli", "exact")


@dataclass
class DataCollatorForMaskedLanguageModeling(MaskingCollator):
    """Select single tokens.

    | input | becomes | label |
    | --- | --- | --- |
    | selected token | [MASK] / random / itself (0.8/0.1/0.1) | its id |
    | other token, special token, padding | itself | -100 |

    Relations: `DataCollatorForWholeWordMasking` selects words, `DataCollatorForSpanMasking` spans of words.

    Args:
        budget: "bernoulli": every candidate independently (RoBERTa, upstream; default); "exact": BERT's fixed count,
            min(max_predictions, max(1, round_half_even(T * mlm_probability))) of the T tokens of a sequence.
        at_least_one: With "bernoulli", give a sequence that came out empty one token; such a sequence has
            probability 0.85^n. Default False, upstream's rule.
        max_predictions: With "exact", upper bound of the count (BERT: 20 for length 128); None for no bound.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget, self.max_predictions)

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        if self.budget == "bernoulli":
            return bernoulli_tokens(layout.candidates, self.mlm_probability, rng, self.at_least_one, layout.groups())
        budget = bert_budget(layout.sequence_lengths(), self.mlm_probability, self.max_predictions)
        return exact_tokens(layout.candidates, budget, rng, layout.groups())


def check_budget(budget: str, max_predictions: int | None) -> None:
    """Raise unless the budget mode and its bound go together."""
    check_choice("budget", budget, BUDGETS)
    check_positive("max_predictions", max_predictions)
    if budget == "bernoulli" and max_predictions is not None:
        raise ValueError(
            f"`max_predictions` must be None when `budget` is 'bernoulli', got {max_predictions}. Use budget='exact'."
        )
