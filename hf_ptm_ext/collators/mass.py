"""MASS pre-training: the decoder writes a fragment that the encoder does not see (Song et al. 2019,
https://arxiv.org/abs/1905.02450).

    text              a b c d e f g h
    encoder input     a b _ _ _ _ g h       80 % [MASK], 10 % the token itself, 10 % a random token
    decoder input         b c d e           the token before each one to predict, always the original
    decoder positions     1 2 3 4           where these stand in the text, from 0
    labels                c d e f

Nothing outside the fragment goes through the decoder. The released code has three variants that differ in length and
place of the fragments, `MASS_VARIANTS` has the options of each; the defaults are those of the summarization models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ..masking import (
    IGNORE_INDEX,
    LENGTH_RULES,
    Segments,
    at_least_one_token,
    check_fate,
    check_probability,
    fragment_lengths,
    fragment_windows,
    index_ranges,
    replace_tokens,
    row_offsets,
    sample_fragments,
    sample_pieces,
)
from ..masking.checks import check_choice
from ..masking.fragments import check_edges
from .base import check_end_token, check_positive, mask_token_id
from .denoising import DenoisingCollator, FlatRows, end_token_id, random_tokens_from

FIRST_DECODER_TOKENS = ("previous", "mask")
_PAPER: dict[str, Any] = {"mask_prob": 0.5, "block_size": None, "start_prob": 0.2, "end_prob": 0.2}
_VARIANTS: dict[str, dict[str, Any]] = {
    "summarization": {},
    "paper": _PAPER,
    "unsupervised_nmt": {**_PAPER, "length_rule": "round", "first_random_id": 0},
    "supervised_nmt": {
        **_PAPER,
        "length_rule": "round",
        "exclude_last_start": True,
        "prepend_end_token": True,
        "original_positions": False,
        "decoder_mask_prob": 0.1,
        "decoder_random_prob": 0.1,
        "encoder_window": "shifted",
    },
}
MASS_VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {name: MappingProxyType(options) for name, options in _VARIANTS.items()}
)


@dataclass
class DataCollatorForMassPreTraining(DenoisingCollator):
    """Cut fragments out of the encoder's text and make the decoder's task of them.

    | column | shape | value |
    | --- | --- | --- |
    | `input_ids`, `attention_mask` | (batch, seq_len) | the text with its fragments corrupted |
    | `decoder_input_ids` | (batch, T) | original tokens before those to predict, fragment after fragment |
    | `decoder_position_ids` | (batch, T) | their places in the row, from 0, padding not counted; 0 on padding |
    | `labels` | (batch, T) | the tokens to predict, -100 on padding |

    T is the largest number of predicted tokens of a row. The decoder side is padded on the right, so that its causal
    mask needs no padding mask (the reference has none). The first token of a row is never predicted; the last one,
    an end token included, may be. Per-token columns stay with the encoder; `token_type_ids` go, MASS has none.

    A row that the length rule gives no token loses one all the same, each token equally likely (the reference fails
    there).

    Relations: `MassForConditionalGeneration` takes all columns. BERT's tokenizers put [CLS] first; the published
    models were trained on "tokens [SEP]".

    Args:
        mask_prob: Share p of tokens to predict. The summarization code's default, which its command leaves: 0.15; the
            paper and the translation code: 0.5.
        block_size: Tokens of the windows that each lose one fragment (summarization: 64). None: the row (paper,
            translation).
        length_rule: "floor": floor(w p) tokens of a window of w (summarization). "round": round_half_even(n p) of the
            n tokens of the row, with `block_size=None` (translation).
        start_prob: Share of fragments put at the beginning of their window; `start_prob=0.2, end_prob=0.2` is the
            rule of paper and translation code, which leaves 60 % to chance. Default 0.
        end_prob: Share put at the end. Default 0.
        exclude_last_start: Leave the last start to `end_prob` alone (supervised translation). Default False.
        piece_length: Scatter each fragment in pieces of so many tokens (`lambda_span` of the translation code, whose
            default has no effect; 1 masks single tokens). None: in one piece.
        mask_replace_prob: Probability that an encoder token of a fragment becomes [MASK] (0.8).
        random_replace_prob: Probability that it becomes a random token (0.1); otherwise it stays.
        first_random_id: Smallest id of random tokens. None: neither special tokens nor "[unused1]" entries; in
            BERT's vocabulary that is the reference's 999. The translation code draws from the whole vocabulary: 0.
        first_decoder_token: What the decoder gets before the first token of a fragment: "previous", the original
            token as all released code does, or "mask", as the paper's figure shows.
        prepend_end_token: Let an end token that the encoder does not see precede each row, so that the first token
            can be predicted too (supervised translation). Default False.
        original_positions: Give `decoder_position_ids`. False: positions run on (supervised translation).
        decoder_mask_prob: Probability that a decoder input becomes [MASK] (supervised translation: 0.1). Default 0.
        decoder_random_prob: Probability that it becomes a random token (supervised translation: 0.1). Default 0.
        encoder_window: Which tokens are corrupted for the encoder: "fragment", those to predict; or "shifted", one
            more, one place further right: the released supervised code, which so shows the first one.

    The other arguments are those of `DenoisingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, "c": 7, "d": 8}
        >>> always_masked = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
        >>> collator = DataCollatorForMassPreTraining(
        ...     BertTokenizerFast(vocab=vocab), **MASS_VARIANTS["paper"], **always_masked, seed=3
        ... )
        >>> batch = collator([[5, 6, 7, 8, 3]])
        >>> for name in ("input_ids", "decoder_input_ids", "decoder_position_ids", "labels"):
        ...     print(name, batch[name].tolist())
        input_ids [[5, 6, 4, 4, 3]]
        decoder_input_ids [[6, 7]]
        decoder_position_ids [[1, 2]]
        labels [[7, 8]]
    """

    mask_prob: float = 0.15
    block_size: int | None = 64
    length_rule: str = "floor"
    start_prob: float = 0.0
    end_prob: float = 0.0
    exclude_last_start: bool = False
    piece_length: int | None = None
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    first_random_id: int | None = None
    first_decoder_token: str = "previous"
    prepend_end_token: bool = False
    original_positions: bool = True
    decoder_mask_prob: float = 0.0
    decoder_random_prob: float = 0.0
    encoder_window: str = "fragment"

    def __post_init__(self) -> None:
        check_probability("mask_prob", self.mask_prob)
        check_choice("length_rule", self.length_rule, LENGTH_RULES)
        check_choice("first_decoder_token", self.first_decoder_token, FIRST_DECODER_TOKENS)
        check_choice("encoder_window", self.encoder_window, ("fragment", "shifted"))
        check_positive("block_size", self.block_size)
        check_positive("piece_length", self.piece_length)
        check_fate(self.mask_replace_prob, self.random_replace_prob)
        check_fate(self.decoder_mask_prob, self.decoder_random_prob)
        check_edges(self.start_prob, self.end_prob)
        if self.length_rule == "round" and self.block_size is not None:
            raise ValueError(
                f"`block_size` must be None with `length_rule`='round', which counts the tokens of the row, got "
                f"{self.block_size}."
            )
        if self.piece_length is not None and (self.exclude_last_start or self.encoder_window == "shifted"):
            raise ValueError(
                "`piece_length` must be None with `exclude_last_start` and `encoder_window`='shifted', rules of "
                f"another variant, got {self.piece_length}."
            )
        super().__post_init__()

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        check_end_token(self.tokenizer)
        self._mask_id = mask_token_id(self.tokenizer)
        self._random_tokens = random_tokens_from(self.tokenizer, self._tables, self.first_random_id)
        self._end_id = end_token_id(self.tokenizer) if self.prepend_end_token else None

    def _corrupt(self, rows: FlatRows, rng: np.random.Generator) -> dict[str, np.ndarray]:
        first = 0 if self.prepend_end_token else 1
        if (rows.lengths <= first).any():
            row = int((rows.lengths <= first).argmax())
            raise ValueError(
                f"`input_ids` must have at least {first + 1} tokens, got {rows.lengths[row]} in row {row}: the first "
                f"{'token' if first else 'one'} is all that the decoder could begin with. Drop shorter rows."
            )
        fragments = self._fragments(rows.lengths, first, rng)
        batch = self._encoder(rows, fragments, rng)
        begin = row_offsets(rows.lengths)[fragments.row]
        predicted = index_ranges(begin + fragments.start, fragments.lengths)
        position = index_ranges(fragments.start, fragments.lengths)
        counts = np.bincount(fragments.row, weights=fragments.lengths, minlength=len(rows.lengths)).astype(np.int64)
        batch["decoder_input_ids"] = self._padded(
            self._fed(rows.tokens, predicted, position, rng), counts, self._pad_id
        )
        if self.original_positions:
            batch["decoder_position_ids"] = self._padded(position - first, counts, 0)
        batch["labels"] = self._padded(rows.tokens[predicted], counts, IGNORE_INDEX)
        return batch

    def _fragments(self, lengths: np.ndarray, first: int, rng: np.random.Generator) -> Segments:
        """The tokens to predict, in positions of their rows."""
        windows = fragment_windows(lengths, self.block_size, first)
        taken = at_least_one_token(windows, fragment_lengths(windows, self.mask_prob, self.length_rule), rng)
        edges = {"start_prob": self.start_prob, "end_prob": self.end_prob}
        if self.piece_length is not None:
            return sample_pieces(windows, taken, self.piece_length, rng, **edges)
        return sample_fragments(windows, taken, rng, **edges, exclude_last_start=self.exclude_last_start)

    def _encoder(self, rows: FlatRows, fragments: Segments, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Encoder columns; tokens keep their places, and so do per-token columns."""
        start, stop = fragments.start, fragments.stop
        if self.encoder_window == "shifted":
            end = rows.lengths[fragments.row]
            start, stop = np.minimum(start + 1, end), np.minimum(stop + 2, end)
        inside = np.zeros(len(rows.tokens), dtype=bool)
        inside[index_ranges(row_offsets(rows.lengths)[fragments.row] + start, stop - start)] = True
        input_ids = np.where(rows.text, rows.input_ids, self._pad_id)
        input_ids[rows.text] = self._replaced(
            rows.tokens, inside, self.mask_replace_prob, self.random_replace_prob, rng
        )
        batch = {"input_ids": input_ids, "attention_mask": rows.text.astype(np.int64)}
        for name, values in rows.columns.items():
            batch[name] = rows.frame.column(name, values, self.pad_values.get(name, 0))
        return batch

    def _fed(
        self, tokens: np.ndarray, predicted: np.ndarray, position: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """What the decoder gets in place of the token before each predicted one."""
        fed = tokens[predicted - 1]
        if self._end_id is not None:
            fed[position == 0] = self._end_id
        if self.first_decoder_token == "mask":
            opens = np.ones(len(predicted), dtype=bool)
            opens[1:] = (np.diff(predicted) > 1) | (np.diff(position) != 1)
            fed[opens] = self._mask_id
        if self.decoder_mask_prob or self.decoder_random_prob:
            every = np.ones(len(fed), dtype=bool)
            fed = self._replaced(fed, every, self.decoder_mask_prob, self.decoder_random_prob, rng)
        return fed

    def _replaced(
        self, tokens: np.ndarray, selected: np.ndarray, mask_prob: float, random_prob: float, rng: np.random.Generator
    ) -> np.ndarray:
        """Flat tokens with the fates of the selected ones."""
        return replace_tokens(
            tokens[None],
            selected[None],
            rng,
            mask_token_id=self._mask_id,
            random_tokens=self._random_tokens,
            mask_replace_prob=mask_prob,
            random_replace_prob=random_prob,
        )[0]
