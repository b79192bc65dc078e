"""SenseBERT's objective (Levine et al., ACL 2020): which supersenses a hidden word may have.

    loss = - log sum_{s in A} p(s) - 1/|A| sum_{s in A} log p(s)        A = the senses that the word may have

The first term wants any of them, the second all of them alike: without it the model may settle on one for all texts.
"""

import torch


def allowed_senses(bits: torch.Tensor, num_senses: int) -> torch.Tensor:
    """Turn integers into their bits, boolean `(..., num_senses)`; none of a negative one.

    Examples:
        >>> allowed_senses(torch.tensor([5, -100]), 3).int()
        tensor([[1, 0, 1],
                [0, 0, 0]], dtype=torch.int32)
    """
    number = torch.arange(num_senses, device=bits.device)
    return (bits.clamp(min=0).unsqueeze(-1) >> number & 1).bool()


def supersense_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_words: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean of SenseBERT's loss over words with senses.

    Args:
        logits: `(..., senses)`.
        labels: the senses that each may have as bits, -100 = ignored, `(...)`.
        num_words: words over all micro-batches of an update (default: those of this batch).

    Returns:
        A scalar; 0 with a gradient graph if there is no word.

    Examples:
        >>> round(supersense_loss(torch.zeros(1, 4), torch.tensor([0b11])).item(), 4)  # log 2 + log 4
        2.0794
    """
    real = labels > 0
    allowed = allowed_senses(labels, logits.shape[-1]) | ~real.unsqueeze(-1)  # all where ignored: finite
    log_p = logits.float().log_softmax(dim=-1)
    anyone = log_p.masked_fill(~allowed, float("-inf")).logsumexp(dim=-1)
    each = (log_p * allowed).sum(dim=-1) / allowed.sum(dim=-1)
    count = real.sum() if num_words is None else num_words
    return -((anyone + each) * real).sum() / torch.as_tensor(count, device=logits.device).clamp(min=1)
