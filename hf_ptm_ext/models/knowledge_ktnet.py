"""KT-NET's two layers: what each token takes of its concepts, and what tokens take of each other."""

import torch
from torch import nn

HIDDEN = -1e6  # what the reference gives to scores that do not count


def hidden_score(scores: torch.Tensor) -> float:
    """That, or the least number in half precision."""
    return max(HIDDEN, torch.finfo(scores.dtype).min)


class KnowledgeMemoryLayer(nn.Module):
    """A token asks a sentinel and its concepts; a token without any takes nothing, not even the sentinel.

    Args:
        hidden_size: width of tokens.
        rows: of the table of concepts; row 0 is padding.
        width: of concepts.

    Examples:
        >>> layer = KnowledgeMemoryLayer(8, rows=5, width=4)
        >>> layer(torch.ones(1, 2, 8), torch.tensor([[[3, 4], [0, 0]]]))[0, 1].tolist()
        [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, hidden_size: int, rows: int, width: int):
        super().__init__()
        self.concept_embeddings = nn.Embedding(rows, width, padding_idx=0)
        self.projection = nn.Linear(hidden_size, width, bias=False)
        self.sentinel = nn.Parameter(torch.zeros(width))

    def forward(self, hidden_states: torch.Tensor, concept_ids: torch.Tensor) -> torch.Tensor:
        """Take.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            concept_ids: `(batch, seq_len, concepts)` rows of the table, 0 behind the last of a token.

        Returns:
            `(batch, seq_len, width)`.
        """
        concepts = self.concept_embeddings(concept_ids)
        sentinel = self.sentinel.to(concepts.dtype).expand(*concept_ids.shape[:-1], 1, -1)
        memory = torch.cat([sentinel, concepts], dim=-2)
        counts = (concept_ids != 0).sum(-1, keepdim=True)
        places = torch.arange(memory.shape[-2], device=memory.device)
        scores = torch.einsum("btd,btcd->btc", self.projection(hidden_states), memory)
        weights = scores.masked_fill(places > counts, hidden_score(scores)).softmax(-1)
        return torch.einsum("btc,btcd->btd", weights, memory) * (counts > 0)


class SelfMatchingLayer(nn.Module):
    """Each token beside what it takes of the others in one hop and in two: `[u; v; u*v; u-v; w; u-w]`.

    Args:
        width: of a token.

    Examples:
        >>> SelfMatchingLayer(4)(torch.ones(1, 3, 4)).shape
        torch.Size([1, 3, 24])
    """

    def __init__(self, width: int):
        super().__init__()
        self.weight1 = nn.Parameter(torch.zeros(width))
        self.weight2 = nn.Parameter(torch.zeros(width))
        self.weightmul = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, states: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Match.

        Args:
            states: `(batch, seq_len, width)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, which no token takes anything of.

        Returns:
            `(batch, seq_len, 6 width)`.
        """
        scores = (states @ self.weight1)[..., None] + (states @ self.weight2)[:, None]
        scores = scores + (states * self.weightmul) @ states.transpose(1, 2) + self.bias
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask.to(torch.bool)[:, None], hidden_score(scores))
        weights = scores.softmax(-1)
        one = weights @ states
        two = weights @ one
        return torch.cat([states, one, states * one, states - one, two, states - two], dim=-1)
