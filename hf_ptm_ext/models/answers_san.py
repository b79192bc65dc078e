"""MT-DNN's stochastic answer network for pairs of texts (Liu et al., ACL 2018 and 2019; namisan/mt-dnn).

Over K turns, with h the tokens of the first text, s_0 a self-attentive sum of those of the second:

    x_k = sum_j softmax_j(h_j (W s_k + b)) h_j
    p_k = softmax(V [s_k; x_k; |s_k - x_k|; s_k * x_k])
    s_(k+1) = GRU(x_k, s_k)
    p   = mean over k of p_k; in training some turns are left out, at random, but never one drawn for each pair

As in the released code the score of a turn is taken before the state is updated, and dropout is on what scores and the
GRU read, the tokens' the same at every place of a text, not on the tokens that are summed.
"""

import torch
from torch import nn


class StochasticAnswerHead(nn.Module):
    """The answer network on the states of an encoder.

    Args:
        hidden_size: width of the states.
        num_labels: number of classes; 1 is regression, of which turns are averaged as they are.
        turns: K (reference: 5).
        turn_dropout: probability that a turn is left out of the mean in training (reference: 0.1).
        dropout: on what is scored (reference: 0.1).

    Raises:
        ValueError: `turns` is not positive.
    """

    def __init__(
        self, hidden_size: int, num_labels: int, turns: int = 5, turn_dropout: float = 0.1, dropout: float = 0.1
    ):
        super().__init__()
        if turns < 1:
            raise ValueError(f"`turns` must be at least 1, got {turns}.")
        self.num_labels, self.turns, self.turn_dropout = num_labels, turns, turn_dropout
        self.dropout = nn.Dropout(dropout)
        self.query = nn.Linear(hidden_size, 1)
        self.attention = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(4 * hidden_size, num_labels)
        self.update = nn.GRUCell(hidden_size, hidden_size)

    def forward(
        self,
        states: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
    ) -> torch.Tensor:
        """Answer for each pair.

        Args:
            states: `(batch, seq_len, hidden)`.
            first: which tokens are the first text's, bool `(batch, seq_len)`.
            second: which are the second text's, bool `(batch, seq_len)`.

        Returns:
            Logarithms of the mean probabilities, `(batch, num_labels)`, which are logits; for one label the mean.
        """
        dropped = self._drop_tokens(states)
        state = _weighted_sum(self.query(dropped).squeeze(-1), second, dropped)
        answers = []
        for _ in range(self.turns):
            asked = self.attention(self.dropout(state))
            found = _weighted_sum(torch.einsum("bh,bsh->bs", asked, self._drop_tokens(states)), first, states)
            features = torch.cat([state, found, (state - found).abs(), state * found], dim=-1)
            answers.append(self.score(self.dropout(features)).float())
            state = self.update(found, self.dropout(state))
        scores = torch.stack(answers)
        keep = self._kept_turns(scores)
        if self.num_labels == 1:
            return (scores * keep).sum(0) / keep.sum(0)
        # log of the mean of probabilities, without leaving the logarithms
        kept = scores.log_softmax(-1).masked_fill(keep == 0, torch.finfo(scores.dtype).min)
        return kept.logsumexp(0) - keep.sum(0).log()

    def _drop_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Dropout of the same features in all tokens of a text."""
        return states * self.dropout(torch.ones_like(states[:, :1]))

    def _kept_turns(self, scores: torch.Tensor) -> torch.Tensor:
        """1 for each turn and text that counts, `(turns, batch, 1)`; one that is drawn always does."""
        keep = torch.ones_like(scores[..., :1])
        if not self.training or not self.turn_dropout:
            return keep
        keep = (torch.rand_like(keep) >= self.turn_dropout).to(keep.dtype)
        drawn = torch.randint(self.turns, keep.shape[1:], device=keep.device)
        return keep.scatter(0, drawn[None], 1.0)


def _weighted_sum(scores: torch.Tensor, mask: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Sum of the states under a softmax of the scores over the tokens of the mask, `(batch, hidden)`."""
    weights = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min).softmax(-1).to(states.dtype)
    return torch.einsum("bs,bsh->bh", weights * mask, states)
