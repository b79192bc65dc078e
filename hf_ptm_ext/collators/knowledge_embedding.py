"""Batches for KEPLER: masked text beside triples whose entities are read from their descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..data.triples import NegativeSampler
from ..masking.checks import check_choice
from .base import check_positive
from .randomness import CallRandomness
from .vocabulary import check_tokenizer

VARIANTS = ("plain", "cond", "rel")


@dataclass
class DataCollatorForKnowledgeEmbedding(CallRandomness):
    """Turn rows of text with a triple each into one batch of both objectives.

    | input | output |
    | --- | --- |
    | text columns | whatever `mlm_collator` makes of them: masked `input_ids`, `labels` |
    | `triple`: head, relation, tail | descriptions of head, tail, corrupted heads and tails (and more by variant) |

    A description is `<s>` and its tokens, without a closing token, as in KEPLER's data. Corrupted entities are drawn
    anew in every call, uniformly, and never make a triple that is known to be true (KEPLER: once, offline, by the same
    rule).

    Relations: `KnowledgeEmbeddingModel` (hf_ptm_ext.trainers) reads the batch; `ZippedRows` (hf_ptm_ext.data) makes
    the rows; `objectives.knowledge_embedding_scores` is the formula.

    Args:
        tokenizer: tokenizer of the encoder.
        descriptions: text, or token ids without special tokens, of each entity by its number; anything that can be
            indexed, such as a column of a dataset.
        num_relations: number of relations.
        known_triples: triples that corruption must not make, `(num_triples, 3)`: training and validation data.
        mlm_collator: collator of the text; None for triples alone.
        relation_descriptions: text or token ids of each relation (variants "cond" and "rel").
        variant: "plain"; "cond": also read `<s> description </s> relation description` for head and tail; "rel": the
            relation's vector is that of its description.
        num_negatives: corrupted heads and corrupted tails a triple, each (KEPLER: 1).
        max_description_length: tokens of a description, `<s>` included (KEPLER: 512).
        max_relation_length: tokens of a relation description, `<s>` included (KEPLER: 64).
        seed: seed of the corruptions, with epoch, process, worker and call; None for fresh entropy.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForKnowledgeEmbedding(
        ...     BertTokenizerFast(vocab=vocab), descriptions=["a", "b b", "b"], num_relations=1,
        ...     known_triples=[[0, 0, 1]], seed=0,
        ... )
        >>> batch = collator([{"triple": [0, 0, 1]}])
        >>> batch["description_input_ids"].shape, batch["description_input_ids"][0, :2].tolist()
        (torch.Size([1, 4, 3]), [[2, 5, 0], [2, 6, 6]])
    """

    tokenizer: PreTrainedTokenizerBase
    descriptions: Sequence[Any] = field(repr=False)
    num_relations: int
    known_triples: Any = field(repr=False)
    mlm_collator: Any = None
    relation_descriptions: Sequence[Any] | None = field(default=None, repr=False)
    variant: str = "plain"
    num_negatives: int = 1
    max_description_length: int = 512
    max_relation_length: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)
        check_choice("variant", self.variant, VARIANTS)
        for name in ("num_relations", "num_negatives", "max_description_length", "max_relation_length"):
            check_positive(name, getattr(self, name))
        if self.variant != "plain" and self.relation_descriptions is None:
            raise ValueError(
                f"`relation_descriptions` must be given with `variant` {self.variant!r}, got None. Pass one text per "
                "relation, or use 'plain'."
            )
        if self.relation_descriptions is not None and len(self.relation_descriptions) != self.num_relations:
            raise ValueError(
                f"`relation_descriptions` must have one entry for each of the {self.num_relations} relations, got "
                f"{len(self.relation_descriptions)}."
            )
        first = self.tokenizer.cls_token_id
        self._first = self.tokenizer.bos_token_id if first is None else first
        self._separator = self.tokenizer.sep_token_id
        self._pad = self.tokenizer.pad_token_id
        if None in (self._first, self._separator, self._pad):
            raise ValueError(
                f"`tokenizer` must have a first token (cls or bos), a separator and a padding token, got the ids "
                f"{self._first}, {self._separator} and {self._pad}."
            )
        self._sampler = NegativeSampler(np.asarray(self.known_triples), len(self.descriptions), self.num_relations)
        self.start_randomness(self.seed)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Columns that this collator reads and no model's forward names."""
        return ("triple", *getattr(self.mlm_collator, "input_columns", ()))

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        """Make a batch."""
        triples = self._triples(features)
        batch: dict[str, Any] = {}
        if self.mlm_collator is not None:
            rows = [{name: value for name, value in row.items() if name != "triple"} for row in features]
            batch.update(self.mlm_collator(rows))
        heads, relations, tails = triples.T
        repeated = np.repeat(triples, self.num_negatives, axis=0)
        rng = self.next_generator()
        false_heads, false_tails = (
            self._sampler.draw(repeated, side, rng).reshape(len(triples), -1) for side in ("head", "tail")
        )
        ids, mask = self._descriptions_of(np.column_stack([heads, tails, false_heads, false_tails]), relations)
        batch |= {
            "description_input_ids": torch.from_numpy(ids),
            "description_attention_mask": torch.from_numpy(mask),
            "relation_ids": torch.from_numpy(relations.copy()),
        }
        return BatchEncoding(batch)

    def _triples(self, features: Sequence[Mapping[str, Any]]) -> np.ndarray:
        missing = [number for number, row in enumerate(features) if "triple" not in row]
        if missing:
            raise ValueError(
                f"`triple` must be in every feature, row {missing[0]} has the columns {sorted(features[missing[0]])}. "
                "A Trainer drops columns that the model's forward does not name: set `remove_unused_columns=False`."
            )
        triples = np.asarray([list(map(int, row["triple"])) for row in features], dtype=np.int64)
        limits = np.array([len(self.descriptions), self.num_relations, len(self.descriptions)])
        if triples.shape[1:] != (3,) or (triples < 0).any() or (triples >= limits).any():
            raise ValueError(
                f"`triple` must be head, relation, tail with entities below {limits[0]} and relations below "
                f"{limits[1]}, got {triples.tolist()[:2]}."
            )
        return triples

    def _descriptions_of(self, entities: np.ndarray, relations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids and mask `(batch, roles, length)` of the entities' descriptions and of the variant's own."""
        batch = len(entities)
        numbers, index = np.unique(entities, return_inverse=True)
        texts = self._tokens([self.descriptions[int(number)] for number in numbers])
        longest = self.max_description_length
        rows = [[self._first, *texts[position][: longest - 1]] for position in index.reshape(-1)]
        by_triple = [rows[start : start + entities.shape[1]] for start in range(0, len(rows), entities.shape[1])]
        if self.variant != "plain":
            known = self.relation_descriptions or ()
            described = self._tokens([known[int(number)] for number in relations])
            for row, ends, relation in zip(by_triple, described, relations, strict=True):
                ends = ends[: self.max_relation_length - 1]
                if self.variant == "rel":
                    row.append([self._first, *ends])
                    continue
                room = longest - 1 - len(ends)
                if room < 2:
                    raise ValueError(
                        f"`max_description_length` must leave room beside the {len(ends)} tokens of relation "
                        f"{int(relation)}, got {longest}. Raise it, or lower `max_relation_length`."
                    )
                row.extend([[*row[side][:room], self._separator, *ends] for side in (0, 1)])
        width = max(len(tokens) for row in by_triple for tokens in row)
        ids = np.full((batch, len(by_triple[0]), width), self._pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(by_triple):
            for role, tokens in enumerate(row):
                ids[number, role, : len(tokens)] = tokens
                mask[number, role, : len(tokens)] = 1
        return ids, mask

    def _tokens(self, descriptions: list[Any]) -> list[list[int]]:
        """Token ids of descriptions that are text or ids already."""
        if descriptions and isinstance(descriptions[0], str):
            return self.tokenizer(descriptions, add_special_tokens=False, verbose=False)["input_ids"]
        return [list(map(int, tokens)) for tokens in descriptions]

    # The text's collator counts its calls with this one, so that a resumed run draws the same masks.

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if hasattr(self.mlm_collator, "set_epoch"):
            self.mlm_collator.set_epoch(epoch)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if hasattr(self.mlm_collator, "load_state_dict"):
            own = self.mlm_collator.state_dict()
            self.mlm_collator.load_state_dict({**own, "epoch": state["epoch"], "calls": state["calls"]})
