"""UniLM's losses: pre-training over four modes, and the smoothed loss of seq2seq fine-tuning."""

import torch

from .heads_unilm import count_targets, select_labelled, summed_cross_entropy


def vocabulary_loss_sum(
    head: torch.nn.Module,
    states: torch.Tensor,
    labels: torch.Tensor,
    label_positions: torch.Tensor | None,
    logits: torch.Tensor | None,
    label_smoothing: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss over labelled tokens, from full logits if they are there anyway.

    Args:
        head: the vocabulary head.
        states: `(batch, seq_len, hidden)`.
        labels: `(batch, seq_len)`.
        label_positions: `(batch, budget)` positions that cover the labels, or `None`.
        logits: `(batch, seq_len, vocab_size)`, or `None`.
        label_smoothing: see `summed_smoothed_loss`; 0 is the plain cross entropy.

    Returns:
        The sum, a scalar, and the labels it was taken over, `(targets,)`.
    """
    if logits is None:
        selected, targets = select_labelled(states, labels, label_positions)
        flat = head(selected)
    else:
        targets, flat = labels.reshape(-1), logits.reshape(-1, logits.shape[-1])
    if label_smoothing:
        return summed_smoothed_loss(flat, targets, label_smoothing), targets
    return summed_cross_entropy(flat, targets), targets


def summed_smoothed_loss(logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float) -> torch.Tensor:
    """The reference's label smoothing, summed over targets: KL(q || p).

    q has 1 - eps on the gold token and eps / (V - 2) on every other one but [PAD] (id 0), which has nothing; targets
    of -100 or [PAD] add nothing. It differs from the smoothed cross entropy by q's entropy, a constant.

    Args:
        logits: `(targets, vocab_size)`.
        targets: `(targets,)`, -100 = ignored.
        label_smoothing: eps.

    Returns:
        A scalar.
    """
    counted = (targets != -100) & (targets != 0)
    gold = torch.where(counted, targets, 0)
    log_probabilities = logits.float().log_softmax(dim=-1)
    share = label_smoothing / (logits.shape[-1] - 2)
    gold_log = log_probabilities.gather(1, gold[:, None]).squeeze(1)
    others = log_probabilities[:, 1:].sum(dim=-1) - gold_log
    confidence = torch.tensor(1.0 - label_smoothing, device=logits.device)
    entropy = confidence * confidence.log() + label_smoothing * torch.tensor(share, device=logits.device).log()
    loss = entropy - confidence * gold_log - share * others
    return torch.where(counted, loss, 0.0).sum()


def fine_tuning_mean(
    loss_sum: torch.Tensor, targets: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """The reference's mean: the sum over (number of labels + 1e-5), of the batch or of the whole update.

    Args:
        loss_sum: scalar.
        targets: `(targets,)`, -100 = ignored.
        num_items_in_batch: number of labels over all micro-batches of one update.

    Returns:
        A scalar.
    """
    count = count_targets(targets) if num_items_in_batch is None else num_items_in_batch
    return loss_sum / (torch.as_tensor(count, device=loss_sum.device) + 1e-5)
