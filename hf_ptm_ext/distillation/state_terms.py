"""Terms on hidden states: TinyBERT's projected distance, DistilBERT's cosine, PKD's patience, MobileBERT's maps."""

import logging
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from ..objectives import (
    cosine_loss,
    feature_map_loss,
    hidden_mse_loss,
    mean_transfer_loss,
    patience_loss,
    variance_transfer_loss,
)
from .layouts import ModelShape
from .terms import LayerTerm, Pass, require_equal

logger = logging.getLogger(__name__)

PROJECTIONS = ("shared", "separate", "none", "auto")


def new_projection(student: ModelShape, teacher: ModelShape) -> nn.Linear:
    """A linear map from the student's width to the teacher's: the identity where they are equal, else random.

    A random map of equal widths, as in TinyBERT's code, first moves a student away that was copied from its teacher.
    """
    linear = nn.Linear(student.hidden_size, teacher.hidden_size)
    if student.hidden_size == teacher.hidden_size:
        nn.init.eye_(linear.weight)
    else:
        nn.init.normal_(linear.weight, std=float(getattr(student.config, "initializer_range", 0.02)))
    nn.init.zeros_(linear.bias)
    return linear


class HiddenTerm(LayerTerm):
    """TinyBERT's distance of hidden states: sum over pairs of mean((fit_dense(student) - teacher)^2)."""

    term = "hidden"

    def __init__(self, student: ModelShape, teacher: ModelShape, *, projection: str = "shared", **kwargs: Any):
        super().__init__(student, teacher, **kwargs)
        if projection not in PROJECTIONS:
            raise ValueError(f"`projection` must be one of {', '.join(PROJECTIONS)}, got {projection!r}.")
        if projection == "auto":
            report = getattr(student.model, "student_report", None)
            copied = bool(report and report.layers) and student.hidden_size == teacher.hidden_size
            projection = "none" if copied else "shared"
            if copied:
                logger.warning(
                    "Hidden states are compared without a projection: the student was copied from the teacher and has "
                    "its width. The released TinyBERT code projects all the same: `projection` = shared."
                )
        if projection == "none":
            advice = "Set `projection` to 'shared' or 'separate'."
            require_equal("hidden_size", student, teacher, self.name, advice)
        self.projection = projection
        if projection == "shared":
            self.fit_dense = new_projection(student, teacher)
        elif projection == "separate":
            self.fit_denses = nn.ModuleDict(
                {f"{s}_to_{t}": new_projection(student, teacher) for s, t in dict.fromkeys(self.pairs)}
            )

    def distance(
        self, batch: Pass, pair: tuple[int, int], student: list[torch.Tensor], teacher: list[torch.Tensor]
    ) -> torch.Tensor:
        (states,), (taught,) = student, teacher
        if self.projection != "none":
            shared = self.projection == "shared"
            states = (self.fit_dense if shared else self.fit_denses[f"{pair[0]}_to_{pair[1]}"])(states)
        return hidden_mse_loss(states, taught)


class CosineTerm(LayerTerm):
    """DistilBERT's alignment of the last hidden states: mean of 1 - cos over tokens that are not padding."""

    term = "cosine"
    default_layers = "final"
    mean_over_pairs = True
    same = "hidden_size"

    def unit(self, batch: Pass) -> str:
        return "tokens"

    def distance(
        self, batch: Pass, pair: tuple[int, int], student: list[torch.Tensor], teacher: list[torch.Tensor]
    ) -> torch.Tensor:
        return cosine_loss(student[0], teacher[0], batch.attention_mask)


class PatienceTerm(LayerTerm):
    """PKD's patience: mean over rows, pairs and width of the squared distance of [CLS] states of unit length."""

    term = "patience"
    kinds = ("first",)
    default_layers = "skip"
    same = "hidden_size"

    def __init__(self, student: ModelShape, teacher: ModelShape, *, normalize: bool = True, **kwargs: Any):
        super().__init__(student, teacher, **kwargs)
        self.normalize = normalize

    def forward(self, batch: Pass) -> torch.Tensor:
        taken = [self.tensors(batch, pair) for pair in self.active_pairs(batch)]
        student = torch.stack([of_student for (of_student,), _ in taken], dim=1)
        teacher = torch.stack([of_teacher for _, (of_teacher,) in taken], dim=1)
        return patience_loss(student, teacher, normalize=self.normalize)


class _MapTerm(LayerTerm):
    """A distance of hidden states of one width, summed over pairs and divided by their number (MobileBERT)."""

    default_layers = "same"
    same = "hidden_size"
    mean_over_pairs = True
    loss: ClassVar[Callable[..., torch.Tensor]]

    def distance(
        self, batch: Pass, pair: tuple[int, int], student: list[torch.Tensor], teacher: list[torch.Tensor]
    ) -> torch.Tensor:
        return type(self).loss(*student, *teacher)


class FeatureMapTerm(_MapTerm):
    """MobileBERT's feature map transfer: mean squared distance after a LayerNorm without parameters."""

    term = "feature_map"
    loss = feature_map_loss


class MeanTransferTerm(_MapTerm):
    """MobileBERT's mean transfer: squared distance of the means over the width, layer by layer."""

    term = "hidden_mean"
    loss = mean_transfer_loss


class VarianceTransferTerm(_MapTerm):
    """MobileBERT's variance transfer: absolute distance of the variances over the width, layer by layer."""

    term = "hidden_variance"
    loss = variance_transfer_loss
