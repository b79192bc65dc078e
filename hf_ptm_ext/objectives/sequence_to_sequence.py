"""The fine-tuning loss of encoder-decoders: cross entropy with label smoothing, exact under gradient accumulation."""

import torch


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

    Example:
        >>> logits, labels = torch.zeros(1, 2, 8), torch.tensor([[5, -100]])
        >>> round(label_smoothed_loss(logits, labels, label_smoothing=0.1).item(), 4)  # log 8
        2.0794
    """
    targets = labels.reshape(-1)
    loss_sum = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(),
        targets,
        ignore_index=-100,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    count = (targets != -100).sum() if num_items_in_batch is None else num_items_in_batch
    return loss_sum / torch.as_tensor(count, device=loss_sum.device).clamp(min=1)
