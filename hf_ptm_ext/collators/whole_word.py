"""Whole-word masking (google-research/bert, May 2019; Chinese: Cui et al. 2019, https://arxiv.org/abs/1906.08101).

The rule is `masking.whole_word`'s; the fate (mask / random / keep) is drawn per token, as in the reference.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..masking import bernoulli_words, bert_budget, exact_words
from .base import MaskingCollator, TokenLayout
from .masked_lm import check_budget


@dataclass
class DataCollatorForWholeWordMasking(MaskingCollator):
    """Select whole words.

    Words come from a `word_ids` column (integers, -1 = never masked) or from the marks of the tokenizer's pieces; see
    `collators.vocabulary` for the rule, which also covers punctuation, and `describe_words` to look at units.
    Text without spaces (Chinese, Japanese, Thai...) has words only through the column: a batch that consists mostly of
    such text and has no column raises, unless `word_boundaries="tokenizer"` asks for the tokenizer's units.

    Relations: `DataCollatorForMaskedLanguageModeling` selects tokens, `DataCollatorForSpanMasking` spans of words.

    Args:
        budget: "exact" (the reference's rule, default) or "bernoulli" (every word independently, upstream's rule).
        at_least_one: With "bernoulli", give a sequence that came out empty one word (default False,
            upstream's rule). With "exact" a sequence is empty only if each of its words is longer than the budget.
        max_predictions: With "exact", upper bound of the count (BERT: 20 for length 128, 77 for 512); None: no bound.
        exclude_cjk_continuations_from_random: Default True here (see `MaskingCollator`).

    The other arguments are those of `MaskingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
        >>> collator = DataCollatorForWholeWordMasking(BertTokenizerFast(vocab=vocab), mlm_probability=0.4, seed=0)
        >>> labels = collator([[2, 5, 6, 5, 6, 3]])["labels"]  # 2 of 6 tokens, so one of the two words
        >>> (labels[0, 1] != -100) == (labels[0, 2] != -100), (labels != -100).sum()
        (tensor(True), tensor(2))
    """

    exclude_cjk_continuations_from_random: bool = True
    budget: str = "exact"
    at_least_one: bool = False
    max_predictions: int | None = None

    _takes_tokens: ClassVar[bool] = False  # whether tokens may be the words

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget, self.max_predictions)
        if self.word_boundaries == "token" and not self._takes_tokens:
            raise ValueError(
                f"`word_boundaries` must name words for whole-word masking, got {self.word_boundaries!r}. Use "
                "DataCollatorForMaskedLanguageModeling to mask single tokens."
            )
        self._warned = False

    @property
    def _needs_words(self) -> bool:
        return True

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        starts = self._word_starts(layout)
        self._check_units(layout, starts)
        if self.budget == "bernoulli":
            return bernoulli_words(
                layout.candidates, starts, self.mlm_probability, rng, self.at_least_one, layout.groups()
            )
        budget = bert_budget(layout.sequence_lengths(), self.mlm_probability, self.max_predictions)
        return exact_words(layout.candidates, starts, budget, rng, layout.groups())

    def _check_units(self, layout: TokenLayout, starts: np.ndarray) -> None:
        """Refuse text whose words the tokenizer cannot know; warn once when words equal tokens."""
        total = np.count_nonzero(layout.candidates)
        if not total or self.word_boundaries == "token":
            return
        if layout.word_ids is None and self.word_boundaries == "auto":
            unspaced = np.count_nonzero(self._tables.unspaced.take(layout.input_ids) & layout.candidates)
            if 2 * unspaced > total:
                raise ValueError(
                    f"`word_ids` must be a column of text written without spaces ({unspaced} of {total} tokens), got "
                    "none. Write it with `hf_ptm_ext.data.segmentation.WordIds(tokenizer, jieba_segmenter())` "
                    "and keep it with `remove_unused_columns=False`, or set `word_boundaries='tokenizer'` to mask "
                    "single characters."
                )
        if not self._warned and not self._takes_tokens and np.count_nonzero(starts) == total:
            self._warned = True
            warnings.warn(
                "Whole-word masking equals token masking here: no word of this batch has more than one token. "
                "`describe_words(tokenizer, text)` shows the units; Chinese needs a `word_ids` column.",
                UserWarning,
                stacklevel=2,
            )
