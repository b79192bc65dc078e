"""N-grams of words (Lan et al. 2020, ALBERT, https://arxiv.org/abs/1909.11942), and similar words in their place
(Cui et al. 2020, MacBERT, https://arxiv.org/abs/2004.13922).

The selection is `masking.ngrams`' second rule, that of google-research/albert. MacBERT has no public code: its law of
sizes and its fates are the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..data.word_vectors import WordVectors
from ..masking import bert_budget, find_segments, inverse_size_probabilities, sample_word_ngrams
from .base import TokenLayout
from .whole_word import DataCollatorForWholeWordMasking

MACBERT_SIZES = (0.4, 0.3, 0.2, 0.1)
# Neighbours of a word that are asked for, of which the first with as many pieces is taken.
NEIGHBOURS = 10


@dataclass
class DataCollatorForNgramMasking(DataCollatorForWholeWordMasking):
    """Select n-grams of whole words up to BERT's budget; the fate is drawn per token, as in the reference.

    Relations: `DataCollatorForWholeWordMasking` selects single words, `DataCollatorForSpanMasking` spans of a
    geometric length, `DataCollatorForMacBertMasking` puts similar words in the place of [MASK].

    Args:
        max_ngram_size: Longest n-gram in words (ALBERT: 3).
        favor_shorter_ngrams: p(n) in proportion to 1/n (ALBERT: true); false turns the law around.
        ngram_probabilities: P(n-gram has k words) at entry k - 1 instead of both.
        budget: "exact", the reference's.
        max_predictions: Upper bound of the count (ALBERT: 20 for length 128); None: no bound.
        word_boundaries: As in `MaskingCollator`; "token" makes n-grams of tokens (ALBERT without whole words).

    The other arguments are those of `DataCollatorForWholeWordMasking`. Chinese needs a `word_ids` column.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
        >>> collator = DataCollatorForNgramMasking(BertTokenizerFast(vocab=vocab), ngram_probabilities=(0, 1), seed=0)
        >>> labels = collator([[2] + [5, 6] * 13 + [3]])["labels"]  # 4 of 28 tokens: two words, neighbours
        >>> (labels != -100).sum()
        tensor(4)
    """

    max_ngram_size: int = 3
    favor_shorter_ngrams: bool = True
    ngram_probabilities: Sequence[float] | None = None

    _takes_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget != "exact":
            raise ValueError(f"`budget` must be 'exact' for n-grams, which fill one up, got {self.budget!r}.")
        law = self.ngram_probabilities
        self._sizes = (
            inverse_size_probabilities(self.max_ngram_size, self.favor_shorter_ngrams)
            if law is None
            else np.asarray(law, dtype=np.float64)
        )

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        starts = self._word_starts(layout)
        self._check_units(layout, starts)
        budget = bert_budget(layout.sequence_lengths(), self.mlm_probability, self.max_predictions)
        return sample_word_ngrams(layout.candidates, starts, layout.blocks, budget, self._sizes, rng, layout.groups())


@dataclass
class DataCollatorForMacBertMasking(DataCollatorForNgramMasking):
    """Put similar words in the place of selected ones, so that no [MASK] is seen that fine-tuning never has.

    A word has one fate: a similar word, a random one, or itself (0.8/0.1/0.1). A similar word must have as many
    pieces; a word without one becomes random tokens, as in the paper. MacBERT trains sentence order beside it.

    Relations: `DataCollatorForNgramMasking` makes the same selection with [MASK].

    Args:
        similar_words: What a word's neighbours are, nearest first: a function from a word to words, a mapping, or
            word vectors (`load_word_vectors`, gensim's `KeyedVectors`). Words are asked for as the tokenizer spells
            them, without marks.
        mask_replace_prob: Probability of a similar word (MacBERT: 0.8).
        random_replace_prob: Probability of random tokens (MacBERT: 0.1).
        ngram_probabilities: MacBERT: 0.4, 0.3, 0.2, 0.1 for 1 to 4 words.

    The other arguments are those of `DataCollatorForNgramMasking`.

    Raises:
        ValueError: `similar_words` is missing.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "big": 5, "large": 6}
        >>> collator = DataCollatorForMacBertMasking(BertTokenizerFast(vocab=vocab), mlm_probability=1.0, seed=0,
        ...     mask_replace_prob=1.0, random_replace_prob=0.0, ngram_probabilities=[1.0],
        ...     similar_words={"big": ["large"], "large": ["big"]})
        >>> collator([[2, 5, 6, 6, 3]])["input_ids"].tolist()
        [[2, 6, 5, 5, 3]]
    """

    similar_words: Callable[[str], Iterable[str]] | Mapping[str, Iterable[str]] | WordVectors | Any = field(
        default=None, repr=False
    )
    ngram_probabilities: Sequence[float] | None = MACBERT_SIZES

    def __post_init__(self) -> None:
        super().__post_init__()
        source = self.similar_words
        if hasattr(source, "index_to_key"):
            self.similar_words = WordVectors.of(source)
        elif not (callable(source) or isinstance(source, Mapping | WordVectors)):
            raise ValueError(
                "`similar_words` must be a function from a word to similar ones, a mapping, or word vectors "
                f"(`load_word_vectors(file)`, gensim's KeyedVectors), got {source!r}."
            )
        self._similar: dict[tuple[int, ...], list[int] | None] = {}

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        self._similar = {}

    def _replace(self, layout: TokenLayout, selected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        words = find_segments(selected, self._word_starts(layout) | layout.blocks)
        fate = rng.random(len(words.row))
        corrupted = layout.input_ids.copy()
        at_random = (fate >= self.mask_replace_prob) & (fate < self.mask_replace_prob + self.random_replace_prob)
        for number in np.flatnonzero(fate < self.mask_replace_prob).tolist():
            row, place = words.row[number], slice(words.start[number], words.stop[number])
            similar = self._similar_to(tuple(layout.input_ids[row, place].tolist()))
            if similar is None:
                at_random[number] = True
            else:
                corrupted[row, place] = similar
        for number in np.flatnonzero(at_random).tolist():
            place = slice(words.start[number], words.stop[number])
            corrupted[words.row[number], place] = self._random_tokens.draw(int(words.lengths[number]), rng)
        return corrupted

    def _similar_to(self, pieces: tuple[int, ...]) -> list[int] | None:
        """Ids of the nearest word with as many pieces, none if there is no such word."""
        if pieces not in self._similar:
            word = str(self.tokenizer.decode(list(pieces))).replace(" ", "")
            found = (self._pieces_of(one) for one in self._neighbours(word) if one.lower() != word.lower())
            fitting = (ids for ids in found if len(ids) == len(pieces) and self.tokenizer.unk_token_id not in ids)
            self._similar[pieces] = next(fitting, None)
        return self._similar[pieces]

    def _pieces_of(self, word: str) -> list[int]:
        return list(self.tokenizer(word, add_special_tokens=False)["input_ids"])

    def _neighbours(self, word: str) -> list[str]:
        source = self.similar_words
        if isinstance(source, Mapping):
            return list(source.get(word, ()))[:NEIGHBOURS]
        return list(source(word))[:NEIGHBOURS] if callable(source) else source.nearest(word, NEIGHBOURS)
