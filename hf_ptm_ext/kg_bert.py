"""KG-BERT (Yao et al. 2019, https://arxiv.org/abs/1909.03193): an encoder says whether a triple is true.

Any sequence classifier with the classes 0 and 1 is one: `data.TripleEncoder` makes its rows, `hf-ptm-ext finetune
--task triples` trains it, `TripleScorer` scores and ranks.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .data.labelled_triples import TripleEncoder
from .metrics.triple_ranking import LinkRanks, triple_ranks


class TripleScorer:
    """Scores triples by an encoder, each distinct one once, in batches of equal lengths without padding.

    The score is the logit of class 1, as in yao8839836/kg-bert.

    Args:
        model: Sequence classifier with two classes, of transformers or of this package.
        encoder: Makes its rows.
        batch_size: Rows of a forward pass.
        on_scored: Called with the number of triples of each pass, for a bar.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "animal", "is", "a"]
        >>> tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = BertForSequenceClassification(BertConfig(vocab_size=len(words), num_labels=2, **sizes))
        >>> scorer = TripleScorer(model, TripleEncoder(tokenizer, ["cat", "animal", "a cat"], ["is a"], 16))
        >>> scorer([[0, 0, 1], [2, 0, 1]]).shape, scorer.rank([[0, 0, 1]]).filtered.shape
        ((2,), (2, 1))
    """

    def __init__(
        self,
        model: Any,
        encoder: TripleEncoder,
        batch_size: int = 256,
        on_scored: Callable[[int], Any] | None = None,
    ):
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
        classes = getattr(model.config, "num_labels", 2)
        if classes != 2:
            raise ValueError(f"`model` must have two classes, false and true, got {classes}.")
        self.model, self.encoder, self.batch_size, self.on_scored = model, encoder, batch_size, on_scored

    @torch.inference_mode()
    def __call__(self, triples: Any) -> np.ndarray:
        """Scores of triples `(number, 3)`, float32 `(number,)`."""
        texts = self.encoder.texts_of(triples)
        if not len(texts):
            return np.zeros(0, dtype=np.float32)
        limits = texts.max(axis=0) + 1
        keys = np.ravel_multi_index(tuple(texts.T), tuple(limits))
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        texts = texts[first]
        lengths = self.encoder.cut(texts)
        total = lengths.sum(axis=1)
        order = np.argsort(total, kind="stable")
        found = np.zeros(len(texts), dtype=np.float32)
        training, device = self.model.training, next(self.model.parameters()).device
        self.model.eval()
        try:
            for group in np.split(order, np.flatnonzero(np.diff(total[order])) + 1):
                for start in range(0, len(group), self.batch_size):
                    rows = group[start : start + self.batch_size]
                    inputs = self.encoder.assemble(texts[rows], lengths[rows])
                    del inputs["attention_mask"]  # nothing is padded
                    given = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
                    found[rows] = self.model(**given).logits[:, 1].float().cpu().numpy()
                    if self.on_scored is not None:
                        self.on_scored(len(rows))
        finally:
            self.model.train(training)
        return found[back]

    def rank(self, triples: Any, known: Any = (), **options: Any) -> LinkRanks:
        """Rank heads and tails; `known` are all true triples, the options those of `metrics.triple_ranks`."""
        known = np.asarray(known, dtype=np.int64).reshape(-1, 3)
        return triple_ranks(np.asarray(triples), known, self.encoder.num_entities, self, **options)
