"""Terms on what the models predict: the labels, and the teacher's soft labels."""

from typing import Any, ClassVar

import torch

from ..objectives import SOFT_LABEL_LOSSES, soft_label_loss
from .layouts import ModelShape
from .terms import Pass, Term

MLM_KD = "mobilebert_mlm_kd"
KINDS = tuple(SOFT_LABEL_LOSSES)
# Kinds whose value for a single output is a distance; a distribution over one class is always 1.
KINDS_FOR_REGRESSION = ("logit_mse",)


class LabelTerm(Term):
    """The student's own loss on the labels, whatever its head: a mean over labelled positions or rows."""

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
    """The teacher's predictions as targets: a mean over rows, or over tokens or labels where each has one."""

    term = "soft_label"

    def __init__(
        self,
        student: ModelShape,
        teacher: ModelShape | None,
        *,
        kind: str = "hinton_kl",
        temperature: float = 1.0,
        positions: str = "tokens",
        t_squared: bool | None = None,
        reduction: str | None = None,
        ratio: float = 0.5,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if kind not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}.")
        if reduction not in (None, "batchmean", "mean"):
            raise ValueError(f"`reduction` must be 'batchmean' or 'mean', got {reduction!r}.")
        if positions not in ("tokens", "labels"):
            raise ValueError(f"`positions` must be 'tokens' or 'labels', got {positions!r}.")
        if student.is_regression and kind not in KINDS_FOR_REGRESSION:
            raise ValueError(
                f"`kind` = {kind!r} compares distributions over classes, but {student.name} gives one number: the "
                f"term would be 0. Use {' or '.join(KINDS_FOR_REGRESSION)}."
            )
        self.kind = kind
        self.temperature = float(temperature)
        self.positions = "labels" if kind == MLM_KD else positions
        self.options: dict[str, Any] = {"t_squared": t_squared, "reduction": reduction, "ratio": ratio}
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
        mask = self._selected(batch, student) if batch.per_token else None
        return soft_label_loss(
            student,
            teacher,
            kind=self.kind,
            temperature=self.temperature,
            mask=mask,
            labels=batch.labels if self.kind == MLM_KD else None,
            **self.options,
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
