"""Cross entropy over labelled tokens: masked language models, encoder-decoders, SiATL's auxiliary language model."""

from math import exp, log
from typing import Any

import torch
from torch.nn.functional import cross_entropy

# SiATL's (Chronopoulou et al., NAACL 2019): loss = class_loss + gamma * lm_loss, gamma from 0.2 to 0.1 by epochs.
START_WEIGHT, END_WEIGHT = exp(-1.6), exp(-2.3)


def label_smoothed_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Mean of (1 - eps) * nll + eps * mean over the vocabulary of -log p, over labelled tokens.

    | inputs | labels | mean over |
    | --- | --- | --- |
    | logits of every target token | the tokens themselves, -100 = ignored | labelled tokens of the whole update |

    Relations: fairseq's `label_smoothed_cross_entropy` and the value of transformers' own `label_smoothing_factor`.
    Upstream's classes return the mean of a micro-batch, which is wrong as soon as there are several of other lengths.
    UniLM has another smoothing, in its model (`config.label_smoothing`).

    Args:
        logits: `(batch, target_len, vocab_size)`.
        labels: `(batch, target_len)`.
        num_items_in_batch: number of labels over all micro-batches of an update (default: those of this batch).
        label_smoothing: eps (default 0; 0.1 in the recipes of MASS and BART).

    Returns:
        A scalar; 0 with a gradient graph if there is no label.

    Examples:
        >>> logits, labels = torch.zeros(1, 2, 8), torch.tensor([[5, -100]])
        >>> round(label_smoothed_loss(logits, labels, label_smoothing=0.1).item(), 4)  # log 8
        2.0794
    """
    targets = labels.reshape(-1)
    loss_sum = cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(),
        targets,
        ignore_index=-100,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    count = (targets != -100).sum() if num_items_in_batch is None else num_items_in_batch
    return loss_sum / torch.as_tensor(count, device=loss_sum.device).clamp(min=1)


def masked_lm_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy over labelled tokens, exact under gradient accumulation.

    | inputs | labels | mean over |
    | --- | --- | --- |
    | logits of every token | original ids at selected tokens, -100 elsewhere | labelled tokens of the whole update |

    Relations: `label_smoothed_loss` without smoothing, whose arguments it has. Models of this package compute the same
    in their forward, at labelled positions only.

    Examples:
        >>> logits, labels = torch.zeros(1, 3, 8), torch.tensor([[-100, 5, -100]])
        >>> round(masked_lm_loss(logits, labels).item(), 4)  # log 8
        2.0794
    """
    return label_smoothed_loss(logits, labels, num_items_in_batch)


def update_loss(
    outputs: Any,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    *,
    label_smoothing: float = 0,
) -> torch.Tensor:
    """Cross-entropy of a model's `logits` as the mean over all labels of an update, a Trainer's `compute_loss_func`.

    Upstream's classes return the mean of a micro-batch, and the Trainer adds it up undivided when gradients are
    accumulated, and multiplies it by the number of processes.
    """
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    return label_smoothed_loss(logits, labels.to(logits.device), num_items_in_batch, label_smoothing)


def next_token_loss(
    logits: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean cross entropy of each token given those before it; padding is neither read from nor predicted.

    Args:
        logits: `(batch, seq_len, vocab_size)`.
        input_ids: `(batch, seq_len)`.
        attention_mask: 1 = text, 0 = padding on either side, `(batch, seq_len)` (default: all text).

    Returns:
        A scalar; 0 with a gradient graph if no token has one before it.

    Examples:
        >>> round(next_token_loss(torch.zeros(1, 3, 8), torch.tensor([[5, 6, 7]])).item(), 4)  # log 8
        2.0794
    """
    targets = input_ids[:, 1:]
    if attention_mask is not None:
        targets = targets.masked_fill((attention_mask[:, 1:] * attention_mask[:, :-1]) == 0, -100)
    return label_smoothed_loss(logits[:, :-1], targets)


def annealed_weight(epoch: int, start: float = START_WEIGHT, end: float = END_WEIGHT, epochs: int = 15) -> float:
    """Weight of the auxiliary loss in an epoch: from `start` to `end` by equal factors, then constant.

    Args:
        epoch: from 0.
        start: weight of the first epoch (reference: exp(-1.6), about 0.2).
        end: weight of the last (reference: exp(-2.3), about 0.1).
        epochs: number of epochs from the first to the last weight (reference: 15).

    Returns:
        The weight.

    Raises:
        ValueError: a weight or `epochs` is not positive.

    Examples:
        >>> [round(annealed_weight(epoch, 0.2, 0.1, epochs=3), 4) for epoch in range(4)]
        [0.2, 0.1414, 0.1, 0.1]
    """
    if min(start, end) <= 0 or epochs < 1:
        raise ValueError(f"`start`, `end` and `epochs` must be positive, got {start}, {end} and {epochs}.")
    share = min(max(epoch, 0), epochs - 1) / max(epochs - 1, 1)
    return start * exp(share * log(end / start))
