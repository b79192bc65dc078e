"""Entities with names and types, as arrays: what WKLM draws its replacements from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from .vocabulary import word_boundary_style


class EntityCatalogue:
    """Names and types of the entities 0..n-1; draws, for many mentions at once, another entity of the same type.

    A replacement shares a uniformly drawn type of the original (of those types that have another entity) and is
    uniform among the others of that type; its name is uniform among its names (Xiong et al. 2020, section 2.2).

    Args:
        names: names of each entity: its label and aliases.
        types: types of each entity, any labels that can be compared and hashed; without any it is never replaced.
        tokenizer: tokenizer of the text that the names will stand in.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "rome": 5, "bonn": 6, "anna": 7}
        >>> catalogue = EntityCatalogue(
        ...     [["rome"], ["bonn"], ["anna"]], [["city"], ["city"], ["person"]], BertTokenizerFast(vocab=vocab)
        ... )
        >>> catalogue.replacements(np.array([0, 1, 2]), np.random.default_rng(0)).tolist()  # anna has no peer
        [1, 0, -1]
    """

    def __init__(
        self,
        names: Sequence[Sequence[str]],
        types: Sequence[Sequence[object]],
        tokenizer: PreTrainedTokenizerBase,
    ):
        if len(names) != len(types):
            raise ValueError(
                f"`names` and `types` must have one entry per entity, got {len(names)} and {len(types)} entries."
            )
        self.num_entities = len(names)
        self._read_names(names, tokenizer)
        self._read_types(types)

    def _read_names(self, names: Sequence[Sequence[str]], tokenizer: PreTrainedTokenizerBase) -> None:
        without = next((number for number, of_entity in enumerate(names) if not len(of_entity)), None)
        if without is not None:
            raise ValueError(f"`names` must have at least one name for each entity, got none for entity {without}.")
        # In running text a name follows a blank, which byte-level pieces carry.
        blank = " " if word_boundary_style(tokenizer) == "byte_level" else ""
        flat = [blank + name for of_entity in names for name in of_entity]
        rows = tokenizer(flat, add_special_tokens=False, verbose=False)["input_ids"] if flat else []
        empty = next((number for number, row in enumerate(rows) if not row), None)
        if empty is not None:
            raise ValueError(f"`names` must each have a token, got {flat[empty]!r}, of which nothing is left.")
        self.tokens = np.array([token for row in rows for token in row], dtype=np.int64)
        self._name_offsets = _offsets([len(row) for row in rows])
        self._entity_offsets = _offsets([len(of_entity) for of_entity in names])

    def _read_types(self, types: Sequence[Sequence[object]]) -> None:
        labels: dict[object, int] = {}
        pairs = sorted(
            {
                (labels.setdefault(label, len(labels)), entity)
                for entity, of_entity in enumerate(types)
                for label in of_entity
            }
        )
        of_type = np.array([pair[0] for pair in pairs], dtype=np.int64)
        self._members = np.array([pair[1] for pair in pairs], dtype=np.int64)
        sizes = np.bincount(of_type, minlength=len(labels))
        self._type_offsets = _offsets(sizes)
        # Places in the member list, of each entity in turn, as far as its type has another member.
        places = np.argsort(self._members, kind="stable")
        places = places[sizes[of_type[places]] > 1] if len(places) else places
        self._places = places
        self._type_of_place = of_type
        counts = np.bincount(self._members[places], minlength=self.num_entities)
        self._place_offsets = _offsets(counts)

    def replacements(self, entities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw another entity of the same type for each entity."""
        first, choices = self._place_offsets[entities], np.diff(self._place_offsets)[entities]
        possible = choices > 0
        drawn = np.full(len(entities), -1, dtype=np.int64)
        place = self._places[first[possible] + _below(choices[possible], rng)]
        kind = self._type_of_place[place]
        start, size = self._type_offsets[kind], np.diff(self._type_offsets)[kind]
        other = start + _below(size - 1, rng)
        drawn[possible] = self._members[np.where(other >= place, other + 1, other)]
        return drawn

    def names_of(self, entities: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a name for each entity."""
        first, count = self._entity_offsets[entities], np.diff(self._entity_offsets)[entities]
        name = first + _below(count, rng)
        return self._name_offsets[name], np.diff(self._name_offsets)[name]


def _offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each part begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])


def _below(limits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A whole number from 0 below each limit."""
    return rng.integers(0, limits) if len(limits) else np.zeros(0, dtype=np.int64)
