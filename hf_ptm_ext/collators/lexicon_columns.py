"""What a lexicon says about words, as columns of the pieces of a tokenizer; made when rows are prepared.

One way for every lexicon: the words of a row are found, spelled and looked up together, and each piece of a word has
what its word has. Rows may be packed: the pieces still spell their text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..data.lexicons import SupersenseTable
from ..masking import block_starts, candidate_mask, find_segments, segment_index
from ..masking.checks import check_choice
from .vocabulary import check_tokenizer, vocabulary_tables
from .words import WORD_BOUNDARIES, find_word_starts, take_word_rows


class LexiconColumns:
    """Add a lexicon's columns to a row of token ids; pass it to `datasets.Dataset.map`.

    Args:
        tokenizer: Fast or slow tokenizer of the rows.
        lexicon: Words of a text (between special tokens) -> column -> an integer for each word, with an attribute
            `unknown`, column -> what stands at other positions: `data.SentimentWords`, `data.SupersenseTable`, or
            any function with that attribute.
        word_boundaries: Where words come from, as `MaskingCollator`'s: by default a column `word_ids` where there is
            one (Chinese; `data.WordIds`), else the tokenizer's marks.

    Raises:
        TypeError: `lexicon` is no function, or does not say what is unknown.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> from hf_ptm_ext.data import SentimentWords
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "bad": 6, "##ly": 7}
        >>> add = LexiconColumns(BertTokenizerFast(vocab=vocab), SentimentWords({"badly": 0}))
        >>> add({"input_ids": [2, 5, 6, 7, 3]})["word_polarity_ids"]
        [2, 2, 0, 0, 2]
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        lexicon: Callable[[Sequence[str]], Mapping[str, Sequence[int]]],
        word_boundaries: str = "auto",
    ):
        check_tokenizer("tokenizer", tokenizer)
        check_choice("word_boundaries", word_boundaries, WORD_BOUNDARIES)
        if not callable(lexicon) or not hasattr(lexicon, "unknown"):
            raise TypeError(
                f"`lexicon` must be a function with an attribute `unknown`, got {type(lexicon).__name__}. "
                "`hf_ptm_ext.data.SentimentWords` and `SupersenseTable` are such."
            )
        self.tokenizer, self.lexicon, self.word_boundaries = tokenizer, lexicon, word_boundaries
        self._tables = vocabulary_tables(tokenizer)
        self._spelled: dict[tuple[int, ...], str] = {}

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Add the columns to one row."""
        ids = np.array([row["input_ids"]], dtype=np.int64).reshape(1, -1)
        candidates = candidate_mask(ids, self._tables.never_masked)
        given = {"word_ids": [row["word_ids"]]} if "word_ids" in row else {}
        words = take_word_rows(given, self.word_boundaries)
        word_ids = None if words is None else np.array(words, dtype=np.int64).reshape(1, -1)
        if word_ids is not None:
            candidates &= word_ids >= 0
        sequences = np.array([row["sequence_ids"]]) if "sequence_ids" in row else None
        blocks = block_starts(candidates, sequences)
        starts = find_word_starts(
            ids, candidates, blocks, word_ids, self.word_boundaries, self._tables, type(self.tokenizer).__name__
        )
        units = find_segments(candidates, starts)
        texts = [self._spell(tuple(ids[0, begin:end])) for begin, end in zip(units.start, units.stop, strict=True)]
        block = segment_index(candidates, blocks)[0, units.start]
        bounds = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(texts)]
        columns = {name: np.full(ids.shape[1], value) for name, value in self.lexicon.unknown.items()}
        inside = np.repeat(units.start - np.cumsum(units.lengths) + units.lengths, units.lengths)
        inside += np.arange(len(inside))
        found = [self.lexicon(texts[begin:end]) for begin, end in pairwise(bounds) if end > begin]
        for name, values in columns.items():
            if found:
                values[inside] = np.repeat(np.concatenate([part[name] for part in found]), units.lengths)
        return {**row, **{name: values.tolist() for name, values in columns.items()}}

    def _spell(self, ids: tuple[int, ...]) -> str:
        """The word of its pieces."""
        if ids not in self._spelled:
            self._spelled[ids] = str(self.tokenizer.decode([int(token) for token in ids])).strip()
        return self._spelled[ids]


def token_supersenses(tokenizer: PreTrainedTokenizerBase, table: SupersenseTable) -> np.ndarray:
    """The supersenses of each token of a vocabulary, int64 `(vocab_size,)`, SenseBERT's matrix M.

    Only tokens that can be a whole word have any: none of the special ones and no continuations.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "swim": 5, "##swim": 6}
        >>> table = SupersenseTable.of({"swim": ["verb.motion"]})
        >>> token_supersenses(BertTokenizerFast(vocab=vocab), table).astype(bool).astype(int)
        array([0, 0, 0, 0, 0, 1, 0])
    """
    tables = vocabulary_tables(tokenizer)
    whole = ~tables.special
    if tables.is_continuation is not None:
        opens = ~tables.is_continuation & whole
        whole &= opens if opens.any() else tables.ends_word  # pieces that are marked at the end of a word
    senses = np.zeros(len(whole), dtype=np.int64)
    known = set(tokenizer.get_vocab().values())
    for token in np.flatnonzero(whole).tolist():
        if token in known:
            senses[token] = table.bits(str(tokenizer.decode([token])).strip())
    return senses
