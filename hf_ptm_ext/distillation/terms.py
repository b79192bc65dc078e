"""What distillation objectives have in common: a name, a weight, what they need and how they are averaged."""

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from .capture import needed
from .layer_maps import LayerMap
from .layouts import ModelShape

# What a term is a mean over: rows of the batch, tokens that are not padding, or labelled positions.
UNITS = ("rows", "tokens", "labels")


@dataclass
class Pass:
    """What one forward of student and teacher gave.

    Args:
        student: tensors of the student by name: what `Capture` took, `logits`, and `loss`, its own loss on the labels.
        teacher: the same of the teacher.
        attention_mask: `(batch, seq_len)`, 1 for tokens, or `None` if nothing is padding.
        labels: as the batch has them, or `None`.
        per_token: whether the logits are `(batch, seq_len, classes)` rather than one vector per row.
        phase: layer whose objectives count in progressive distillation; `None` for all.
    """

    student: dict[str, torch.Tensor]
    teacher: dict[str, torch.Tensor] = field(default_factory=dict)
    attention_mask: torch.Tensor | None = None
    labels: torch.Tensor | None = None
    per_token: bool = False
    phase: int | None = None


class Term(nn.Module):
    """One objective between a student and a teacher; parameters it needs, such as projections, are its own.

    Args:
        name: its loss is logged as `<name>_loss`.
        weight: its factor in the total.
    """

    # Default of `name`.
    term: ClassVar[str] = ""
    needs_labels: ClassVar[bool] = False

    def __init__(self, name: str | None = None, weight: float = 1.0):
        super().__init__()
        self.name = self.term if name is None else name
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name) or hasattr(nn.ModuleDict(), self.name):
            raise ValueError(f"`name` must be a lower-case identifier, got {self.name!r}.")
        self.weight = float(weight)
        self.student_needs: tuple[str, ...] = ()
        self.teacher_needs: tuple[str, ...] = ()

    def unit(self, batch: Pass) -> str:
        """What the term is a mean over.

        Args:
            batch: what the models gave.

        Returns:
            One of `UNITS`.
        """
        return "rows"

    def forward(self, batch: Pass) -> torch.Tensor:
        """Compute the term.

        Args:
            batch: what the models gave.

        Returns:
            A scalar without its weight.
        """
        raise NotImplementedError(f"`{type(self).__name__}.forward` must compute the term. Subclasses define it.")

    def extra_repr(self) -> str:
        return f"name={self.name!r}, weight={self.weight:g}"


class LayerTerm(Term):
    """A term over pairs of layers or hidden states.

    Args:
        pairs: (student, teacher).
        kinds: what is taken of each, such as `hidden`, or `query` and `key`.
        state_offset: what is added to a layer's number to name its state: 0 if pairs number layers, and
            progressive distillation compares them with its phase; -1 if they number hidden states.
        kwargs: `name` and `weight`.
    """

    def __init__(self, pairs: LayerMap, kinds: tuple[str, ...], state_offset: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.pairs = pairs
        self.kinds = kinds
        self.state_offset = state_offset
        self.student_needs = tuple(needed(kind, student) for student, _ in pairs for kind in kinds)
        self.teacher_needs = tuple(needed(kind, teacher) for _, teacher in pairs for kind in kinds)

    def active_pairs(self, batch: Pass) -> LayerMap:
        """The pairs that count: all, or those of the phase's layer.

        Args:
            batch: what the models gave.
        """
        if batch.phase is None:
            return self.pairs
        return [pair for pair in self.pairs if pair[0] + self.state_offset == batch.phase]

    def tensors(self, batch: Pass, pair: tuple[int, int]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What the term compares for one pair.

        Args:
            batch: what the models gave.
            pair: (student, teacher).

        Returns:
            The student's tensors and the teacher's, one of each kind.

        Raises:
            ValueError: the teacher read a text of another length.
        """
        of_student = [batch.student[needed(kind, pair[0])] for kind in self.kinds]
        of_teacher = [batch.teacher[needed(kind, pair[1])] for kind in self.kinds]
        if of_student[0].shape[:-1] != of_teacher[0].shape[:-1]:
            raise ValueError(
                f"Objective {self.name!r} compares student and teacher position by position, but the student's batch "
                f"is {tuple(of_student[0].shape[:-1])} and the teacher's {tuple(of_teacher[0].shape[:-1])}. With "
                "another tokenizer only objectives on one vector per row compare."
            )
        return of_student, of_teacher

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, pairs={self.pairs}"


def require_equal(what: str, student: ModelShape, teacher: ModelShape, objective: str, advice: str) -> None:
    """Refuse models of different sizes.

    Args:
        what: `heads` or `hidden_size`.
        student: the student's sizes.
        teacher: the teacher's.
        objective: name of the objective.
        advice: what to do instead.

    Raises:
        ValueError: the sizes differ.
    """
    config_name = {"heads": "num_attention_heads", "hidden_size": "hidden_size"}[what]
    sizes = getattr(student, what), getattr(teacher, what)
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"Objective {objective!r} needs the same `{config_name}` on both sides, but the student {student.name} "
            f"has {sizes[0]} and the teacher {teacher.name} has {sizes[1]}. {advice}"
        )


__all__ = ["UNITS", "LayerTerm", "Pass", "Term", "require_equal"]
