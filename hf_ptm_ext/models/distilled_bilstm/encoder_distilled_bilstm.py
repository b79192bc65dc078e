"""Word vectors and a bidirectional LSTM over rows of different lengths.

The two directions are LSTMs of their own. Tokens stand at the front of a row, and the backward direction reads a row
turned round within its length, so neither sees padding before a token: a padded row equals the row alone, without
packing and without a look at the lengths from the host.
"""

import torch
from torch import nn


def at_the_front(chosen: torch.Tensor) -> torch.Tensor:
    """Order in which the chosen positions of each row come first, in their own order.

    Args:
        chosen: `(batch, seq_len)` bool.

    Returns:
        `(batch, seq_len)` positions.

    Example:
        >>> at_the_front(torch.tensor([[False, True, True, False]])).tolist()
        [[1, 2, 0, 3]]
    """
    return (~chosen).to(torch.int8).argsort(dim=1, stable=True)


def rearranged(states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Take the positions of each row in another order.

    Args:
        states: `(batch, seq_len, width)`.
        order: `(batch, seq_len)` positions.

    Returns:
        `(batch, seq_len, width)`.
    """
    return states.gather(1, order[..., None].expand(-1, -1, states.shape[-1]))


class DistilledBiLstmEmbeddings(nn.Module):
    """Word vectors: trained ones and, in multichannel mode, as many that stay as they were set."""

    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.static_embeddings = None
        if config.multichannel:
            static = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
            self.static_embeddings = static.requires_grad_(False)
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len)` ids to `(batch, seq_len, width)`, both channels side by side."""
        words = self.word_embeddings(input_ids)
        if self.static_embeddings is not None:
            words = torch.cat([words, self.static_embeddings(input_ids)], dim=-1)
        return self.dropout(words)


class DistilledBiLstmEncoder(nn.Module):
    """One LSTM for each direction."""

    def __init__(self, config):
        super().__init__()
        width = config.embedding_size * (2 if config.multichannel else 1)
        self.forward_lstm = nn.LSTM(width, config.lstm_size, batch_first=True)
        self.backward_lstm = nn.LSTM(width, config.lstm_size, batch_first=True)

    def forward(self, words: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the chosen tokens of each row, as if they were alone.

        Args:
            words: `(batch, seq_len, width)`.
            chosen: `(batch, seq_len)` bool.

        Returns:
            States `(batch, seq_len, 2 * lstm_size)`, 0 where no token was chosen, and the last state of each direction
            `(batch, 2 * lstm_size)`, 0 for a row without tokens.
        """
        order = at_the_front(chosen)
        lengths = chosen.sum(1, keepdim=True)
        places = torch.arange(words.shape[1], device=words.device)[None]
        turned = torch.where(places < lengths, lengths - 1 - places, places)
        words = rearranged(words, order)
        ahead, _ = self.forward_lstm(words)
        back, _ = self.backward_lstm(rearranged(words, turned))
        last = (lengths - 1).clamp(min=0)
        final = torch.cat([rearranged(ahead, last), rearranged(back, last)], dim=-1)[:, 0]
        states = torch.cat([ahead, rearranged(back, turned)], dim=-1)
        states = rearranged(states, order.argsort(dim=1))
        return states * chosen[..., None].to(states.dtype), final * (lengths > 0).to(final.dtype)
