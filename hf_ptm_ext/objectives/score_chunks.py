"""Losses on scores X Y^T / sqrt(d) of student and teacher that never hold the scores of a whole batch.

The gradient with respect to the student's scores is known as soon as both models' are, so a chunk of heads is taken to
the projections at once, and only the projections' gradients wait for the backward pass: memory does not grow with the
number of heads or layers compared.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

# Entries of a chunk of scores by kind of device, whatever batch, heads and length are: a processor's cache holds 4 MiB
# of single precision, other devices want few large kernels (64 MiB).
CHUNK_ENTRIES = {"cpu": 2**20}
LARGE_CHUNK_ENTRIES = 2**24
# TinyBERT's code sets every score up to this to 0: those of padded keys, to which -10000 was added.
TINYBERT_LOWEST = -100.0
MOBILEBERT_PADDED_SCORE = -6.0


def split_heads(states: torch.Tensor, heads: int) -> torch.Tensor:
    """Cut the width into heads.

    Args:
        states: `(batch, seq_len, hidden)`.
        heads: number of heads.

    Returns:
        `(batch, heads, seq_len, hidden / heads)`, in single precision.

    Raises:
        ValueError: `heads` does not divide the width.

    Examples:
        >>> split_heads(torch.zeros(2, 3, 8), 4).shape
        torch.Size([2, 4, 3, 2])
    """
    batch, length, width = states.shape
    if heads < 1 or width % heads:
        raise ValueError(f"`heads` must divide the width, got {heads} heads for a width of {width}.")
    return states.float().reshape(batch, length, heads, width // heads).transpose(1, 2)


def compare_scores(
    student: torch.Tensor,
    student_other: torch.Tensor,
    teacher: torch.Tensor,
    teacher_other: torch.Tensor,
    heads: int,
    comparison: str,
    valid: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Sum over all heads' rows (queries), each by its weight `(batch, seq_len)`, of a name of `COMPARISONS`."""
    with torch.autocast(student.device.type, enabled=False):
        parts = [split_heads(each, heads) for each in (student, student_other)]
        with torch.no_grad():
            parts += [split_heads(each, heads) for each in (teacher, teacher_other)]
        return _ChunkedComparison.apply(*parts, valid, weights, comparison)


def same_heads(student: int, teacher: int) -> None:
    """Refuse losses that compare head by head if there are not as many."""
    if student != teacher:
        raise ValueError(
            f"Student and teacher must have as many attention heads for this loss, got {student} and {teacher}. Give "
            "the student as many, or take MiniLM v2's relations (preset `minilm-v2`), whose heads are free."
        )


def check_projections(
    student: torch.Tensor,
    student_other: torch.Tensor,
    teacher: torch.Tensor,
    teacher_other: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Check what `compare_scores` is to compare; gives the keys that are no padding, bool `(batch, seq_len)`."""
    shapes = [tuple(each.shape) for each in (student, student_other, teacher, teacher_other)]
    if student.dim() != 3 or shapes[0] != shapes[1] or shapes[2] != shapes[3] or shapes[0][:2] != shapes[2][:2]:
        raise ValueError(
            "Projections must be `(batch, seq_len, hidden)` of the same tokens, alike within each model, got "
            f"{shapes[0]} and {shapes[1]} of the student, {shapes[2]} and {shapes[3]} of the teacher."
        )
    if mask is None:
        return student.new_ones(shapes[0][:2], dtype=torch.bool)
    if mask.shape != student.shape[:2]:
        raise ValueError(f"`mask` must have shape {shapes[0][:2]}, got {tuple(mask.shape)}.")
    return mask.bool()


# ---- what a chunk is worth: (value, its gradient by the student's scores); scores may be overwritten ----


def _divergence(
    own: torch.Tensor, taught: torch.Tensor, padded: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(teacher || student); uniform for a sequence of padding alone, whose rows weigh nothing."""
    lowest = torch.finfo(own.dtype).min
    own, taught = (scores.masked_fill_(padded, lowest).log_softmax(-1) for scores in (own, taught))
    probabilities = taught.exp()
    value = taught.sub_(own).mul_(probabilities).mul_(weight).sum()
    return value, own.exp_().sub_(probabilities).mul_(weight)


def _cross_entropy(
    own: torch.Tensor, taught: torch.Tensor, padded: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """MobileBERT's, with a fixed score at padded keys."""
    own = own.masked_fill_(padded, MOBILEBERT_PADDED_SCORE).log_softmax(-1)
    probabilities = taught.masked_fill_(padded, MOBILEBERT_PADDED_SCORE).softmax(-1)
    value = -(own * probabilities).mul_(weight).sum()
    return value, own.exp_().sub_(probabilities).mul_(weight).masked_fill_(padded, 0.0)


def _squares(
    own: torch.Tensor, taught: torch.Tensor, padded: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """TinyBERT's, without padded keys and without scores as low as theirs."""
    left_out = (own <= TINYBERT_LOWEST).logical_or_(padded)
    taught = taught.masked_fill_(padded.logical_or(taught <= TINYBERT_LOWEST), 0.0)
    difference = own.masked_fill_(left_out, 0.0).sub_(taught)
    value = difference.square().mul_(weight).sum()
    return value, difference.mul_(2 * weight).masked_fill_(left_out, 0.0)


Comparison = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
COMPARISONS: dict[str, Comparison] = {
    "divergence": _divergence,
    "cross_entropy": _cross_entropy,
    "squares": _squares,
}


class _ChunkedComparison(torch.autograd.Function):
    """The sum, with the gradient of the projections computed on the way; inputs are cut into heads."""

    @staticmethod
    def forward(
        ctx: Any,
        student: torch.Tensor,
        student_other: torch.Tensor,
        teacher: torch.Tensor,
        teacher_other: torch.Tensor,
        valid: torch.Tensor,
        weights: torch.Tensor,
        comparison: str,
    ) -> torch.Tensor:
        compare = COMPARISONS[comparison]
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        batch, heads, length, width = student.shape
        total = student.new_zeros(())
        gradients = [torch.empty_like(student), torch.empty_like(student)] if wanted else []
        entries = CHUNK_ENTRIES.get(student.device.type, LARGE_CHUNK_ENTRIES)
        at_once = max(entries // max(length * length, 1), 1)
        rows_at_once = max(at_once // heads, 1)
        heads_at_once = min(at_once, heads)
        for row in range(0, batch, rows_at_once):
            rows = slice(row, row + rows_at_once)
            padded = ~valid[rows, None, None, :]
            weight = weights[rows, None, :, None]
            for head in range(0, heads, heads_at_once):
                part = (rows, slice(head, head + heads_at_once))
                own = (student[part] @ student_other[part].transpose(-1, -2)).div_(width**0.5)
                taught = (teacher[part] @ teacher_other[part].transpose(-1, -2)).div_(teacher.shape[-1] ** 0.5)
                value, slope = compare(own, taught, padded, weight)
                total = total + value  # in place torch 2.11's compiler would lose the gradient
                if wanted:
                    slope.div_(width**0.5)
                    gradients[0][part] = slope @ student_other[part]
                    gradients[1][part] = slope.transpose(-1, -2) @ student[part]
        if wanted:
            ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first, second = ctx.saved_tensors
        return gradient * first, gradient * second, None, None, None, None, None
