# Generated from models/canonical/pretraining_canonical.py by scripts/sync_copies.py; change that file.
"""BERT's pre-training for families that keep it: the heads, their losses, and what the model returns.

    loss = mean CE(masked tokens) + mean CE(next sentence)

The means are over the targets of one update: those of the batch, or of all micro-batches (`num_items_in_batch` for the
tokens, `target_counts` for the sentences). A term without any target is 0, never NaN.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from .heads_nezha import (
    NezhaLMPredictionHead,
    count_targets,
    mean_over_targets,
    select_labelled,
    share_of_update,
    sum_of_terms,
    summed_cross_entropy,
    target_sums,
    vocabulary_loss_sum,
)


class NezhaPredictionHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, config):
        super().__init__()
        self.predictions = NezhaLMPredictionHead(config)


class NezhaNextSentenceHead(nn.Module):
    """Container of the next-sentence head (`cls.seq_relationship` in the state dict)."""

    def __init__(self, config):
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class NezhaPreTrainingHeads(NezhaPredictionHead):
    """The heads of pre-training: vocabulary and next sentence."""

    def __init__(self, config):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class NezhaVocabularyModel:
    """Mixin in front of the family's base class for models with `cls.predictions`: the tied decoder and resizing."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    _prediction_heads = {"cls.predictions": "masked-language-model head"}

    def get_output_embeddings(self: Any) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self: Any, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def _get_resized_lm_head(self: Any, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        size = old_lm_head.weight.shape[0]
        new = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        with torch.no_grad():
            new.bias[size:] = 0.0  # a token never seen has no frequency to lean on
        return new


@dataclass
class NezhaForPreTrainingOutput(ModelOutput):
    """Output of `NezhaForPreTraining`.

    `output.logits` and `output["logits"]` are other names of `prediction_logits`, where upstream's code looks for the
    vocabulary logits (label smoothing, losses of one's own). It is no field: keys, values and the tuple hold each
    tensor once.

    Args:
        loss: sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens.
        nsp_loss: next-sentence term, mean over labelled sequences.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each.
    """

    loss: torch.Tensor | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__("prediction_logits" if key == "logits" else key)

    @property
    def logits(self) -> torch.Tensor | None:
        """`prediction_logits`, under the name that upstream's code reads."""
        return self.prediction_logits


def pretraining_losses(
    model: Any,
    states: torch.Tensor,
    logits: dict[str, torch.Tensor | None],
    targets: dict[str, torch.Tensor | None],
    num_items_in_batch: torch.Tensor | int | None = None,
    target_counts: dict[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor | None]:
    """The terms that have targets, and their sum.

    Args:
        model: the `NezhaForPreTraining`.
        states: the last states, `(batch, seq_len, hidden)`.
        logits: `prediction_logits` and `seq_relationship_logits` of its output, as far as they were computed.
        targets: `labels`, `label_positions` and `next_sentence_label` of its `forward`.
        num_items_in_batch: number of labels over all micro-batches of one update.
        target_counts: the same number for `"next_sentence_label"`. Without it that term is the micro-batch's own mean,
            weighted by its share of the update's labels.

    Returns:
        `loss`, `mlm_loss` and `nsp_loss`, each a scalar or `None`.
    """
    labels, sentence = targets["labels"], targets["next_sentence_label"]
    mlm_loss = nsp_loss = share = None
    if labels is not None:
        mlm_sum, flat = vocabulary_loss_sum(
            model.cls.predictions, states, labels, targets["label_positions"], logits["prediction_logits"]
        )
        mlm_loss = mean_over_targets(mlm_sum, flat, num_items_in_batch)
        if num_items_in_batch is not None:
            share = share_of_update(count_targets(flat), num_items_in_batch)
    if sentence is not None:
        flat, count = sentence.reshape(-1), (target_counts or {}).get("next_sentence_label")
        nsp_sum = summed_cross_entropy(logits["seq_relationship_logits"].reshape(-1, 2), flat)
        nsp_loss = mean_over_targets(nsp_sum, flat, count)
        if share is not None and count is None:
            nsp_loss = nsp_loss * share
    terms = {"mlm_loss": mlm_loss, "nsp_loss": nsp_loss}
    idle = {
        "mlm_loss": lambda: model.cls.predictions(states[:0]),
        "nsp_loss": lambda: logits["seq_relationship_logits"][:0],
    }
    return {"loss": sum_of_terms(model, terms, idle), **terms}


def pretraining_sums(
    model: Any, states: torch.Tensor, pooled: torch.Tensor, targets: dict[str, torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    """The body of `NezhaForPreTraining.evaluation_sums`, which see.

    Args:
        model: the `NezhaForPreTraining`.
        states: the last states, `(batch, seq_len, hidden)`.
        pooled: `(batch, hidden)` or `(batch, S, hidden)`.
        targets: as for `pretraining_losses`.

    Returns:
        Per term with targets (`mlm`, `nsp`) a float64 tensor `[sum of cross entropies, correct, number of targets]`.
    """
    sums = {}
    if targets["labels"] is not None:
        selected = select_labelled(states, targets["labels"], targets["label_positions"])
        sums["mlm"] = target_sums(model.cls.predictions, *selected)
    if targets["next_sentence_label"] is not None:
        flat = targets["next_sentence_label"].reshape(-1)
        sums["nsp"] = target_sums(model.cls.seq_relationship, pooled.reshape(-1, pooled.shape[-1]), flat)
    return sums
