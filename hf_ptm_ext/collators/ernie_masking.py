"""Basic, phrase and entity masking (Sun et al. 2019, ERNIE 1.0 of Baidu, https://arxiv.org/abs/1904.09223).

As in PaddlePaddle/ERNIE's batching.py: a unit is selected as a whole, each on its own with probability 0.15, without a
budget; the fate (mask / random / keep) is drawn for each token. What the units of a text are is said by its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..masking import (
    bernoulli_words,
    bert_budget,
    cover_chosen,
    exact_words,
    find_segments,
    uniform_tokens,
)
from ..masking.checks import check_choice
from ..masking.segments import previous
from .base import MaskingCollator, TokenLayout

BASIC = "basic"
BUDGETS = ("bernoulli", "exact", "batch")


@dataclass
class UnitLayout(TokenLayout):
    """A padded batch with the units of each level, `(batch, seq_len)`, -1 where a token is no part of one."""

    units: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class DataCollatorForErnieMasking(MaskingCollator):
    """Select tokens, phrases or entities, a level drawn for each row.

    A column of a level numbers its units: neighbours with one number are one unit, -1 is none, where every token
    stands for itself. `data.segmentation.WordIds` makes one, `word_ids`, of whatever cuts a text into units (a
    segmenter, a dictionary, a linker): `rows.rename_column("word_ids", "phrase_ids")`.

    | level | a unit is |
    | --- | --- |
    | "basic" | a token |
    | any other name | a run of one number in the column of that level |

    Relations: `DataCollatorForWholeWordMasking` has one level, words, and BERT's budget;
    `DataCollatorForEntityReplacement` puts other entities in.

    Args:
        levels: Level -> its column, without "basic".
        level_weights: Level -> how often it is drawn for a row (default: all the same). The reference draws once for
            each file and epoch, between tokens and units.
        schedule: (batch, weights) pairs in order: from that batch on these weights, ERNIE's stages one after the
            other; counts this process's batches, exactly under this package's Trainers.
        budget: "bernoulli": each unit on its own (the reference); "exact": BERT's number of tokens for each sequence;
            "batch": 0.15 of all units of the batch, rounded down, at least one (the reference's later pipeline).
        at_least_one: With "bernoulli", give a sequence that came out empty one unit.

    The other arguments are those of `MaskingCollator`; random tokens are never the padding, as in the reference.

    Raises:
        ValueError: a level without a column, weights of unknown levels, a row without the column.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForErnieMasking(BertTokenizerFast(vocab=vocab), levels={"phrase": "phrase_ids"},
        ...                                        level_weights={"phrase": 1}, mlm_probability=0.5, seed=0)
        >>> labels = collator([{"input_ids": [2, 5, 6, 5, 3], "phrase_ids": [-1, 0, 0, 1, -1]}])["labels"]
        >>> (labels[0, 1] != -100) == (labels[0, 2] != -100)
        tensor(True)
    """

    levels: Mapping[str, str] = field(default_factory=lambda: {"phrase": "phrase_ids", "entity": "entity_unit_ids"})
    level_weights: Mapping[str, float] | None = None
    schedule: Sequence[tuple[int, Mapping[str, float]]] = ()
    budget: str = "bernoulli"
    at_least_one: bool = False

    # Of the base, whose words are not asked for: every column of a level is kept by `PtmTrainer` by its own name.
    input_columns: ClassVar[tuple[str, ...]] = ("special_tokens_mask",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("budget", self.budget, BUDGETS)
        names = (BASIC, *self.levels)
        for weights in (self.level_weights or {}, *(weights for _, weights in self.schedule)):
            unknown = sorted(set(weights) - set(names))
            if unknown or any(weight < 0 for weight in weights.values()) or (weights and not sum(weights.values())):
                raise ValueError(
                    f"`level_weights` and `schedule` must give levels among {', '.join(names)} weights that are not "
                    f"negative and not all 0, got {dict(weights)}."
                )
        self.input_columns = (*type(self).input_columns, *self.levels.values())  # type: ignore[misc]
        self.pad_values = {**dict.fromkeys(self.levels.values(), -1), **self.pad_values}

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        layout, batch = super()._lay_out(features)
        missing = [column for column in self.levels.values() if column not in batch]
        if missing:
            raise ValueError(
                f"`levels` name the columns {missing}, which the rows lack, got {sorted(batch)}. Write them "
                "with `hf_ptm_ext.data.segmentation.WordIds`, and keep them with `remove_unused_columns=False`."
            )
        units = {level: batch.pop(column) for level, column in self.levels.items()}
        return UnitLayout(**vars(layout), units=units), batch

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        starts = self._unit_starts(layout, rng)
        candidates, groups = layout.candidates, layout.groups()
        if self.budget == "bernoulli":
            return bernoulli_words(candidates, starts, self.mlm_probability, rng, self.at_least_one, groups)
        if self.budget == "exact":
            return exact_words(
                candidates, starts, bert_budget(layout.sequence_lengths(), self.mlm_probability), rng, groups
            )
        units = find_segments(candidates, starts)
        chosen = np.zeros(len(units.row), dtype=bool)
        count = min(max(1, int(self.mlm_probability * len(chosen))), len(chosen))
        chosen[rng.choice(len(chosen), count, replace=False)] = True
        return cover_chosen(units, chosen, (candidates.shape[0], candidates.shape[1]))

    def _unit_starts(self, layout: Any, rng: np.random.Generator) -> np.ndarray:
        """First token of every unit of the level that is drawn for each row, boolean `(batch, seq_len)`."""
        weights = self._weights()
        names = [name for name, weight in weights.items() if weight]
        cumulative = np.cumsum([weights[name] for name in names])
        drawn = np.searchsorted(cumulative / cumulative[-1], rng.random(len(layout.candidates)), side="right")
        starts = layout.candidates.copy()
        for number, name in enumerate(names):
            if name != BASIC:
                units = layout.units[name]
                first = layout.blocks | (units < 0) | (units != previous(units, -1))
                starts &= first | (drawn != number)[:, None]
        return starts

    def _weights(self) -> Mapping[str, float]:
        """The weights of this batch."""
        number = self._calls - (self.numbered is None)  # counted already
        weights = self.level_weights or dict.fromkeys((BASIC, *self.levels), 1.0)
        for begin, those in self.schedule:
            weights = those if number >= begin else weights
        return weights

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        pad = self.tokenizer.pad_token_id
        if self.random_token_counts is None and pad is not None:
            allowed = self._random_tokens.ids[self._random_tokens.ids != pad]
            excluded = np.ones(len(self._tables.special), dtype=bool)
            excluded[allowed] = False
            self._random_tokens = uniform_tokens(len(excluded), excluded)
