"""WKLM's corruption (Xiong et al., ICLR 2020): mentions replaced by entities of the same type, and masked tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from ..masking import check_probability, exact_tokens
from .base import MaskingCollator, TokenLayout, check_positive
from .batching import MISSING, collect_columns, to_array
from .entity_catalogue import EntityCatalogue

COLUMNS = ("input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "mention_spans", "mention_entities")


@dataclass(kw_only=True)
class MentionLayout(TokenLayout):
    """A `TokenLayout` that knows the positions inside of entity mentions, boolean `(batch, seq_len)`."""

    mentions: np.ndarray


@dataclass
class DataCollatorForEntityReplacement(MaskingCollator):
    """Replace entity mentions by the name of another entity of the same type, and mask tokens outside mentions.

    | input | becomes | label |
    | --- | --- | --- |
    | mention, replaced | another name, of any number of tokens | `entity_labels` 0 |
    | mention, kept | itself | `entity_labels` 1 |
    | token outside mentions, selected | [MASK] / random / itself (0.8/0.1/0.1) | its id |

    Two neighbouring mentions are never both replaced: from left to right, each mention whose left neighbour stays is
    replaced with `replace_probability`. Of a sequence's n ordinary tokens ceil(n * mlm_probability) are drawn and
    those inside mentions dropped, so fewer are masked than the share says (as in the reference code).

    Relations: `EntityReplacementModel` (hf_ptm_ext.trainers) reads the batch.

    Args:
        catalogue: the entities, with names and types.
        replace_probability: probability of a mention whose left neighbour is not replaced (the paper does not say).
        mlm_probability: share of tokens to draw (reference script: 0.15; paper: 0.05).
        max_length: tokens of a row after replacement; the end of a longer one is cut before its last token, and cut
            mentions are ignored. None for no limit.

    The other arguments are those of `MaskingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "in": 5, "rome": 6, "bad": 7}
        >>> tokenizer = BertTokenizerFast(vocab=vocab)
        >>> catalogue = EntityCatalogue([["rome"], ["bad bad"]], [["city"], ["city"]], tokenizer)
        >>> collator = DataCollatorForEntityReplacement(
        ...     tokenizer, catalogue=catalogue, replace_probability=1.0, mlm_probability=0.0, seed=0
        ... )
        >>> batch = collator([{"input_ids": [2, 5, 6, 3], "mention_spans": [[2, 3]], "mention_entities": [0]}])
        >>> batch["input_ids"].tolist(), batch["entity_start"].tolist(), batch["entity_end"].tolist()
        ([[2, 5, 7, 7, 3]], [[2]], [[4]])
        >>> batch["entity_labels"].tolist()
        [[0]]
    """

    catalogue: EntityCatalogue | None = None
    replace_probability: float = 0.5
    max_length: int | None = None

    input_columns: ClassVar[tuple[str, ...]] = ("special_tokens_mask", "mention_spans", "mention_entities")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.catalogue, EntityCatalogue):
            raise TypeError(f"`catalogue` must be an EntityCatalogue, got {type(self.catalogue).__name__}.")
        self._catalogue = self.catalogue
        check_probability("replace_probability", self.replace_probability)
        check_positive("max_length", self.max_length)

    def _prepare(self, features: Sequence[Any], rng: np.random.Generator) -> list[dict[str, Any]]:
        """Replace mentions: rows of other lengths, with the mentions' new places and labels."""
        rows, spans, entities = self._read(features)
        counts = [len(of_row) for of_row in spans]
        row_of = np.repeat(np.arange(len(rows)), counts)
        start, end = np.concatenate(spans).T
        entity = np.concatenate(entities)
        replaced = self._choose(row_of, rng)
        others = np.full(len(entity), -1, dtype=np.int64)
        others[replaced] = self._catalogue.replacements(entity[replaced], rng)
        replaced = others >= 0
        name_start, name_length = np.zeros_like(entity), np.zeros_like(entity)
        name_start[replaced], name_length[replaced] = self._catalogue.names_of(others[replaced], rng)

        # Where each mention begins in its row once those before it have their new length.
        growth = np.where(replaced, name_length - (end - start), 0)
        before = np.cumsum(growth) - growth
        first_of_row = np.concatenate([[0], np.cumsum(counts)])[:-1]
        grown = np.concatenate([before, [growth.sum()]])
        new_start = start + before - grown[first_of_row][row_of]
        new_end = new_start + np.where(replaced, name_length, end - start)
        labels = np.where(replaced, 0, 1)

        width = max(*counts, 1) if len(counts) > 1 else max(counts[0], 1)
        prepared = []
        for number, row in enumerate(rows):
            mine = slice(first_of_row[number], first_of_row[number] + counts[number])
            changed = np.flatnonzero(replaced[mine]) + first_of_row[number]
            parts, at = [], 0
            for mention in changed:
                name = self._catalogue.tokens[name_start[mention] : name_start[mention] + name_length[mention]]
                parts += [row[at : start[mention]], name]
                at = end[mention]
            ids = np.concatenate([*parts, row[at:]])
            keep = np.ones(counts[number], dtype=bool)
            if self.max_length is not None and len(ids) > self.max_length:
                ids = np.concatenate([ids[: self.max_length - 1], ids[-1:]])
                keep = new_end[mine] < self.max_length
            placed = {"entity_start": new_start[mine], "entity_end": new_end[mine], "entity_labels": labels[mine]}
            padded: dict[str, Any] = {"input_ids": ids}
            for name_of_column, values in placed.items():
                pad = -100 if name_of_column == "entity_labels" else 1
                column = np.full(width, pad, dtype=np.int64)
                column[: counts[number]] = np.where(keep, values, pad)
                padded[name_of_column] = column
            prepared.append(padded)
        return prepared

    def _read(self, features: Sequence[Any]) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Ids without padding, spans `(mentions, 2)` in order and entities `(mentions,)` of each row."""
        columns = collect_columns(features)
        unknown = sorted(set(columns) - set(COLUMNS))
        if unknown:
            raise ValueError(
                f"`{unknown[0]}` cannot follow a row whose length changes; the columns may be {', '.join(COLUMNS)}. "
                "Remove the others."
            )
        rows, spans, entities = [], [], []
        for number, row in enumerate(columns["input_ids"]):
            ids = to_array(row).astype(np.int64)
            mask = columns.get("attention_mask", [MISSING] * len(features))[number]
            real = slice(0, len(ids))
            if mask is not MISSING and mask is not None:
                seen = np.flatnonzero(to_array(mask))
                real = slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 0)
            span, entity = (
                np.asarray([] if values is MISSING or values is None else to_array(values), dtype=np.int64)
                for values in (columns.get(name, [MISSING] * len(features))[number] for name in COLUMNS[4:])
            )
            span = span.reshape(-1, 2)
            order = np.argsort(span[:, 0], kind="stable")
            span = span[order]
            self._check(number, span, entity, real)
            rows.append(ids[real])
            spans.append(span - real.start)
            entities.append(entity[order])
        return rows, spans, entities

    def _check(self, number: int, span: np.ndarray, entity: np.ndarray, real: slice) -> None:
        if len(span) != len(entity):
            raise ValueError(
                f"`mention_entities` must have one entity per span, row {number} has {len(entity)} for {len(span)}."
            )
        if len(entity) and (entity.min() < 0 or entity.max() >= self._catalogue.num_entities):
            raise ValueError(
                f"`mention_entities` must be below {self._catalogue.num_entities}, the catalogue's size, row {number} "
                f"has {entity.min()} to {entity.max()}."
            )
        outside = (span[:, 0] < real.start) | (span[:, 1] > real.stop) | (span[:, 1] <= span[:, 0])
        overlap = np.concatenate([[False], span[1:, 0] < span[:-1, 1]]) if len(span) else outside
        if outside.any() or overlap.any():
            wrong = span[outside | overlap][0].tolist()
            raise ValueError(
                f"`mention_spans` must be [start, end) of tokens {real.start} to {real.stop}, without overlap, row "
                f"{number} has {wrong}. Drop or mend the mention."
            )

    def _choose(self, row_of: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Mentions to replace, never two neighbours: of each run of lucky draws the first, third, fifth..."""
        lucky = rng.random(len(row_of)) < self.replace_probability
        position = np.arange(len(row_of))
        begins = np.ones(len(row_of), dtype=bool)
        begins[1:] = (row_of[1:] != row_of[:-1]) | ~lucky[:-1]
        run = np.maximum.accumulate(np.where(begins, position, 0)) if len(position) else position
        return lucky & ((position - run) % 2 == 0)

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        layout, batch = super()._lay_out(features)
        shift = (~layout.text).argmin(axis=1) if self.tokenizer.padding_side == "left" else np.zeros(len(layout.text))
        real = batch["entity_labels"] != -100
        for name in ("entity_start", "entity_end"):
            batch[name] = np.where(real, batch[name] + shift.astype(np.int64)[:, None], batch[name])
        # +1 where a mention begins, -1 behind its end: the running sum is positive inside.
        steps = np.zeros((layout.text.shape[0], layout.text.shape[1] + 1), dtype=np.int64)
        rows = np.nonzero(real)[0]
        np.add.at(steps, (rows, batch["entity_start"][real]), 1)
        np.add.at(steps, (rows, batch["entity_end"][real]), -1)
        mentions = steps.cumsum(axis=1)[:, :-1] > 0
        return MentionLayout(**vars(layout), mentions=mentions), batch

    def _select(self, layout: TokenLayout, rng: np.random.Generator) -> np.ndarray:
        budget = np.ceil(layout.candidates.sum(axis=1) * self.mlm_probability - 1e-9).astype(np.int64)
        drawn = exact_tokens(layout.candidates, budget, rng, layout.groups())
        return drawn & ~cast(MentionLayout, layout).mentions
