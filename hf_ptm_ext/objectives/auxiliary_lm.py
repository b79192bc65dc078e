"""SiATL's auxiliary language-model loss (Chronopoulou et al., NAACL 2019) and its annealed weight.

loss = class_loss + gamma * lm_loss,   gamma falls epoch by epoch, here from 0.2 to 0.1
"""

from math import exp, log

import torch

START_WEIGHT, END_WEIGHT = exp(-1.6), exp(-2.3)


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

    Example:
        >>> round(next_token_loss(torch.zeros(1, 3, 8), torch.tensor([[5, 6, 7]])).item(), 4)  # log 8
        2.0794
    """
    targets = input_ids[:, 1:]
    if attention_mask is not None:
        targets = targets.masked_fill((attention_mask[:, 1:] * attention_mask[:, :-1]) == 0, -100)
    flat = logits[:, :-1].flatten(0, 1).float()
    loss = torch.nn.functional.cross_entropy(flat, targets.flatten(), ignore_index=-100, reduction="sum")
    return loss / (targets != -100).sum().clamp(min=1)


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

    Example:
        >>> [round(annealed_weight(epoch, 0.2, 0.1, epochs=3), 4) for epoch in range(4)]
        [0.2, 0.1414, 0.1, 0.1]
    """
    if min(start, end) <= 0 or epochs < 1:
        raise ValueError(f"`start`, `end` and `epochs` must be positive, got {start}, {end} and {epochs}.")
    share = min(max(epoch, 0), epochs - 1) / max(epochs - 1, 1)
    return start * exp(share * log(end / start))


__all__ = ["annealed_weight", "next_token_loss"]
