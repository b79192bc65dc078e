"""Distances of hidden states of student and teacher, each with the reduction of the code that it is known from.

States are `(..., hidden)`; a mask has their leading shape, 1 for what counts. The codes of TinyBERT and MobileBERT
average over padding too, so their default is no mask.
"""

import torch
from torch.nn import functional

FEATURE_MAP_EPSILON = 1e-12


def hidden_mse_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """TinyBERT's: mean squared difference over positions and width, padding included unless masked.

    Args:
        student: `(..., hidden)`, projected to the teacher's width.
        teacher: the same shape.
        mask: positions that count (TinyBERT: all).

    Returns:
        A scalar.

    Raises:
        ValueError: shapes differ.

    Examples:
        >>> hidden_mse_loss(torch.zeros(1, 2, 4), torch.full((1, 2, 4), 2.0)).item()
        4.0
    """
    student, teacher = _rows(student, teacher, mask)
    return (student - teacher).square().sum() / max(student.numel(), 1)


def cosine_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """DistilBERT's: mean of 1 - cos over positions.

    Arguments and errors as of `hidden_mse_loss` (DistilBERT's mask: the attention mask).

    Examples:
        >>> cosine_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])).item()
        1.0
    """
    student, teacher = _rows(student, teacher, mask)
    return (1 - functional.cosine_similarity(student, teacher, dim=-1)).sum() / max(len(student), 1)


def patience_loss(
    student: torch.Tensor, teacher: torch.Tensor, normalize: bool = True, reduction: str = "mean"
) -> torch.Tensor:
    """PKD's: squared difference of [CLS] states of the mapped layers, of unit length by default.

    Args:
        student: `(batch, layers, hidden)`, or any `(..., hidden)`.
        teacher: the same shape.
        normalize: whether states are divided by their length first (reference: yes).
        reduction: `"mean"` over everything (reference), or `"batchmean"`: sum over the width, mean over states
            (TextBrewer, whose value is `hidden` times larger).

    Returns:
        A scalar.

    Raises:
        ValueError: shapes differ, or an unknown reduction.

    Examples:
        >>> round(patience_loss(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 5.0]]])).item(), 4)
        1.0
    """
    if reduction not in ("mean", "batchmean"):
        raise ValueError(f"`reduction` must be 'mean' or 'batchmean', got {reduction!r}.")
    student, teacher = _rows(student, teacher, None)
    if normalize:
        student, teacher = functional.normalize(student, dim=-1), functional.normalize(teacher, dim=-1)
    total = (student - teacher).square().sum()
    return total / max(student.numel() if reduction == "mean" else len(student), 1)


def feature_map_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """MobileBERT's feature-map transfer: mean squared difference after a LayerNorm without weights.

    Arguments and errors as of `hidden_mse_loss` (MobileBERT's mask: none).

    Examples:
        >>> states = torch.tensor([[1.0, 2.0, 4.0]])
        >>> round(feature_map_loss(states, 10 * states + 3).item(), 6)
        0.0
    """
    student, teacher = _rows(student, teacher, mask)
    return hidden_mse_loss(_normalized(student), _normalized(teacher))


def mean_transfer_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """MobileBERT's mean transfer: mean squared difference of each position's mean over the width.

    The released script compares with the means of all the teacher's layers at once, a slip; this is one layer's.

    Arguments and errors as of `hidden_mse_loss`; widths may differ (MobileBERT's mask: none).

    Examples:
        >>> mean_transfer_loss(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 0.0]])).item()
        4.0
    """
    student, teacher = _rows(student, teacher, mask, width=False)
    return (student.mean(-1) - teacher.mean(-1)).square().sum() / max(len(student), 1)


def variance_transfer_loss(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """MobileBERT's variance transfer: mean absolute difference of each position's variance over the width.

    Arguments and errors as of `hidden_mse_loss`; widths may differ (MobileBERT's mask: none).

    Examples:
        >>> variance_transfer_loss(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 0.0]])).item()
        1.0
    """
    student, teacher = _rows(student, teacher, mask, width=False)
    difference = student.var(-1, correction=0) - teacher.var(-1, correction=0)
    return difference.abs().sum() / max(len(student), 1)


def _normalized(states: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(states, states.shape[-1:], eps=FEATURE_MAP_EPSILON)


def _rows(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None, width: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions that count of both, in single precision, `(rows, hidden)`."""
    last = None if width else -1
    if student.shape[:last] != teacher.shape[:last]:
        raise ValueError(
            f"`student` and `teacher` must have states of one shape, got {tuple(student.shape)} and "
            f"{tuple(teacher.shape)}. States of different widths need a projection of the student's."
        )
    if mask is not None and mask.shape != student.shape[:-1]:
        raise ValueError(f"`mask` must have shape {tuple(student.shape[:-1])}, got {tuple(mask.shape)}.")
    kept = [states if mask is None else states[mask.bool()] for states in (student, teacher)]
    return kept[0].reshape(-1, student.shape[-1]).float(), kept[1].reshape(-1, teacher.shape[-1]).float()
