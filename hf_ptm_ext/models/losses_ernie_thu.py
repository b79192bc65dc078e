"""ERNIE-THU's pre-training loss: mean CE(mlm) + mean CE(nsp) + w * mean CE(denoising entities among candidates).

The entity term predicts the clean entity of a position from the TEXT stream: its logits are products of the
transformed state with the candidates' vectors. "No entity" is a candidate with logit 0, and never the right one.
"""

from typing import Any

import torch
from torch import nn

from .configuration_ernie_thu import ErnieThuConfig
from .losses_core import PredictionHeadTransform, select_labelled, summed_cross_entropy, values_can_be_read
from .pretraining_core import PreTrainingTerms


class ErnieThuEntityPredictionHead(nn.Module):
    """The entity head (`cls.predictions_ent`): from text states to the width of entity vectors, times candidates."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__()
        self.transform = PredictionHeadTransform(config, config.entity_hidden_size)

    def forward(self, hidden_states: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` and `(candidates, entity_hidden)` to `(..., candidates)`."""
        transformed = self.transform(hidden_states)
        return transformed @ candidates.to(device=transformed.device, dtype=transformed.dtype).t()


def one_set(name: str, value: torch.Tensor, dims: int) -> torch.Tensor:
    """The batch's one set of candidates."""
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
    """Vectors of the candidates, and labels as indices into them."""
    width = model.config.entity_hidden_size
    if entity_candidates is not None and entity_candidate_embeds is not None:
        raise ValueError(
            "At most one of `entity_candidates` and `entity_candidate_embeds` may be given, got "
            f"{tuple(entity_candidates.shape)} and {tuple(entity_candidate_embeds.shape)}."
        )
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


def add_entity_term(
    terms: PreTrainingTerms, states: torch.Tensor, targets: dict[str, torch.Tensor | None], logits: torch.Tensor | None
) -> None:
    """Add mean CE(dEA) to a pre-training loss; with `label_positions` no shape depends on the labels."""
    head, width = terms.model.cls.predictions_ent, terms.model.config.entity_hidden_size
    terms.terms["entity_loss"] = None
    terms.idle["entity_loss"] = lambda: head(states[:0], states.new_zeros(1, width))
    candidates, labels = targets["candidates"], targets["entity_labels"]
    if candidates is None or labels is None:
        return
    if logits is None and targets["label_positions"] is None:
        selected, flat = select_labelled(states, labels)
        loss_sum = summed_cross_entropy(head(selected, candidates), flat)
    else:
        logits = head(states, candidates) if logits is None else logits
        flat = labels.reshape(-1)
        loss_sum = summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), flat)
    terms.terms["entity_loss"] = terms.mean("entity_labels", loss_sum, flat)
