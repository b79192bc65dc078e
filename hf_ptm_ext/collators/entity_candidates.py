"""KnowBERT's batches (Peters et al. 2019, https://arxiv.org/abs/1909.04164): masked tokens, candidates, links.

Whoever is a candidate of a masked mention would give the masked words away: candidates are masked with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import BatchEncoding

from ..masking import check_fate
from ..models.generator_knowbert import MASK
from ..models.processing_knowbert import COLUMNS, pad_candidates
from .randomness import CallRandomness

MOST_RANDOM = 5


@dataclass
class DataCollatorForEntityCandidates(CallRandomness):
    """Add candidates and gold entities to what another collator returns, which pads and masks the tokens.

    | column | shape | content |
    | --- | --- | --- |
    | candidate_spans | (batch, K, spans, 2) | first and last token of each mention, -1 = padding |
    | candidate_entities | (batch, K, spans, candidates) | rows of the knowledge base's table, 0 = padding |
    | candidate_priors | (batch, K, spans, candidates) | how likely each is without the text |
    | gold_entities | (batch, K, spans) | whom the mention stands for, where rows have it; -100 = unknown |

    Candidates of a mention in which a token is to be predicted become, once for the mention: the mask entity (0.8),
    1 to 5 random candidates of the same row with random priors (0.1), or stay (0.1). A gold entity that is not a
    candidate any more becomes -100, and one that the softmax loss would not find too.

    Args:
        collator: Makes the batch of everything else, as tensors: `DataCollatorForMaskedLanguageModeling` for
            pre-training, or any other.
        mask_replace_prob: Probability of the mask entity (reference: 0.8).
        random_replace_prob: Probability of random ones (reference: 0.1).
        mask_entity_id: Row of the mask entity (3).
        seed: Seed of all draws; None: fresh entropy.

    Examples:
        >>> from hf_ptm_ext import DataCollatorForMaskedLanguageModeling
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "paris": 5}
        >>> masked = DataCollatorForMaskedLanguageModeling(BertTokenizerFast(vocab=vocab), mlm_probability=1.0, seed=0)
        >>> row = {"input_ids": [2, 5, 3], "candidate_spans": [[[1, 1]]], "candidate_entities": [[[7, 8]]]}
        >>> row |= {"candidate_priors": [[[0.9, 0.1]]], "gold_entities": [[7]]}
        >>> batch = DataCollatorForEntityCandidates(masked, mask_replace_prob=1.0, random_replace_prob=0.0)([row])
        >>> batch["candidate_entities"].tolist(), batch["gold_entities"].tolist()
        ([[[[3, 0]]]], [[[-100]]])
    """

    collator: Callable[[list[Any]], Any]
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    mask_entity_id: int = MASK
    seed: int | None = None

    def __post_init__(self) -> None:
        check_fate(self.mask_replace_prob, self.random_replace_prob)
        self.start_randomness(self.seed)

    def __call__(self, features: Sequence[Any]) -> BatchEncoding:
        """Make a batch."""
        rows = [dict(row) for row in features]
        lacking = next((number for number, row in enumerate(rows) if "candidate_spans" not in row), None)
        if lacking is not None:
            raise ValueError(
                f"Row {lacking} has no `candidate_spans`, got {sorted(rows[lacking])}: make rows with "
                "`KnowBertProcessor`."
            )
        own: dict[str, Any] = {name: [row.pop(name) for row in rows] for name in COLUMNS if name in rows[0]}
        widths = [len(row["input_ids"]) for row in rows]
        batch = dict(self.collator(rows))
        found = pad_candidates(own)
        real = batch["attention_mask"] if "attention_mask" in batch else torch.ones_like(batch["input_ids"])
        left = np.array(batch["input_ids"].shape[1] - np.array(widths)) * (real[:, 0] == 0).numpy()
        found["candidate_spans"] += np.where(found["candidate_spans"] < 0, 0, left[:, None, None, None])
        labels = batch.get("labels")
        if labels is not None and labels.shape == batch["input_ids"].shape:
            self._mask(found, (labels != -100).numpy())
        if "gold_entities" in found:
            gold = found["gold_entities"]
            among = (found["candidate_entities"] == gold[..., None]).any(-1)
            found["gold_entities"] = np.where(among & (gold > 0), gold, -100)
        return BatchEncoding({**batch, **{name: torch.from_numpy(value) for name, value in found.items()}})

    def _mask(self, found: dict[str, np.ndarray], predicted: np.ndarray) -> None:
        """Replace the candidates of mentions in which a token is predicted, in place."""
        rng = self.next_generator()
        spans, entities, priors = (found[name] for name in list(COLUMNS)[:3])
        before = np.pad(predicted.cumsum(axis=1), ((0, 0), (1, 0)))
        row = np.arange(len(spans))[:, None, None]
        touched = (before[row, spans[..., 1] + 1] > before[row, np.maximum(spans[..., 0], 0)]) & (spans[..., 0] >= 0)
        original = entities.copy()
        for place in map(tuple, np.argwhere(touched)):
            fate = rng.random()
            if fate >= self.mask_replace_prob + self.random_replace_prob:
                continue
            chosen, shares = np.array([self.mask_entity_id]), np.ones(1)
            if fate >= self.mask_replace_prob:
                others = np.unique(original[place[:2]])
                number = min(int(rng.integers(1, MOST_RANDOM + 1)), entities.shape[-1])
                chosen = rng.choice(others[others > 0], number)
                shares = rng.random(number) + 1e-6
            entities[place], priors[place] = 0, 0.0
            entities[place][: len(chosen)], priors[place][: len(chosen)] = chosen, shares / shares.sum()
