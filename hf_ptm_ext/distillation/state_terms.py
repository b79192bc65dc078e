"""Terms on hidden states: TinyBERT's projected distance, DistilBERT's cosine, PKD's patience, MobileBERT's maps."""

import logging
from typing import Any

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
from .layer_maps import Layers, hidden_map
from .layouts import ModelShape
from .terms import LayerTerm, Pass, require_equal

logger = logging.getLogger(__name__)

PROJECTIONS = ("shared", "separate", "none", "auto")
_OTHER_WIDTH = "Build the student with the teacher's width, or use objective 'hidden', which projects."


def new_projection(student: ModelShape, teacher: ModelShape) -> nn.Linear:
    """A linear map from the student's width to the teacher's, initialised as the student's layers are.

    Args:
        student: the student.
        teacher: the teacher.
    """
    linear = nn.Linear(student.hidden_size, teacher.hidden_size)
    nn.init.normal_(linear.weight, std=float(getattr(student.config, "initializer_range", 0.02)))
    nn.init.zeros_(linear.bias)
    return linear


class HiddenTerm(LayerTerm):
    """TinyBERT's distance of hidden states: sum over pairs of mean((fit_dense(student) - teacher)^2).

    Args:
        student: the student.
        teacher: the teacher.
        layers: see `hidden_map`.
        projection: `shared`: one linear map for all states, the embeddings too, also where the widths are equal (the
            released code); `separate`: one for each pair (the paper has two); `none`: equal widths are compared as
            they are; `auto`: `none` for a student that `make_student` copied from a teacher of its width, which a map
            drawn at random would pull away from what it has, otherwise `shared`.
        kwargs: `name` and `weight`.
    """

    term = "hidden"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape,
        *,
        layers: Layers = "uniform",
        projection: str = "shared",
        **kwargs: Any,
    ):
        pairs = hidden_map(layers, student.layers, teacher.layers)
        super().__init__(pairs, ("hidden",), state_offset=-1, **kwargs)
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
                {f"{s}_to_{t}": new_projection(student, teacher) for s, t in dict.fromkeys(pairs)}
            )

    def _project(self, states: torch.Tensor, pair: tuple[int, int]) -> torch.Tensor:
        if self.projection == "none":
            return states
        return (self.fit_dense if self.projection == "shared" else self.fit_denses[f"{pair[0]}_to_{pair[1]}"])(states)

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = []
        for pair in self.active_pairs(batch):
            (student,), (teacher,) = self.tensors(batch, pair)
            losses.append(hidden_mse_loss(self._project(student, pair), teacher))
        return torch.stack(losses).sum()


class CosineTerm(LayerTerm):
    """DistilBERT's alignment of the last hidden states: mean of 1 - cos over tokens that are not padding.

    Args:
        student: the student.
        teacher: the teacher, of the same width.
        layers: see `hidden_map`.
        kwargs: `name` and `weight`.
    """

    term = "cosine"

    def __init__(self, student: ModelShape, teacher: ModelShape, *, layers: Layers = "final", **kwargs: Any):
        super().__init__(hidden_map(layers, student.layers, teacher.layers), ("hidden",), state_offset=-1, **kwargs)
        require_equal("hidden_size", student, teacher, self.name, _OTHER_WIDTH)

    def unit(self, batch: Pass) -> str:
        return "tokens"

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = []
        for pair in self.active_pairs(batch):
            (student,), (teacher,) = self.tensors(batch, pair)
            losses.append(cosine_loss(student, teacher, mask=batch.attention_mask))
        return torch.stack(losses).mean()


class PatienceTerm(LayerTerm):
    """PKD's patience: mean over rows, pairs and width of the squared distance of [CLS] states of unit length.

    Args:
        student: the student.
        teacher: the teacher, of the same width.
        layers: see `hidden_map`: `skip` (default) or `last` as in the paper, the last layer left out.
        normalize: whether the states are brought to unit length first (reference: yes).
        kwargs: `name` and `weight`.
    """

    term = "patience"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape,
        *,
        layers: Layers = "skip",
        normalize: bool = True,
        **kwargs: Any,
    ):
        super().__init__(hidden_map(layers, student.layers, teacher.layers), ("first",), state_offset=-1, **kwargs)
        require_equal("hidden_size", student, teacher, self.name, _OTHER_WIDTH)
        self.normalize = normalize

    def forward(self, batch: Pass) -> torch.Tensor:
        taken = [self.tensors(batch, pair) for pair in self.active_pairs(batch)]
        student = torch.stack([of_student for (of_student,), _ in taken], dim=1)
        teacher = torch.stack([of_teacher for _, (of_teacher,) in taken], dim=1)
        return patience_loss(student, teacher, normalize=self.normalize)


class _MapTerm(LayerTerm):
    """A distance of hidden states of one width, summed over pairs and divided by their number (MobileBERT)."""

    def __init__(self, student: ModelShape, teacher: ModelShape, *, layers: Layers = "same", **kwargs: Any):
        super().__init__(hidden_map(layers, student.layers, teacher.layers), ("hidden",), state_offset=-1, **kwargs)
        require_equal("hidden_size", student, teacher, self.name, _OTHER_WIDTH)

    def distance(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """Compare two states.

        Args:
            student: `(batch, seq_len, hidden)`.
            teacher: the same.
        """
        raise NotImplementedError(f"`{type(self).__name__}.distance` must compare states. Subclasses define it.")

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = []
        for pair in self.active_pairs(batch):
            (student,), (teacher,) = self.tensors(batch, pair)
            losses.append(self.distance(student, teacher))
        return torch.stack(losses).sum() / len(self.pairs)


class FeatureMapTerm(_MapTerm):
    """MobileBERT's feature map transfer: mean squared distance after a LayerNorm without parameters.

    Args:
        student: the student.
        teacher: the teacher, of the same width.
        kwargs: `layers`, see `hidden_map` (default `same`), `name` and `weight`.
    """

    term = "feature_map"

    def distance(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        return feature_map_loss(student, teacher)


class MeanTransferTerm(_MapTerm):
    """MobileBERT's mean transfer: squared distance of the means over the width, layer by layer.

    Args:
        student: the student.
        teacher: the teacher, of the same width.
        kwargs: `layers`, see `hidden_map` (default `same`), `name` and `weight`.
    """

    term = "hidden_mean"

    def distance(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        return mean_transfer_loss(student, teacher)


class VarianceTransferTerm(_MapTerm):
    """MobileBERT's variance transfer: absolute distance of the variances over the width, layer by layer.

    Args:
        student: the student.
        teacher: the teacher, of the same width.
        kwargs: `layers`, see `hidden_map` (default `same`), `name` and `weight`.
    """

    term = "hidden_variance"

    def distance(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        return variance_transfer_loss(student, teacher)


__all__ = [
    "CosineTerm",
    "FeatureMapTerm",
    "HiddenTerm",
    "MeanTransferTerm",
    "PatienceTerm",
    "VarianceTransferTerm",
]
