"""KT-NET's batches (Yang et al. 2019, https://aclanthology.org/P19-1226): the concepts of each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import BatchEncoding, DataCollatorWithPadding, PreTrainedTokenizerBase

from ..models.concepts_ktnet import ConceptFinder, padded_concepts
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
            synsets, names of entities with their categories; a model that `finetune --concepts` trained has them as
            `model.concepts`.
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
        self._finder = ConceptFinder(self.tokenizer, self.concepts, self.max_concepts)

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        """Make a batch."""
        padded = DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of)
        batch = dict(padded([dict(row) for row in features]))
        found = [self._finder.of_row(ids) for ids in batch["input_ids"].tolist()]
        return BatchEncoding({**batch, "concept_ids": padded_concepts(found, batch["input_ids"].shape[1])})
