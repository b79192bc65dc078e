"""UniLM sequence-to-sequence fine-tuning (Dong et al. 2019, section 2.5; microsoft/unilm, unilm-v1 seq2seq_loader).

    [CLS] source [SEP] target [SEP]       token types 4 ... 4 5 ... 5, lm_mode 3
                       candidates: the target and the final [SEP], which teaches the model to end

    n = min(max_predictions, max(1, round_half_even(mlm_probability * |target|))),  |target| without [SEP]

n candidates are chosen uniformly and become [MASK], a random token or stay (0.8/0.1/0.1, each on its own). The others
stay as they are: the model predicts a masked token from the source and the clean target left of it.

Pseudo-masked input (UniLMv2, Bao et al. 2020; microsoft/unilm, s2s-ft, its default way "v2") appends a corrupted copy
of the whole target, to predict all of it in one pass (see `modes_unilm.py` for who sees what):

    [CLS] source [SEP] target [SEP] pseudo target      types 4 ... 4 5 ... 5 5 ... 5, the target's positions twice
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch

from ..data.sentence_pairs import cut_at_ends, shortened
from ..masking import (
    IGNORE_INDEX,
    bert_budget,
    block_starts,
    check_probability,
    exact_tokens,
    ngram_size_probabilities,
    sample_ngrams,
)
from ..masking.checks import check_choice
from .base import MaskingCollator, TokenLayout, check_end_token, check_positive
from .pairs import CONSUMED, check_assembled, source_and_target
from .unilm import SEQ2SEQ

TRUNC_SEGMENTS = ("a", "b", "longer")


@dataclass(kw_only=True)
class Seq2SeqLayout(TokenLayout):
    """A padded batch of assembled rows; what `TokenLayout` holds, with the target as `candidates`."""

    counted: np.ndarray  # words of target, or source and target, that the budget is a share of, int `(batch,)`
    source_words: np.ndarray  # the source's maskable words, boolean `(batch, seq_len)`
    in_target: np.ndarray  # target [SEP], without pseudo tokens, boolean `(batch, seq_len)`


@dataclass
class DataCollatorForUniLMSeq2Seq(MaskingCollator):
    """Assemble source and target to one row, cut it to length, and mask the target.

    A feature has one of two pairs of columns:

    * `source_ids` and `target_ids`: token ids without [CLS] and [SEP] at their ends;
    * `input_ids` and `labels`, as sequence-to-sequence scripts tokenise (`tokenizer(source, text_target=target)`):
      a leading [CLS], a trailing [SEP], padding, and -100 are taken off, so both ways of tokenising are right.

    [SEP] inside a source stays. Other columns of numbers, one value or one shape per row, pass through.

    | column | value |
    | --- | --- |
    | `input_ids`, `attention_mask`, `token_type_ids` | the assembled row; types 4 and 5, 0 on padding |
    | `labels` | original ids at the chosen positions, -100 elsewhere; no shift |
    | `lm_mode`, `source_lengths` | (batch,): 3, and the tokens of [CLS] source [SEP] |
    | `pseudo_lengths` | (batch,), with `pseudo_masked`: the tokens of target [SEP], each with a pseudo token |

    Truncation is `truncate_source_target`'s. An empty target leaves the final [SEP] to predict, an empty source is
    [CLS] [SEP].

    Relations: `DataCollatorForUniLMPreTraining` makes the input of pre-training.

    Args:
        mlm_probability: Share of target tokens to choose, `mask_prob` of the reference (all its recipes: 0.7).
        max_predictions: Upper bound of their number, `max_pred` of the reference (its recipes: 48 for Gigaword and
            question generation, 64 and 140 elsewhere); None for no bound.
        max_len: Most tokens of a row, special tokens included (recipes: 192 to 768; default 512).
        max_len_a: If too long, the source is cut to this many tokens first; 0 for no such limit.
        max_len_b: The same for the target, second.
        trunc_seg: What is cut then: "a" the source (default, all recipes), "b" the target, "longer" the longer one.
        always_truncate_tail: Cut at the end (default, all recipes). False: at either end, by a coin for each token.
        source_type_id: Token type of the source (UniLM: 4; s2s-ft checkpoints may have 0).
        target_type_id: Token type of the target (UniLM: 5; s2s-ft checkpoints may have 1).
        mask_source: Choose among source words too; |source| then adds to |target| in the formula. Default False.
        ngram_probability: Probability of an n-gram instead of one token (`skipgram_prb`; default 0).
        max_ngram_size: Longest n-gram (`skipgram_size`; default 3).
        whole_words: Choose whole words; as in the reference, the budget then cuts some of them. Default False.
        max_source_length: First of all, cut [CLS] source [SEP] at the end to this many tokens (s2s-ft: 464),
            unless None.
        max_target_length: The same for target [SEP] (s2s-ft: 48).
        pseudo_masked: Make s2s-ft's input instead: a pseudo token for every target token, all of them labelled, each
            corrupted on its own. `mlm_probability` and `max_predictions` are not read then, and `max_len` bounds
            source and target without the pseudo tokens. Default False.
        target_mask_prob: With `pseudo_masked`, probability that a target token is replaced by its pseudo token, so
            that the text on the left is not always clean (s2s-ft: 0.5).
        source_mask_prob: With `pseudo_masked`, probability that a source word is corrupted, without a label.

    The other arguments are those of `MaskingCollator`; `word_boundaries="column"` is not available.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForUniLMSeq2Seq(BertTokenizerFast(vocab=vocab), mask_replace_prob=1.0,
        ...                                        random_replace_prob=0.0, mlm_probability=1.0, seed=0)
        >>> batch = collator([{"source_ids": [5, 5], "target_ids": [6]}])
        >>> batch["token_type_ids"].tolist(), batch["source_lengths"].tolist(), (batch["labels"] != -100).sum()
        ([[4, 4, 4, 4, 5, 5]], [4], tensor(1))
    """

    mlm_probability: float = 0.7
    max_predictions: int | None = 48
    max_len: int = 512
    max_len_a: int = 0
    max_len_b: int = 0
    trunc_seg: str = "a"
    always_truncate_tail: bool = True
    source_type_id: int = 4
    target_type_id: int = 5
    mask_source: bool = False
    ngram_probability: float = 0.0
    max_ngram_size: int = 3
    whole_words: bool = False
    max_source_length: int | None = None
    max_target_length: int | None = None
    pseudo_masked: bool = False
    target_mask_prob: float = 0.5
    source_mask_prob: float = 0.0

    input_columns: ClassVar[tuple[str, ...]] = ("source_ids", "target_ids", "input_ids", "labels", "attention_mask")

    def for_generation(self) -> DataCollatorForUniLMGeneration:
        """A collator of evaluation batches for `predict_with_generate`, with sources and lengths as here."""
        return DataCollatorForUniLMGeneration(copy.deepcopy(self))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("cls_token", "sep_token"):
            if getattr(self.tokenizer, f"{name}_id") is None:
                raise ValueError(
                    f"`tokenizer` must have a `{name}` for [CLS] source [SEP] target [SEP], got "
                    f"{type(self.tokenizer).__name__} without one. Set `tokenizer.{name}`."
                )
        check_end_token(self.tokenizer)
        self._sizes = ngram_size_probabilities(self.ngram_probability, self.max_ngram_size)
        check_positive("max_predictions", self.max_predictions)
        check_truncation(self.max_len - 3, self.max_len_a, self.max_len_b, self.trunc_seg)
        for name in ("source_type_id", "target_type_id"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}. UniLM uses 4 and 5.")
        check_positive("max_source_length", self.max_source_length)
        check_positive("max_target_length", self.max_target_length)
        if self.max_source_length == 1:
            raise ValueError(
                f"`max_source_length` must be at least 2, for [CLS] and [SEP], got {self.max_source_length}. Raise it."
            )
        for name in ("target_mask_prob", "source_mask_prob"):
            check_probability(name, getattr(self, name))
        self._check_pseudo_masked()
        check_assembled(self.word_boundaries)

    def _check_pseudo_masked(self) -> None:
        """Refuse options that the other way of making inputs would not read."""
        if not self.pseudo_masked:
            if self.source_mask_prob:
                raise ValueError(
                    f"`source_mask_prob` needs `pseudo_masked=True`, got {self.source_mask_prob} without. Set it, or "
                    "choose among source words by `mask_source=True`."
                )
            return
        unread = {"mask_source": False, "ngram_probability": 0.0, "whole_words": False, "replacement_unit": "token"}
        for name, default in unread.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"`{name}` must be {default!r} with `pseudo_masked`, got {getattr(self, name)!r}: all of the "
                    "target is predicted, token by token. Leave it out."
                )

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        coins = None if self.always_truncate_tail else self._truncation_generator()
        rows, sources, targets = [], [], []
        cls, sep = [self.tokenizer.cls_token_id], [self.tokenizer.sep_token_id]
        for index, feature in enumerate(features):
            source, target = source_and_target(feature, index, cls[0], sep[0], self._detectable_pad)
            if self.max_source_length is not None:
                source = source[: self.max_source_length - 2]
            if self.max_target_length is not None:
                target = target[: self.max_target_length - 1]
            source, target = truncate_source_target(
                source,
                target,
                self.max_len - 3,
                max_len_a=self.max_len_a,
                max_len_b=self.max_len_b,
                trunc_seg=self.trunc_seg,
                generator=coins,
            )
            ids = cls + source + sep + (target + sep) * (2 if self.pseudo_masked else 1)
            sources.append(len(source) + 2)
            targets.append(len(target) + 1)
            rows.append({name: feature[name] for name in feature if name not in CONSUMED})
            rows[-1] |= {"input_ids": ids, "attention_mask": [1] * len(ids)}
        layout, batch = super()._lay_out(rows)

        source_lengths = np.array(sources, dtype=np.int64)
        target_lengths = np.array(targets, dtype=np.int64)
        text = batch["attention_mask"] != 0
        number = np.cumsum(text, axis=1)
        in_source = text & (number <= source_lengths[:, None])
        in_target = text & ~in_source & (number <= (source_lengths + target_lengths)[:, None])
        if self.pseudo_masked:
            candidates = text & ~in_source & ~in_target
        else:
            candidates = in_target & (layout.input_ids != self.tokenizer.cls_token_id)
        if self.mask_source:
            candidates |= in_source & layout.candidates
        counted = target_lengths - 1 + (source_lengths - 2 if self.mask_source else 0)
        layout = Seq2SeqLayout(
            layout.input_ids,
            candidates,
            block_starts(candidates),
            None,
            text,
            None,
            counted=counted,
            source_words=in_source & layout.candidates,
            in_target=in_target,
        )
        types = np.where(in_source, self.source_type_id, self.target_type_id)
        batch["token_type_ids"] = np.where(text, types, 0).astype(np.int64)
        batch["lm_mode"] = np.full(len(rows), SEQ2SEQ, dtype=np.int64)
        batch["source_lengths"] = source_lengths
        if self.pseudo_masked:
            batch["pseudo_lengths"] = target_lengths
        return layout, batch

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        if self.pseudo_masked:
            return layout.candidates
        counted = cast(Seq2SeqLayout, layout).counted
        budget = np.maximum(bert_budget(counted, self.mlm_probability, self.max_predictions), 1)
        if not self.whole_words and not self.ngram_probability:
            return exact_tokens(layout.candidates, budget, rng)
        words = self._word_starts(layout) if self.whole_words else None
        return sample_ngrams(
            layout.candidates, layout.blocks, budget, self._sizes, rng, word_starts=words, overflow="drop"
        )

    def _replace(self, layout: TokenLayout, selected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if not self.pseudo_masked:
            return super()._replace(layout, selected, rng)
        rows = cast(Seq2SeqLayout, layout)
        in_source = rows.source_words & (rng.random(selected.shape) < self.source_mask_prob)
        ids = super()._replace(layout, selected | in_source, rng)
        # Target and pseudo tokens of a row are as many and in the same order, so the flat selections are aligned.
        taken = rng.random(int(rows.in_target.sum())) < self.target_mask_prob
        ids[rows.in_target] = np.where(taken, ids[selected], ids[rows.in_target])
        return ids

    def _truncation_generator(self) -> np.random.Generator:
        """A generator of its own for this call, independent of the one that masks."""
        generator = self.next_generator()
        self._calls -= 1  # the call is counted once, when the mask is drawn
        return generator.spawn(1)[0]


def truncate_source_target(
    source: Sequence[int],
    target: Sequence[int],
    max_tokens: int,
    *,
    max_len_a: int = 0,
    max_len_b: int = 0,
    trunc_seg: str = "a",
    generator: np.random.Generator | None = None,
) -> tuple[list[int], list[int]]:
    """Cut source and target, each to a contiguous part, to a total length by UniLM's rules.

    Only while both together are too long, a token goes: from the source while it is longer than `max_len_a`, else
    from the target while it is longer than `max_len_b`, else from `trunc_seg`. So a pair that fits is never cut,
    whatever the two limits. Where `trunc_seg` has nothing left (the reference fails there), the other one is cut.

    Args:
        source: Token ids.
        target: Token ids.
        max_tokens: Most tokens of both together: the row's length less 3 for [CLS] and two [SEP].
        max_len_a: Limit of the source, 0 for none.
        max_len_b: Limit of the target, 0 for none.
        trunc_seg: "a" the source, "b" the target, "longer" the longer one (the target on ties).
        generator: Draws the end that each token is taken from; None takes all from the tail.

    Examples:
        >>> truncate_source_target([1, 2, 3, 4], [7, 8, 9], 5)
        ([1, 2], [7, 8, 9])
        >>> truncate_source_target([1, 2, 3, 4], [7, 8, 9], 5, max_len_b=2)
        ([1, 2, 3], [7, 8])
    """
    check_truncation(max_tokens, max_len_a, max_len_b, trunc_seg)
    lengths = [len(source), len(target)]
    excess = sum(lengths) - max_tokens
    for side, limit in enumerate((max_len_a, max_len_b)):
        if limit and excess > 0:
            cut = min(excess, max(lengths[side] - limit, 0))
            lengths[side] -= cut
            excess -= cut
    if excess > 0:
        if trunc_seg == "longer":
            lengths = shortened(lengths, excess)
        else:
            side = TRUNC_SEGMENTS.index(trunc_seg)
            cut = min(excess, lengths[side])
            lengths[side] -= cut
            lengths[1 - side] -= excess - cut
    return cut_at_ends(source, lengths[0], generator), cut_at_ends(target, lengths[1], generator)


def check_truncation(max_tokens: int, max_len_a: int, max_len_b: int, trunc_seg: str) -> None:
    """Raise unless the options of `truncate_source_target` are in range."""
    if max_tokens < 0:
        raise ValueError(f"`max_len` must be at least 3, for [CLS] and two [SEP], got {max_tokens + 3}. Raise it.")
    for name, value in (("max_len_a", max_len_a), ("max_len_b", max_len_b)):
        if value < 0:
            raise ValueError(f"`{name}` must not be negative, got {value}. Use 0 for no limit.")
    check_choice("trunc_seg", trunc_seg, TRUNC_SEGMENTS)


@dataclass
class DataCollatorForUniLMGeneration:
    """Batches for `predict_with_generate`: prompts, references, and the batch of the loss.

    | column | value |
    | --- | --- |
    | `input_ids`, `attention_mask` | [CLS] source [SEP], padded on the left |
    | `labels` | the target's token ids as they came, padded on the right with -100 |
    | `loss_inputs` | what `loss_collator` makes of the same features |

    Sources are cut as for the loss. `hf_ptm_ext.trainers.PtmSeq2SeqTrainer` reads these batches.

    Relations: `DataCollatorForUniLMSeq2Seq` makes the batches of training.

    Args:
        loss_collator: Assembles and masks source and target; must leave sources alone, or prompts would be corrupted.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForUniLMGeneration(DataCollatorForUniLMSeq2Seq(BertTokenizerFast(vocab=vocab)))
        >>> features = [{"source_ids": [5, 6], "target_ids": [6]}, {"source_ids": [5], "target_ids": [6, 6]}]
        >>> batch = collator(features)
        >>> batch["input_ids"].tolist(), batch["labels"].tolist(), batch["loss_inputs"]["input_ids"].shape
        ([[2, 5, 6, 3], [0, 2, 5, 3]], [[6, -100], [6, 6]], torch.Size([2, 6]))
    """

    loss_collator: DataCollatorForUniLMSeq2Seq

    def __post_init__(self) -> None:
        if self.loss_collator.mask_source or self.loss_collator.source_mask_prob:
            raise ValueError(
                f"`loss_collator` must leave sources alone, got `mask_source` {self.loss_collator.mask_source} and "
                f"`source_mask_prob` {self.loss_collator.source_mask_prob}: prompts would be corrupted. Use one "
                "without them for evaluation."
            )

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Columns that are read, for Trainers that drop the others."""
        return self.loss_collator.input_columns

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        """Make a batch."""
        batch = dict(self.loss_collator(features, return_tensors="pt"))
        rows = zip(batch["input_ids"], batch["attention_mask"], batch["source_lengths"], strict=True)
        prompts = [row[kept.bool()][:length] for row, kept, length in rows]
        references = [
            torch.as_tensor(feature["target_ids" if feature.get("target_ids") is not None else "labels"])
            for feature in map(dict, features)
        ]
        pad = self.loss_collator.tokenizer.pad_token_id
        ones = [torch.ones_like(prompt) for prompt in prompts]
        return {
            "input_ids": torch.nn.utils.rnn.pad_sequence(prompts, True, pad or 0, padding_side="left"),
            "attention_mask": torch.nn.utils.rnn.pad_sequence(ones, True, 0, padding_side="left"),
            "labels": torch.nn.utils.rnn.pad_sequence(references, True, IGNORE_INDEX),
            # Full logits of an evaluation batch are the whole vocabulary at every position: the loss needs none.
            "loss_inputs": {**batch, "return_logits": False},
        }

    def state_dict(self) -> dict[str, Any]:
        """The state of the masks, as `DataCollatorForUniLMSeq2Seq` has it."""
        return self.loss_collator.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the masks go on from a saved state."""
        self.loss_collator.load_state_dict(state)
