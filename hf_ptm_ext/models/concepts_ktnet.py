"""Which concepts the tokens of a text have: those of the longest names that their pieces spell."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .matcher_core import LongestMatcher

CONCEPTS_FILE = "concepts.json"
Found = Sequence[Sequence[Sequence[int]]]  # token -> knowledge base -> rows


class ConceptFinder:
    """Finds the concepts of rows of word pieces.

    Args:
        tokenizer: of the rows.
        concepts: knowledge base -> name -> rows of its table.
        most: most concepts of a token; the first ones count.
    """

    def __init__(self, tokenizer: Any, concepts: Mapping[str, Mapping[str, Sequence[int]]], most: int | None = None):
        self.tokenizer, self.special = tokenizer, set(tokenizer.all_special_ids)
        self.rows = [[list(ids)[:most] for ids in names.values()] for names in concepts.values()]
        self.matchers = [LongestMatcher(names, ignore_case=True) for names in concepts.values()]

    def of_row(self, ids: Sequence[int]) -> list[list[Sequence[int]]]:
        """The concepts of each token in each knowledge base."""
        text, spans = "", []
        for number, piece in zip(ids, self.tokenizer.convert_ids_to_tokens(list(ids)), strict=True):
            # A special token parts two texts: nothing is a mention across it.
            word = "\n\n" if number in self.special else piece.removeprefix("##")
            text += "" if piece.startswith("##") or not text or number in self.special else " "
            spans.append((len(text), len(text) + len(word)))
            text += word
        found: list[list[Sequence[int]]] = [[() for _ in self.matchers] for _ in ids]
        for base, matcher in enumerate(self.matchers):
            for start, behind, name in matcher.find(text):
                for token, (begin, end) in enumerate(spans):
                    if begin < behind and end > start and ids[token] not in self.special:
                        found[token][base] = self.rows[base][name]
        return found


def padded_concepts(found: Sequence[Found], length: int) -> torch.Tensor:
    """`(batch, length, K, concepts)` of rows' tokens, padded on the right."""
    width = max((len(one) for row in found for token in row for one in token), default=0) or 1
    padded = torch.zeros(len(found), length, len(found[0][0]), width, dtype=torch.long)
    for number, row in enumerate(found):
        for place, token in enumerate(row):
            for base, one in enumerate(token):
                if one:
                    padded[number, place, base, : len(one)] = torch.tensor(one)
    return padded
