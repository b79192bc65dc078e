"""The pre-training loss of the encoders that K-BERT starts from: masked tokens and the next sentence.

    loss = mean CE(mlm) + mean CE(nsp)

A term without any target is 0, never NaN. K-BERT itself adds no objective: knowledge comes in when it is fine-tuned.
"""

from typing import Any

import torch

from .heads_kbert import (
    count_targets,
    mean_over_targets,
    select_labelled,
    share_of_update,
    summed_cross_entropy,
    target_sums,
    vocabulary_loss_sum,
)


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
        model: the `KBertForPreTraining`.
        states: the last states, `(batch, seq_len, hidden)`.
        logits: `prediction_logits` and `seq_relationship_logits` of its output, as far as they were computed.
        targets: `labels`, `label_positions` and `next_sentence_label` of its `forward`.
        num_items_in_batch: number of labels over all micro-batches of one update.
        target_counts: the same number for `"next_sentence_label"`. Without it that term is the micro-batch's own mean,
            weighted by its share of the update's labels.

    Returns:
        `loss`, `mlm_loss` and `nsp_loss`, each a scalar or `None`.
    """
    counts = target_counts or {}
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
        flat, count = sentence.reshape(-1), counts.get("next_sentence_label")
        nsp_sum = summed_cross_entropy(logits["seq_relationship_logits"].reshape(-1, 2), flat)
        nsp_loss = mean_over_targets(nsp_sum, flat, count)
        if share is not None and count is None:
            nsp_loss = nsp_loss * share
    terms = [term for term in (mlm_loss, nsp_loss) if term is not None]
    return {"loss": sum(terms[1:], terms[0]) if terms else None, "mlm_loss": mlm_loss, "nsp_loss": nsp_loss}


def pretraining_sums(
    model: Any, states: torch.Tensor, pooled: torch.Tensor, targets: dict[str, torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    """The body of `KBertForPreTraining.evaluation_sums`, which see.

    Args:
        model: the `KBertForPreTraining`.
        states: the last states, `(batch, seq_len, hidden)`.
        pooled: `(batch, hidden)` or `(batch, S, hidden)`.
        targets: as for `pretraining_losses`.

    Returns:
        Per term a float64 tensor `[sum of cross entropies, correct, number of targets]`.
    """
    sums = {}
    if targets["labels"] is not None:
        selected = select_labelled(states, targets["labels"], targets["label_positions"])
        sums["mlm"] = target_sums(model.cls.predictions, *selected)
    if targets["next_sentence_label"] is not None:
        flat = targets["next_sentence_label"].reshape(-1)
        sums["nsp"] = target_sums(model.cls.seq_relationship, pooled.reshape(-1, pooled.shape[-1]), flat)
    return sums
