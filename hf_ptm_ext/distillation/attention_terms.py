"""Terms on attention: TinyBERT's scores, MobileBERT's and MiniLM's distributions, MiniLM's relations."""

from collections.abc import Callable
from typing import Any

import torch

from ..objectives import (
    mobilebert_attention_loss_from_projections,
    relation_loss,
    tinybert_attention_loss_from_projections,
)
from .layer_maps import Layers, attention_map
from .layouts import ModelShape
from .terms import LayerTerm, Pass, require_equal

REDUCTIONS = ("sequence_mean", "token_mean")
_OTHER_HEADS = "Build the student with the teacher's number of heads, or use preset minilm-v2 (objective 'relations')."


class _ScoreTerm(LayerTerm):
    """A distance of QK^T/sqrt(d), head by head."""

    def __init__(self, student: ModelShape, teacher: ModelShape, layers: Layers, **kwargs: Any):
        pairs = attention_map(layers, student.layers, teacher.layers)
        super().__init__(pairs, ("query", "key"), **kwargs)
        require_equal("heads", student, teacher, self.name, _OTHER_HEADS)
        self.heads = student.heads

    def distances(self, batch: Pass, loss: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Sum over pairs of layers.

        Args:
            batch: what the models gave.
            loss: of queries and keys of student and teacher, heads and mask.
        """
        losses = []
        for pair in self.active_pairs(batch):
            of_student, of_teacher = self.tensors(batch, pair)
            losses.append(loss(*of_student, *of_teacher, self.heads, mask=batch.attention_mask))
        return torch.stack(losses).sum()


class AttentionScoreTerm(_ScoreTerm):
    """TinyBERT's attention loss: sum over pairs of the mean squared distance of scores before the softmax.

    Args:
        student: the student.
        teacher: the teacher, with as many heads.
        layers: see `attention_map`.
        kwargs: `name` and `weight`.
    """

    term = "attention"

    def __init__(self, student: ModelShape, teacher: ModelShape, *, layers: Layers = "uniform", **kwargs: Any):
        super().__init__(student, teacher, layers, **kwargs)

    def forward(self, batch: Pass) -> torch.Tensor:
        return self.distances(batch, tinybert_attention_loss_from_projections)


class AttentionCrossEntropyTerm(_ScoreTerm):
    """MobileBERT's attention transfer: cross entropy of attention distributions, mean over pairs.

    Args:
        student: the student.
        teacher: the teacher, with as many heads.
        layers: see `attention_map`.
        kwargs: `name` and `weight`.
    """

    term = "attention"

    def __init__(self, student: ModelShape, teacher: ModelShape, *, layers: Layers = "same", **kwargs: Any):
        super().__init__(student, teacher, layers, **kwargs)

    def forward(self, batch: Pass) -> torch.Tensor:
        return self.distances(batch, mobilebert_attention_loss_from_projections) / len(self.pairs)


class _MiniLMTerm(LayerTerm):
    """A Kullback-Leibler divergence over valid rows, per sequence or per token."""

    def __init__(self, pairs: Any, kinds: tuple[str, ...], reduction: str, **kwargs: Any):
        super().__init__(pairs, kinds, **kwargs)
        if reduction not in REDUCTIONS:
            raise ValueError(f"`reduction` must be one of {', '.join(REDUCTIONS)}, got {reduction!r}.")
        self.reduction = reduction

    def unit(self, batch: Pass) -> str:
        return "tokens" if self.reduction == "token_mean" else "rows"


class AttentionDivergenceTerm(_MiniLMTerm):
    """MiniLM's attention transfer: KL(teacher || student) of the attention distributions of one layer.

    Args:
        student: the student.
        teacher: the teacher, with as many heads.
        layers: see `attention_map`.
        reduction: `sequence_mean` (the paper: 1/(heads * length) of each sequence) or `token_mean`.
        kwargs: `name` and `weight`.
    """

    term = "attention"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape,
        *,
        layers: Layers = "final",
        reduction: str = "sequence_mean",
        **kwargs: Any,
    ):
        pairs = attention_map(layers, student.layers, teacher.layers)
        super().__init__(pairs, ("query", "key"), reduction, **kwargs)
        require_equal("heads", student, teacher, self.name, _OTHER_HEADS)
        self.heads = student.heads

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = []
        for pair in self.active_pairs(batch):
            of_student, of_teacher = self.tensors(batch, pair)
            losses.append(
                relation_loss(
                    *of_student, *of_teacher, self.heads, mask=batch.attention_mask, reduction=self.reduction
                )
            )
        return torch.stack(losses).sum()


class ValueRelationTerm(_MiniLMTerm):
    """MiniLM's value relation: KL(teacher || student) of softmax(VV^T/sqrt(d)) of one layer.

    Args:
        student: the student.
        teacher: the teacher, with as many heads.
        layers: see `attention_map`.
        reduction: `sequence_mean` (the paper) or `token_mean`.
        kwargs: `name` and `weight`.
    """

    term = "value_relation"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape,
        *,
        layers: Layers = "final",
        reduction: str = "sequence_mean",
        **kwargs: Any,
    ):
        pairs = attention_map(layers, student.layers, teacher.layers)
        super().__init__(pairs, ("value",), reduction, **kwargs)
        require_equal("heads", student, teacher, self.name, _OTHER_HEADS)
        self.heads = student.heads

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = []
        for pair in self.active_pairs(batch):
            (student,), (teacher,) = self.tensors(batch, pair)
            losses.append(
                relation_loss(
                    student,
                    student,
                    teacher,
                    teacher,
                    self.heads,
                    mask=batch.attention_mask,
                    reduction=self.reduction,
                )
            )
        return torch.stack(losses).sum()


__all__ = ["AttentionCrossEntropyTerm", "AttentionDivergenceTerm", "AttentionScoreTerm", "ValueRelationTerm"]
