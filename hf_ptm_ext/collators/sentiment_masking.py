"""Label-aware masking (Ke et al., EMNLP 2020, SentiLARE, https://arxiv.org/abs/1911.02493).

Words with a polarity are masked more often, and the model is asked for their part of speech and polarity as well; the
rule is `masking.lexical`'s. The reference code has no licence: this is written from the paper's rule and its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from ..data.lexicons import NEUTRAL, UNKNOWN_POS
from ..masking import (
    IGNORE_INDEX,
    check_probability,
    cover_chosen,
    find_segments,
    groups_of,
    replace_words,
    words_by_polarity,
)
from .base import MaskingCollator, TokenLayout

RATING = "sentence_polarity"
UNKNOWN_RATING = 5


@dataclass(kw_only=True)
class SentimentLayout(TokenLayout):
    """A padded batch with what is known of its words `(batch, seq_len)` and texts `(batch,)`."""

    pos_tags: np.ndarray
    polarity: np.ndarray
    rating: np.ndarray


@dataclass
class DataCollatorForSentimentMasking(MaskingCollator):
    """Select whole words, those with a polarity twice as often, and ask for what was known of them.

    | input | becomes | label |
    | --- | --- | --- |
    | selected word, all pieces alike | [MASK] / a random word / itself (0.8/0.1/0.1) | ids, part of speech, polarity |
    | its part of speech, polarity | unknown (4, 2), but where the word stays | |
    | rating of a row, probability `task_ratio` (late supervision) | unknown (5) | the rating |
    | rating of another row (early supervision) | itself at all tokens but special ones | none |

    Rows have the columns of `LexiconColumns(tokenizer, SentimentWords(...))` and, where texts are rated, a column
    `sentence_polarity`: 0 to 4 (stars less one), -100 or no column for unknown. An unknown part of speech is not
    asked for, nor the polarity of a neutral word with one.

    Relations: `SentiLareModel` (hf_ptm_ext.trainers) reads the batch; `DataCollatorForWholeWordMasking` is without a
    lexicon.

    Args:
        mlm_probability: Probability of a neutral word (SentiLARE: 0.15).
        sentiment_probability: Probability of a positive or negative word (SentiLARE: 0.3).
        task_ratio: Probability that a row's rating is predicted and not read (SentiLARE: 0.2).
        at_least_one: Give a sequence that came out empty one word.

    The other arguments are those of `MaskingCollator`; a random word is one of the batch, cut or filled up with
    [MASK] to the length of the one that it replaces, so options of random tokens have no effect.

    Raises:
        ValueError: a probability is none, a row has no columns of the lexicon, or a rating is not known.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "bad": 6}
        >>> collator = DataCollatorForSentimentMasking(
        ...     BertTokenizerFast(vocab=vocab), mlm_probability=0, sentiment_probability=1, mask_replace_prob=1,
        ...     random_replace_prob=0, task_ratio=1, seed=0)
        >>> row = {"input_ids": [2, 5, 6, 3], "pos_tag_ids": [4, 4, 1, 4], "word_polarity_ids": [2, 2, 0, 2]}
        >>> batch = collator([{**row, "sentence_polarity": 0}])
        >>> batch["input_ids"].tolist(), batch["word_polarity_ids"].tolist(), batch["word_polarity_labels"].tolist()
        ([[2, 5, 4, 3]], [[2, 2, 2, 2]], [[-100, -100, 0, -100]])
        >>> batch["sentence_polarity_ids"].tolist(), batch["sentence_polarity_labels"].tolist()
        ([[5, 5, 5, 5]], [0])
    """

    replacement_unit: str = "word"
    sentiment_probability: float = 0.3
    task_ratio: float = 0.2
    at_least_one: bool = False

    input_columns: ClassVar[tuple[str, ...]] = (
        *MaskingCollator.input_columns,
        *("pos_tag_ids", "word_polarity_ids", RATING),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability("sentiment_probability", self.sentiment_probability)
        check_probability("task_ratio", self.task_ratio)
        if self.replacement_unit != "word":
            raise ValueError(f"`replacement_unit` must be 'word' for whole words, got {self.replacement_unit!r}.")
        self.pad_values = {"pos_tag_ids": UNKNOWN_POS, "word_polarity_ids": NEUTRAL, **self.pad_values}
        self._hidden = np.zeros((0, 0), dtype=bool)  # of the batch that is being made
        self._late = np.zeros(0, dtype=bool)

    @property
    def _needs_words(self) -> bool:
        return True

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        layout, batch = super()._lay_out(features)
        known = []
        for name, most in (("pos_tag_ids", UNKNOWN_POS), ("word_polarity_ids", NEUTRAL)):
            column = batch.get(name)
            if column is None or column.shape != layout.input_ids.shape:
                raise ValueError(
                    f"`{name}` must be a column with an entry a token, got the columns {sorted(batch)}. Write it with "
                    "`LexiconColumns(tokenizer, SentimentWords(...))`, and keep it with `remove_unused_columns=False`."
                )
            if column.size and not 0 <= column.min() <= column.max() <= most:
                raise ValueError(f"`{name}` must be in 0 to {most}, got {column.min()} to {column.max()}.")
            known.append(column)
        rating = batch.pop(RATING, np.full(len(layout.text), IGNORE_INDEX))
        if rating.shape != (len(layout.text),) or (rating[rating != IGNORE_INDEX] // UNKNOWN_RATING).any():
            raise ValueError(
                f"`{RATING}` must be 0 to {UNKNOWN_RATING - 1}, or {IGNORE_INDEX} for unknown, one a row, got "
                f"{rating.tolist()[:5]}."
            )
        return SentimentLayout(**vars(layout), pos_tags=known[0], polarity=known[1], rating=rating), batch

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        known = cast(SentimentLayout, layout)
        shape = (layout.text.shape[0], layout.text.shape[1])
        self._words = words = find_segments(layout.candidates, self._word_starts(layout))
        charged = known.polarity[words.row, words.start] != NEUTRAL
        self._chosen = words_by_polarity(
            words,
            charged,
            self.mlm_probability,
            self.sentiment_probability,
            rng,
            groups_of(words, shape, layout.groups()),
            self.at_least_one,
        )
        self._late = (rng.random(len(known.rating)) < self.task_ratio) & (known.rating != IGNORE_INDEX)
        return cover_chosen(words, self._chosen, shape)

    def _replace(self, layout: TokenLayout, selected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        corrupted, self._hidden = replace_words(
            layout.input_ids,
            self._words,
            self._chosen,
            rng,
            mask_token_id=int(self.tokenizer.mask_token_id),
            mask_replace_prob=self.mask_replace_prob,
            random_replace_prob=self.random_replace_prob,
        )
        return corrupted

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        known, late = cast(SentimentLayout, layout), self._late
        asked = selected & ((known.polarity != NEUTRAL) | (known.pos_tags != UNKNOWN_POS))
        early = np.where(late | (known.rating == IGNORE_INDEX), UNKNOWN_RATING, known.rating)
        return {
            "pos_tag_ids": np.where(self._hidden, UNKNOWN_POS, known.pos_tags),
            "word_polarity_ids": np.where(self._hidden, NEUTRAL, known.polarity),
            "sentence_polarity_ids": np.where(layout.candidates, early[:, None], UNKNOWN_RATING),
            "pos_tag_labels": np.where(selected & (known.pos_tags != UNKNOWN_POS), known.pos_tags, IGNORE_INDEX),
            "word_polarity_labels": np.where(asked, known.polarity, IGNORE_INDEX),
            "sentence_polarity_labels": np.where(late, known.rating, IGNORE_INDEX),
        }
