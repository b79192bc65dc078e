"""Attention scores and distributions of a teacher as targets: TinyBERT's and MobileBERT's losses.

    scores = Q K^T / sqrt(d),   `(batch, heads, seq_len, seq_len)`, before mask and softmax

Scores come from the projections of queries and keys, never from attention outputs, which are probabilities after
dropout. Each loss has two forms of one value: of scores that are there, and (`..._from_projections`) of queries and
keys, whose scores are made a few heads at a time, so that memory does not grow with heads and layers. MiniLM's losses
are in `relations.py`.
"""

import torch

from .score_chunks import (
    MOBILEBERT_PADDED_SCORE,
    TINYBERT_LOWEST,
    check_projections,
    compare_scores,
    same_heads,
    split_heads,
)


def attention_scores(query: torch.Tensor, key: torch.Tensor, heads: int) -> torch.Tensor:
    """Scores of each head, in single precision.

    Args:
        query: `(batch, seq_len, hidden)`, the output of the projection.
        key: the same shape.
        heads: number of heads, which divides `hidden`.

    Returns:
        `(batch, heads, seq_len, seq_len)`.

    Raises:
        ValueError: `heads` does not divide the width.

    Examples:
        >>> attention_scores(torch.ones(1, 2, 8), torch.ones(1, 2, 8), heads=2)[0, 0].tolist()
        [[2.0, 2.0], [2.0, 2.0]]
    """
    query, key = split_heads(query, heads), split_heads(key, heads)
    return query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5


def tinybert_attention_loss(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """TinyBERT's: mean squared difference of scores, those of padded keys 0 in both.

    The mean is over all entries, those of padded keys and queries included, as in the released code.

    Args:
        student: scores, `(batch, heads, seq_len, seq_len)`, with or without the reference's -10000 on padded keys.
        teacher: the same shape.
        mask: 1 = text, 0 = padding, `(batch, seq_len)`.

    Returns:
        A scalar.

    Raises:
        ValueError: head counts or shapes differ.

    Examples:
        >>> student, teacher = torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
        >>> tinybert_attention_loss(student, teacher, torch.tensor([[1, 0]])).item()
        0.5
    """
    student, teacher = _checked(student, teacher, mask)
    both = [torch.where(scores <= TINYBERT_LOWEST, torch.zeros_like(scores), scores) for scores in (student, teacher)]
    if mask is not None:
        padded = ~mask.bool()[:, None, None, :]
        both = [scores.masked_fill(padded, 0.0) for scores in both]
    return (both[0] - both[1]).square().mean()


def mobilebert_attention_loss(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None, divergence: bool = False
) -> torch.Tensor:
    """MobileBERT's: cross entropy of attention distributions, padded keys at a score of -6, mean over all rows.

    `divergence` takes the paper's Kullback-Leibler divergence instead, which has the same gradient. Scores are
    without a mask; the other arguments, result and errors are those of `tinybert_attention_loss`.

    Examples:
        >>> scores = torch.zeros(1, 1, 2, 2)
        >>> round(mobilebert_attention_loss(scores, scores).item(), 4)  # log 2
        0.6931
    """
    student, teacher = _checked(student, teacher, mask)
    if mask is not None:
        padded = ~mask.bool()[:, None, None, :]
        student = student.masked_fill(padded, MOBILEBERT_PADDED_SCORE)
        teacher = teacher.masked_fill(padded, MOBILEBERT_PADDED_SCORE)
    targets, predictions = teacher.log_softmax(-1), student.log_softmax(-1)
    differences = targets - predictions if divergence else -predictions
    return (targets.exp() * differences).sum(-1).mean()


def tinybert_attention_loss_from_projections(
    student_query: torch.Tensor,
    student_key: torch.Tensor,
    teacher_query: torch.Tensor,
    teacher_key: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """TinyBERT's, of queries and keys: `tinybert_attention_loss` of their scores.

    Args:
        student_query: `(batch, seq_len, hidden)`, the output of the projection.
        student_key: the same shape.
        teacher_query: `(batch, seq_len, teacher_hidden)`; gets no gradient.
        teacher_key: the same shape.
        heads: number of attention heads of both.
        mask: 1 = text, 0 = padding, `(batch, seq_len)`.

    Returns:
        A scalar in single precision.

    Raises:
        ValueError: shapes do not agree, or `heads` does not divide a width.

    Examples:
        >>> ones = torch.ones(1, 2, 4)
        >>> tinybert_attention_loss_from_projections(ones, ones, 0 * ones, ones, heads=1).item()
        4.0
    """
    valid = check_projections(student_query, student_key, teacher_query, teacher_key, mask)
    batch, length = valid.shape
    weights = torch.full_like(valid, 1 / max(batch * heads * length**2, 1), dtype=torch.float32)
    return compare_scores(student_query, student_key, teacher_query, teacher_key, heads, "squares", valid, weights)


def mobilebert_attention_loss_from_projections(
    student_query: torch.Tensor,
    student_key: torch.Tensor,
    teacher_query: torch.Tensor,
    teacher_key: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """MobileBERT's, of queries and keys: `mobilebert_attention_loss` of their scores.

    Arguments, result and errors as of `tinybert_attention_loss_from_projections`.

    Examples:
        >>> ones = torch.ones(1, 2, 4)
        >>> round(mobilebert_attention_loss_from_projections(ones, ones, ones, ones, heads=1).item(), 4)  # log 2
        0.6931
    """
    valid = check_projections(student_query, student_key, teacher_query, teacher_key, mask)
    batch, length = valid.shape
    weights = torch.full_like(valid, 1 / max(batch * heads * length, 1), dtype=torch.float32)
    return compare_scores(
        student_query, student_key, teacher_query, teacher_key, heads, "cross_entropy", valid, weights
    )


def _checked(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    if student.dim() != 4 or teacher.dim() != 4:
        raise ValueError(
            "`student` and `teacher` must be scores `(batch, heads, seq_len, seq_len)`, got "
            f"{tuple(student.shape)} and {tuple(teacher.shape)}."
        )
    same_heads(student.shape[1], teacher.shape[1])
    if student.shape != teacher.shape:
        raise ValueError(
            f"`student` and `teacher` must have scores of one shape, got {tuple(student.shape)} and "
            f"{tuple(teacher.shape)}: give both models the same tokens."
        )
    if mask is not None and mask.shape != (student.shape[0], student.shape[-1]):
        raise ValueError(f"`mask` must have shape {(student.shape[0], student.shape[-1])}, got {tuple(mask.shape)}.")
    return student.float(), teacher.float()
