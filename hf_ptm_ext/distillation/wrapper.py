"""The module that is trained in distillation: the student, its hooks, the projections and all terms in one forward.

A loss outside the wrapped forward never reaches DistributedDataParallel's reducer. Teachers are no submodules: neither
state dict nor optimiser nor `train()` reach them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers.trainer_pt_utils import LabelSmoother
from transformers.utils import ModelOutput

from ..trainers.auxiliary import AuxiliaryObjective
from .base import refuse_reentrant
from .capture import LABEL_COLUMNS, Capture, joint_logits, logits_fields
from .layouts import ModelShape
from .registry import build_terms
from .teachers import Teachers
from .terms import LayerTerm, Pass, Term

LABELS = "labels"
REENTRANT = "what the hooks take carries no gradient under it."


def refuse_packed(terms: Sequence[Term]) -> None:
    """Refuse packed rows where a term compares whole rows."""
    wrong = [term.name for term in terms if isinstance(term, LayerTerm) and term.kinds != ("hidden",)]
    if wrong:
        raise ValueError(
            f"Objective {', '.join(map(repr, wrong))} compares whole rows, but `sequence_ids` packs several texts "
            "into one. Leave it out and pad instead."
        )


class DistillationModel(AuxiliaryObjective):
    """A student with the objectives that tie it to its teachers.

    Args:
        model: the student.
        teacher: one teacher, several, or `None` if outputs of theirs come with the batches.
        objectives: what is compared, see `build_terms`.
        average: how several teachers' logits become one, see `Teachers`.
        teacher_dtype: dtype in which they run, their own by default.
        teacher_in_eval: whether evaluation computes the objectives with the teachers; otherwise its loss is the
            student's own on the labels.
        label_smoothing: share of the uniform distribution in the targets of the student's own loss.

    Raises:
        TypeError: the student is no model of transformers.
        ValueError: the objectives do not fit the models, see the objectives.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(vocab_size=9, hidden_size=8, num_attention_heads=2, intermediate_size=8)
        >>> student = BertForSequenceClassification(BertConfig(num_hidden_layers=1, **sizes))
        >>> teacher = BertForSequenceClassification(BertConfig(num_hidden_layers=2, **sizes))
        >>> model = DistillationModel(student, teacher, [{"objective": "hidden"}, {"objective": "labels"}])
        >>> output = model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([1]))
        >>> sorted(output), torch.allclose(output.loss, output.hidden_loss + output.label_loss)
        (['hidden_loss', 'label_loss', 'logits', 'loss'], True)
    """

    # The loss is a mean over the batch: the Trainer must not hand over `num_items_in_batch`.
    accepts_loss_kwargs = False
    teachers: Teachers
    _capture: Capture

    def __init__(
        self,
        model: nn.Module,
        teacher: nn.Module | Sequence[nn.Module] | None,
        objectives: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        average: str = "probabilities",
        teacher_dtype: torch.dtype | None = None,
        teacher_in_eval: bool = False,
        label_smoothing: float = 0.0,
    ):
        super().__init__(model)
        teachers = Teachers.of(teacher, student=model, average=average, dtype=teacher_dtype)
        terms = build_terms(objectives, model, teachers)
        self.terms = nn.ModuleDict({term.name: term for term in terms})
        self.teacher_in_eval = teacher_in_eval
        self.label_smoother = LabelSmoother(epsilon=label_smoothing) if label_smoothing else None
        # Layer whose objectives count in progressive distillation; the Trainer sets it from the step.
        self.phase: int | None = None
        teachers.ask(name for term in terms for name in term.teacher_needs)
        # Past `nn.Module`, which would take it for a part of the model.
        object.__setattr__(self, "teachers", teachers)
        needs = {name for term in terms for name in term.student_needs}
        object.__setattr__(self, "_capture", Capture(model, needs - {"logits", "loss"}))
        self._needs_loss = "loss" in needs
        self._needs_logits = "logits" in needs or self.label_smoother is not None
        self._inputs = ModelShape.of(model).inputs

    def close(self) -> None:
        """Take the hooks off student and teachers: nothing of distillation stays on them."""
        self._capture.close()
        self.teachers.close()

    # ---- what a Trainer asks of a model ----

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: Any = None, **kwargs: Any) -> None:
        """As the student's own."""
        refuse_reentrant(activation_checkpointing_kwargs, REENTRANT)
        super().activation_checkpointing_enable(activation_checkpointing_kwargs, **kwargs)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that student and teachers read."""
        return sorted({*self._inputs, *self.teachers.columns})

    def described(self) -> str:
        """The terms' names with their weights, for the log."""
        return ", ".join(f"{name} ({term.weight:g})" for name, term in self.terms.items())

    @property
    def term_fields(self) -> list[str]:
        """Names of the terms' fields in the output."""
        return [f"{name}_loss" for name in self.terms]

    @staticmethod
    def count_targets(batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Count what the terms are means over."""
        ids = batch["input_ids"] if "input_ids" in batch else next(iter(batch.values()))
        mask = batch.get("attention_mask")
        tokens = mask.sum() if mask is not None else torch.full((), ids.numel(), device=ids.device)
        labels = batch.get(LABELS)
        rows = torch.full((), ids.shape[0], device=ids.device)  # no copy from the host, which would wait
        labelled = rows if labels is None else (labels != -100).sum()
        return {"rows": rows, "tokens": tokens, "labels": labelled}

    # ---- the loss ----

    def active_terms(self) -> list[Term]:
        """The terms of this forward: all in training, without a teacher in evaluation none that needs one."""
        if self.training or self.teacher_in_eval:
            return [term for term in self.terms.values() if isinstance(term, Term)]
        return []

    def forward(
        self,
        teacher_outputs: dict[str, torch.Tensor] | None = None,
        term_scales: dict[str, torch.Tensor] | None = None,
        **inputs: Any,
    ) -> ModelOutput:
        """Run the student (and the teachers, unless their outputs are given), and compute the terms."""
        terms = self.active_terms()
        if inputs.get("sequence_ids") is not None:
            refuse_packed(terms)
        batch, logits = self._run_student(terms, inputs)
        if any(term.teacher_needs for term in terms):
            batch.teacher = teacher_outputs if teacher_outputs is not None else self.teachers(inputs)
        fields: dict[str, torch.Tensor] = {}
        loss = None if terms else batch.student.get("loss")
        for term in terms:
            value = term(batch)
            if term_scales is not None:
                value = value * term_scales[term.unit(batch)]
            fields[f"{term.name}_loss"] = value
            loss = term.weight * value if loss is None else loss + term.weight * value
        return ModelOutput(**({} if loss is None else {"loss": loss}), **logits, **fields)

    def _run_student(self, terms: list[Term], inputs: dict[str, Any]) -> tuple[Pass, dict[str, torch.Tensor]]:
        labelled = not terms or any(term.needs_labels for term in terms)
        arguments = {
            name: value
            for name, value in inputs.items()
            if name in self._inputs and (labelled or name not in LABEL_COLUMNS)
        }
        if "return_logits" in self._inputs and (self._needs_logits or not self.training):
            arguments["return_logits"] = True
        if terms:
            self._capture.start()
        output = self.model(**arguments)
        seen = self._capture.take(gradients=self.training and torch.is_grad_enabled()) if terms else {}
        logits = logits_fields(output)
        joint = joint_logits(logits)
        if self._needs_logits and joint is None:
            raise ValueError(
                f"`student` must have a head that gives logits for these objectives, {type(self.model).__name__} "
                f"gives {', '.join(output)}."
            )
        if joint is not None:
            seen["logits"] = joint
        labels = inputs.get(LABELS)
        loss = self._label_loss(output, logits, labels) if labelled else None
        if loss is not None:
            seen["loss"] = loss
        elif any(term.needs_labels for term in terms):
            names = ", ".join(repr(term.name) for term in terms if term.needs_labels)
            raise ValueError(
                f"Objective {names} needs `labels` in the batch, got {', '.join(sorted(inputs))}. Leave it out to "
                "distil without labels."
            )
        mask = inputs.get("attention_mask")
        if mask is not None:
            mask = mask.reshape(-1, mask.shape[-1])  # of multiple choice: rows of all choices
        length = inputs["input_ids"].shape[-1] if "input_ids" in inputs else None
        per_token = joint is not None and len(logits) == 1 and joint.dim() == 3 and joint.shape[1] == length
        return Pass(seen, {}, mask, labels, per_token, self.phase), logits

    def _label_loss(
        self, output: Any, logits: dict[str, torch.Tensor], labels: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The student's own loss, or the smoothed one; 0 where no position has a label."""
        loss = output.get("loss")
        if self.label_smoother is not None and labels is not None:
            loss = self.label_smoother({"logits": joint_logits(logits)}, labels)
        if loss is None or labels is None:
            return loss
        return torch.where((labels != -100).any(), loss, torch.zeros_like(loss))
