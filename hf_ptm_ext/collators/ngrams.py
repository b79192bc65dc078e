"""N-grams of ZEN (Diao et al. 2019, https://arxiv.org/abs/1911.00720) in the batches of any other collator.

The reference finds n-grams in the tokens after masking. Found before, they would name what was masked: so they are
left out of the rows, and found in what the other collator has made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..models.tokenization_zen import NGRAM_INPUTS


@dataclass
class DataCollatorWithNgrams:
    """Add the n-gram columns to what another collator returns.

    | column | shape | content |
    | --- | --- | --- |
    | ngram_ids | (batch, ngrams) | lines of the lexicon, 0 on padding |
    | ngram_positions, ngram_lengths | (batch, ngrams) | place of the first token, number of tokens |
    | ngram_token_type_ids | (batch, ngrams) | token type of the first token |

    Args:
        collator: Makes the batch, as tensors: `DataCollatorForMaskedLanguageModeling` for pre-training, or any other.
        tokenizer: A `ZenTokenizer`, whose options say how many n-grams a row has and which.
        max_length: Tokens of the longest row, for a tokenizer with `ngram_limit="proportional"`.
        fixed_width: Whether the columns always have the tokenizer's `max_ngrams` entries, for compiled models. Default
            False: as many as the row with the most has.

    Examples:
        >>> from hf_ptm_ext import DataCollatorForMaskedLanguageModeling, ZenTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] 提 高 速 公 路".split()
        >>> tokenizer = ZenTokenizer({word: number for number, word in enumerate(words)}, ngrams=["提高", "公路"])
        >>> masked = DataCollatorForMaskedLanguageModeling(tokenizer, mlm_probability=0.0, seed=0)
        >>> batch = DataCollatorWithNgrams(masked, tokenizer)([tokenizer("提高"), tokenizer("提高公路")])
        >>> batch["ngram_ids"].tolist()
        [[1, 0], [1, 2]]
    """

    collator: Callable[[list[Any]], Any]
    tokenizer: Any
    max_length: int | None = None
    fixed_width: bool = False

    def __post_init__(self) -> None:
        if not hasattr(self.tokenizer, "ngram_inputs"):
            raise TypeError(
                f"`tokenizer` must be a ZenTokenizer, got {type(self.tokenizer).__name__}, which finds no n-grams."
            )

    def __call__(self, features: list[Any]) -> Any:
        """Make a batch."""
        rows = [dict(row) if hasattr(row, "keys") else row for row in features]
        for row in rows:
            for name in NGRAM_INPUTS if isinstance(row, dict) else ():
                row.pop(name, None)
        batch = self.collator(rows)
        found = self.tokenizer.ngram_inputs(
            batch["input_ids"], batch.get("token_type_ids"), batch.get("attention_mask"), self.max_length
        )
        for name, value in found.items():
            missing = self.tokenizer.max_ngrams - value.shape[1] if self.fixed_width else 0
            batch[name] = torch.nn.functional.pad(value, (0, missing))
        return batch

    # ---- draws are the other collator's ----

    def set_epoch(self, epoch: int) -> None:
        """Hand the epoch to the other collator."""
        if hasattr(self.collator, "set_epoch"):
            self.collator.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state of the other collator."""
        return self.collator.state_dict() if hasattr(self.collator, "state_dict") else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the other collator."""
        if hasattr(self.collator, "load_state_dict"):
            self.collator.load_state_dict(state)
