"""What is looked at before a run: vocabularies, label names, and whether the teacher knows the task."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from .layouts import ModelShape
from .outputs import joint_logits, logits_fields
from .teachers import TEACHER_PREFIX, Teachers


def vocabularies_differ(student: Any, teacher: Any) -> str | None:
    """Compare two tokenizers.

    Args:
        student: the student's.
        teacher: the teacher's.

    Returns:
        How they differ, or `None`.
    """
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
    """Names of a data set's columns, or of its first row's; `None` if they cannot be known without reading a stream.

    Args:
        dataset: any data set, or `None`.

    Example:
        >>> columns_of([{"input_ids": [1], "labels": 0}])
        ['input_ids', 'labels']
    """
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
    """Refuse to feed a teacher with another vocabulary's ids.

    Args:
        student: the student.
        teachers: the teachers.
        columns: of the training data, or `None` if they cannot be known.
        tokenizer: the student's, or `None`.
        teacher_tokenizer: the teachers', or `None`.

    Raises:
        ValueError: the vocabularies differ, and the data have no `teacher_input_ids`, or the predictions that are
            compared are over the vocabulary.
    """
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
    """Refuse teachers whose classes stand in another order.

    Args:
        student: the student.
        teachers: the teachers.

    Raises:
        ValueError: the same label names have other numbers, or there are more of them.
    """
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
    """Compare predictions with always giving the most frequent label.

    Args:
        answers: class numbers that a model gives, kept instead of its logits: those of a vocabulary are large.
        labels: class numbers of the same shape, -100 where there is none.
        classes: how many there are.

    Returns:
        Accuracy, share of the most frequent label, and two standard errors of the latter (at least of 1/classes);
        `None` if there is no label.

    Example:
        >>> against_chance(torch.tensor([0, 1]).repeat(8), torch.tensor([0, 1]).repeat(8), 2)
        (1.0, 0.5, 0.25)
    """
    chosen = labels.reshape(-1) != -100
    targets = labels.reshape(-1)[chosen]
    if not len(targets):
        return None
    accuracy = (answers.reshape(-1)[chosen] == targets).float().mean().item()
    chance = max(torch.bincount(targets).max().item() / len(targets), 1 / classes)
    return accuracy, chance, 2 * math.sqrt(chance * (1 - chance) / len(targets))


def correlation(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    """Pearson's correlation; 0 if one side is constant.

    Args:
        predictions: numbers.
        labels: as many.
    """
    both = torch.stack([values.reshape(-1).cpu().double() for values in (predictions, labels)])
    value = torch.corrcoef(both)[0, 1].item()
    return 0.0 if math.isnan(value) else value


def teacher_warning(teachers: Teachers, batches: list[Mapping[str, Any]]) -> str | None:
    """Say if a teacher does no better on the labels than chance: one that was never fine-tuned teaches noise.

    Args:
        teachers: the teachers.
        batches: some labelled rows.

    Returns:
        The warning, or `None`.
    """
    for number, shape in enumerate(teachers.shapes):
        predicted, wanted, classes = [], [], 0
        for batch in batches:
            with torch.no_grad():
                logits = joint_logits(logits_fields(teachers.models[number](**teachers.inputs_of(shape, batch))))
            labels = batch.get("labels")
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
        which = "The teacher" if len(teachers.shapes) == 1 else f"Teacher {number}"
        advice = (
            "Was it fine-tuned on this task, with these label numbers? A student of it learns noise. "
            "(`teacher_check_rows=0` switches this check off.)"
        )
        if wanted[0].is_floating_point():
            r = correlation(torch.cat(predicted), torch.cat(wanted))
            if r < 0.2:
                return (
                    f"{which} ({shape.name}) is near chance: its outputs correlate with the labels by "
                    f"{r:.2f}. {advice}"
                )
            continue
        found = against_chance(torch.cat(predicted), torch.cat(wanted), classes)
        if found is not None and found[0] <= min(found[1] + found[2], 1.0) and found[0] < 0.999:
            count = int((torch.cat(wanted) != -100).sum())
            return (
                f"{which} ({shape.name}) is near chance: its accuracy on {count} labels is "
                f"{found[0]:.3f}, the most frequent label has {found[1]:.3f} of them. {advice}"
            )
    return None


__all__ = ["against_chance", "check_labels", "check_vocabularies", "teacher_warning", "vocabularies_differ"]
