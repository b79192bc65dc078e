"""The masked-language-model loss of logits that are there already."""

import torch


def masked_lm_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy over labelled tokens, exact under gradient accumulation.

    | inputs | labels | mean over |
    | --- | --- | --- |
    | logits of every token | original ids at selected tokens, -100 elsewhere | labelled tokens of the whole update |

    Relations: models of this package compute the same in their forward, at labelled positions only.

    Args:
        logits: `(batch, seq_len, vocab_size)`.
        labels: `(batch, seq_len)`.
        num_items_in_batch: number of labels over all micro-batches of an update (default: those of this batch).

    Returns:
        A scalar; 0 with a gradient graph if there is no label.

    Example:
        >>> logits, labels = torch.zeros(1, 3, 8), torch.tensor([[-100, 5, -100]])
        >>> round(masked_lm_loss(logits, labels).item(), 4)  # log 8
        2.0794
    """
    targets = labels.reshape(-1)
    loss_sum = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), targets, ignore_index=-100, reduction="sum"
    )
    count = (targets != -100).sum() if num_items_in_batch is None else num_items_in_batch
    return loss_sum / torch.as_tensor(count, device=loss_sum.device).clamp(min=1)
