"""Terms on attention: TinyBERT's scores, MobileBERT's and MiniLM's distributions, MiniLM v2's relations."""

import logging
from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any, ClassVar

import torch

from ..objectives import (
    minilm_v2_loss,
    mobilebert_attention_loss_from_projections,
    tinybert_attention_loss_from_projections,
)
from ..objectives.relations import LETTERS, REDUCTIONS, relation_weights
from .layer_maps import Layers
from .layouts import ModelShape
from .terms import LayerTerm, Pass

logger = logging.getLogger(__name__)

# Layer (from 1) that teaches, by model type, for teachers of 24 layers: an upper-middle one is best (section 4.3).
LARGE_TEACHER_LAYERS = {"roberta": 19, "xlm-roberta": 19}
LARGE_TEACHER_LAYER = 21


class _ScoreTerm(LayerTerm):
    """A distance of QK^T/sqrt(d), head by head."""

    term = "attention"
    kinds = ("query", "key")
    same = "num_attention_heads"
    loss: ClassVar[Callable[..., torch.Tensor]]

    def __init__(self, student: ModelShape, teacher: ModelShape, **kwargs: Any):
        super().__init__(student, teacher, **kwargs)
        self.heads = student.heads

    def distance(
        self, batch: Pass, pair: tuple[int, int], student: list[torch.Tensor], teacher: list[torch.Tensor]
    ) -> torch.Tensor:
        return type(self).loss(*student, *teacher, self.heads, mask=batch.attention_mask)


class AttentionScoreTerm(_ScoreTerm):
    """TinyBERT's attention loss: sum over pairs of the mean squared distance of scores before the softmax."""

    loss = tinybert_attention_loss_from_projections


class AttentionCrossEntropyTerm(_ScoreTerm):
    """MobileBERT's attention transfer: cross entropy of attention distributions, mean over pairs."""

    default_layers = "same"
    mean_over_pairs = True
    loss = mobilebert_attention_loss_from_projections


class _MiniLMTerm(LayerTerm):
    """KL(teacher || student) of softmax(XY^T/sqrt(d)) over valid rows, per sequence or per token."""

    default_layers = "final"
    relations: Mapping[str, float]
    relation_heads: int

    def __init__(self, student: ModelShape, teacher: ModelShape, *, reduction: str = "sequence_mean", **kwargs: Any):
        super().__init__(student, teacher, **kwargs)
        if reduction not in REDUCTIONS:
            raise ValueError(f"`reduction` must be one of {', '.join(REDUCTIONS)}, got {reduction!r}.")
        self.reduction = reduction
        if self.same is not None:
            self.relation_heads = student.heads

    def unit(self, batch: Pass) -> str:
        return "tokens" if self.reduction == "token_mean" else "rows"

    def distance(
        self, batch: Pass, pair: tuple[int, int], student: list[torch.Tensor], teacher: list[torch.Tensor]
    ) -> torch.Tensor:
        of_student, of_teacher = (dict(zip(self.kinds, each, strict=True)) for each in (student, teacher))
        return minilm_v2_loss(
            of_student,
            of_teacher,
            self.relation_heads,
            relations=self.relations,
            mask=batch.attention_mask,
            reduction=self.reduction,
        )


class AttentionDivergenceTerm(_MiniLMTerm):
    """MiniLM's attention transfer: divergence of the attention distributions of one layer."""

    term = "attention"
    kinds = ("query", "key")
    same = "num_attention_heads"
    relations = {"qk": 1.0}


class ValueRelationTerm(_MiniLMTerm):
    """MiniLM's value relation: divergence of softmax(VV^T/sqrt(d)) of one layer."""

    term = "value_relation"
    kinds = ("value",)
    same = "num_attention_heads"
    relations = {"vv": 1.0}


class RelationTerm(_MiniLMTerm):
    """MiniLM v2's self-attention relations, of each pair of queries, keys and values; heads are free."""

    term = "relation"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape,
        *,
        relations: Sequence[str] | Mapping[str, float] = ("qq", "kk", "vv"),
        relation_heads: int | None = None,
        **kwargs: Any,
    ):
        weights = relation_weights(relations)
        kinds = tuple(LETTERS[letter] for letter in "qkv" if any(letter in pair for pair in weights))
        self.__dict__["kinds"] = kinds
        super().__init__(student, teacher, **kwargs)
        self.relations = {pair: float(weight) for pair, weight in weights.items()}
        widths = {
            (student.projection_width(kind, of_student), teacher.projection_width(kind, of_teacher))
            for of_student, of_teacher in self.pairs
            for kind in kinds
        }
        fitting = min(default_relation_heads(*both) for both in widths)
        if relation_heads is None:
            relation_heads = fitting
            logger.info(f"Objective {self.name!r} splits the projections into {relation_heads} relation heads.")
        all_widths = sorted({width for both in widths for width in both})
        if any(width % relation_heads for width in all_widths):
            raise ValueError(
                f"`relation_heads` must divide the widths of both models' projections, got {relation_heads} for "
                f"{student.name} and {teacher.name} with {all_widths}. {fitting} would."
            )
        self.relation_heads = relation_heads

    def layers_between(self, student: ModelShape, teacher: ModelShape) -> Layers:
        """The student's last layer and the teacher's last, or of 24 an upper-middle one."""
        if teacher.layers != 24:
            return self.default_layers
        layer = LARGE_TEACHER_LAYERS.get(getattr(teacher.config, "model_type", ""), LARGE_TEACHER_LAYER)
        return [[student.layers - 1, layer - 1]]


def default_relation_heads(student_width: int, teacher_width: int) -> int:
    """The paper's number of relation heads, or the next lower one that divides both widths."""
    common = gcd(student_width, teacher_width)
    most = 64 if teacher_width >= 1024 else 48
    return max(number for number in range(1, most + 1) if common % number == 0)
