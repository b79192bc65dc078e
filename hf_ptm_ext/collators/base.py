"""What every masking collator does around its own selection of positions.

    features -> padded arrays -> candidates, blocks, words -> SELECTION -> labels, replacement -> tensors

A subclass supplies the selection (`_select`) and, if it has any, further columns (`_extra_columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..masking import (
    block_starts,
    candidate_mask,
    check_fate,
    check_probability,
    check_sequences,
    fixed_label_positions,
    replace_tokens,
    segment_index,
    selected_labels,
    sequence_groups,
    uniform_tokens,
    unigram_tokens,
)
from ..masking.checks import check_choice
from .batching import RowFrame, collect_columns, detectable_pad, padding_id
from .randomness import CallRandomness
from .vocabulary import VocabularyTables, check_tokenizer, vocabulary_tables
from .words import WORD_BOUNDARIES, find_word_starts, placed_word_ids, take_word_rows

RETURN_TENSORS = ("pt", "np")
REPLACEMENT_UNITS = ("token", "word", "span")
# As the tokenizer of the family pads them.
PAD_VALUES = {"word_index": -1, "branch_id": -1}


@dataclass
class TokenLayout:
    """A padded batch as masking sees it; arrays `(batch, seq_len)`."""

    input_ids: np.ndarray  # original ids
    candidates: np.ndarray  # maskable positions, boolean
    blocks: np.ndarray  # first position of every content block, boolean
    sequence_ids: np.ndarray | None  # packed sequence of each token, 0 = padding; None when a row is one sequence
    text: np.ndarray  # positions that are not padding, boolean
    word_ids: np.ndarray | None  # explicit words, -1 = none; None when there is no such column
    _words: np.ndarray | None = None

    def groups(self) -> tuple[np.ndarray, int] | None:
        """Say which sequence each position belongs to."""
        if self.sequence_ids is None:
            return None
        return sequence_groups((self.input_ids.shape[0], self.input_ids.shape[1]), self.sequence_ids)

    def sequence_lengths(self) -> np.ndarray:
        """Count the tokens of each sequence."""
        groups = self.groups()
        if groups is None:
            return self.text.sum(axis=1)
        index, count = groups
        return np.bincount(index[self.text], minlength=count)


class BatchCollator(CallRandomness):
    """What collators share around their batches: options, the tokenizer's tables as it is now, the kind of arrays."""

    tokenizer: Any
    pad_to_multiple_of: int | None
    return_tensors: str
    seed: int | None

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)
        check_choice("return_tensors", self.return_tensors, RETURN_TENSORS)
        check_positive("pad_to_multiple_of", self.pad_to_multiple_of)
        self.start_randomness(self.seed)
        self._read_vocabulary()

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> BatchEncoding:
        """Make a batch."""
        kind = self.return_tensors if return_tensors is None else return_tensors
        check_choice("return_tensors", kind, RETURN_TENSORS)
        if self._vocabulary_length != len(self.tokenizer):
            self._read_vocabulary()
        batch = self._batch(features)
        if kind == "pt":
            return BatchEncoding({name: torch.from_numpy(values) for name, values in batch.items()})
        return BatchEncoding(batch)

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        """The columns of the batch."""
        raise NotImplementedError(f"`{type(self).__name__}._batch` must give the batch. Subclasses define it.")

    def _read_vocabulary(self) -> None:
        """Build the tables of the tokenizer as it is now."""
        self._tables: VocabularyTables = vocabulary_tables(self.tokenizer)
        self._vocabulary_length = len(self.tokenizer)
        self._detectable_pad = detectable_pad(self.tokenizer)


@dataclass
class MaskingCollator(BatchCollator):
    """Base of the masking collators: batching, words, replacement, labels.

    Args:
        tokenizer: Fast or slow tokenizer with a mask token.
        mlm_probability: Share of tokens to select (BERT: 0.15).
        mask_replace_prob: Probability that a selected unit becomes [MASK] (BERT: 0.8).
        random_replace_prob: Probability that it becomes random tokens (BERT: 0.1); otherwise it stays.
        replacement_unit: What shares one such draw: "token" (BERT, also under whole-word masking), "word", or "span",
            a run of neighbouring selected tokens (SpanBERT).
        random_token_counts: Occurrences of each id in a corpus, `(vocab_size,)`, to draw random tokens by frequency
            (SpanBERT; see `masking.count_tokens`); None draws uniformly (BERT).
        exclude_special_from_random: Never draw a special token. Default False: BERT draws from all ids.
        exclude_cjk_continuations_from_random: Never draw a "##X" piece of a script without spaces; tokenizers do not
            produce them, they are untrained. Default False; True for whole words (Cui et al. 2019).
        word_boundaries: Where words come from, if they are needed: "column" (a `word_ids` column, an error without
            it), "tokenizer" (marks in the pieces, see `collators.vocabulary`), "token" (every token is a word), or
            "auto": the column where there is one, else the tokenizer.
        label_budget: Fixed number P of label slots in a row: adds `label_positions` (batch, P) for heads that compute
            logits at labels only, and raises when a row has more labels. None adds nothing.
        pad_to_multiple_of: Pad to a multiple of this length.
        pad_values: Padding value of per-token columns by name; for those not named -1 in `word_index` and `branch_id`
            (K-BERT's, in which 0 is a word and the text), else 0.
        return_tensors: "pt" or "np".
        seed: Seed of all draws, with epoch, process, worker and call (see `collators.randomness`); None: fresh
            entropy.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> class MaskEveryB(MaskingCollator):
        ...     def _select(self, layout, rng):
        ...         return layout.candidates & (layout.input_ids == 6)
        >>> collator = MaskEveryB(BertTokenizerFast(vocab=vocab), mask_replace_prob=1.0, random_replace_prob=0.0)
        >>> batch = collator([[2, 5, 6, 3]])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[2, 5, 4, 3]], [[-100, -100, 6, -100]])
    """

    tokenizer: PreTrainedTokenizerBase
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    replacement_unit: str = "token"
    random_token_counts: Sequence[int] | np.ndarray | None = field(default=None, repr=False, compare=False)
    exclude_special_from_random: bool = False
    exclude_cjk_continuations_from_random: bool = False
    word_boundaries: str = "auto"
    label_budget: int | None = None
    pad_to_multiple_of: int | None = None
    pad_values: dict[str, int | float] = field(default_factory=dict)
    return_tensors: str = "pt"
    seed: int | None = None

    # Columns that a collator reads and no model's forward names; `PtmTrainer` keeps them.
    input_columns: ClassVar[tuple[str, ...]] = ("word_ids", "special_tokens_mask")

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)
        mask_token_id(self.tokenizer)
        check_probability("mlm_probability", self.mlm_probability)
        check_fate(self.mask_replace_prob, self.random_replace_prob)
        check_choice("replacement_unit", self.replacement_unit, REPLACEMENT_UNITS)
        check_choice("word_boundaries", self.word_boundaries, WORD_BOUNDARIES)
        check_positive("label_budget", self.label_budget)
        self._word_ids_seen = False
        super().__post_init__()

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        rng = self.next_generator()
        layout, batch = self._lay_out(self._prepare(features, rng))
        selected = self._select(layout, rng)
        batch["labels"] = selected_labels(layout.input_ids, selected)
        batch["input_ids"] = self._replace(layout, selected, rng)
        if self.label_budget is not None:
            batch["label_positions"] = fixed_label_positions(batch["labels"], self.label_budget)
        return batch | self._extra_columns(layout, selected)

    def _prepare(self, features: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
        """Change the rows before they are padded; nothing by default."""
        return features

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        """Choose the positions to predict, boolean `(batch, seq_len)`."""
        raise NotImplementedError(f"`{type(self).__name__}._select` must choose the positions. Subclasses define it.")

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        """Further columns of the batch; none by default."""
        return {}

    @property
    def _needs_words(self) -> bool:
        """Whether this collator asks for word boundaries."""
        return self.replacement_unit == "word"

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        size = len(self._tables.special)
        excluded = np.ones(size, dtype=bool)
        excluded[[index for index in self.tokenizer.get_vocab().values() if 0 <= index < size]] = False
        if self.exclude_special_from_random:
            excluded |= self._tables.special
        if self.exclude_cjk_continuations_from_random:
            excluded |= self._tables.unspaced_continuation
        if self.random_token_counts is None:
            self._random_tokens = uniform_tokens(size, excluded)
            return
        if len(self.random_token_counts) != size:
            raise ValueError(
                f"`random_token_counts` must have one count per id, {size}, got {len(self.random_token_counts)}. "
                "Use `count_tokens(rows, len(tokenizer))`."
            )
        self._random_tokens = unigram_tokens(np.asarray(self.random_token_counts), excluded)

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        """Pad the features; return what masking needs and the columns to hand on."""
        columns = collect_columns(features)
        columns.pop("labels", None)
        columns.pop("offset_mapping", None)
        word_rows = None
        if self._needs_words:
            word_rows = take_word_rows(columns, self.word_boundaries, self._word_ids_seen)
            self._word_ids_seen |= word_rows is not None
        rows = columns.pop("input_ids")
        frame = RowFrame.of(rows, self.tokenizer, self.pad_to_multiple_of)
        input_ids = frame.ids(rows, padding_id(self.tokenizer, frame))

        def place(name: str, values: list[Any], pad: int | float) -> np.ndarray:
            return frame.column(name, values, self.pad_values.get(name, PAD_VALUES.get(name, pad)))

        batch: dict[str, np.ndarray] = {"input_ids": input_ids}
        if "token_type_ids" in columns:
            batch["token_type_ids"] = place(
                "token_type_ids", columns.pop("token_type_ids"), self.tokenizer.pad_token_type_id
            )
        mask_rows = columns.pop("attention_mask", None)
        special_rows = columns.pop("special_tokens_mask", None)
        special = None if special_rows is None else place("special_tokens_mask", special_rows, 0)
        for name, values in columns.items():
            batch[name] = place(name, values, 0)

        sequence_ids = batch.get("sequence_ids")
        if sequence_ids is not None:
            if sequence_ids.shape != input_ids.shape or sequence_ids.dtype.kind != "i":
                raise ValueError(
                    f"`sequence_ids` must have one integer per token, got shape {sequence_ids.shape}, type "
                    f"{sequence_ids.dtype} for {input_ids.shape} ids."
                )
            check_sequences(sequence_ids)
        if mask_rows is None and sequence_ids is not None:
            text = sequence_ids > 0
        else:
            mask = frame.attention_mask(input_ids, self._detectable_pad, mask_rows)
            batch["attention_mask"] = mask
            text = mask != 0 if sequence_ids is None else (mask != 0) & (sequence_ids > 0)
            if self._detectable_pad is not None:  # a mask of ones over padded rows must not raise their budget
                text &= input_ids != self._detectable_pad

        candidates = candidate_mask(input_ids, self._tables.never_masked, text, special)
        word_ids = None if word_rows is None else placed_word_ids(word_rows, frame)
        if word_ids is not None:
            candidates &= word_ids >= 0
        blocks = block_starts(candidates, sequence_ids)
        return TokenLayout(input_ids, candidates, blocks, sequence_ids, text, word_ids), batch

    def _word_starts(self, layout: TokenLayout) -> np.ndarray:
        """First piece of every word, boolean `(batch, seq_len)`."""
        if layout._words is None:
            layout._words = find_word_starts(
                layout.input_ids,
                layout.candidates,
                layout.blocks,
                layout.word_ids,
                self.word_boundaries,
                self._tables,
                type(self.tokenizer).__name__,
            )
        return layout._words

    def _replace(self, layout: TokenLayout, selected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Corrupt the selected positions."""
        units = None
        if self.replacement_unit == "word":
            units = segment_index(layout.candidates, self._word_starts(layout))
        elif self.replacement_unit == "span":
            units = segment_index(selected, layout.blocks)
        return replace_tokens(
            layout.input_ids,
            selected,
            rng,
            mask_token_id=int(self.tokenizer.mask_token_id),
            random_tokens=self._random_tokens,
            mask_replace_prob=self.mask_replace_prob,
            random_replace_prob=self.random_replace_prob,
            units=units,
        )


def mask_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Give the mask token, or say that there is none."""
    if tokenizer.mask_token is None or tokenizer.mask_token_id is None:
        raise ValueError(
            f"`tokenizer` must have a mask token, got {type(tokenizer).__name__} without one. Set "
            "`tokenizer.mask_token`, or choose a tokenizer of a masked language model."
        )
    return int(tokenizer.mask_token_id)


def check_end_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer whose end token is its padding token: the end of a text would never be learnt."""
    pad = tokenizer.pad_token_id
    if pad is not None and pad in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        raise ValueError(
            f"`tokenizer` must have a padding token that is not its end token, got {pad} for both: the end of a text "
            "would never be learnt. Set `tokenizer.pad_token` to another."
        )


def check_positive(name: str, value: int | None) -> None:
    """Raise unless an optional count is None or a positive integer."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{name}` must be a positive integer or None, got {value!r}. Pass a number such as 8.")
    if value < 1:
        raise ValueError(f"`{name}` must be a positive integer or None, got {value}. Pass a number such as 8.")
