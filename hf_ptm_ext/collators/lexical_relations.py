"""Batches of LIBERT (Lauscher et al., COLING 2020): masked text, and pairs of words that are related or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import BatchEncoding

from .base import check_positive
from .vocabulary import check_tokenizer

LABEL = "relation_label"
TASK = "task"  # of `TaskRows`, which name what a row is of
PAIR = ("first", "second", LABEL)


@dataclass
class DataCollatorForLexicalRelations:
    """Turn rows of text and rows of word pairs, in any mixture, into one batch of both.

    | row | becomes |
    | --- | --- |
    | text | whatever `mlm_collator` makes of it: masked `input_ids`, `labels` |
    | `first`, `second`, `relation_label` | a pair of texts, `relation_input_ids`..., and `relation_labels` |

    A batch has the columns of the kinds of rows that it has; those of the other are missing.

    Relations: `data.lexical_relation_rows` makes the rows of pairs; `LexicalRelationModel` (hf_ptm_ext.trainers) reads
    the batch, `LexicalRelationTrainer` gives one kind of row at a time.

    Args:
        tokenizer: Tokenizer of the encoder.
        mlm_collator: Collator of the text; None for pairs alone.
        max_length: Tokens of a pair (LIBERT: 128).
        fixed_length: Pad every pair to `max_length`, for compiled models; else to the longest of the batch.

    Raises:
        ValueError: rows of text without a collator of text, a pair without its words, a label that is not 0 or 1.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "happy": 5, "glad": 6}
        >>> collator = DataCollatorForLexicalRelations(BertTokenizerFast(vocab=vocab))
        >>> batch = collator([{"first": "happy", "second": "glad", "relation_label": 1}])
        >>> batch["relation_input_ids"].tolist(), batch["relation_labels"].tolist()
        ([[2, 5, 3, 6, 3]], [1])
    """

    tokenizer: Any
    mlm_collator: Any = None
    max_length: int = 128
    fixed_length: bool = False

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)
        check_positive("max_length", self.max_length)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Columns that this collator reads and no model's forward names."""
        return (*PAIR, *getattr(self.mlm_collator, "input_columns", ()))

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        """Make a batch."""
        pairs = [row for row in features if LABEL in row]
        texts = [{name: row[name] for name in row if name != TASK} for row in features if LABEL not in row]
        batch: dict[str, Any] = {}
        if texts:
            if self.mlm_collator is None:
                raise ValueError(f"`mlm_collator` must be given for rows of text, got one with {sorted(texts[0])}.")
            batch.update(self.mlm_collator(texts))
        if pairs:
            batch |= self._pairs(pairs)
        return BatchEncoding(batch)

    def _pairs(self, pairs: list[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """The columns of pairs of words."""
        for row in pairs:
            if not row.get("first") or not row.get("second") or row[LABEL] not in (0, 1):
                raise ValueError(f"A pair must have `first`, `second` and a `{LABEL}` of 0 or 1, got {dict(row)}.")
        encoded = self.tokenizer(
            [row["first"] for row in pairs],
            [row["second"] for row in pairs],
            truncation=True,
            max_length=self.max_length,
            padding="max_length" if self.fixed_length else True,
            return_tensors="pt",
            return_attention_mask=True,
        )
        columns = {f"relation_{name}": values for name, values in encoded.items()}
        return {**columns, "relation_labels": torch.tensor([int(row[LABEL]) for row in pairs])}

    def set_epoch(self, epoch: int) -> None:
        """Hand the epoch to the text's collator, which alone draws."""
        if hasattr(self.mlm_collator, "set_epoch"):
            self.mlm_collator.set_epoch(epoch)
