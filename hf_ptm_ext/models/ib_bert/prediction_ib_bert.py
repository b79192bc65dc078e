"""The heads of pre-training over factorised embeddings.

The vocabulary head's matrix is as wide as the states, but the word embeddings are narrower: its first `embedding_size`
columns are the embeddings (tied), the others a matrix of its own (`cls.predictions.dense`, as in MobileBERT).
"""

from typing import Any

import torch
from torch import nn

from .heads_ib_bert import IBBertPredictionHeadTransform
from .pretraining_ib_bert import IBBertVocabularyModel


class IBBertFactorizedHead(nn.Module):
    """Transform, then tied and own columns of the vocabulary matrix, then a bias."""

    def __init__(self, config):
        super().__init__()
        self.embedding_size = config.embedding_size
        self.transform = IBBertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size)
        own = config.hidden_size - config.embedding_size
        # (own, vocab_size), transposed as MobileBERT has it
        self.dense = nn.Linear(config.vocab_size, own, bias=False) if own else None
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., vocab_size)`."""
        states = self.transform(hidden_states)
        logits = self.decoder(states[..., : self.embedding_size])
        return logits if self.dense is None else logits + states[..., self.embedding_size :] @ self.dense.weight


class IBBertPredictionHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, config):
        super().__init__()
        self.predictions = IBBertFactorizedHead(config)


class IBBertNextSentenceHead(nn.Module):
    """Container of the next-sentence head (`cls.seq_relationship` in the state dict)."""

    def __init__(self, config):
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class IBBertPreTrainingHeads(IBBertPredictionHead):
    """The heads of pre-training: vocabulary and next sentence."""

    def __init__(self, config):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class IBBertFactorizedModel(IBBertVocabularyModel):
    """Mixin in front of the family's base class for models with `cls.predictions`: resizing keeps the own columns."""

    def _resize_token_embeddings(self: Any, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        own = self.cls.predictions.dense
        if own is not None:
            trains = own.weight.requires_grad
            mean_resizing = kwargs.get("mean_resizing", args[2] if len(args) > 2 else True)
            self.cls.predictions.dense = self._get_resized_lm_head(
                own, embeddings.weight.shape[0], transposed=True, mean_resizing=mean_resizing
            ).requires_grad_(trains)
        return embeddings

    def _get_resized_lm_head(self: Any, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        if old_lm_head.bias is None:  # the own columns, which the copied method does not know
            return super(IBBertVocabularyModel, self)._get_resized_lm_head(old_lm_head, *args, **kwargs)
        return super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
