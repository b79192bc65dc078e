"""What distillation objectives have in common: a name, a weight, what they need and how they are averaged."""

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from .capture import needed
from .layer_maps import LayerMap, Layers, attention_map, hidden_map
from .layouts import ModelShape

ADVICE = {
    "hidden_size": "Build the student with the teacher's width, or use objective 'hidden', which projects.",
    "num_attention_heads": "Build the student with the teacher's number of heads, or use preset minilm-v2 (objective "
    "'relations').",
}


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
    """One objective between a student and a teacher; parameters it needs, such as projections, are its own."""

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
        """What the term is a mean over: "rows", "tokens" that are not padding, or "labels"."""
        return "rows"

    def forward(self, batch: Pass) -> torch.Tensor:
        """Compute the term."""
        raise NotImplementedError(f"`{type(self).__name__}.forward` must compute the term. Subclasses define it.")

    def extra_repr(self) -> str:
        return f"name={self.name!r}, weight={self.weight:g}"


class LayerTerm(Term):
    """A term over pairs of layers, or of hidden states; what it compares is said by class attributes."""

    # What is taken of each layer, see `Capture`; hidden states, or the first token's, are counted from the embeddings.
    kinds: ClassVar[tuple[str, ...]] = ("hidden",)
    default_layers: ClassVar[Layers] = "uniform"
    # The size that both models must have alike, a name of `ADVICE`.
    same: ClassVar[str | None] = None
    # Whether the sum over pairs is divided by their number.
    mean_over_pairs: ClassVar[bool] = False

    def __init__(self, student: ModelShape, teacher: ModelShape, *, layers: Layers | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        of_states = set(self.kinds) <= {"hidden", "first"}
        layers = self.layers_between(student, teacher) if layers is None else layers
        self.pairs = (hidden_map if of_states else attention_map)(layers, student.layers, teacher.layers)
        self.state_offset = -1 if of_states else 0
        if self.same is not None:
            require_equal(self.same, student, teacher, self.name, ADVICE[self.same])
        self.student_needs = tuple(needed(kind, layer) for layer, _ in self.pairs for kind in self.kinds)
        self.teacher_needs = tuple(needed(kind, layer) for _, layer in self.pairs for kind in self.kinds)

    def layers_between(self, student: ModelShape, teacher: ModelShape) -> Layers:
        """The layers compared if none are named."""
        return self.default_layers

    def active_pairs(self, batch: Pass) -> LayerMap:
        """The pairs that count: all, or those of the phase's layer."""
        if batch.phase is None:
            return self.pairs
        return [pair for pair in self.pairs if pair[0] + self.state_offset == batch.phase]

    def forward(self, batch: Pass) -> torch.Tensor:
        losses = [self.distance(batch, pair, *self.tensors(batch, pair)) for pair in self.active_pairs(batch)]
        total = torch.stack(losses).sum()
        return total / len(self.pairs) if self.mean_over_pairs else total

    def distance(
        self, batch: Pass, pair: tuple[int, int], student: list[torch.Tensor], teacher: list[torch.Tensor]
    ) -> torch.Tensor:
        """The term of one pair, of the tensors of its `kinds`."""
        raise NotImplementedError(f"`{type(self).__name__}.distance` must compare one pair. Subclasses define it.")

    def tensors(self, batch: Pass, pair: tuple[int, int]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What the term compares for one pair."""
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


def require_equal(size: str, student: ModelShape, teacher: ModelShape, objective: str, advice: str) -> None:
    """Refuse models whose configs have different sizes of that name."""
    sizes = [getattr(model, {"num_attention_heads": "heads"}.get(size, size)) for model in (student, teacher)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"Objective {objective!r} needs the same `{size}` on both sides, but the student {student.name} has "
            f"{sizes[0]} and the teacher {teacher.name} has {sizes[1]}. {advice}"
        )
