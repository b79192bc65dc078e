"""A teacher's predictions as targets: the soft-label loss of every distillation system, by its own name.

With student logits z, teacher logits y, a temperature T and C classes:

| name | per row | mean over | times T^2 | of |
| --- | --- | --- | --- | --- |
| `hinton_kl` | sum_c KL(softmax(y/T), softmax(z/T)) | rows | yes | Hinton et al. 2015, DistilBERT |
| `tinybert_soft_ce` | - softmax(y/T) log softmax(z/T) | rows and classes | no | TinyBERT |
| `pkd_kl` | KL | rows and classes | yes | BERT-PKD |
| `textbrewer_ce` | sum_c cross entropy | rows | no | TextBrewer |
| `mtdnn_kl` | sum_c KL, in single precision | rows | no | MT-DNN |
| `logit_mse` | (z/T - y/T)^2 | rows and classes | no | Distilled-BiLSTM, TextBrewer |
| `mobilebert_mlm_kd` | cross entropy with r * onehot + (1 - r) * softmax(y) | targets (+ 1e-5) | no | MobileBERT |

Cross entropy and divergence have the same gradient; their values differ by the teacher's entropy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

REDUCTIONS = ("batchmean", "mean", "sum")


def _cross_entropy(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return -teacher.softmax(-1) * student.log_softmax(-1)


def _divergence(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    targets = teacher.log_softmax(-1)
    return targets.exp() * (targets - student.log_softmax(-1))


def _squares(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return (student - teacher).square()


@dataclass(frozen=True)
class SoftLabelLoss:
    """What a named loss does: values of each class of tempered logits, reduction, factor, labels in the target."""

    values: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    reduction: str
    t_squared: bool
    labelled: bool = False


SOFT_LABEL_LOSSES = {
    "hinton_kl": SoftLabelLoss(_divergence, "batchmean", True),
    "tinybert_soft_ce": SoftLabelLoss(_cross_entropy, "mean", False),
    "pkd_kl": SoftLabelLoss(_divergence, "mean", True),
    "textbrewer_ce": SoftLabelLoss(_cross_entropy, "batchmean", False),
    "mtdnn_kl": SoftLabelLoss(_divergence, "batchmean", False),
    "logit_mse": SoftLabelLoss(_squares, "mean", False),
    "mobilebert_mlm_kd": SoftLabelLoss(_cross_entropy, "batchmean", False, labelled=True),
}


def soft_label_loss(
    student: torch.Tensor,
    teacher: torch.Tensor,
    *,
    kind: str = "hinton_kl",
    temperature: float = 1.0,
    t_squared: bool | None = None,
    reduction: str | None = None,
    mask: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
    ratio: float = 0.5,
) -> torch.Tensor:
    """How far the student's predictions are from the teacher's; in single precision under autocast too.

    | inputs | targets | mean over |
    | --- | --- | --- |
    | logits of rows, or of tokens of the mask | the teacher's distribution, tempered | see the module's table |

    Args:
        student: logits, `(..., classes)`.
        teacher: logits of the same shape.
        kind: one of the names of the module's table.
        temperature: divides both (DistilBERT: 2; PKD: 5 to 20).
        t_squared: whether the result is multiplied by the temperature's square (default: as the reference).
        reduction: `"batchmean"` (sum over classes, mean over rows), `"mean"` or `"sum"` (default: as the reference).
        mask: which rows count, of the logits' leading shape; DistilBERT takes the attention mask, or `labels > -1`.
        labels: `"mobilebert_mlm_kd"`: original ids, -100 elsewhere. It has no temperature and one reduction.
        ratio: `"mobilebert_mlm_kd"`: share of the label in the target (reference: 0.5).

    Returns:
        A scalar; 0 with a gradient graph if no row is selected.

    Raises:
        ValueError: an unknown kind or reduction, shapes that differ, a temperature that is not positive, or labels
            that are missing.

    Examples:
        >>> student, teacher = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]])
        >>> soft_label_loss(student, teacher, kind="hinton_kl", temperature=2.0).item()
        0.0
        >>> round(soft_label_loss(student, teacher, kind="textbrewer_ce").item(), 4)  # log 2
        0.6931
    """
    if kind not in SOFT_LABEL_LOSSES:
        raise ValueError(f"`kind` must be one of {list(SOFT_LABEL_LOSSES)}, got {kind!r}.")
    loss = SOFT_LABEL_LOSSES[kind]
    if loss.labelled:
        if labels is None:
            raise ValueError(f"`labels` must be given for `kind` = {kind!r}: targets are where they are not -100.")
        fixed = {"temperature": (temperature, 1.0), "t_squared": (t_squared, None), "reduction": (reduction, None)}
        for name, (value, default) in fixed.items():
            if value != default:
                raise ValueError(f"`{name}` must be {default} for `kind` = {kind!r}, got {value!r}. Leave it out.")
        if mask is not None and mask.shape != labels.shape:
            raise ValueError(f"`mask` must have shape {tuple(labels.shape)}, got {tuple(mask.shape)}.")
        kept = labels if mask is None else labels.masked_fill(~mask.bool(), -100)
        return mlm_distillation_loss(student, teacher, kept, ratio=ratio)
    _check_logits(student, teacher)
    if temperature <= 0:
        raise ValueError(f"`temperature` must be positive, got {temperature}.")
    reduction = loss.reduction if reduction is None else reduction
    if reduction not in REDUCTIONS:
        raise ValueError(f"`reduction` must be one of {list(REDUCTIONS)}, got {reduction!r}.")
    rows = [_selected(logits, mask) for logits in (student, teacher)]
    values = loss.values(rows[0] / temperature, rows[1] / temperature)
    count = {"batchmean": len(values), "mean": values.numel(), "sum": 1}[reduction]
    total = values.sum() / max(count, 1)
    squared = loss.t_squared if t_squared is None else t_squared
    return total * temperature**2 if squared else total


def mlm_distillation_loss(
    student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, ratio: float = 0.5
) -> torch.Tensor:
    """MobileBERT's masked language modelling with a teacher: the label and the teacher's distribution, mixed.

    Args:
        student: logits, `(batch, seq_len, vocab_size)`.
        teacher: logits of the same shape.
        labels: original ids at masked positions, -100 elsewhere, `(batch, seq_len)`.
        ratio: share of the label in the target (reference: 0.5).

    Returns:
        Sum over masked positions over their number plus 1e-5, as in the released code.

    Raises:
        ValueError: `ratio` is not in [0, 1], or shapes differ.

    Examples:
        >>> logits, labels = torch.zeros(1, 2, 4), torch.tensor([[3, -100]])
        >>> round(mlm_distillation_loss(logits, logits, labels).item(), 3)  # log 4
        1.386
    """
    _check_logits(student, teacher)
    if not 0 <= ratio <= 1:
        raise ValueError(f"`ratio` must lie between 0 and 1, got {ratio}.")
    if labels.shape != student.shape[:-1]:
        raise ValueError(f"`labels` must have shape {tuple(student.shape[:-1])}, got {tuple(labels.shape)}.")
    kept = labels != -100
    targets = labels[kept]
    predictions = _selected(student, kept).log_softmax(-1)
    soft = -(_selected(teacher, kept).softmax(-1) * predictions).sum(-1)
    hard = functional.nll_loss(predictions, targets, reduction="none")
    return (ratio * hard + (1 - ratio) * soft).sum() / (len(targets) + 1e-5)


def _check_logits(student: torch.Tensor, teacher: torch.Tensor) -> None:
    if student.shape != teacher.shape:
        raise ValueError(
            f"`student` and `teacher` must have logits of one shape, got {tuple(student.shape)} and "
            f"{tuple(teacher.shape)}. Models of different vocabularies or classes have no logits in common: compare "
            "hidden states or relations instead."
        )


def _selected(logits: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The rows that count, in single precision, `(rows, classes)`."""
    if mask is not None and mask.shape != logits.shape[:-1]:
        raise ValueError(f"`mask` must have shape {tuple(logits.shape[:-1])}, got {tuple(mask.shape)}.")
    kept = logits if mask is None else logits[mask.bool()]
    return kept.reshape(-1, logits.shape[-1]).float()
