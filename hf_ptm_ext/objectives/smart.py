"""SMART's smoothness term (Jiang et al., ACL 2020), which MT-DNN's code trains with as an option.

    smoothness(x) = max over |d| <= radius of  D(f(x + d), f(x))

with the symmetric Kullback-Leibler divergence as D (squared difference for regression) and x what the model's
embedding module gives. The maximum is sought by gradient ascent from a small noise, by one of two rules:

| rule | a step |
| --- | --- |
| `"paper"` | the gradient, brought to norm 1, times `step_size` is added, and the sum projected to the ball |
| `"mt-dnn"` | `step_size` times the gradient is added, and the sum brought to norm 1 (namisan/mt-dnn, newest code) |

With MT-DNN's numbers its rule all but scales the first noise: beside 1e-5 that noise's gradient weighs nothing. The
paper's ball is so small that without dropout the term is next to nothing; with it, two dropout masks are compared.
MT-DNN's newest code also sends x through the embedding module a second time, which is left out here.
"""

from collections.abc import Callable

import torch

NORMS = ("inf", "l2", "l1")
RULES = ("paper", "mt-dnn")


def symmetric_kl(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(first || second) + KL(second || first) of two sets of logits, each direction's target as a constant.

    Args:
        first: `(rows, classes)`.
        second: `(rows, classes)`.

    Returns:
        Each row's divergence, `(rows,)`, at least 0.

    Examples:
        >>> symmetric_kl(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]])).tolist()
        [0.0]
    """
    log_first, log_second = _wide(first).log_softmax(-1), _wide(second).log_softmax(-1)
    # The gradient of both directions with their targets detached is that of this product with its first factor so.
    return ((log_first.exp() - log_second.exp()).detach() * (log_first - log_second)).sum(-1)


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

    Examples:
        >>> stable_kl(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]])).tolist()
        [0.0]
    """
    p, q = _wide(first).softmax(-1), _wide(second.detach()).softmax(-1)
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

    Examples:
        >>> mean_squares(torch.tensor([[1.0]]), torch.tensor([[3.0]])).tolist()
        [4.0]
    """
    return (_wide(first) - _wide(second)).square().mean(-1)


def smoothness_loss(
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    embeddings: torch.Tensor,
    logits: torch.Tensor,
    *,
    divergence: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = symmetric_kl,
    ascent: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    rule: str = "paper",
    steps: int = 1,
    step_size: float = 1e-3,
    noise_std: float = 1e-5,
    radius: float = 1e-5,
    epsilon: float = 1e-6,
    norm: str = "inf",
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """How much the predictions change under the worst small change of the embedded text.

    Args:
        logits_of: the model, from embeddings `(batch, seq_len, hidden)` to logits `(rows, classes)`, one row for each
            text or for each labelled token.
        embeddings: what the embedding module gives, `(batch, seq_len, hidden)`; their gradient is kept.
        logits: the model's logits of the unchanged input, `(rows, classes)`.
        divergence: `symmetric_kl`, or `mean_squares` for regression.
        ascent: what the ascent makes larger (default, MT-DNN's: `stable_kl` for `symmetric_kl`, otherwise
            `divergence`).
        rule: of a step, `"paper"` or `"mt-dnn"`.
        steps: of ascent (paper and MT-DNN: 1).
        step_size: of the ascent (paper and MT-DNN's class: 1e-3; its command line: 1e-5).
        noise_std: standard deviation of the first noise (paper and MT-DNN: 1e-5).
        radius: `"paper"`: of the ball in `norm` around each token's embedding (paper: 1e-5).
        epsilon: added to a norm that is divided by (MT-DNN: 1e-6).
        norm: over the hidden dimension of each token: `"inf"` (MT-DNN), `"l2"`, or `"l1"`, whose direction is the sign
            and whose ball is that of `"inf"`.
        generator: source of the noise (default: torch's own).

    Returns:
        A scalar; 0 if the gradient of the noise is not finite, as in MT-DNN's code.

    Raises:
        ValueError: `norm` or `rule` is unknown.

    Examples:
        >>> weight = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
        >>> embeddings = torch.ones(1, 3, 2)
        >>> def logits_of(states): return states.mean(1) @ weight
        >>> bool(smoothness_loss(logits_of, embeddings, logits_of(embeddings)) >= 0)
        True
    """
    for name, value, known in (("norm", norm, NORMS), ("rule", rule, RULES)):
        if value not in known:
            raise ValueError(f"`{name}` must be one of {list(known)}, got {value!r}.")
    if ascent is None:
        ascent = stable_kl if divergence is symmetric_kl else divergence
    noise = torch.empty_like(embeddings).normal_(0.0, noise_std, generator=generator)
    for _ in range(steps):
        noise.requires_grad_()
        with torch.enable_grad():
            found = ascent(logits_of(embeddings.detach() + noise), logits.detach()).sum()
            (gradient,) = torch.autograd.grad(found, noise)
        if not torch.isfinite(gradient.norm()):
            return (logits.nan_to_num() * 0).sum()
        noise = noise.detach()
        if rule == "paper":
            noise = _projected(noise + step_size * _direction(gradient, norm, epsilon), norm, radius)
        else:
            noise = _direction(noise + step_size * gradient, norm, epsilon)
    return divergence(logits_of(embeddings + noise), logits).mean()


def _wide(logits: torch.Tensor) -> torch.Tensor:
    """Logits in single precision at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _direction(values: torch.Tensor, norm: str, epsilon: float) -> torch.Tensor:
    """Each token's values at norm 1; their sign for `l1`."""
    if norm == "l1":
        return values.sign()
    size = values.abs().amax(-1, keepdim=True) if norm == "inf" else values.norm(dim=-1, keepdim=True)
    return values / (size + epsilon)


def _projected(noise: torch.Tensor, norm: str, radius: float) -> torch.Tensor:
    """Each token's noise, brought into the ball."""
    if norm != "l2":
        return noise.clamp(-radius, radius)
    size = noise.norm(dim=-1, keepdim=True)
    return torch.where(size > radius, noise * (radius / size), noise)
