"""MiniLM's losses: divergences of attention distributions and of relations between queries, keys and values.

    R_XY = softmax(X Y^T / sqrt(d) + mask),  X, Y of queries, keys, values cut into A heads
    loss = 1 / (A |x|) sum_a sum_t KL(R^teacher_XY[a, t] || R^student_XY[a, t])

over the valid rows t of a sequence of length |x|, keys of padding left out; then the mean over sequences.

* MiniLM (Wang et al., NeurIPS 2020): attention distributions (QK) and value relation (VV) of the last layer; A is the
  models' number of attention heads.
* MiniLM v2 (Wang et al., ACL Findings 2021): QQ, KK and VV, or any pair, with A relation heads of their own: neither
  widths nor attention heads need to agree.

No distribution outlives its chunk of heads, see `score_chunks.py`.
"""

from collections.abc import Mapping, Sequence

import torch

from .score_chunks import check_projections, compare_scores, same_heads

REDUCTIONS = ("sequence_mean", "token_mean")
LETTERS = {"q": "query", "k": "key", "v": "value"}


def relation_loss(
    student: torch.Tensor,
    student_other: torch.Tensor,
    teacher: torch.Tensor,
    teacher_other: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
    reduction: str = "sequence_mean",
) -> torch.Tensor:
    """KL(teacher || student) of one relation.

    | inputs | targets | mean over |
    | --- | --- | --- |
    | two projections of the student | the same two of the teacher | heads and rows of a sequence, then sequences |

    Relations: `minilm_loss` and `minilm_v2_loss` are sums of these.

    Args:
        student: X, `(batch, seq_len, hidden)`, the output of a projection.
        student_other: Y, the same shape; the same tensor for a relation of X with itself.
        teacher: the teacher's X, `(batch, seq_len, teacher_hidden)`; gets no gradient.
        teacher_other: the teacher's Y.
        heads: number of relation heads, which divides both widths.
        mask: 1 = text, 0 = padding, `(batch, seq_len)` (default: all text).
        reduction: `"sequence_mean"` (the papers, and bloomberg/minilmv2.bb) or `"token_mean"`: over all valid rows of
            the batch alike.

    Returns:
        A scalar in single precision; 0 for a batch without a valid row.

    Raises:
        ValueError: shapes do not agree, heads do not divide a width, or an unknown reduction.

    Examples:
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator ...>
        >>> student, teacher = torch.randn(2, 5, 8), torch.randn(2, 5, 12)
        >>> bool(relation_loss(student, student, teacher, teacher, heads=4) > 0)
        True
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"`reduction` must be one of {list(REDUCTIONS)}, got {reduction!r}.")
    valid = check_projections(student, student_other, teacher, teacher_other, mask)
    lengths = valid.sum(1)
    if reduction == "sequence_mean":
        weights = 1.0 / (heads * lengths.clamp(min=1) * len(valid)).float()
    else:
        weights = (1.0 / (heads * lengths.sum().clamp(min=1)).float()).expand(len(valid))
    return compare_scores(
        student, student_other, teacher, teacher_other, heads, "divergence", valid, weights[:, None] * valid
    )


def minilm_loss(
    student: Mapping[str, torch.Tensor],
    teacher: Mapping[str, torch.Tensor],
    student_heads: int,
    teacher_heads: int,
    mask: torch.Tensor | None = None,
    reduction: str = "sequence_mean",
) -> torch.Tensor:
    """MiniLM's: attention distributions and value relation of one layer.

    Arguments as of `minilm_v2_loss`, but for the numbers of attention heads of both models, which must be equal.

    Returns:
        A scalar, the sum of both.

    Raises:
        ValueError: head counts differ, or see `relation_loss`.

    Examples:
        >>> states = {name: torch.ones(1, 3, 8) for name in ("query", "key", "value")}
        >>> minilm_loss(states, states, 2, 2).item()
        0.0
    """
    same_heads(student_heads, teacher_heads)
    weights = {"qk": 1.0, "vv": 1.0}
    return minilm_v2_loss(student, teacher, student_heads, relations=weights, mask=mask, reduction=reduction)


def relation_weights(relations: Mapping[str, float] | Sequence[str]) -> dict[str, float]:
    """Relations with their weights, 1 where none is given."""
    weights = dict(relations) if isinstance(relations, Mapping) else dict.fromkeys(relations, 1.0)
    wrong = [pair for pair in weights if len(pair) != 2 or set(pair) - set(LETTERS)]
    if wrong or not weights:
        raise ValueError(f"`relations` must be pairs of the letters q, k and v, such as 'qq', got {wrong or '[]'}.")
    return weights


def minilm_v2_loss(
    student: Mapping[str, torch.Tensor],
    teacher: Mapping[str, torch.Tensor],
    relation_heads: int,
    *,
    relations: Mapping[str, float] | tuple[str, ...] = ("qq", "kk", "vv"),
    mask: torch.Tensor | None = None,
    reduction: str = "sequence_mean",
) -> torch.Tensor:
    """MiniLM v2's: relations of queries, keys and values of one layer, one after the other.

    Args:
        student: `query`, `key` and `value`, each `(batch, seq_len, hidden)`; those that the relations name.
        teacher: the same of the teacher.
        relation_heads: number of relation heads, which divides both widths (paper: 48 for teachers of width 768, 64
            for 1024).
        relations: pairs of the letters q, k and v, each of weight 1, or with their weights (paper: qq, kk and vv; the
            example of bloomberg/minilmv2.bb weighs each by 1/3).
        mask: 1 = text, 0 = padding, `(batch, seq_len)`.
        reduction: see `relation_loss`.

    Returns:
        A scalar, the weighted sum.

    Raises:
        ValueError: a pair is none of letters q, k, v, a projection is missing, or see `relation_loss`.

    Examples:
        >>> states = {name: torch.ones(1, 3, 8) for name in ("query", "key", "value")}
        >>> minilm_v2_loss(states, states, 4, relations={"qk": 0.5}).item()
        0.0
    """
    weights = relation_weights(relations)
    needed = {LETTERS[letter] for pair in weights for letter in pair}
    missing = sorted(needed - (student.keys() & teacher.keys()))
    if missing:
        given = [", ".join(sorted(each)) or "none" for each in (student, teacher)]
        raise ValueError(
            f"`student` and `teacher` must have {', '.join(sorted(needed))}, got {given[0]} and {given[1]}: no "
            f"{missing[0]} to compare. Take them with hooks (`hf_ptm_ext.distillation.Capture`)."
        )
    losses = []
    for pair, weight in weights.items():
        first, second = (LETTERS[letter] for letter in pair)
        loss = relation_loss(
            student[first], student[second], teacher[first], teacher[second], relation_heads, mask, reduction
        )
        losses.append(weight * loss)
    return torch.stack(losses).sum()
