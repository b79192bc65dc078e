"""InfoNCE: a query tells its own key among others (van den Oord et al. 2018, https://arxiv.org/abs/1807.03748).

    loss = - log  exp(q . k_own / t) / sum over keys of exp(q . k / t)

Keys of other rows of the batch are negatives, and so may be further ones. InfoWord's DIM term (Kong et al., ICLR 2020,
https://arxiv.org/abs/1910.08350) is this with unnormalised vectors and no temperature: the query is a sentence without
an n-gram, the key that n-gram.
"""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import normalize as unit_length

from .token_losses import label_smoothed_loss

# What a pair that is no negative scores: finite, so that nothing becomes nan.
EXCLUDED = -1e9


def contrastive_scores(
    queries: torch.Tensor,
    keys: torch.Tensor,
    temperature: float = 1.0,
    normalize: bool = False,
    excluded: torch.Tensor | None = None,
) -> torch.Tensor:
    """Score every query with every key, in single precision under autocast too: products of long vectors are large.

    Args:
        queries: `(queries, hidden)`.
        keys: `(keys, hidden)`.
        temperature: what the scores are divided by (InfoWord: 1).
        normalize: whether vectors are brought to length 1 first, so that scores are cosines (InfoWord: not).
        excluded: boolean `(queries, keys)`, pairs that are no negatives, such as equal texts.

    Returns:
        float32 `(queries, keys)`.

    Examples:
        >>> contrastive_scores(torch.eye(2), torch.eye(2), temperature=0.5)
        tensor([[2., 0.],
                [0., 2.]])
    """
    queries, keys = queries.float(), keys.float()
    if normalize:
        queries, keys = unit_length(queries, dim=-1), unit_length(keys, dim=-1)
    with torch.autocast(queries.device.type, enabled=False):
        scores = queries @ keys.T / temperature
    return scores if excluded is None else scores.masked_fill(excluded, EXCLUDED)


def info_nce_loss(
    scores: torch.Tensor, labels: torch.Tensor | None = None, num_queries: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy of each query's own key among all keys.

    | inputs | labels | mean over |
    | --- | --- | --- |
    | scores of every query with every key | its own key, -100 = ignored | queries of the whole update |

    Relations: `contrastive_scores` makes the scores, `gather_keys` brings the keys of other processes.

    Args:
        scores: `(queries, keys)`.
        labels: `(queries,)` (default: key i is query i's).
        num_queries: queries over all micro-batches of an update (default: those of this batch).

    Returns:
        A scalar; 0 with a gradient graph if there is no query.

    Examples:
        >>> round(info_nce_loss(torch.zeros(4, 4)).item(), 4)  # log 4
        1.3863
    """
    labels = torch.arange(len(scores), device=scores.device) if labels is None else labels
    return label_smoothed_loss(scores, labels, num_queries)


def gather_keys(keys: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Bring the keys of all processes together, with their gradients, for more negatives.

    Args:
        keys: `(keys, ...)`, as many in every process.

    Returns:
        `(processes * keys, ...)` in the order of the processes, and at which of them this process's begin; the keys
        themselves and 0 where there is one process.

    Examples:
        >>> gather_keys(torch.ones(2, 3))[0].shape
        torch.Size([2, 3])
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return keys, 0
    if keys.is_floating_point():
        return torch.cat(all_gather(keys.contiguous())), dist.get_rank() * len(keys)
    parts = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, keys.contiguous())
    return torch.cat(parts), dist.get_rank() * len(keys)
