"""The formulas of the terms on tensors; masks are `(batch, seq_len)` with 1 for tokens."""

import torch
from torch.nn import functional

MOBILEBERT_PADDED_SCORE = -6.0


def soft_label_loss(
    student: torch.Tensor,
    teacher: torch.Tensor,
    *,
    kind: str,
    temperature: float = 1.0,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The teacher's predictions as targets.

    Args:
        student: logits `(..., classes)`.
        teacher: logits of the same shape.
        kind: hinton_kl, tinybert_soft_ce, pkd_kl, textbrewer_ce, mtdnn_kl or logit_mse.
        temperature: divides both.
        mask: rows that count, or `None` for all.

    Returns:
        A scalar.

    Raises:
        ValueError: an unknown kind.
    """
    student, teacher = student.float(), teacher.float()
    if mask is not None:
        student, teacher = student[mask], teacher[mask]
    student, teacher = (each.reshape(-1, each.shape[-1]) for each in (student, teacher))
    if kind == "logit_mse":
        return functional.mse_loss(student, teacher)
    targets = (teacher / temperature).log_softmax(-1)
    predictions = (student / temperature).log_softmax(-1)
    cross_entropy = -targets.exp() * predictions
    divergence = targets.exp() * (targets - predictions)
    values = {
        "hinton_kl": lambda: divergence.sum(-1).mean() * temperature**2,
        "tinybert_soft_ce": cross_entropy.mean,
        "pkd_kl": lambda: divergence.mean() * temperature**2,
        "textbrewer_ce": lambda: cross_entropy.sum(-1).mean(),
        "mtdnn_kl": lambda: divergence.sum(-1).mean(),
    }
    if kind not in values:
        raise ValueError(f"`kind` must be one of {', '.join((*values, 'logit_mse'))}, got {kind!r}.")
    return values[kind]()


def hidden_mse_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean squared distance over everything, padding included."""
    return functional.mse_loss(student.float(), teacher.float())


def cosine_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean of 1 - cos over the tokens of the mask."""
    distance = 1 - functional.cosine_similarity(student.float(), teacher.float(), dim=-1)
    return distance.mean() if mask is None else distance[mask.bool()].mean()


def patience_loss(student: torch.Tensor, teacher: torch.Tensor, normalize: bool = True) -> torch.Tensor:
    """Mean squared distance of states, of unit length if `normalize`."""
    student, teacher = student.float(), teacher.float()
    if normalize:
        student, teacher = functional.normalize(student, dim=-1), functional.normalize(teacher, dim=-1)
    return functional.mse_loss(student, teacher)


def feature_map_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean squared distance after a LayerNorm without parameters."""
    first, second = (functional.layer_norm(e.float(), e.shape[-1:], eps=1e-12) for e in (student, teacher))
    return functional.mse_loss(first, second)


def mean_transfer_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean squared distance of the means over the width."""
    return functional.mse_loss(student.float().mean(-1), teacher.float().mean(-1))


def variance_transfer_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean absolute distance of the variances over the width."""
    return functional.l1_loss(student.float().var(-1, correction=0), teacher.float().var(-1, correction=0))


def attention_scores(query: torch.Tensor, key: torch.Tensor, heads: int) -> torch.Tensor:
    """QK^T/sqrt(d), `(batch, heads, seq_len, seq_len)`."""
    batch, length, width = query.shape
    shape = (batch, length, heads, width // heads)
    query, key = (each.float().reshape(shape).transpose(1, 2) for each in (query, key))
    return query @ key.transpose(2, 3) / (width // heads) ** 0.5


def tinybert_attention_loss(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean squared distance of scores, zero at padded keys, a mean over everything."""
    if mask is not None:
        padded = ~mask.bool()[:, None, None, :]
        student, teacher = student.masked_fill(padded, 0.0), teacher.masked_fill(padded, 0.0)
    return functional.mse_loss(student, teacher)


def mobilebert_attention_loss(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Cross entropy of distributions, padded keys at a score of -6, mean over all rows."""
    if mask is not None:
        padded = ~mask.bool()[:, None, None, :]
        student = student.masked_fill(padded, MOBILEBERT_PADDED_SCORE)
        teacher = teacher.masked_fill(padded, MOBILEBERT_PADDED_SCORE)
    return -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1).mean()


def _divergence(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None, reduction: str
) -> torch.Tensor:
    batch, heads, length, _ = student.shape
    valid = torch.ones(batch, length, dtype=torch.bool, device=student.device) if mask is None else mask.bool()
    lowest = torch.finfo(student.dtype).min
    first, second = (each.masked_fill(~valid[:, None, None, :], lowest).log_softmax(-1) for each in (student, teacher))
    rows = (second.exp() * (second - first)).sum(-1).masked_fill(~valid[:, None, :], 0.0).sum((1, 2)) / heads
    lengths = valid.sum(1)
    return (rows / lengths.clamp_min(1)).mean() if reduction == "sequence_mean" else rows.sum() / lengths.sum()


def relation_loss(
    student: torch.Tensor,
    student_other: torch.Tensor,
    teacher: torch.Tensor,
    teacher_other: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
    reduction: str = "sequence_mean",
) -> torch.Tensor:
    """KL(teacher || student) of softmax(XY^T/sqrt(d)) over valid rows and keys."""
    own, taught = attention_scores(student, student_other, heads), attention_scores(teacher, teacher_other, heads)
    return _divergence(own, taught, mask, reduction)
