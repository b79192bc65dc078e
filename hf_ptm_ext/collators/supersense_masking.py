"""Masking for supersenses (Levine et al., ACL 2020, SenseBERT, https://arxiv.org/abs/1908.05646).

The rule is `masking.lexical`'s. SenseBERT's training code is not public: this is written from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from ..data.lexicons import SupersenseTable
from ..masking import (
    IGNORE_INDEX,
    Segments,
    bert_budget,
    check_probability,
    find_segments,
    word_totals,
    words_by_senses,
)
from .base import TokenLayout
from .lexicon_columns import token_supersenses
from .whole_word import DataCollatorForWholeWordMasking
from .words import find_word_starts

SENSES = "supersenses"


@dataclass(kw_only=True)
class SenseLayout(TokenLayout):
    """A padded batch with the supersenses of each token's word, bits `(batch, seq_len)`; 0 = none."""

    senses: np.ndarray


@dataclass
class DataCollatorForSupersenseMasking(DataCollatorForWholeWordMasking):
    """Select words, those with a single supersense first, and ask for the supersenses of words that are hidden whole.

    | input | becomes | label |
    | --- | --- | --- |
    | selected token | [MASK] / itself (0.9/0.1) | its id |
    | word with supersenses, all of it selected | | at its first piece: its senses as bits, its number of pieces |

    Which senses a word may have: a column `supersenses` says it (`LexiconColumns(tokenizer, table)`, for words of any
    number of pieces); without one the vocabulary does, and words of more than one piece have none.

    Relations: `SupersenseModel` (hf_ptm_ext.trainers) reads the batch; `DataCollatorForWholeWordMasking` is without
    senses.

    Args:
        table: The senses of words; needed where rows have no column.
        word_boundaries: "token" selects tokens, SenseBERT's way with its vocabulary of 60,000; else whole words, its
            way with 30,000. As `MaskingCollator`'s.
        mask_replace_prob: (SenseBERT: 0.9.)
        random_replace_prob: (SenseBERT: 0.)
        single_probability: Share of the words with exactly one supersense that are taken first (SenseBERT: 0.5).
        single_share: Most of the budget for them (SenseBERT: 0.4).

    The other arguments are those of `DataCollatorForWholeWordMasking`; the budget is always exact.

    Raises:
        TypeError: `table` is no SupersenseTable.
        ValueError: a row has no column of senses and there is no table, or see `DataCollatorForWholeWordMasking`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "they": 5, "swim": 6}
        >>> table = SupersenseTable.of({"swim": ["verb.motion"]})
        >>> collator = DataCollatorForSupersenseMasking(
        ...     BertTokenizerFast(vocab=vocab), table=table, word_boundaries="token", mlm_probability=1.0, seed=0)
        >>> batch = collator([[2, 5, 6, 3]])
        >>> batch["supersense_labels"].tolist() == [[-100, -100, table.bits("swim"), -100]]
        True
    """

    mask_replace_prob: float = 0.9
    random_replace_prob: float = 0.0
    table: SupersenseTable | None = None
    single_probability: float = 0.5
    single_share: float = 0.4

    _takes_tokens: ClassVar[bool] = True
    input_columns: ClassVar[tuple[str, ...]] = (*DataCollatorForWholeWordMasking.input_columns, SENSES)

    def __post_init__(self) -> None:
        if self.table is not None and not isinstance(self.table, SupersenseTable):
            raise TypeError(f"`table` must be a SupersenseTable or None, got {type(self.table).__name__}.")
        super().__post_init__()
        check_probability("single_probability", self.single_probability)
        check_probability("single_share", self.single_share)
        if self.budget != "exact":
            raise ValueError(f"`budget` must be 'exact' for supersenses, got {self.budget!r}.")

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        self._token_senses: Any = None if self.table is None else token_supersenses(self.tokenizer, self.table)

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        layout, batch = super()._lay_out(features)
        senses = batch.pop(SENSES, None)
        if senses is None and self._token_senses is None:
            raise ValueError(
                f"`table` must be given, or `{SENSES}` be a column, got the columns {sorted(batch)}. Pass a "
                "SupersenseTable, or write the column with `LexiconColumns(tokenizer, table)` and keep it with "
                "`remove_unused_columns=False`."
            )
        if senses is None:
            one = word_lengths_at_start(self._marked_words(layout), layout.text.shape)
            senses = np.where(one == 1, self._token_senses.take(layout.input_ids), 0)
        elif senses.shape != layout.input_ids.shape:
            raise ValueError(
                f"`{SENSES}` must have one integer per token, got shape {senses.shape} for {layout.input_ids.shape}."
            )
        return SenseLayout(**vars(layout), senses=np.where(layout.candidates, senses, 0)), batch

    def _marked_words(self, layout: TokenLayout) -> Segments:
        """The words, also where tokens are selected: of the column `word_ids` or of the tokenizer's marks."""
        where = "tokenizer" if self.word_boundaries == "token" else self.word_boundaries
        if where == "tokenizer" and self._tables.is_continuation is None:
            return find_segments(layout.candidates, layout.candidates)
        starts = find_word_starts(
            layout.input_ids,
            layout.candidates,
            layout.blocks,
            layout.word_ids,
            where,
            self._tables,
            type(self.tokenizer).__name__,
        )
        return find_segments(layout.candidates, starts)

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        starts = self._word_starts(layout)
        self._check_units(layout, starts)
        words = find_segments(layout.candidates, starts)
        senses = cast(SenseLayout, layout).senses[words.row, words.start]
        return words_by_senses(
            words,
            (senses != 0) & (senses & (senses - 1) == 0),
            bert_budget(layout.sequence_lengths(), self.mlm_probability, self.max_predictions),
            rng,
            (layout.text.shape[0], layout.text.shape[1]),
            layout.groups(),
            single_probability=self.single_probability,
            single_share=self.single_share,
        )

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        words = self._marked_words(layout)
        row, start = words.row, words.start
        senses = cast(SenseLayout, layout).senses[row, start]
        asked = (senses != 0) & (word_totals(selected, words) == words.lengths)
        labels = np.full(selected.shape, IGNORE_INDEX, dtype=np.int64)
        labels[row[asked], start[asked]] = senses[asked]
        return {"supersense_labels": labels, "supersense_lengths": word_lengths_at_start(words, selected.shape)}


def word_lengths_at_start(words: Segments, shape: tuple[int, ...]) -> np.ndarray:
    """Pieces of each word at its first piece, 0 elsewhere, `(batch, seq_len)`."""
    lengths = np.zeros(shape, dtype=np.int64)
    lengths[words.row, words.start] = words.lengths
    return lengths
