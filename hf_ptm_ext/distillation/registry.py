"""Objectives by name, and how a list of them becomes terms between two models."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from ..hints import did_you_mean
from .attention_terms import (
    AttentionCrossEntropyTerm,
    AttentionDivergenceTerm,
    AttentionScoreTerm,
    RelationTerm,
    ValueRelationTerm,
)
from .layouts import ModelShape
from .logit_terms import LabelTerm, SoftLabelTerm
from .state_terms import (
    CosineTerm,
    FeatureMapTerm,
    HiddenTerm,
    MeanTransferTerm,
    PatienceTerm,
    VarianceTransferTerm,
)
from .teachers import Teachers
from .terms import Term

OBJECTIVES: dict[str, type[Term]] = {
    "labels": LabelTerm,
    "soft_labels": SoftLabelTerm,
    "hidden": HiddenTerm,
    "cosine": CosineTerm,
    "patience": PatienceTerm,
    "feature_map": FeatureMapTerm,
    "hidden_mean": MeanTransferTerm,
    "hidden_variance": VarianceTransferTerm,
    "attention_scores": AttentionScoreTerm,
    "attention_cross_entropy": AttentionCrossEntropyTerm,
    "attention_divergence": AttentionDivergenceTerm,
    "value_relation": ValueRelationTerm,
    "relations": RelationTerm,
}
# Objectives that do not look at a teacher's insides, and so work from cached or averaged outputs alone.
WITHOUT_TEACHER = ("labels", "soft_labels")


def check_known(argument: str, name: str | None, known: Iterable[str]) -> None:
    """Refuse a name that is none of the known ones, and say which is like it."""
    names = sorted(known)
    if name not in names:
        raise ValueError(f"`{argument}` must be one of {', '.join(names)}, got {name!r}.{did_you_mean(name, names)}")


def objective_options(objective: type[Term]) -> list[str]:
    """Names of the options that an objective takes."""
    names: dict[str, None] = {}
    for cls in objective.__mro__:
        if cls is nn.Module:
            break
        for name, parameter in inspect.signature(cls.__init__).parameters.items():  # type: ignore[misc]
            if parameter.kind is not parameter.VAR_KEYWORD:
                names[name] = None
    internal = {"self", "student", "teacher"}
    return sorted(set(names) - internal)


def as_list(objectives: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> list[dict[str, Any]]:
    """Bring both spellings of a composition into one."""
    if isinstance(objectives, Mapping):
        return [
            {"objective": name, **(options if isinstance(options, Mapping) else {"weight": options})}
            for name, options in objectives.items()
        ]
    listed = [dict(each) if isinstance(each, Mapping) else {"objective": each} for each in objectives]
    if not listed or any("objective" not in each for each in listed):
        raise ValueError(
            "`objectives` must be a list of mappings with `objective` and its options, or a mapping from objectives "
            f"to options, with at least one; got {objectives!r}."
        )
    return listed


def build_terms(
    objectives: Sequence[Mapping[str, Any]] | Mapping[str, Any], student: nn.Module, teachers: Teachers
) -> list[Term]:
    """Make terms between a student and its teachers.

    Args:
        objectives: a list such as `[{"objective": "hidden", "weight": 1.0, "layers": "uniform"}, ...]`, or a mapping
            from objectives to options or weights. All take `weight` (default 1) and `name` (its loss is logged as
            `<name>_loss`); for the others see `OBJECTIVES`.
        student: the student.
        teachers: the teachers.

    Returns:
        The terms.

    Raises:
        ValueError: an unknown objective or option, two terms of one name, or models that do not fit.
    """
    shape = ModelShape.of(student)
    teacher = teachers.shapes[0] if teachers.shapes else None
    terms: list[Term] = []
    for entry in as_list(objectives):
        options = dict(entry)
        name = options.pop("objective")
        check_known("objective", name, OBJECTIVES)
        objective = OBJECTIVES[name]
        known = objective_options(objective)
        for option in options:
            check_known(f"option of objective {name}", option, known)
        if teacher is None and name not in WITHOUT_TEACHER:
            raise ValueError(f"Objective {name!r} compares with a `teacher`, got None.")
        terms.append(objective(shape, teacher, **options))  # type: ignore[arg-type]
        _check_heads(terms[-1], shape, teachers)
    names = [term.name for term in terms]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"`objectives` has {', '.join(twice)} more than once. Give one of each another `name`.")
    return terms


def _check_heads(term: Term, student: ModelShape, teachers: Teachers) -> None:
    """Refuse encoders without a head where a term needs predictions."""
    sides = [("student", student, term.student_needs), *(("teacher", t, term.teacher_needs) for t in teachers.shapes)]
    for side, shape, needs in sides:
        if {"logits", "loss"} & set(needs) and shape.name in MODEL_MAPPING_NAMES.values():
            raise ValueError(
                f"`{side}` must have a head for objective {term.name!r}, {shape.name} gives hidden states only. Load "
                "it as the class of your task, such as AutoModelForSequenceClassification or AutoModelForMaskedLM."
            )
