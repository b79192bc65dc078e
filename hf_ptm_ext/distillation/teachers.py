"""Teachers: frozen, in evaluation mode, outside the student's module tree, run only for what the objectives need."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .capture import LABEL_COLUMNS, Capture, joint_logits, logits_fields
from .layouts import ModelShape

# Columns of teachers with another tokenizer: `teacher_input_ids`, `teacher_attention_mask`, ...
TEACHER_PREFIX = "teacher_"
AVERAGES = ("probabilities", "logits")


def weights_digest(model: nn.Module) -> str:
    """A fingerprint of a model's weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Teachers:
    """One or several teachers of a student.

    Args:
        models: the teachers; they are frozen and put in evaluation mode.
        average: how the logits of several become one: `probabilities`, whose mean is handed on as its logarithm
            (MT-DNN), or `logits`.
        dtype: what their weights are cast to (default: as they are).

    Raises:
        ValueError: an unknown `average`.
    """

    def __init__(self, models: Sequence[nn.Module], average: str = "probabilities", dtype: torch.dtype | None = None):
        if average not in AVERAGES:
            raise ValueError(f"`teacher_average` must be one of {', '.join(AVERAGES)}, got {average!r}.")
        self.models = list(models)
        self.average = average
        self.dtype = dtype
        self.shapes = [ModelShape.of(model) for model in self.models]
        for model in self.models:
            model.requires_grad_(False).eval()
            if dtype is not None:
                model.to(dtype)
        self.names: set[str] = set()
        self._captures: list[Capture] = []

    @classmethod
    def of(cls, teacher: Any, student: nn.Module, **options: Any) -> "Teachers":
        """Take what the user gave: a model, several, or none."""
        models = [] if teacher is None else [teacher] if isinstance(teacher, nn.Module) else list(teacher)
        own = {id(parameter) for parameter in student.parameters()}
        for model in models:
            if not isinstance(model, nn.Module):
                raise TypeError(f"`teacher` must be a model or a list of models, got {type(model).__name__}.")
            if model is student or any(id(parameter) in own for parameter in model.parameters()):
                raise ValueError(
                    f"`teacher` must be another model than the student and share no weights with it, got the same "
                    f"{type(model).__name__}: it is frozen and in evaluation mode. For self-distillation pass "
                    "copy.deepcopy(model)."
                )
        return cls(models, **options)

    def ask(self, names: Iterable[str]) -> None:
        """Say what is wanted of them: they take hooks for it."""
        self.names = set(names)
        inside = self.names - {"logits"}
        if inside and len(self.models) > 1:
            raise ValueError(
                f"Several teachers are averaged by their logits, but the objectives need {', '.join(sorted(inside))}. "
                "Give one teacher, or objectives on logits only."
            )
        self.close()
        self._captures = [Capture(model, inside) for model in self.models]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that they read, plain and with the prefix."""
        names = [name for shape in self.shapes for name in shape.inputs if name not in LABEL_COLUMNS]
        return sorted({*names, *(f"{TEACHER_PREFIX}{name}" for name in names)})

    def inputs_of(self, shape: ModelShape, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The columns for one teacher."""
        names = [name for name in shape.inputs if name not in LABEL_COLUMNS]
        if f"{TEACHER_PREFIX}input_ids" in inputs:
            return {n: inputs[f"{TEACHER_PREFIX}{n}"] for n in names if f"{TEACHER_PREFIX}{n}" in inputs}
        return {name: inputs[name] for name in names if name in inputs}

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """Run them."""
        if not self.models:
            raise ValueError(
                f"`teacher` must be given, or outputs of one, got {self.models!r}: nothing to learn from."
            )
        wanted = self.names if names is None else set(names)
        logits, seen = [], {}
        for model, shape, capture in zip(self.models, self.shapes, self._captures, strict=True):
            if model.training:
                model.eval()
            capture.start()
            output = model(**self.inputs_of(shape, inputs))
            seen = capture.take()
            if "logits" in wanted:
                found = joint_logits(logits_fields(output))
                if found is None:
                    raise ValueError(
                        f"`teacher` must have a head that gives logits, {shape.name} gives "
                        f"{', '.join(output) if isinstance(output, Mapping) else type(output).__name__}."
                    )
                logits.append(found)
        outputs = {name: value for name, value in seen.items() if name in wanted}
        if "logits" in wanted:
            outputs["logits"] = self._mean(logits)
        return outputs

    def _mean(self, logits: list[torch.Tensor]) -> torch.Tensor:
        if len(logits) == 1:
            return logits[0]
        shapes = {tuple(each.shape) for each in logits}
        if len(shapes) > 1:
            raise ValueError(f"`teacher`: the teachers' logits must have one shape, got {sorted(shapes)}.")
        stacked = torch.stack([each.float() for each in logits])
        if self.average == "logits":
            return stacked.mean(0)
        if stacked.shape[-1] == 1:
            raise ValueError(
                f"`teacher_average` = {self.average!r} has no meaning for one output (regression). Set it to 'logits'."
            )
        return torch.logsumexp(stacked.log_softmax(-1), 0) - math.log(len(logits))

    def to(self, device: torch.device) -> None:
        """Move them."""
        for model in self.models:
            model.to(device)

    def digest(self) -> str:
        """A fingerprint of all weights."""
        return " ".join(weights_digest(model) for model in self.models)

    def close(self) -> None:
        """Take the hooks off."""
        for capture in self._captures:
            capture.close()
        self._captures = []


class TeacherColumns:
    """A collator that pads columns beginning with `teacher_` with the teacher's tokenizer, the others as before."""

    def __init__(self, collator: Any, tokenizer: Any):
        self.collator = collator
        self.teacher_tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        # The draw counter, the tokenizer and the like are the inner collator's. Dunder names are left to `copy`.
        if name.startswith("__") or name == "collator":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return getattr(self.collator, name)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Collate."""
        own = [{n: v for n, v in row.items() if not n.startswith(TEACHER_PREFIX)} for row in rows]
        teachers = [
            {n.removeprefix(TEACHER_PREFIX): v for n, v in row.items() if n.startswith(TEACHER_PREFIX)} for row in rows
        ]
        batch = dict(self.collator(own))
        if any(teachers):
            padded = self.teacher_tokenizer.pad(teachers, return_tensors="pt")
            batch.update({f"{TEACHER_PREFIX}{name}": value for name, value in padded.items()})
        return batch
