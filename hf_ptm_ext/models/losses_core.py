"""Vocabulary heads that compute logits only where a label is (some 15 % of tokens), and the losses of the usual heads.

Every loss is a sum over labelled targets divided by a count, the caller's `num_items_in_batch` if given (exact under
gradient accumulation) and else the batch's own; with no target at all it is 0 with a gradient graph, never NaN.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.utils import logging

logger = logging.get_logger(__name__)

# Rows of vocabulary logits alive at once while sums are accumulated for evaluation: 32 rows of 30,000 are 4 MB, and
# their cross entropy needs the same again. Measured, that is lost in what the encoder itself takes; 128 rows are not.
EVALUATION_CHUNK = 32


def values_can_be_read(tensor: torch.Tensor) -> bool:
    """Whether looking at a tensor's values waits for no device and breaks no graph that is being made."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return tensor.device.type == "cpu" and type(tensor) in (torch.Tensor, nn.Parameter)


def value_outside(values: torch.Tensor, size: int) -> int | None:
    """A value that is not in [0, size), where looking costs nothing; `None` if none is seen."""
    if not values_can_be_read(values) or not values.numel():
        return None
    lowest, highest = int(values.min()), int(values.max())
    return lowest if lowest < 0 else highest if highest >= size else None


class PredictionHeadTransform(nn.Module):
    """BERT's dense, activation and LayerNorm in front of the vocabulary projection."""

    def __init__(self, config: Any, output_size: int | None = None):
        super().__init__()
        width = config.hidden_size if output_size is None else output_size
        self.dense = nn.Linear(config.hidden_size, width)
        self.transform_act_fn = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., output_size)`."""
        return self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))


class LMPredictionHead(nn.Module):
    """BERT's masked-language-model head; the decoder's weight is tied to the word embeddings, its bias to `bias`."""

    def __init__(self, config: Any):
        super().__init__()
        self.transform = PredictionHeadTransform(config, config.embedding_width)
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., vocab_size)`."""
        return self.decoder(self.transform(hidden_states))


def select_labelled(
    hidden_states: torch.Tensor, labels: torch.Tensor, label_positions: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the states and labels that a loss needs."""
    flat_states = hidden_states.reshape(-1, hidden_states.shape[-1])
    flat_labels = labels.reshape(-1)
    if label_positions is not None:
        check_positions(label_positions, labels.shape[1], "label_positions")
        rows = torch.arange(labels.shape[0], device=labels.device)[:, None]
        index = (rows * labels.shape[1] + label_positions).reshape(-1)
        check_budget(flat_labels, index, "label_positions")
    elif torch.compiler.is_compiling():
        return flat_states, flat_labels
    else:
        index = (flat_labels != -100).nonzero().squeeze(-1)
    return flat_states.index_select(0, index), flat_labels.index_select(0, index)


def check_positions(positions: torch.Tensor, seq_len: int, name: str) -> None:
    """Refuse positions outside the row, where looking costs nothing: they would silently read another row."""
    if not values_can_be_read(positions):
        return
    outside = positions[(positions < 0) | (positions >= seq_len)]
    if outside.numel():
        values = sorted(set(outside.tolist()))
        shown = ", ".join(str(value) for value in values[:8]) + (", ..." if len(values) > 8 else "")
        raise ValueError(
            f"`{name}` must be positions in the row, 0 <= position < seq_len = {seq_len}, got {shown}. Was the text "
            "cut, or padded on the left, after they were made?"
        )


def check_budget(labels: torch.Tensor, index: torch.Tensor, name: str) -> None:
    """Refuse positions that leave labels out or name them twice, where looking costs nothing."""
    if not values_can_be_read(labels):
        return
    labelled = labels != -100
    covered = torch.zeros_like(labelled).index_fill_(0, index, True) & labelled
    given, kept = int(labelled.sum()), int(covered.sum())
    if given != kept:
        raise ValueError(
            f"`{name}` must cover every label: {given} labels are given and {kept} are covered. Raise the collator's "
            "budget, or leave the argument out."
        )
    selected = int(labelled.index_select(0, index).sum())
    if selected != given:
        raise ValueError(
            f"`{name}` must name every label once: {given} labels are named {selected} times. Point unused slots at a "
            "position labelled -100."
        )


def summed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sum of token cross entropies in float32; targets of -100 add nothing."""
    return nn.functional.cross_entropy(logits.float(), targets, ignore_index=-100, reduction="sum")


def labelled_logits(
    head: nn.Module,
    states: torch.Tensor,
    labels: torch.Tensor,
    label_positions: torch.Tensor | None,
    logits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits `(tokens, vocab_size)` and labels of what a loss needs, from full logits if they are there anyway."""
    if logits is not None:
        return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    selected, targets = select_labelled(states, labels, label_positions)
    return head(selected), targets


def vocabulary_loss_sum(
    head: nn.Module,
    states: torch.Tensor,
    labels: torch.Tensor,
    label_positions: torch.Tensor | None,
    logits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss over labelled tokens, and the labels; arguments as in `labelled_logits`."""
    flat, targets = labelled_logits(head, states, labels, label_positions, logits)
    return summed_cross_entropy(flat, targets), targets


def count_targets(targets: torch.Tensor) -> torch.Tensor:
    """Number of targets that are not -100, as a tensor (no synchronisation with the device)."""
    return (targets != -100).sum()


def mean_over_targets(
    loss_sum: torch.Tensor, targets: torch.Tensor, num_items_in_batch: torch.Tensor | float | None = None
) -> torch.Tensor:
    """Divide a summed loss by `num_items_in_batch`, or by the number of targets; by 1 where that is 0."""
    if num_items_in_batch is None:
        return loss_sum / count_targets(targets).clamp(min=1)
    if torch.is_tensor(num_items_in_batch):
        return loss_sum / num_items_in_batch.to(loss_sum.device).clamp(min=1)
    return loss_sum / max(num_items_in_batch, 1)


def share_of_update(number: torch.Tensor, num_items_in_batch: torch.Tensor | int) -> torch.Tensor:
    """Share of an update's labels that a micro-batch holds."""
    if torch.is_tensor(num_items_in_batch):
        total = num_items_in_batch.to(number.device)
        return torch.where(total > 0, number / total.clamp(min=1), 1.0)
    return number / num_items_in_batch if num_items_in_batch > 0 else torch.ones_like(number, dtype=torch.float32)


def sum_of_terms(
    model: Any,
    terms: Mapping[str, torch.Tensor | None],
    idle: Mapping[str, Callable[[], torch.Tensor]],
    weights: Mapping[str, float] | None = None,
) -> torch.Tensor | None:
    """The weighted sum of the terms that have targets.

    A part of the model whose term has none or the weight 0 runs on no rows and adds 0: every parameter then has a
    gradient, which DistributedDataParallel waits for.
    """
    factors = {name: (weights or {}).get(name, 1.0) for name in terms}
    used = {name: term for name, term in terms.items() if term is not None and factors[name]}
    main, *others = terms
    if terms[main] is None:
        warn_of_lost_terms(model, [name for name in others if name in used])
    if all(term is None for term in terms.values()):
        return None
    parts = [factors[name] * term for name, term in used.items()]
    if torch.is_grad_enabled() or not parts:
        parts += [rows().float().sum() for name, rows in idle.items() if name not in used]
    return sum(parts[1:], parts[0])


def warn_of_lost_terms(model: Any, names: list[str]) -> None:
    """Say that a training step without `labels` trains these terms only if its caller adds them."""
    if names and model.training and not torch.compiler.is_compiling():
        listed = [f"`{name}`" for name in names]
        logger.warning_once(
            f"{type(model).__name__}: a training step has no `labels`, but {', '.join(listed)}. If the Trainer took "
            "the labels out (`label_smoothing_factor`, `compute_loss_func`), the loss it makes of them is their term "
            f"alone: add the output's {' and '.join(listed)} in a `compute_loss_func`, or leave label smoothing "
            "off, to train the others."
        )


def classification_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy of class logits against integer labels."""
    targets = labels.reshape(-1)
    return mean_over_targets(
        summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), targets), targets, num_items_in_batch
    )


def soft_classification_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy of class logits against probabilities."""
    rows = labels.reshape(-1, labels.shape[-1])
    ignored = (rows == -100).any(dim=-1)
    losses = -(rows.float() * logits.reshape(rows.shape).float().log_softmax(dim=-1)).sum(dim=-1)
    targets = torch.where(ignored, -100, 0)
    number = None if num_items_in_batch is None else num_items_in_batch / labels.shape[-1]
    return mean_over_targets(losses.masked_fill(ignored, 0.0).sum(), targets, number)


def problem_type_loss(
    config: Any, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Upstream's sequence-classification loss: regression, single-label or multi-label, guessed once from the labels.

    -100 is ignored in all of them. Floats of the logits' shape are probabilities if the problem is single-label.
    """
    problem_type = config.problem_type
    if problem_type is None:
        if config.num_labels == 1:
            problem_type = "regression"
        elif labels.dtype in (torch.long, torch.int):
            problem_type = "single_label_classification"
        else:
            problem_type = "multi_label_classification"
        if not torch.compiler.is_compiling():  # a graph that changes what it was guarded by is compiled twice
            config.problem_type = problem_type

    if problem_type == "single_label_classification":
        if labels.is_floating_point() and labels.shape == logits.shape:
            return soft_classification_loss(logits, labels, num_items_in_batch)
        return classification_loss(logits, labels, num_items_in_batch)
    if problem_type == "regression":
        losses = nn.functional.mse_loss(
            logits.reshape(labels.shape).float(), labels.to(torch.float32), reduction="none"
        )
    elif problem_type == "multi_label_classification":
        losses = nn.functional.binary_cross_entropy_with_logits(
            logits.reshape(labels.shape).float(), labels.to(torch.float32), reduction="none"
        )
    else:
        raise ValueError(
            "`problem_type` must be regression, single_label_classification or multi_label_classification, "
            f"got {problem_type!r}."
        )
    loss_sum = losses.masked_fill(labels == -100, 0.0).sum()
    return mean_over_targets(loss_sum, labels, num_items_in_batch)


def number_of_sequences(labels: torch.Tensor) -> int:
    """S of labels per sequence: `(batch, S, ...)` of packed rows, `(batch,)` of rows that hold one sequence each."""
    return labels.shape[1] if labels.dim() > 1 else 1


def span_extraction_loss(
    start_logits: torch.Tensor, end_logits: torch.Tensor, start_positions: torch.Tensor, end_positions: torch.Tensor
) -> torch.Tensor:
    """Mean of the start and end cross entropies; positions outside the input are ignored."""
    seq_len = start_logits.shape[1]
    losses = []
    for logits, positions in ((start_logits, start_positions), (end_logits, end_positions)):
        positions = positions.reshape(-1)
        inside = (positions >= 0) & (positions < seq_len)
        losses.append(classification_loss(logits, torch.where(inside, positions, -100)))
    return (losses[0] + losses[1]) / 2


@torch.no_grad()
def target_sums(head: Callable[..., torch.Tensor], states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sums for evaluation, a chunk of targets at a time so that no large logits tensor ever exists."""
    place = targets.device if targets.device.type in ("cpu", "cuda") else torch.device("cpu")
    sums = torch.zeros(3, dtype=torch.float64, device=place)
    for chunk_states, chunk_targets in zip(
        states.split(EVALUATION_CHUNK), targets.split(EVALUATION_CHUNK), strict=True
    ):
        logits = head(chunk_states)
        valid = chunk_targets != -100
        correct = ((logits.argmax(-1) == chunk_targets) & valid).sum()
        sums += torch.stack([summed_cross_entropy(logits, chunk_targets), correct, valid.sum()]).to(place)
    return sums


class NotALabelName(str):
    """A parameter name in which `"label" in name` is false; equal to and hashed like the plain string.

    `Trainer` computes an evaluation loss only if all arguments with "label" in their name are in the batch.
    """

    __slots__ = ()

    def __contains__(self, key: object) -> bool:
        return False
