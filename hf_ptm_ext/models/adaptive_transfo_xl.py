"""Adaptive input embeddings (Baevski and Auli 2019) and adaptive softmax (Grave et al. 2017) of Transformer-XL.

Words are in clusters by frequency, with embeddings of their own width. The first cluster's softmax also has an entry
for each other cluster, in their order (the authors' PyTorch code has them the other way round, see `conversion`).
"""

from typing import Any

import torch
from torch import nn


def _projection(config: Any, width: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(config.d_model, width))


class AdaptiveEmbedding(nn.Module):
    """Embeddings of each cluster, projected to the states' width and scaled by its root; `div_val` 1 is one table."""

    def __init__(self, config: Any):
        super().__init__()
        self.clusters, self.scale = config.clusters, config.d_model**0.5
        self.one_table = config.div_val == 1
        sizes = [(config.vocab_size, config.d_embed)] if self.one_table else [(b - a, w) for a, b, w in self.clusters]
        self.emb_layers = nn.ModuleList(nn.Embedding(*size) for size in sizes)
        projected = not self.one_table or config.d_embed != config.d_model
        self.emb_projs = nn.ParameterList(_projection(config, width) for _, width in sizes if projected)

    @property
    def num_embeddings(self) -> int:
        """Words of all clusters."""
        tables: Any = self.emb_layers
        return sum(table.weight.shape[0] for table in tables)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len)` to `(batch, seq_len, d_model)`."""
        if self.one_table:
            words = self.emb_layers[0](input_ids)
            return self.scale * (nn.functional.linear(words, self.emb_projs[0]) if len(self.emb_projs) else words)
        states: Any = 0.0
        for (first, end, _), table, projection in zip(self.clusters, self.emb_layers, self.emb_projs, strict=True):
            inside = (input_ids >= first) & (input_ids < end)
            rows = torch.where(inside, input_ids - first, 0)
            words = nn.functional.linear(table(rows), projection)
            states = states + words.masked_fill(~inside[..., None], 0.0)
        return self.scale * states


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of words: of all, or of given ones at the cost of their clusters alone."""

    def __init__(self, config: Any):
        super().__init__()
        self.clusters = config.clusters
        self.one_table = config.div_val == 1
        tails = len(self.clusters) - 1
        if tails:
            self.cluster_weight = nn.Parameter(torch.zeros(tails, config.d_embed))
            self.cluster_bias = nn.Parameter(torch.zeros(tails))
        widths = [config.d_embed if self.one_table else width for _, _, width in self.clusters]
        sizes = [(widths[0], config.vocab_size)] if self.one_table else [(w, b - a) for a, b, w in self.clusters]
        self.out_layers = nn.ModuleList(nn.Linear(*size) for size in sizes)
        projected = not self.one_table or config.d_embed != config.d_model
        self.out_projs = nn.ParameterList(_projection(config, width) for width in widths if projected)

    def logits(self, states: torch.Tensor, cluster: int) -> torch.Tensor:
        """Of the words of a cluster; behind the first one's are those of the other clusters as a whole."""
        first, end, _ = self.clusters[cluster]
        layer: Any = self.out_layers[0 if self.one_table else cluster]
        weight, bias = (
            (layer.weight[first:end], layer.bias[first:end]) if self.one_table else (layer.weight, layer.bias)
        )
        if cluster == 0 and len(self.clusters) > 1:
            weight, bias = torch.cat([weight, self.cluster_weight]), torch.cat([bias, self.cluster_bias])
        if len(self.out_projs):
            states = states @ self.out_projs[cluster]
        return nn.functional.linear(states, weight, bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Of every word: `(..., d_model)` to `(..., vocab_size)`."""
        head = self.logits(states, 0).log_softmax(dim=-1)
        size = self.clusters[0][1]
        parts = [head[..., :size]]
        for tail in range(1, len(self.clusters)):
            parts.append(head[..., size + tail - 1, None] + self.logits(states, tail).log_softmax(dim=-1))
        return torch.cat(parts, dim=-1)

    def of_words(self, states: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Of given words: `(n, d_model)` states and `(n,)` ids to `(n,)`."""
        size = self.clusters[0][1]
        cluster = sum((words >= first).long() for first, _, _ in self.clusters[1:]) if self.clusters[1:] else words * 0
        entry = torch.where(cluster == 0, words, size - 1 + cluster)
        head = self.logits(states, 0)
        result = head.gather(1, entry[:, None]).squeeze(1) - head.logsumexp(dim=-1)
        for tail, (first, end, _) in enumerate(self.clusters[1:], 1):
            # A compiled graph has no rows that depend on values: all of them, and what is not the cluster's is 0.
            inside = cluster == tail
            rows = torch.arange(words.shape[0], device=words.device)
            if not torch.compiler.is_compiling():
                rows = inside.nonzero().squeeze(-1)
            logits = self.logits(states.index_select(0, rows), tail)
            chosen = (words.index_select(0, rows) - first).clamp(0, end - first - 1)
            logs = logits.gather(1, chosen[:, None]).squeeze(1) - logits.logsumexp(dim=-1)
            result = result.index_add(0, rows, logs.masked_fill(~inside.index_select(0, rows), 0.0).to(result.dtype))
        return result
