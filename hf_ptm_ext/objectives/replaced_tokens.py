"""Replaced token detection (Clark et al., ICLR 2020, ELECTRA, https://arxiv.org/abs/2003.10555)."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

# Of the released code: keeps the logarithms finite.
SMALLEST = 1e-9


def replaced_token_loss(
    logits: torch.Tensor,
    replaced: torch.Tensor,
    text: torch.Tensor,
    num_tokens: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Mean binary cross entropy over all tokens that are no padding, special tokens included.

    | inputs | labels | mean over |
    | --- | --- | --- |
    | a logit of every token | 1 = replaced | tokens of the whole update |

    Relations: ELECTRA adds 50 times this to its generator's `masked_lm_loss`.

    Args:
        logits: `(batch, seq_len)`.
        replaced: whether a token is another than the original, boolean `(batch, seq_len)`.
        text: whether it is no padding, boolean `(batch, seq_len)`.
        num_tokens: number of tokens over all micro-batches of an update (default: those of this batch).

    Returns:
        A scalar; 0 with a gradient graph if there is no token.

    Examples:
        >>> logits, text = torch.zeros(1, 3), torch.tensor([[True, True, False]])
        >>> round(replaced_token_loss(logits, text, text).item(), 4)  # log 2
        0.6931
    """
    losses = binary_cross_entropy_with_logits(logits.float(), replaced.float(), reduction="none")
    count = text.sum() if num_tokens is None else num_tokens
    return (losses * text).sum() / torch.as_tensor(count, device=losses.device).clamp(min=1)


@torch.no_grad()
def sample_tokens(
    logits: torch.Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Draw a token from each distribution, by Gumbel noise as the released code does; no gradient.

    Args:
        logits: `(..., vocab_size)`.
        temperature: what the logits are divided by (ELECTRA: 1).
        generator: of the noise (default: torch's own of the device).

    Examples:
        >>> sample_tokens(torch.tensor([[0.0, 100.0]])).tolist()
        [1]
    """
    uniform = torch.rand(logits.shape, generator=generator, dtype=torch.float32, device=logits.device)
    noise = -torch.log(-torch.log(uniform + SMALLEST) + SMALLEST)
    return (logits.float() / temperature + noise).argmax(dim=-1)
