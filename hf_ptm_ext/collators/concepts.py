"""KT-NET's batches (Yang et al. 2019, https://aclanthology.org/P19-1226): the concepts of each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import BatchEncoding, DataCollatorWithPadding, PreTrainedTokenizerBase

from ..models.annotations_ernie_thu import DictionaryLinker
from .vocabulary import check_tokenizer


@dataclass
class DataCollatorForConcepts:
    """Pad rows, and give every piece of a mention the concepts of the mention.

    | column | shape | content |
    | --- | --- | --- |
    | concept_ids | (batch, seq_len, K, concepts) | rows of each table, 0 behind the last |

    Mentions are the leftmost and longest names of each dictionary in the text that the pieces spell, without regard to
    case; the other columns are padded as usual.

    Args:
        tokenizer: Fast tokenizer of the rows, of word pieces.
        concepts: Knowledge base -> name -> rows of its table, in the order of the model's config: words with their
            synsets, names of entities with their categories.
        max_concepts: Most concepts of a token; the first ones count.
        pad_to_multiple_of: Pad to a multiple of this length.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "par": 5, "##is": 6}
        >>> tokenizer = BertTokenizerFast(vocab=vocab)
        >>> collate = DataCollatorForConcepts(tokenizer, {"wn": {"paris": [7, 8]}})
        >>> collate([dict(tokenizer("Paris"))])["concept_ids"].tolist()
        [[[[0, 0]], [[7, 8]], [[7, 8]], [[0, 0]]]]
    """

    tokenizer: PreTrainedTokenizerBase
    concepts: Mapping[str, Mapping[str, Sequence[int]]]
    max_concepts: int = 20
    pad_to_multiple_of: int | None = None

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)
        self._known = {name: {title.lower(): ids for title, ids in one.items()} for name, one in self.concepts.items()}
        self._linkers = {
            name: DictionaryLinker({title: title for title in one}, ignore_case=True)
            for name, one in self._known.items()
        }

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        """Make a batch."""
        padded = DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of)
        batch = dict(padded([dict(row) for row in features]))
        found = [self._of_row(ids) for ids in batch["input_ids"].tolist()]
        width = max(1, *(len(one) for row in found for token in row for one in token))
        filled = [[[[*one, *[0] * (width - len(one))] for one in token] for token in row] for row in found]
        return BatchEncoding({**batch, "concept_ids": torch.tensor(filled, dtype=torch.long)})

    def _of_row(self, ids: Sequence[int]) -> list[list[Sequence[int]]]:
        """The concepts of each token in each knowledge base."""
        special = set(self.tokenizer.all_special_ids)
        text, spans = "", []
        for number, piece in zip(ids, self.tokenizer.convert_ids_to_tokens(list(ids)), strict=True):
            # A special token parts two texts: nothing is a mention across it.
            word = "\n\n" if number in special else piece.removeprefix("##")
            text += "" if piece.startswith("##") or not text or number in special else " "
            spans.append((len(text), len(text) + len(word)))
            text += word
        concepts: list[list[Sequence[int]]] = [[() for _ in self._known] for _ in ids]
        for place, (name, linker) in enumerate(self._linkers.items()):
            for one in linker([text])[0]:
                for token, (begin, end) in enumerate(spans):
                    if begin < one.end and end > one.start and ids[token] not in special:
                        concepts[token][place] = list(self._known[name][str(one.id)])[: self.max_concepts]
        return concepts
