"""KEPLER's knowledge-embedding objective (Wang et al., TACL 2021, https://arxiv.org/abs/1911.06136).

A masked language model reads entity descriptions; the state at the first token is the entity's vector, and

    s(h, r, t) = gamma - ||h + r - t||                                                    (TransE)
    positive   = ( s(h_r, r, t) + s(h, r, t_r) ) / 2
    negative   = s(h', r, t_r) for corrupted heads h', then s(h_r, r, t') for corrupted tails t'
    ke_loss    = -( mean log sigmoid(positive) + mean log sigmoid(-negative) ) / 2
    loss       = mlm_loss + ke_loss

where x_r is the vector of x's description followed by the relation's ("Cond"), otherwise x itself. r is a trained
vector, or the vector of the relation's description ("Rel"). Code: https://github.com/THU-KEG/KEPLER. It takes the
2-norm; the paper writes the 1-norm. There are no self-adversarial weights.
"""

import torch


def transe_score(
    head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor, gamma: float = 4.0, norm: int = 2
) -> torch.Tensor:
    """Score triples: the margin less the distance of head + relation from tail.

    | inputs | score |
    | --- | --- |
    | vectors h, r, t | gamma - norm(h + r - t), in float32 |

    Relations: with `gamma` 0 the negated distance that TransE (Bordes et al. 2013) ranks by.

    Args:
        head: `(..., hidden)`.
        relation: `(..., hidden)`, broadcast against `head`.
        tail: `(..., hidden)`, broadcast against both.
        gamma: margin (KEPLER's published command: 4; its argument's default: 12).
        norm: 1 or 2 (KEPLER's code: 2; its paper: 1).

    Returns:
        `(...)`.

    Raises:
        ValueError: `norm` is neither 1 nor 2.

    Examples:
        >>> h, r, t = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 4.0]]), torch.tensor([[0.0, 0.0]])
        >>> transe_score(h, r, t, gamma=4.0), transe_score(h, r, t, gamma=4.0, norm=1)
        (tensor([-1.]), tensor([-3.]))
    """
    if norm not in (1, 2):
        raise ValueError(f"`norm` must be 1 or 2, got {norm!r}. KEPLER's code takes 2.")
    difference = head.float() + relation.float() - tail.float()
    return gamma - torch.linalg.vector_norm(difference, ord=norm, dim=-1)


def knowledge_embedding_scores(
    head: torch.Tensor,
    relation: torch.Tensor,
    tail: torch.Tensor,
    negative_heads: torch.Tensor,
    negative_tails: torch.Tensor,
    head_with_relation: torch.Tensor | None = None,
    tail_with_relation: torch.Tensor | None = None,
    gamma: float = 4.0,
    norm: int = 2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Score each true triple and its corruptions as KEPLER does.

    Args:
        head: vectors of the heads' descriptions, `(batch, hidden)`.
        relation: relation vectors, trained ones or those of the relations' descriptions, `(batch, hidden)`.
        tail: vectors of the tails' descriptions, `(batch, hidden)`.
        negative_heads: vectors of the corrupted heads, `(batch, negatives, hidden)`, or `(batch * negatives, hidden)`
            with the rows of one triple together.
        negative_tails: the same of the corrupted tails.
        head_with_relation: vectors of head and relation description read together (variant "Cond"); `head` by default.
        tail_with_relation: the same of the tail.
        gamma: margin (published command: 4).
        norm: 1 or 2 (code: 2).

    Returns:
        Positive scores `(batch, 1)`, negative scores `(batch, 2 * negatives)`: corrupted heads, then corrupted tails.

    Raises:
        ValueError: the negatives cannot be shared out equally, or only one of the two `..._with_relation` is given.

    Examples:
        >>> x = torch.zeros(2, 8)
        >>> positive, negative = knowledge_embedding_scores(x, x, x, torch.ones(6, 8), torch.ones(6, 8))
        >>> positive.shape, negative.shape, positive[0].item()
        (torch.Size([2, 1]), torch.Size([2, 6]), 4.0)
    """
    if (head_with_relation is None) != (tail_with_relation is None):
        raise ValueError(
            "`head_with_relation` and `tail_with_relation` must be given together, got "
            f"{'the former' if tail_with_relation is None else 'the latter'} alone. Pass both, or neither for the "
            "plain objective."
        )
    head_r = head if head_with_relation is None else head_with_relation
    tail_r = tail if tail_with_relation is None else tail_with_relation
    batch = len(head)
    corrupted = []
    for name, vectors in (("negative_heads", negative_heads), ("negative_tails", negative_tails)):
        rows = vectors.numel() // vectors.shape[-1]
        if not rows or rows % batch:
            raise ValueError(
                f"`{name}` must have the same number of rows for each of the {batch} triples, one or more, got {rows}."
            )
        corrupted.append(vectors.reshape(batch, rows // batch, -1))
    positive = (
        transe_score(head_r, relation, tail, gamma, norm) + transe_score(head, relation, tail_r, gamma, norm)
    ) / 2
    middle = relation.unsqueeze(1)
    negative = torch.cat(
        [
            transe_score(corrupted[0], middle, tail_r.unsqueeze(1), gamma, norm),
            transe_score(head_r.unsqueeze(1), middle, corrupted[1], gamma, norm),
        ],
        dim=1,
    )
    return positive.unsqueeze(1), negative


def knowledge_embedding_loss(
    positive_scores: torch.Tensor, negative_scores: torch.Tensor, num_triples: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Logistic loss of true and corrupted triples, each half the weight.

    Args:
        positive_scores: `(batch, 1)`.
        negative_scores: `(batch, negatives)`.
        num_triples: triples over all micro-batches of an update (default: those of this batch).

    Returns:
        A scalar in nats: -(mean log sigmoid(positive) + mean log sigmoid(-negative)) / 2.

    Examples:
        >>> knowledge_embedding_loss(torch.zeros(3, 1), torch.zeros(3, 4)).item()  # log 2
        0.6931471824645996
    """
    log_sigmoid = torch.nn.functional.logsigmoid
    per_triple = -(log_sigmoid(positive_scores).mean(dim=1) + log_sigmoid(-negative_scores).mean(dim=1)) / 2
    count = len(per_triple) if num_triples is None else num_triples
    return per_triple.sum() / torch.as_tensor(count, device=per_triple.device).clamp(min=1)
