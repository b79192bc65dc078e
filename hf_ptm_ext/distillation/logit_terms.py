"""Terms on what the models predict: the labels, and the teacher's soft labels."""

from typing import Any, ClassVar

import torch

from .layouts import ModelShape
from .losses import soft_label_loss
from .terms import Pass, Term

# Kinds whose value for a single output is a distance; a distribution over one class is always 1.
KINDS_FOR_REGRESSION = ("logit_mse",)


class LabelTerm(Term):
    """The student's own loss on the labels: cross entropy, masked language modelling, regression, spans.

    A mean over labelled positions or rows, exact under gradient accumulation and over processes.

    Args:
        student: the student.
        teacher: unused.
        kwargs: `name` and `weight`.
    """

    term = "label"
    needs_labels: ClassVar[bool] = True

    def __init__(self, student: ModelShape, teacher: ModelShape | None, **kwargs: Any):
        super().__init__(**kwargs)
        self.student_needs = ("loss",)

    def unit(self, batch: Pass) -> str:
        return "labels"

    def forward(self, batch: Pass) -> torch.Tensor:
        return batch.student["loss"]


class SoftLabelTerm(Term):
    """The teacher's predictions as targets.

    A mean over rows; with predictions for every token, over tokens that are not padding, or over labelled ones.

    Args:
        student: the student.
        teacher: the teacher, or `None` if its outputs come from a cache.
        kind: which formula, see `hf_ptm_ext.objectives.soft_label_loss`: hinton_kl (DistilBERT, default),
            tinybert_soft_ce, pkd_kl, textbrewer_ce, mtdnn_kl, logit_mse, mobilebert_mlm_kd.
        temperature: divides both sides' logits.
        positions: with predictions for every token, which of them count: `tokens` (all that are not padding) or
            `labels` (DistilBERT's restrict_ce_to_mask).
        options: further arguments of `soft_label_loss`, such as `reduction`; `name` and `weight`.
    """

    term = "soft_label"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape | None,
        *,
        kind: str = "hinton_kl",
        temperature: float = 1.0,
        positions: str = "tokens",
        name: str | None = None,
        weight: float = 1.0,
        **options: Any,
    ):
        super().__init__(name, weight)
        if positions not in ("tokens", "labels"):
            raise ValueError(f"`positions` must be 'tokens' or 'labels', got {positions!r}.")
        if student.is_regression and kind not in KINDS_FOR_REGRESSION:
            raise ValueError(
                f"`kind` = {kind!r} compares distributions over classes, but {student.name} gives one number: the "
                f"term would be 0. Use {' or '.join(KINDS_FOR_REGRESSION)}."
            )
        self.kind = kind
        self.temperature = float(temperature)
        self.positions = positions
        self.options = options
        self.student_needs = self.teacher_needs = ("logits",)

    def unit(self, batch: Pass) -> str:
        return self.positions if batch.per_token else "rows"

    def forward(self, batch: Pass) -> torch.Tensor:
        student, teacher = batch.student["logits"], batch.teacher["logits"].detach()
        if student.shape != teacher.shape:
            raise ValueError(
                f"Objective {self.name!r} needs predictions of the same shape, but the student gives "
                f"{tuple(student.shape)} and the teacher {tuple(teacher.shape)}: their labels, vocabularies or texts "
                "differ."
            )
        mask = None
        if batch.per_token:
            mask = self._selected(batch, student)
        return soft_label_loss(
            student, teacher, kind=self.kind, temperature=self.temperature, mask=mask, **self.options
        )

    def _selected(self, batch: Pass, logits: torch.Tensor) -> torch.Tensor:
        if self.positions == "labels":
            if batch.labels is None:
                raise ValueError(
                    f"Objective {self.name!r} with `positions` = 'labels' needs `labels` in the batch. Set it to "
                    "'tokens' to distil at every token."
                )
            return batch.labels != -100
        if batch.attention_mask is None:
            return torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        return batch.attention_mask.bool()


__all__ = ["LabelTerm", "SoftLabelTerm"]
