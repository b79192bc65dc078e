"""SpanBERT's pre-training loss: what its targets must be, its terms and their denominators, and sums for evaluation.

    loss = sum CE(mlm) / N_mlm + w * sum CE(sbo) / (N_sbo + 1) [+ mean CE(nsp)]

N counts the targets of one update: those of the batch, or of all micro-batches (`num_items_in_batch` for the token
term, `target_counts` for the others). A term without any target in the whole update is 0, never NaN.
"""

from typing import Any

import torch

from .heads_spanbert import (
    check_positions,
    count_targets,
    mean_over_targets,
    select_labelled,
    share_of_update,
    sum_of_terms,
    summed_cross_entropy,
    target_sums,
    vocabulary_loss_sum,
)
from .outputs_spanbert import SpanBertModelOutput


def check_targets(
    model: Any,
    seq_len: int | None,
    span_boundaries: torch.Tensor | None,
    span_labels: torch.Tensor | None,
    next_sentence_label: torch.Tensor | None,
) -> None:
    """Refuse targets that the model cannot use.

    Args:
        model: the `SpanBertForPreTraining`.
        seq_len: length of the rows, `None` if unknown.
        span_boundaries: `(batch, pairs, 2)`, as in its `forward`, like all that follow.
        span_labels: `(batch, pairs, max_pair_targets)`.
        next_sentence_label: `(batch,)` or `(batch, S)`.

    Raises:
        ValueError: labels come without what they need (pairs, the next-sentence head), with wrong shapes, or with
            boundaries outside the row.
    """
    if span_boundaries is not None and seq_len is not None:
        check_positions(span_boundaries, seq_len, "span_boundaries")
    if span_labels is not None:
        if span_boundaries is None:
            raise ValueError("`span_labels` needs `span_boundaries`: the positions around each span.")
        width = model.config.max_pair_targets
        if span_labels.shape != (*span_boundaries.shape[:2], width):
            raise ValueError(
                f"`span_labels` must be (batch, pairs, max_pair_targets) = {(*span_boundaries.shape[:2], width)}, "
                f"got {tuple(span_labels.shape)}. Give the collator `max_pair_targets={width}`."
            )
    if next_sentence_label is not None and model.cls.seq_relationship is None:
        raise ValueError(
            "`next_sentence_label` needs the next-sentence head: set `config.next_sentence_prediction=True`."
        )


def boundary_states(outputs: SpanBertModelOutput) -> torch.Tensor:
    """States that feed the boundary head.

    Args:
        outputs: the encoder's.

    Returns:
        `(batch, seq_len, hidden)`.
    """
    return outputs.last_hidden_state if outputs.inner_hidden_state is None else outputs.inner_hidden_state


def pretraining_losses(
    model: Any,
    outputs: SpanBertModelOutput,
    logits: dict[str, torch.Tensor | None],
    targets: dict[str, torch.Tensor | None],
    num_items_in_batch: torch.Tensor | int | None = None,
    target_counts: dict[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor | None]:
    """The terms that have targets, and their weighted sum.

    Args:
        model: the `SpanBertForPreTraining`.
        outputs: the encoder's.
        logits: `prediction_logits`, `boundary_logits` and `seq_relationship_logits` of its output, as far as they
            were computed.
        targets: `labels`, `label_positions`, `span_boundaries`, `span_labels`, `next_sentence_label` of its `forward`.
        num_items_in_batch: number of labels over all micro-batches of one update.
        target_counts: the same number for `"span_labels"` and `"next_sentence_label"`. Without it the numbers are
            estimated from the micro-batch's share of the update's labels; if the whole update has no label, these
            terms are the micro-batch's own means.

    Returns:
        `loss`, `mlm_loss`, `sbo_loss` and `nsp_loss`, each a scalar or `None`.
    """
    counts = target_counts or {}
    labels, span_labels, sentence = (targets[name] for name in ("labels", "span_labels", "next_sentence_label"))
    budget = targets["label_positions"]
    share = None
    mlm_loss = sbo_loss = nsp_loss = None
    if labels is not None:
        mlm_sum, flat = vocabulary_loss_sum(
            model.cls.predictions, outputs.last_hidden_state, labels, budget, logits["prediction_logits"]
        )
        mlm_loss = mean_over_targets(mlm_sum, flat, num_items_in_batch)
        if num_items_in_batch is not None:
            share = share_of_update(count_targets(flat), num_items_in_batch)
    if span_labels is not None:
        # Every span token is also a labelled token, so the budget of labels bounds a row's span targets too.
        sbo_sum, number = model.cls.pair_target_predictions.loss_sum(
            boundary_states(outputs),
            targets["span_boundaries"],
            span_labels,
            logits["boundary_logits"],
            None if budget is None else budget.shape[1],
        )
        total = counts.get("span_labels", number if share is None else number / share.clamp(min=1e-12))
        sbo_loss = sbo_sum / (total + 1)
    if sentence is not None:
        flat = sentence.reshape(-1)
        nsp_sum = summed_cross_entropy(logits["seq_relationship_logits"].reshape(-1, 2), flat)
        nsp_loss = mean_over_targets(nsp_sum, flat, counts.get("next_sentence_label"))
        if share is not None and "next_sentence_label" not in counts:
            nsp_loss = nsp_loss * share

    terms = {"mlm_loss": mlm_loss, "nsp_loss": nsp_loss, "sbo_loss": sbo_loss}
    idle = {
        "mlm_loss": lambda: model.cls.predictions(outputs.last_hidden_state[:0]),
        "sbo_loss": lambda: model.cls.pair_target_predictions.of_no_pairs(boundary_states(outputs)),
    }
    if model.cls.seq_relationship is not None:
        idle["nsp_loss"] = lambda: logits["seq_relationship_logits"][:0]
    weights = {"sbo_loss": model.config.sbo_loss_weight}
    return {"loss": sum_of_terms(model, terms, idle, weights), **terms}


def pretraining_sums(
    model: Any, outputs: SpanBertModelOutput, targets: dict[str, torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    """The body of `SpanBertForPreTraining.evaluation_sums`, which see.

    Args:
        model: the `SpanBertForPreTraining`.
        outputs: the encoder's.
        targets: as for `pretraining_losses`.

    Returns:
        Per term a float64 tensor `[sum of cross entropies, correct, number of targets]`.
    """
    selected = select_labelled(outputs.last_hidden_state, targets["labels"], targets["label_positions"])
    sums = {"mlm": target_sums(model.cls.predictions, *selected)}
    if targets["span_labels"] is not None:
        head = model.cls.pair_target_predictions
        selected = head.labelled(boundary_states(outputs), targets["span_boundaries"], targets["span_labels"])
        sums["sbo"] = target_sums(head, *selected)
    sentence = targets["next_sentence_label"]
    if sentence is not None:
        pooled = outputs.pooler_output.reshape(-1, outputs.pooler_output.shape[-1])
        sums["nsp"] = target_sums(model.cls.seq_relationship, pooled, sentence.reshape(-1))
    return sums
