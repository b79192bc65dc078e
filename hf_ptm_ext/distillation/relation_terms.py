"""MiniLM v2's self-attention relations between queries, keys and values (Wang et al., ACL Findings 2021)."""

import logging
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import torch

from ..objectives import relation_loss
from .attention_terms import _MiniLMTerm
from .layer_maps import Layers, attention_map
from .layouts import ModelShape
from .terms import Pass

logger = logging.getLogger(__name__)

LETTERS = {"q": "query", "k": "key", "v": "value"}
# Layer (from 1) that teaches, by model type, for teachers of 24 layers: an upper-middle one is best (section 4.3).
LARGE_TEACHER_LAYERS = {"roberta": 19, "xlm-roberta": 19}
LARGE_TEACHER_LAYER = 21


def relation_layers(layers: Layers | None, student: ModelShape, teacher: ModelShape) -> Layers:
    """The layers compared by default: the student's last, and the teacher's last, or of 24 an upper-middle one.

    Args:
        layers: what the user chose, or `None`.
        student: the student.
        teacher: the teacher.
    """
    if layers is not None:
        return layers
    if teacher.layers != 24:
        return "final"
    layer = LARGE_TEACHER_LAYERS.get(getattr(teacher.config, "model_type", ""), LARGE_TEACHER_LAYER)
    return [[student.layers - 1, layer - 1]]


def default_relation_heads(student_width: int, teacher_width: int) -> int:
    """The paper's number of relation heads, or the next lower one that divides both widths.

    Args:
        student_width: width of the student's projections.
        teacher_width: width of the teacher's.

    Returns:
        48 (64 for teachers of width 1024 and more) where it fits.

    Example:
        >>> default_relation_heads(384, 768), default_relation_heads(384, 1024), default_relation_heads(312, 768)
        (48, 64, 24)
    """
    common = gcd(student_width, teacher_width)
    most = 64 if teacher_width >= 1024 else 48
    return max(number for number in range(1, most + 1) if common % number == 0)


class RelationTerm(_MiniLMTerm):
    """KL(teacher || student) of softmax(XY^T/sqrt(d)) for each pair of queries, keys and values; heads are free.

    Args:
        student: the student.
        teacher: the teacher; neither widths nor head counts need to agree.
        layers: see `attention_map`; default: the last layers, for a teacher of 24 layers its 21st (RoBERTa and XLM-R:
            19th).
        relations: pairs of letters with their weights, or pairs, of weight 1 (default: qq, kk, vv).
        relation_heads: into how many heads the width is split (default: see `default_relation_heads`).
        reduction: `sequence_mean` (the paper) or `token_mean`.
        kwargs: `name` and `weight`.
    """

    term = "relation"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape,
        *,
        layers: Layers | None = None,
        relations: Sequence[str] | Mapping[str, float] = ("qq", "kk", "vv"),
        relation_heads: int | None = None,
        reduction: str = "sequence_mean",
        **kwargs: Any,
    ):
        pairs = attention_map(relation_layers(layers, student, teacher), student.layers, teacher.layers)
        weights = dict(relations) if isinstance(relations, Mapping) else dict.fromkeys(relations, 1.0)
        wrong = [pair for pair in weights if len(pair) != 2 or set(pair) - set(LETTERS)]
        if wrong or not weights:
            raise ValueError(
                f"`relations` must be pairs of the letters q, k and v, such as 'qq', got {wrong or '[]'}."
            )
        kinds = tuple(LETTERS[letter] for letter in "qkv" if any(letter in pair for pair in weights))
        super().__init__(pairs, kinds, reduction, **kwargs)
        self.relations = {pair: float(weight) for pair, weight in weights.items()}
        widths = {
            (student.projection_width(kind, s), teacher.projection_width(kind, t)) for s, t in pairs for kind in kinds
        }
        if relation_heads is None:
            relation_heads = min(default_relation_heads(*both) for both in widths)
            logger.info(f"Objective {self.name!r} splits the projections into {relation_heads} relation heads.")
        wrong_widths = sorted({width for both in widths for width in both if width % relation_heads})
        if wrong_widths:
            raise ValueError(
                f"`relation_heads` must divide the widths of both models' projections, got {relation_heads} for "
                f"{student.name} and {teacher.name} with {sorted({w for both in widths for w in both})}. "
                f"{min(default_relation_heads(*both) for both in widths)} would."
            )
        self.relation_heads = relation_heads

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = []
        for pair in self.active_pairs(batch):
            of_student, of_teacher = (dict(zip(self.kinds, each, strict=True)) for each in self.tensors(batch, pair))
            for letters, weight in self.relations.items():
                first, second = (LETTERS[letter] for letter in letters)
                loss = relation_loss(
                    of_student[first],
                    of_student[second],
                    of_teacher[first],
                    of_teacher[second],
                    self.relation_heads,
                    mask=batch.attention_mask,
                    reduction=self.reduction,
                )
                losses.append(weight * loss)
        return torch.stack(losses).sum()


__all__ = ["RelationTerm", "default_relation_heads"]
