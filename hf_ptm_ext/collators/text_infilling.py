"""BART's denoising: restore a text from shuffled sentences and masked spans (Lewis et al. 2019,
https://arxiv.org/abs/1910.13461).

    text     <s> a b c . d e f . </s>
    input    <s> d <mask> . a <mask> c . </s>
    target   the text; the decoder gets it shifted right behind </s>

The noises come in fairseq's order: sentences are permuted, spans infilled, masks inserted, the text is rotated. The
defaults are those of the released models (sentences all permuted, 30 % of the words in spans of Poisson length 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..masking import (
    REPLACE_LENGTHS,
    Segments,
    check_probability,
    find_sentences,
    infill,
    insert_tokens,
    permuted_sentences,
    poisson_length_probabilities,
    rotated,
    sample_infilling_spans,
)
from ..masking.checks import check_choice
from .base import mask_token_id
from .denoising import DenoisingCollator, FlatRows, end_token_id, random_tokens_from
from .vocabulary import ids_of_texts
from .words import WORD_BOUNDARIES, find_word_starts, placed_word_ids, take_word_rows

MASK_LENGTHS = ("span-poisson", "word", "subword")
# Full stops of Latin, Chinese and Japanese (also half and full width), Devanagari, Arabic, Armenian and Ethiopic.
FULL_STOPS = (".", "。", "．", "｡", "।", "۔", "։", "።")


@dataclass
class DataCollatorForTextInfilling(DenoisingCollator):
    """Shuffle sentences and mask spans of a text, and ask for the text.

    | column | shape | value |
    | --- | --- | --- |
    | `input_ids`, `attention_mask` | (batch, seq_len) | the noisy text |
    | `decoder_input_ids` | (batch, T) | the text behind a start token |
    | `labels` | (batch, T) | the text, -100 on padding |

    Rows are whole texts with their special tokens, <s> text </s>; those at the ends stay where they are and are never
    masked. A row without anything else comes back as it is.

    Words come from the tokenizer's marks, a `word_ids` column, or are the tokens (`word_boundaries`). The paper's
    single noises: token masking is `mask_length="subword"`, token deletion that with `replace_length=0`, document
    rotation `rotate_ratio=1.0` and sentence permutation alone `mask_ratio=0.0`.

    Relations: feeds `BartForConditionalGeneration`, mBART and others of that kind as they are.

    Args:
        mask_ratio: Share of words to mask (BART: 0.3). ceil(ratio times words) are.
        mask_length: "span-poisson": spans of words (BART); "word": single words; "subword": single tokens.
        poisson_lambda: Mean words of a span (BART: 3.5). Lengths of 0 insert a mask.
        replace_length: 1: one mask for each span (BART); 0: spans are deleted; -1: one mask for each token.
        mask_random_ratio: Share of masks that are random ids instead (BART: 0.1). Of inserted tokens
            ceil(n times ratio) are, so a single inserted token always is, as in the reference.
        permute_sentence_ratio: Share of sentences that are permuted (BART: 1).
        insert_ratio: Further tokens to insert, per token of the row (BART: 0).
        rotate_ratio: Share of rows that are rotated (BART: 0).
        full_stops: Tokens that end a sentence, as text (matched without the marks of word boundaries). None: full
            stops of the vocabulary in several scripts ("." "。" "।" ...). The reference knows one id, GPT-2's ".".
        first_random_id: Smallest id of random tokens (fairseq: 1). None: no special tokens.
        word_boundaries: "auto", "column", "tokenizer" or "token", see `MaskingCollator`.
        decoder_start_token_id: First decoder input. None: the end token, as in BART.

    The other arguments are those of `DenoisingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, ".": 7}
        >>> collator = DataCollatorForTextInfilling(BertTokenizerFast(vocab=vocab), mask_random_ratio=0.0, seed=1)
        >>> batch = collator([[2, 5, 5, 7, 6, 6, 7, 3]])
        >>> batch["labels"].tolist(), batch["decoder_input_ids"].tolist()
        ([[2, 5, 5, 7, 6, 6, 7, 3]], [[3, 2, 5, 5, 7, 6, 6, 7]])
        >>> batch["input_ids"].tolist()
        [[2, 6, 4, 5, 5, 7, 3]]
    """

    mask_ratio: float = 0.3
    mask_length: str = "span-poisson"
    poisson_lambda: float = 3.5
    replace_length: int = 1
    mask_random_ratio: float = 0.1
    permute_sentence_ratio: float = 1.0
    insert_ratio: float = 0.0
    rotate_ratio: float = 0.0
    full_stops: Sequence[str] | None = None
    first_random_id: int | None = 1
    word_boundaries: str = "auto"
    decoder_start_token_id: int | None = None

    input_columns: ClassVar[tuple[str, ...]] = ("word_ids",)

    def __post_init__(self) -> None:
        for name in ("mask_ratio", "mask_random_ratio", "permute_sentence_ratio", "rotate_ratio"):
            check_probability(name, getattr(self, name))
        check_choice("mask_length", self.mask_length, MASK_LENGTHS)
        check_choice("word_boundaries", self.word_boundaries, WORD_BOUNDARIES)
        check_choice("replace_length", self.replace_length, REPLACE_LENGTHS, "BART uses 1.")
        if not self.insert_ratio >= 0:
            raise ValueError(f"`insert_ratio` must not be negative, got {self.insert_ratio}. BART uses 0.")
        if self.mask_length == "span-poisson":
            if not self.poisson_lambda > 0:
                raise ValueError(f"`poisson_lambda` must be positive, got {self.poisson_lambda}. BART uses 3.5.")
            self._length_probabilities = poisson_length_probabilities(self.poisson_lambda)
        else:
            self._length_probabilities = np.array([0.0, 1.0])
        self._word_ids_seen = False
        super().__post_init__()

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        self._mask_id = mask_token_id(self.tokenizer)
        start = self.decoder_start_token_id
        self._start_id = end_token_id(self.tokenizer) if start is None else start
        self._random_tokens = random_tokens_from(self.tokenizer, self._tables, self.first_random_id)
        self._is_full_stop = np.zeros(len(self._tables.special), dtype=bool)
        if self.permute_sentence_ratio:
            wanted = FULL_STOPS if self.full_stops is None else tuple(self.full_stops)
            ids = ids_of_texts(self.tokenizer, wanted)
            if not ids:
                raise ValueError(
                    f"`full_stops` must be tokens of the vocabulary, got none of {wanted} in "
                    f"{type(self.tokenizer).__name__}. Name what ends a sentence there, or set "
                    "`permute_sentence_ratio` to 0."
                )
            self._is_full_stop[ids] = True

    def _corrupt(self, rows: FlatRows, rng: np.random.Generator) -> dict[str, np.ndarray]:
        word_rows = take_word_rows(rows.columns, self.word_boundaries, self._word_ids_seen)
        self._word_ids_seen |= word_rows is not None
        tokens, lengths, never = rows.tokens, rows.lengths, self._tables.never_masked
        body = rows.body(never)
        order = None
        if self.permute_sentence_ratio:
            sentences = find_sentences(self._is_full_stop[tokens], body)
            order = permuted_sentences(sentences, len(tokens), self.permute_sentence_ratio, rng)
            tokens = tokens[order]
        if self.mask_ratio:
            words = self._words(rows, tokens, order, body, word_rows)
            drawn = sample_infilling_spans(words, body, self.mask_ratio, self._length_probabilities, rng)
            tokens, lengths = infill(
                tokens,
                lengths,
                drawn.spans,
                rng,
                mask_token_id=self._mask_id,
                random_tokens=self._random_tokens,
                random_ratio=self.mask_random_ratio,
                replace_length=self.replace_length,
            )
            body = _resized(body, rows.lengths, lengths)
            tokens, lengths, body = self._inserted(tokens, lengths, body, drawn.insertions, rng)
        if self.insert_ratio:
            count = np.ceil(lengths * self.insert_ratio).astype(np.int64)
            tokens, lengths, body = self._inserted(tokens, lengths, body, count, rng)
        if self.rotate_ratio:
            tokens = tokens[rotated(body, len(tokens), self.rotate_ratio, rng)]
        batch = self._encoder_side(rows, tokens, lengths)
        return batch | self._decoder_side(rows.tokens, rows.lengths, self._start_id)

    def _words(
        self,
        rows: FlatRows,
        tokens: np.ndarray,
        order: np.ndarray | None,
        body: Segments,
        word_rows: list[Any] | None,
    ) -> np.ndarray:
        """First token of every word of the bodies, boolean `(total,)`."""
        candidates = rows.inside(body)[None]
        if self.mask_length == "subword":
            return candidates[0]
        blocks = np.zeros_like(candidates)
        blocks[0, body.start[body.lengths > 0]] = True
        word_ids = None
        if word_rows is not None:
            flat = placed_word_ids(word_rows, rows.frame)[rows.text]
            word_ids = (flat if order is None else flat[order])[None]
            candidates = candidates & (word_ids >= 0)
        name = type(self.tokenizer).__name__
        return find_word_starts(tokens[None], candidates, blocks, word_ids, self.word_boundaries, self._tables, name)[
            0
        ]

    def _inserted(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        body: Segments,
        insertions: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, Segments]:
        """Tokens, lengths and bodies with that many masks more."""
        if not insertions.any():
            return tokens, lengths, body
        tokens, longer = insert_tokens(
            tokens,
            body,
            lengths,
            insertions,
            rng,
            mask_token_id=self._mask_id,
            random_tokens=self._random_tokens,
            random_ratio=self.mask_random_ratio,
        )
        return tokens, longer, _resized(body, lengths, longer)


def _resized(body: Segments, before: np.ndarray, after: np.ndarray) -> Segments:
    """Bodies whose rows have become longer or shorter, the special tokens at their ends aside."""
    change = after - before
    total = np.cumsum(change)
    return Segments(body.row, body.start + total - change, body.stop + total)
