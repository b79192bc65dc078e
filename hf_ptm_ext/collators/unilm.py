"""UniLM pre-training: one masked language model, four directions (Dong et al. 2019, https://arxiv.org/abs/1905.03197).

    mode                 token types of [CLS] a [SEP] | b [SEP]   a token sees
    0 bidirectional                                0  | 1         everything
    1 left-to-right                                2  | 2         itself and what is left of it
    2 right-to-left                                3  | 3         itself and what is right of it
    3 seq2seq                                      4  | 5         the source; in the target also what is left of it

The mode is drawn per sequence with probabilities 1/3, 1/6, 1/6, 1/3. Tokens are selected in both segments; next
sentence prediction counts in the bidirectional mode only. The model builds the attention mask from `lm_mode` and
`source_lengths`: no (seq_len, seq_len) array leaves the collator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from ..masking import IGNORE_INDEX, bert_budget, ngram_size_probabilities, previous, sample_ngrams
from .base import MaskingCollator, TokenLayout, check_positive
from .batching import to_array

LM_MODES = ("bidirectional", "left-to-right", "right-to-left", "seq2seq")
SEQ2SEQ = LM_MODES.index("seq2seq")
NSP_LABELS = {0, 1, IGNORE_INDEX}
TOKEN_TYPES = np.array([[0, 1], [2, 2], [3, 3], [4, 5]])
UNILM_MIXTURE = {"bidirectional": 1 / 3, "left-to-right": 1 / 6, "right-to-left": 1 / 6, "seq2seq": 1 / 3}


@dataclass(kw_only=True)
class PairLayout(TokenLayout):
    """A padded batch of pairs; what `TokenLayout` holds, and the sequences of the batch."""

    sequence: np.ndarray  # of each position, int64 `(batch, seq_len)`, from `sequence_groups`
    per_row: int  # sequences of a row, the number 0 of padding included; 0: a row is one sequence
    in_second: np.ndarray  # positions of second segments, boolean `(batch, seq_len)`
    source_lengths: np.ndarray  # tokens of first segments with their special tokens, int `(num_sequences,)`
    has_second: np.ndarray  # boolean `(num_sequences,)`
    nsp_rows: list[Any]  # the `next_sentence_label` of each row as it came, None where a row has none
    lm_mode: np.ndarray = field(init=False)  # the drawn modes, int64 `(num_sequences,)`


@dataclass
class DataCollatorForUniLMPreTraining(MaskingCollator):
    """Draw a mode for every sequence and select tokens, bigrams and trigrams in both segments.

    Rows are pairs [CLS] a [SEP] b [SEP] (`data.SentencePair.features`) or single sequences [CLS] a [SEP].
    `token_type_ids` of 0 and 1 say where the second segment begins; in a row without that column it begins behind the
    first [SEP], if anything stands there. A single sequence has no target, so its mode is drawn from the other three
    in their proportions. Packed rows (`sequence_ids`) draw a mode for each sequence.

    | column | shape | value |
    | --- | --- | --- |
    | `token_type_ids` | (batch, seq_len) | by mode and segment, 0 on padding |
    | `lm_mode` | (batch,), packed (batch, S) | 0 to 3; 0 where there is no sequence |
    | `source_lengths` | as `lm_mode` | tokens of [CLS] a [SEP], in every mode; 0 where there is no sequence |
    | `next_sentence_label` | as `lm_mode` | kept in the bidirectional mode; -100 elsewhere and where it is absent |

    Relations: `DataCollatorForUniLMSeq2Seq` makes the input of fine-tuning.

    Args:
        mode_probabilities: Probability of each mode by name (see `LM_MODES`), sums to 1; modes not named are not
            drawn. Default: the paper's mixture (section 2.3).
        ngram_probability: Probability that a selected unit has more than one token (UniLM: 0.2).
        max_ngram_size: Longest such unit in tokens (UniLM: 3).
        max_predictions: Upper bound of the budget max(1, round_half_even(T * mlm_probability)) of T tokens; None:
            no bound.
        max_sequences: Packed rows: the S of the columns above, for shapes that never change. None: the width of a
            `next_sentence_label` column, or the most sequences of a row of the batch.
        next_sentence: Give the `next_sentence_label` column. False for heads that do not take it.

    The other arguments are those of `MaskingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForUniLMPreTraining(
        ...     BertTokenizerFast(vocab=vocab), mode_probabilities={"seq2seq": 1.0}, seed=0
        ... )
        >>> batch = collator([{"input_ids": [2, 5, 3, 6, 6, 3], "token_type_ids": [0, 0, 0, 1, 1, 1]}])
        >>> batch["token_type_ids"].tolist(), batch["lm_mode"].tolist(), batch["source_lengths"].tolist()
        ([[4, 4, 4, 5, 5, 5]], [3], [3])
    """

    mode_probabilities: Mapping[str, float] = field(default_factory=lambda: dict(UNILM_MIXTURE))
    ngram_probability: float = 0.2
    max_ngram_size: int = 3
    max_predictions: int | None = None
    max_sequences: int | None = None
    next_sentence: bool = True

    input_columns: ClassVar[tuple[str, ...]] = (
        *MaskingCollator.input_columns,
        "token_type_ids",
        "next_sentence_label",
        "sequence_ids",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sizes = ngram_size_probabilities(self.ngram_probability, self.max_ngram_size)
        check_positive("max_predictions", self.max_predictions)
        check_positive("max_sequences", self.max_sequences)
        self._mixture = _mixture(self.mode_probabilities)

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        rows, nsp_rows, typed = [], [], []
        for feature in features:
            row = dict(feature) if hasattr(feature, "keys") else {"input_ids": feature}
            nsp_rows.append(row.pop("next_sentence_label", None))
            typed.append(row.get("token_type_ids") is not None)
            if not typed[-1]:
                row.pop("token_type_ids", None)
            rows.append(row)
        layout, batch = super()._lay_out(rows)
        if "attention_mask" in batch:  # a mask of ones over rows that came padded must not move the segments
            batch["attention_mask"] *= layout.text
        groups = layout.groups()
        if groups is None:
            count, per_row = len(rows), 0
            sequence = np.broadcast_to(np.arange(count)[:, None], layout.text.shape)
        else:
            sequence, count = groups
            per_row = count // len(rows)
        in_second = self._second_segments(layout, batch.get("token_type_ids"), np.array(typed))
        pair = PairLayout(
            **vars(layout),
            sequence=sequence,
            per_row=per_row,
            in_second=in_second,
            source_lengths=np.bincount(sequence[layout.text & ~in_second], minlength=count),
            has_second=np.bincount(sequence[in_second], minlength=count) > 0,
            nsp_rows=nsp_rows,
        )
        return pair, batch

    def _second_segments(self, layout: TokenLayout, types: np.ndarray | None, typed: np.ndarray) -> np.ndarray:
        """Positions of second segments: token type 1, or what follows the first [SEP] of a sequence."""
        text = layout.text
        same = text if layout.sequence_ids is None else layout.sequence_ids
        fresh = text & (same != previous(same, 0))
        second = np.zeros(text.shape, dtype=bool)
        if types is not None and typed.any():
            stated = text & typed[:, None]
            _check_types(types, stated, fresh)
            second = stated & (types == 1)
        if not typed.all():
            if self.tokenizer.sep_token_id is None:
                raise ValueError(
                    f"`tokenizer` must have a separator to find second segments, got {type(self.tokenizer).__name__} "
                    "without one. Set `tokenizer.sep_token`, or give `token_type_ids` of 0 and 1."
                )
            separators = (layout.input_ids == self.tokenizer.sep_token_id) & text
            before = np.cumsum(separators, axis=1) - separators
            begun = np.maximum.accumulate(np.where(fresh, before, 0), axis=1)
            second |= text & ~typed[:, None] & (before > begun)
        return second

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        pair = cast(PairLayout, layout)
        pair.lm_mode = self._draw_modes(pair, rng)
        budget = bert_budget(layout.sequence_lengths(), self.mlm_probability, self.max_predictions)
        return sample_ngrams(layout.candidates, layout.blocks, budget, self._sizes, rng, layout.groups())

    def _draw_modes(self, pair: PairLayout, rng: np.random.Generator) -> np.ndarray:
        """One mode for each sequence, 0 where there is none."""
        single = ~pair.has_second & (pair.source_lengths > 0)
        modes = _draw(self._mixture, len(single), rng)
        if single.any():
            others = self._mixture.copy()
            others[SEQ2SEQ] = 0
            if not others.any():
                where = int(single.argmax()) // max(pair.per_row, 1)
                raise ValueError(
                    f"`mode_probabilities` must allow another mode than seq2seq for a row without a second segment, "
                    f"got {dict(self.mode_probabilities)} and such a row, {where}. Pass pairs with `token_type_ids` "
                    "of 0 and 1."
                )
            modes = np.where(single, _draw(others / others.sum(), len(single), rng), modes)
        modes[~single & ~pair.has_second] = 0
        return modes

    def _extra_columns(self, layout: TokenLayout, selected: np.ndarray) -> dict[str, np.ndarray]:
        pair = cast(PairLayout, layout)
        types = TOKEN_TYPES[pair.lm_mode[pair.sequence], pair.in_second.astype(np.int64)]
        columns = {"token_type_ids": np.where(layout.text, types, 0)}
        labels = _label_array(pair.nsp_rows, packed=bool(pair.per_row))
        most = 0
        if pair.per_row:
            most = self.max_sequences or labels.shape[1] or max(pair.per_row - 1, 1)
            if most < max(pair.per_row - 1, labels.shape[1]):
                raise ValueError(
                    f"`{'max_sequences' if self.max_sequences else 'next_sentence_label'}` must cover the sequences "
                    f"of every row, got {most} for {max(pair.per_row - 1, labels.shape[1])}. Raise it, or pack fewer."
                )
        lm_mode = _by_row(pair.lm_mode, pair.per_row, most)
        columns["lm_mode"] = lm_mode
        columns["source_lengths"] = _by_row(pair.source_lengths, pair.per_row, most)
        if self.next_sentence:
            if labels.ndim == 2:
                labels = _widened(labels, most, IGNORE_INDEX)
            there = _by_row(pair.has_second | (pair.source_lengths > 0), pair.per_row, most)
            columns["next_sentence_label"] = np.where((lm_mode == 0) & there, labels, IGNORE_INDEX)
        return columns


def _mixture(probabilities: Mapping[str, float]) -> np.ndarray:
    """The probabilities of the four modes in the order of their ids, checked."""
    names = list(probabilities) if isinstance(probabilities, Mapping) else None
    if names is None or not set(names) <= set(LM_MODES):
        raise ValueError(
            f"`mode_probabilities` must map names out of {LM_MODES} to probabilities, got {probabilities!r}."
        )
    mixture = np.array([float(probabilities.get(name, 0.0)) for name in LM_MODES])
    if (mixture < 0).any() or not np.isclose(mixture.sum(), 1):
        raise ValueError(
            f"`mode_probabilities` must not be negative and sum to 1, got {dict(probabilities)}. The paper's are "
            "1/3, 1/6, 1/6, 1/3."
        )
    return mixture


def _draw(mixture: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw mode ids; a mode of probability 0 never comes."""
    possible = np.flatnonzero(mixture)
    cumulative = np.cumsum(mixture[possible])
    return possible[np.minimum(np.searchsorted(cumulative, rng.random(count), side="right"), len(possible) - 1)]


def _check_types(types: np.ndarray, stated: np.ndarray, fresh: np.ndarray) -> None:
    """Raise unless each sequence has token type 0 and then 1."""
    back = stated & ~fresh & (types == 0) & (previous(types, 0) == 1)
    wrong = (stated & (types != 0) & (types != 1)) | back
    if wrong.any():
        row, column = (int(axis[0]) for axis in np.nonzero(wrong))
        raise ValueError(
            f"`token_type_ids` must be 0 over the first segment and 1 over the second, got {types[row, column]} at "
            f"position {column} of row {row}. The collator writes UniLM's own types; leave the column out to split at "
            "the first separator."
        )


def _label_array(rows: list[Any], packed: bool) -> np.ndarray:
    """`next_sentence_label` as `(batch,)`, or for packed rows `(batch, n)` filled with -100; checked."""
    if packed:
        arrays = [np.zeros(0, dtype=np.int64) if row is None else to_array(row) for row in rows]
    else:
        arrays = [np.asarray(IGNORE_INDEX) if row is None else to_array(row).squeeze() for row in rows]
    expected = 1 if packed else 0
    for index, array in enumerate(arrays):
        if array.ndim != expected or array.dtype.kind not in "iub" or not set(array.ravel().tolist()) <= NSP_LABELS:
            raise ValueError(
                f"`next_sentence_label` must be 0, 1 or -100, one for each {'packed sequence' if packed else 'row'}, "
                f"got {rows[index]!r} in row {index}."
            )
    if not packed:
        return np.array([int(array) for array in arrays], dtype=np.int64)
    labels = np.full((len(rows), max(len(array) for array in arrays)), IGNORE_INDEX, dtype=np.int64)
    for index, array in enumerate(arrays):
        labels[index, : len(array)] = array
    return labels


def _by_row(values: np.ndarray, per_row: int, most: int) -> np.ndarray:
    """Values of all sequences as `(batch,)`, or for packed rows `(batch, most)` filled with 0."""
    if not per_row:
        return values
    return _widened(values.reshape(-1, per_row)[:, 1:], most, 0)


def _widened(values: np.ndarray, width: int, fill: int) -> np.ndarray:
    """Columns of `fill` on the right up to a width."""
    wide = np.full((len(values), width), fill, dtype=values.dtype)
    wide[:, : values.shape[1]] = values
    return wide
