"""What is looked at before a run: vocabularies, label names, and whether the teacher knows the task."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .capture import joint_logits, logits_fields
from .layouts import ModelShape
from .teachers import TEACHER_PREFIX, Teachers


def vocabularies_differ(student: Any, teacher: Any) -> str | None:
    """Compare two tokenizers."""
    own, other = student.get_vocab(), teacher.get_vocab()
    if own == other:
        return None
    moved = sorted((token for token in own.keys() & other.keys() if own[token] != other[token]), key=own.__getitem__)
    if moved:
        token = moved[0]
        return f"{token!r} has id {own[token]} in the student's and {other[token]} in the teacher's"
    extra = sorted(own.keys() ^ other.keys())
    return f"{len(own)} and {len(other)} tokens, {extra[0]!r} is in one of them only"


def columns_of(dataset: Any) -> list[str] | None:
    """A data set's columns, or its first row's; `None` if they cannot be known without reading a stream."""
    names = getattr(dataset, "column_names", None)
    if names is not None:
        return list(names)
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and len(dataset):
        row = dataset[0]
        return list(row) if isinstance(row, Mapping) else None
    return None


def check_vocabularies(
    student: ModelShape, teachers: Teachers, columns: list[str] | None, tokenizer: Any, teacher_tokenizer: Any
) -> None:
    """Refuse to feed a teacher with another vocabulary's ids."""
    if not teachers.shapes:
        return
    difference = None
    if hasattr(tokenizer, "get_vocab") and hasattr(teacher_tokenizer, "get_vocab"):
        difference = vocabularies_differ(tokenizer, teacher_tokenizer)
    else:
        sizes = [getattr(shape.config, "vocab_size", None) for shape in (student, *teachers.shapes)]
        if None not in sizes and len(set(sizes)) > 1:
            difference = f"`vocab_size` is {sizes[0]} and {', '.join(map(str, sizes[1:]))}"
    if difference is None:
        return
    # A collator that makes `input_ids` of texts may make the teacher's too.
    if columns is not None and "input_ids" in columns and f"{TEACHER_PREFIX}input_ids" not in columns:
        raise ValueError(
            f"Student and teacher have different vocabularies: {difference}. Give the data a column "
            f"`{TEACHER_PREFIX}input_ids` (and `{TEACHER_PREFIX}attention_mask`) made by the teacher's tokenizer; or, "
            "if the ids mean the same and only the tables differ in size, pass both tokenizers as `processing_class` "
            "and `teacher_processing_class`."
        )
    predicts_tokens = student.model.get_output_embeddings() is not None
    if "logits" in teachers.names and predicts_tokens:
        raise ValueError(
            f"Student and teacher have different vocabularies: {difference}. Predictions over them cannot be "
            "compared; use objectives on hidden states or relations of texts that both split alike, or on labels of a "
            "task."
        )


def check_labels(student: ModelShape, teachers: Teachers) -> None:
    """Refuse teachers whose classes stand in another order."""
    if "logits" not in teachers.names:
        return
    for shape in teachers.shapes:
        own, other = (getattr(each.config, "label2id", None) or {} for each in (student, shape))
        named = not any(str(name).startswith("LABEL_") for name in (*own, *other))
        if student.model.get_output_embeddings() is None and len(own) != len(other):
            raise ValueError(
                f"`num_labels` must agree: the student {student.name} has {len(own)} and the teacher {shape.name} has "
                f"{len(other)}."
            )
        if named and own.keys() == other.keys() and own != other:
            raise ValueError(
                f"`label2id` of student and teacher must agree, got {dict(own)} and {dict(other)}: soft labels would "
                "name other classes."
            )


def against_chance(answers: torch.Tensor, labels: torch.Tensor, classes: int) -> tuple[float, float, float] | None:
    """Compare predictions with always giving the most frequent label."""
    chosen = labels.reshape(-1) != -100
    targets = labels.reshape(-1)[chosen]
    if not len(targets):
        return None
    accuracy = (answers.reshape(-1)[chosen] == targets).float().mean().item()
    chance = max(torch.bincount(targets).max().item() / len(targets), 1 / classes)
    return accuracy, chance, 2 * math.sqrt(chance * (1 - chance) / len(targets))


def correlation(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    """Pearson's correlation; 0 if one side is constant."""
    both = torch.stack([values.reshape(-1).cpu().double() for values in (predictions, labels)])
    value = torch.corrcoef(both)[0, 1].item()
    return 0.0 if math.isnan(value) else value


@torch.no_grad()
def chance_warning(which: str, outputs: Iterable[tuple[Any, Mapping[str, Any]]], advice: str) -> str | None:
    """Say if a model's outputs for batches are no better than chance; `None` also where labels say nothing."""
    predicted, wanted, classes = [], [], 0
    for output, batch in outputs:
        logits, labels = joint_logits(logits_fields(output)), batch.get("labels")
        if logits is None or not torch.is_tensor(labels):
            return None
        classes = logits.shape[-1]
        numbers = classes == 1 and labels.is_floating_point()
        if not numbers and (labels.is_floating_point() or logits.shape[:-1] != labels.shape):
            return None
        predicted.append((logits.float() if numbers else logits.argmax(-1)).flatten().cpu())
        wanted.append(labels.flatten().cpu())
    if not predicted:
        return None
    answers, labels = torch.cat(predicted), torch.cat(wanted)
    if labels.is_floating_point():
        r = correlation(answers, labels)
        return (
            None if r >= 0.2 else f"{which} is near chance: its outputs correlate with the labels by {r:.2f}. {advice}"
        )
    found = against_chance(answers, labels, classes)
    if found is None or found[0] > min(found[1] + found[2], 1.0) or found[0] >= 0.999:
        return None
    return (
        f"{which} is near chance: its accuracy on {int((labels != -100).sum())} labels is {found[0]:.3f}, the most "
        f"frequent one has {found[1]:.3f} of them. {advice}"
    )


def teacher_warning(teachers: Teachers, batches: Sequence[Mapping[str, Any]]) -> str | None:
    """Say if a teacher does no better on the labels than chance: one that was never fine-tuned teaches noise."""
    advice = (
        "Was it fine-tuned on this task, with these label numbers? A student of it learns noise. "
        "(`teacher_check_rows=0` switches this check off.)"
    )
    for number, (model, shape) in enumerate(zip(teachers.models, teachers.shapes, strict=True)):
        which = "The teacher" if len(teachers.shapes) == 1 else f"Teacher {number}"
        outputs = ((model(**teachers.inputs_of(shape, batch)), batch) for batch in batches)
        warning = chance_warning(f"{which} ({shape.name})", outputs, advice)
        if warning is not None:
            return warning
    return None
