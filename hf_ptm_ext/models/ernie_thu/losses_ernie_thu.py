"""ERNIE-THU's pre-training loss: masked tokens, next sentence, and denoising entities among candidates.

    loss = mean CE(mlm) + mean CE(nsp) + w * mean CE(dEA)

The entity term predicts the clean entity of a position from the TEXT stream: its logits are products of the
transformed state with the candidates' vectors, without bias or temperature. "No entity" is a candidate with logit 0,
and never the right one. A term without any target is 0, never NaN.
"""

from typing import Any

import torch
from torch import nn

from .configuration_ernie_thu import ErnieThuConfig
from .heads_ernie_thu import (
    ErnieThuPredictionHeadTransform,
    count_targets,
    mean_over_targets,
    select_labelled,
    share_of_update,
    sum_of_terms,
    summed_cross_entropy,
    target_sums,
    values_can_be_read,
    vocabulary_loss_sum,
)


class ErnieThuEntityPredictionHead(nn.Module):
    """The entity head (`cls.predictions_ent`): from text states to the width of entity vectors, times candidates."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__()
        self.transform = ErnieThuPredictionHeadTransform(config, config.entity_hidden_size)

    def forward(self, hidden_states: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` and `(candidates, entity_hidden)` to `(..., candidates)`."""
        transformed = self.transform(hidden_states)
        return transformed @ candidates.to(device=transformed.device, dtype=transformed.dtype).t()


def one_set(name: str, value: torch.Tensor, dims: int) -> torch.Tensor:
    """The batch's one set of candidates.

    Args:
        name: the argument.
        value: with `dims` dimensions, or one more in front: `(1, ...)`, or equal rows for as many replicas.
        dims: 1 for ids, 2 for vectors.

    Returns:
        The value with `dims` dimensions.

    Raises:
        ValueError: it has other dimensions, or rows that differ.
    """
    if value.dim() not in (dims, dims + 1) or not value.shape[0]:
        shape = "(N,) or (1, N)" if dims == 1 else "(N, entity_hidden) or (1, N, entity_hidden)"
        raise ValueError(f"`{name}` must be {shape}, one set for the whole batch, got {tuple(value.shape)}.")
    if value.dim() == dims:
        return value
    if value.shape[0] > 1 and values_can_be_read(value) and not bool((value == value[:1]).all()):
        raise ValueError(f"`{name}` must be one set for the whole batch, got {value.shape[0]} rows that differ.")
    return value[0]


def candidates_and_labels(
    model: Any,
    entity_labels: torch.Tensor | None,
    entity_candidates: torch.Tensor | None,
    entity_candidate_embeds: torch.Tensor | None,
    include_none_candidate: bool | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Vectors of the candidates, and labels as indices into them.

    Args:
        model: the `ErnieThuForPreTraining`.
        entity_labels: `(batch, seq_len)` indices into the candidates, -100 = ignored; without candidates, entity ids,
            0 or -100 = ignored, and the candidates are the distinct ones in ascending order.
        entity_candidates: ids of the candidates, `(N,)` or `(1, N)`.
        entity_candidate_embeds: vectors of the candidates, `(N, entity_hidden)` or `(1, N, entity_hidden)`.
        include_none_candidate: whether "no entity" is the first of the candidates that are made here; `None` reads the
            config.

    Returns:
        `(N, entity_hidden)` and `(batch, seq_len)`, each `None` if there is nothing to make it of.

    Raises:
        ValueError: both ids and vectors, vectors of another width, labels outside the candidates, or candidates to be
            made while compiling, where their number cannot vary.
    """
    width = model.config.entity_hidden_size
    if entity_candidates is not None and entity_candidate_embeds is not None:
        raise ValueError("At most one of `entity_candidates` and `entity_candidate_embeds` may be given.")
    if entity_candidate_embeds is not None:
        vectors = one_set("entity_candidate_embeds", entity_candidate_embeds, 2)
        if vectors.shape[-1] != width:
            raise ValueError(
                f"`entity_candidate_embeds` must have vectors of `entity_hidden_size` = {width}, got "
                f"{vectors.shape[-1]}."
            )
    elif entity_candidates is not None:
        vectors = model.entity_vectors(one_set("entity_candidates", entity_candidates, 1))
    elif entity_labels is not None:
        if torch.compiler.is_compiling():
            raise ValueError(
                "`entity_candidates` must be given while compiling: their number depends on the labels. The collator "
                "makes them."
            )
        labelled = entity_labels > 0
        distinct = torch.unique(entity_labels[labelled])
        with_none = model.config.include_none_candidate if include_none_candidate is None else include_none_candidate
        if with_none or not len(distinct):
            distinct = torch.cat([distinct.new_zeros(1), distinct])
        entity_labels = torch.where(labelled, torch.searchsorted(distinct, entity_labels.contiguous()), -100)
        return model.entity_vectors(distinct), entity_labels
    else:
        return None, None
    if entity_labels is not None and values_can_be_read(entity_labels):
        labels = entity_labels[entity_labels != -100]
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < len(vectors):
            raise ValueError(
                f"`entity_labels` must be indices into the {len(vectors)} candidates, or -100, got "
                f"{int(labels.min())} to {int(labels.max())}."
            )
    return vectors, entity_labels


def entity_loss_sum(
    head: ErnieThuEntityPredictionHead,
    states: torch.Tensor,
    candidates: torch.Tensor,
    labels: torch.Tensor,
    logits: torch.Tensor | None,
    fixed_shapes: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss over labelled positions, from full logits if they are there anyway.

    Args:
        head: the entity head.
        states: text, `(batch, seq_len, hidden)`.
        candidates: `(N, entity_hidden)`.
        labels: `(batch, seq_len)` indices, -100 = ignored.
        logits: `(batch, seq_len, N)`, or `None`.
        fixed_shapes: whether to compute all positions, so that no shape depends on the labels.

    Returns:
        The sum, a scalar, and the labels it was taken over.
    """
    if logits is not None or fixed_shapes:
        logits = head(states, candidates) if logits is None else logits
        targets = labels.reshape(-1)
        return summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), targets), targets
    selected, targets = select_labelled(states, labels)
    return summed_cross_entropy(head(selected, candidates), targets), targets


def pretraining_losses(
    model: Any,
    states: torch.Tensor,
    logits: dict[str, torch.Tensor | None],
    targets: dict[str, torch.Tensor | None],
    num_items_in_batch: torch.Tensor | int | None = None,
    target_counts: dict[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor | None]:
    """The terms that have targets, and their weighted sum.

    Args:
        model: the `ErnieThuForPreTraining`.
        states: the last text states, `(batch, seq_len, hidden)`.
        logits: `prediction_logits`, `seq_relationship_logits` and `entity_logits` of its output, as far as they were
            computed.
        targets: `labels`, `label_positions`, `next_sentence_label` of its `forward`, and `candidates` and
            `entity_labels` as `candidates_and_labels` gives them.
        num_items_in_batch: number of labels over all micro-batches of one update.
        target_counts: the same number for `"next_sentence_label"` and `"entity_labels"`. Without it these terms are
            the micro-batch's own means, weighted by its share of the update's labels.

    Returns:
        `loss`, `mlm_loss`, `nsp_loss` and `entity_loss`, each a scalar or `None`.
    """
    counts = target_counts or {}
    labels, sentence, entities = (targets[name] for name in ("labels", "next_sentence_label", "entity_labels"))
    budget = targets["label_positions"]
    losses: dict[str, torch.Tensor | None] = dict.fromkeys(("mlm_loss", "nsp_loss", "entity_loss"))
    share = None
    if labels is not None:
        mlm_sum, flat = vocabulary_loss_sum(model.cls.predictions, states, labels, budget, logits["prediction_logits"])
        losses["mlm_loss"] = mean_over_targets(mlm_sum, flat, num_items_in_batch)
        if num_items_in_batch is not None:
            share = share_of_update(count_targets(flat), num_items_in_batch)

    def mean(name: str, loss_sum: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        loss = mean_over_targets(loss_sum, flat, counts.get(name))
        return loss if share is None or name in counts else loss * share

    if sentence is not None:
        flat = sentence.reshape(-1)
        nsp_sum = summed_cross_entropy(logits["seq_relationship_logits"].reshape(-1, 2), flat)
        losses["nsp_loss"] = mean("next_sentence_label", nsp_sum, flat)
    if entities is not None:
        entity_sum, flat = entity_loss_sum(
            model.cls.predictions_ent,
            states,
            targets["candidates"],
            entities,
            logits["entity_logits"],
            fixed_shapes=budget is not None,
        )
        losses["entity_loss"] = mean("entity_labels", entity_sum, flat)

    idle = {
        "mlm_loss": lambda: model.cls.predictions(states[:0]),
        "nsp_loss": lambda: logits["seq_relationship_logits"][:0],
        "entity_loss": lambda: model.cls.predictions_ent(
            states[:0], states.new_zeros(1, model.config.entity_hidden_size)
        ),
    }
    weights = {"entity_loss": model.config.entity_loss_weight}
    return {"loss": sum_of_terms(model, losses, idle, weights), **losses}


def pretraining_sums(
    model: Any, states: torch.Tensor, pooled: torch.Tensor, targets: dict[str, torch.Tensor | None]
) -> dict[str, torch.Tensor]:
    """The body of `ErnieThuForPreTraining.evaluation_sums`, which see.

    Args:
        model: the `ErnieThuForPreTraining`.
        states: the last text states, `(batch, seq_len, hidden)`.
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
    if targets["entity_labels"] is not None:
        candidates = targets["candidates"]
        selected = select_labelled(states, targets["entity_labels"])
        sums["entity"] = target_sums(lambda chunk: model.cls.predictions_ent(chunk, candidates), *selected)
    return sums
