"""SMART's smoothness term (Jiang et al., ACL 2020), which MT-DNN's code trains with as an option.

    smoothness(x) = max over |d| <= epsilon of  D(f(x + d), f(x))

with the symmetric Kullback-Leibler divergence as D (squared difference for regression). The maximum is sought by one
step of gradient ascent from noise on the input embeddings.
"""

from collections.abc import Callable

import torch

NORMS = ("inf", "l2", "l1")


def symmetric_kl(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(first || second) + KL(second || first) of two sets of logits.

    Args:
        first: `(rows, classes)`.
        second: `(rows, classes)`.

    Returns:
        Each row's divergence, `(rows,)`, at least 0.

    Example:
        >>> symmetric_kl(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]])).tolist()
        [0.0]
    """
    log_first, log_second = first.float().log_softmax(-1), second.float().log_softmax(-1)
    difference = log_first - log_second
    return ((log_first.exp() - log_second.exp()) * difference).sum(-1)


def stable_kl(first: torch.Tensor, second: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    """MT-DNN's clamped log-odds form, kept for parity: it is no Kullback-Leibler divergence.

    Each probability p becomes log(1 / p - 1) once more, p clamped by `epsilon`; the sum over classes of
    p * (odds_first - odds_second) is taken twice.

    Args:
        first: `(rows, classes)`.
        second: `(rows, classes)`, not differentiated.
        epsilon: clamp (reference: 1e-6).

    Returns:
        Each row's value, `(rows,)`.

    Example:
        >>> stable_kl(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]])).tolist()
        [0.0]
    """
    p, q = first.float().log_softmax(-1).exp(), second.detach().float().log_softmax(-1).exp()
    odds_p = -(1.0 / (p + epsilon) - 1 + epsilon).detach().log()
    odds_q = -(1.0 / (q + epsilon) - 1 + epsilon).detach().log()
    return 2 * (p * (odds_p - odds_q)).sum(-1)


def mean_squares(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The divergence of regression: squared difference.

    Args:
        first: `(rows, values)`.
        second: `(rows, values)`.

    Returns:
        Each row's mean over its values, `(rows,)`.

    Example:
        >>> mean_squares(torch.tensor([[1.0]]), torch.tensor([[3.0]])).tolist()
        [4.0]
    """
    return (first.float() - second.float()).square().mean(-1)


def smoothness_loss(
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    embeddings: torch.Tensor,
    logits: torch.Tensor,
    *,
    divergence: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = symmetric_kl,
    steps: int = 1,
    step_size: float = 1e-3,
    noise_std: float = 1e-5,
    epsilon: float = 1e-6,
    norm: str = "inf",
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """How much the predictions change under the worst small change of the input embeddings.

    Args:
        logits_of: the model, from embeddings `(batch, seq_len, hidden)` to logits `(rows, classes)`, one row for each
            text or for each labelled token.
        embeddings: input embeddings, `(batch, seq_len, hidden)`; their gradient is kept.
        logits: the model's logits of the unchanged input, `(rows, classes)`.
        divergence: `symmetric_kl`, `stable_kl` (MT-DNN's code) or `mean_squares` for regression.
        steps: steps of ascent (MT-DNN: 1).
        step_size: of the ascent (MT-DNN: 1e-3).
        noise_std: standard deviation of the first noise (MT-DNN: 1e-5).
        epsilon: added to the norm that the noise is divided by (MT-DNN: 1e-6).
        norm: over the hidden dimension of each token: `"inf"` (MT-DNN), `"l2"` or `"l1"`.
        generator: source of the noise (default: torch's own).

    Returns:
        A scalar; 0 if the gradient of the noise is not finite, as in MT-DNN's code.

    Raises:
        ValueError: `norm` is unknown.

    Example:
        >>> weight = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
        >>> embeddings = torch.ones(1, 3, 2)
        >>> def logits_of(states): return states.mean(1) @ weight
        >>> bool(smoothness_loss(logits_of, embeddings, logits_of(embeddings)) >= 0)
        True
    """
    if norm not in NORMS:
        raise ValueError(f"`norm` must be one of {list(NORMS)}, got {norm!r}.")
    noise = torch.empty_like(embeddings).normal_(0.0, noise_std, generator=generator)
    for _ in range(steps):
        noise.requires_grad_()
        with torch.enable_grad():
            found = divergence(logits_of(embeddings.detach() + noise), logits.detach()).sum()
            (gradient,) = torch.autograd.grad(found, noise)
        if not torch.isfinite(gradient.norm()):
            return logits.sum() * 0
        noise = noise.detach() + step_size * gradient
        noise = noise / (_norm(noise, norm) + epsilon)
    return divergence(logits_of(embeddings + noise.detach()), logits).mean()


def _norm(values: torch.Tensor, norm: str) -> torch.Tensor:
    """Norm over the last dimension, kept."""
    if norm == "inf":
        return values.abs().amax(dim=-1, keepdim=True)
    return values.norm(p=2 if norm == "l2" else 1, dim=-1, keepdim=True)


__all__ = ["mean_squares", "smoothness_loss", "stable_kl", "symmetric_kl"]
