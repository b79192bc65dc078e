"""Vocabulary heads that compute logits only where a label is, and the losses of the usual heads.

A masked-language-model step labels some 15 % of its tokens; computing the vocabulary logits there alone gives the
same loss for a fraction of the time and memory. Every loss here is a sum over labelled targets divided by a count,
where the count is the caller's `num_items_in_batch` if given (exact under gradient accumulation) and otherwise the
batch's own; with no target at all, here or in the whole update, the loss is 0 with a gradient graph, never NaN.
"""

import inspect
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
    """Whether looking at a tensor's values costs nothing: a plain tensor on the CPU, in no graph that is being made.

    Elsewhere a look waits for the device or breaks the graph, so checks of values are left out there.

    Args:
        tensor: what one would look at.

    Returns:
        False under `torch.compile`, export and tracing, for fake and sharded tensors, and on accelerators.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return tensor.device.type == "cpu" and type(tensor) in (torch.Tensor, nn.Parameter)


class CanonicalPredictionHeadTransform(nn.Module):
    """BERT's dense, activation and LayerNorm in front of the vocabulary projection.

    Args:
        config: the configuration.
        output_size: width of what comes out (default: `config.hidden_size`).
    """

    def __init__(self, config, output_size: int | None = None):
        super().__init__()
        width = config.hidden_size if output_size is None else output_size
        self.dense = nn.Linear(config.hidden_size, width)
        self.transform_act_fn = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., output_size)`."""
        return self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))


class CanonicalLMPredictionHead(nn.Module):
    """BERT's masked-language-model head; the decoder's weight is tied to the word embeddings, its bias to `bias`."""

    def __init__(self, config):
        super().__init__()
        self.transform = CanonicalPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., vocab_size)`."""
        return self.decoder(self.transform(hidden_states))


def select_labelled(
    hidden_states: torch.Tensor, labels: torch.Tensor, label_positions: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the states and labels that a loss needs.

    Args:
        hidden_states: `(batch, seq_len, hidden)`.
        labels: `(batch, seq_len)`, -100 where there is none.
        label_positions: `(batch, budget)` positions within the row that cover every label; spare slots point at
            positions labelled -100. Fixed shapes: nothing depends on the data. Without it the labelled positions are
            looked up, except while compiling, where a data-dependent shape would break the graph and all positions
            are kept.

    Returns:
        States `(targets, hidden)` and labels `(targets,)`, in row order.

    Raises:
        ValueError: `label_positions` leave a label out, name one twice or leave the row (see `check_budget`).
    """
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
    """Refuse positions outside the row, where looking costs nothing: they would silently read another row.

    Args:
        positions: positions within a row, of any shape.
        seq_len: length of the row.
        name: the argument they came in.

    Raises:
        ValueError: some position is negative or not below `seq_len`.
    """
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
    """Refuse positions that leave labels out or name them twice, where looking costs nothing.

    Args:
        labels: all labels `(labels,)`, -100 where there is none.
        index: `(selected,)` indices of those that were selected.
        name: the argument that selected them.

    Raises:
        ValueError: some label was not selected, or more than once: it would be missing from the loss, or weigh
            double, without notice.
    """
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
    """Sum of token cross entropies in float32; targets of -100 add nothing.

    Args:
        logits: `(targets, classes)`.
        targets: `(targets,)`.

    Returns:
        A float32 scalar.
    """
    return nn.functional.cross_entropy(logits.float(), targets, ignore_index=-100, reduction="sum")


def vocabulary_loss_sum(
    head: nn.Module,
    states: torch.Tensor,
    labels: torch.Tensor,
    label_positions: torch.Tensor | None,
    logits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss over labelled tokens, from full logits if they are there anyway.

    Args:
        head: the vocabulary head.
        states: `(batch, seq_len, hidden)`.
        labels: `(batch, seq_len)`.
        label_positions: `(batch, budget)` positions that cover the labels, or `None`.
        logits: `(batch, seq_len, vocab_size)`, or `None`.

    Returns:
        The sum, a scalar, and the labels it was taken over, `(targets,)`.
    """
    if logits is not None:
        targets = labels.reshape(-1)
        return summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), targets), targets
    selected, targets = select_labelled(states, labels, label_positions)
    return summed_cross_entropy(head(selected), targets), targets


def count_targets(targets: torch.Tensor) -> torch.Tensor:
    """Number of targets that are not -100, as a tensor (no synchronisation with the device)."""
    return (targets != -100).sum()


def mean_over_targets(
    loss_sum: torch.Tensor, targets: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Divide a summed loss by `num_items_in_batch`, or by the number of targets; by 1 where that is 0.

    Args:
        loss_sum: scalar.
        targets: of any shape, -100 where there is none.
        num_items_in_batch: the number over all micro-batches of one update, 0 if none of them has a target.

    Returns:
        A scalar: 0 with a gradient graph if there is no target.
    """
    if num_items_in_batch is None:
        return loss_sum / count_targets(targets).clamp(min=1)
    if torch.is_tensor(num_items_in_batch):
        return loss_sum / num_items_in_batch.to(loss_sum.device).clamp(min=1)
    return loss_sum / max(num_items_in_batch, 1)


def share_of_update(number: torch.Tensor, num_items_in_batch: torch.Tensor | int) -> torch.Tensor:
    """Share of an update's labels that a micro-batch holds.

    Args:
        number: labels of the micro-batch, a scalar.
        num_items_in_batch: labels of the whole update.

    Returns:
        `number / num_items_in_batch`, a scalar; 1 if the whole update has no label, which says nothing about shares:
        a term scaled by it then stays the micro-batch's own mean.
    """
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
    """The loss of a head with several terms: the weighted sum of those that have targets.

    A part of the model whose term has no targets or the weight 0 runs on no rows and adds 0. Every parameter then has
    a gradient whatever labels there are, which DistributedDataParallel waits for.

    Args:
        model: the head.
        terms: each term by its output's name, that of `labels` first; `None` where the batch has no targets.
        idle: by the same names, what the term's part of the model makes of no rows.
        weights: of the terms (default: 1).

    Returns:
        A scalar; `None` if no term has targets.
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
    """Say that a training step without `labels` trains these terms only if its caller adds them.

    Args:
        model: the head.
        names: of the output's terms.
    """
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
    """Mean cross entropy of class logits against integer labels.

    Args:
        logits: `(..., classes)`.
        labels: `(...)`, -100 ignored.
        num_items_in_batch: number of labels over all micro-batches of one update (default: the batch's own).

    Returns:
        A float32 scalar.
    """
    targets = labels.reshape(-1)
    return mean_over_targets(
        summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), targets), targets, num_items_in_batch
    )


def soft_classification_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy of class logits against probabilities.

    Args:
        logits: `(..., classes)`.
        labels: `(..., classes)`, a row with -100 in it is ignored.
        num_items_in_batch: number of entries of the labels, rows times classes as the Trainer counts them, over all
            micro-batches of one update (default: the batch's own).

    Returns:
        A float32 scalar.
    """
    rows = labels.reshape(-1, labels.shape[-1])
    ignored = (rows == -100).any(dim=-1)
    losses = -(rows.float() * logits.reshape(rows.shape).float().log_softmax(dim=-1)).sum(dim=-1)
    targets = torch.where(ignored, -100, 0)
    if num_items_in_batch is not None:
        num_items_in_batch = num_items_in_batch / labels.shape[-1]
    return mean_over_targets(losses.masked_fill(ignored, 0.0).sum(), targets, num_items_in_batch)


def problem_type_loss(
    config, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Upstream's sequence-classification loss: regression, single-label or multi-label, guessed once from the labels.

    Args:
        config: its `problem_type` decides; `None` is replaced by the guess (one label: regression; integer labels:
            single label; else multi-label).
        logits: `(batch, num_labels)` or, packed, `(batch, sequences, num_labels)`.
        labels: class ids or float targets of the matching shape; -100 is ignored in all of them. Floats of the shape
            of the logits are probabilities of the classes if the problem is `single_label_classification`.
        num_items_in_batch: the denominator over a whole accumulated batch.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: `config.problem_type` is none of the three.
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
    start_logits: torch.Tensor,
    end_logits: torch.Tensor,
    start_positions: torch.Tensor,
    end_positions: torch.Tensor,
) -> torch.Tensor:
    """Mean of the start and end cross entropies; positions outside the input are ignored.

    Args:
        start_logits: `(batch, seq_len)`.
        end_logits: `(batch, seq_len)`.
        start_positions: `(batch,)` or `(batch, 1)`.
        end_positions: `(batch,)` or `(batch, 1)`.

    Returns:
        A float32 scalar.
    """
    seq_len = start_logits.shape[1]
    losses = []
    for logits, positions in ((start_logits, start_positions), (end_logits, end_positions)):
        positions = positions.reshape(-1)
        inside = (positions >= 0) & (positions < seq_len)
        losses.append(classification_loss(logits, torch.where(inside, positions, -100)))
    return (losses[0] + losses[1]) / 2


@torch.no_grad()
def target_sums(head: nn.Module, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sums for evaluation, a chunk of targets at a time so that no large logits tensor ever exists.

    Args:
        head: maps states `(n, ...)` to logits `(n, classes)`.
        states: `(targets, ...)`, the head's input.
        targets: `(targets,)`, -100 adds nothing.

    Returns:
        Float64 tensor `[sum of cross entropies, correct predictions, number of targets]`, on the targets' device if
        that has float64 (MPS and others do not), else on the CPU.
    """
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


class _NotALabelName(str):
    """A parameter name in which `"label" in name` is false; equal to and hashed like the plain string."""

    __slots__ = ()

    def __contains__(self, key: object) -> bool:
        return False


def with_optional_labels(*names: str):
    """Class decorator: keep `Trainer` from taking these arguments of `forward` for required targets.

    `Trainer` collects every argument of `forward` whose name contains "label" and computes an evaluation loss only if
    all of them are in the batch; `label_positions`, say, would silence the loss of every batch without it. The names
    stay in the signature, so that their columns are not dropped.

    Args:
        names: the arguments.

    Returns:
        The decorator.
    """

    def decorate(cls):
        signature = inspect.signature(cls.forward)
        cls.forward.__signature__ = signature.replace(
            parameters=[
                parameter.replace(name=_NotALabelName(name)) if name in names else parameter
                for name, parameter in signature.parameters.items()
            ]
        )
        return cls

    return decorate
