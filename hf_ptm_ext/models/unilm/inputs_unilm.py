"""What goes into UniLM's encoder besides the mask: sequences, positions, embeddings; and each first token."""

import torch
from torch import nn

from .configuration_unilm import UniLMConfig
from .heads_unilm import values_can_be_read


def sequence_ids_of(attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None) -> torch.Tensor | None:
    """One id per sequence and 0 for padding, from whichever of the two says where sequences are.

    Args:
        attention_mask: `(batch, seq_len)`, or `None`.
        sequence_ids: `(batch, seq_len)` of packed rows, or `None`.

    Returns:
        `(batch, seq_len)` int64, or `None` if a row is one sequence without padding.
    """
    if sequence_ids is None:
        return None if attention_mask is None else attention_mask.to(torch.bool).long()
    return sequence_ids if attention_mask is None else sequence_ids * attention_mask.to(torch.bool).long()


def index_in_sequence(
    input_shape: torch.Size, device: torch.device, ids: torch.Tensor | None = None, packed: bool = True
) -> torch.Tensor:
    """Number of each token within its own sequence, from 0.

    Args:
        input_shape: `(batch, seq_len)`.
        device: where it is made.
        ids: `(batch, seq_len)` sequence ids, 0 = padding.
        packed: whether each run of equal ids is a sequence; otherwise a row is one, and holes in it are not counted.

    Returns:
        `(batch, seq_len)`, or `(1, seq_len)` without ids. Padding counts 0.
    """
    positions = torch.arange(input_shape[1], device=device)[None]
    if ids is None:
        return positions
    if not packed:
        return torch.where(ids == 0, 0, (ids > 0).long().cumsum(dim=1) - 1)
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    runs = starts.cumsum(dim=1) - 1  # not cummax, which ONNX lacks
    begins = torch.zeros_like(runs).scatter_add(1, runs, torch.where(starts, positions, 0))
    return torch.where(ids == 0, 0, positions - begins.gather(1, runs))


def check_position_ids(position_ids: torch.Tensor, sequence_ids: torch.Tensor | None, config: UniLMConfig) -> None:
    """Refuse positions that the table does not have, where looking costs nothing.

    Args:
        position_ids: `(batch, seq_len)`.
        sequence_ids: `(batch, seq_len)` of packed rows, for the message.
        config: has the size of the table.

    Raises:
        ValueError: a position is negative or not below `max_position_embeddings`.
    """
    if not values_can_be_read(position_ids) or not position_ids.numel():
        return
    lowest, highest = int(position_ids.min()), int(position_ids.max())
    if lowest < 0 or highest >= config.max_position_embeddings:
        got = f"{lowest}" if lowest < 0 else f"{highest}"
        packed = "" if sequence_ids is None else " Every packed sequence must fit the table by itself."
        raise ValueError(
            f"Positions (`position_ids`, or those counted per sequence) must be in [0, `max_position_embeddings` = "
            f"{config.max_position_embeddings}), got {got}: truncate the text or split it into windows.{packed}"
        )


def first_token_states(
    hidden_states: torch.Tensor, ids: torch.Tensor | None = None, num_sequences: int | None = None
) -> torch.Tensor:
    """State of each sequence's first token.

    Args:
        hidden_states: `(batch, seq_len, hidden)`.
        ids: `(batch, seq_len)` sequence ids, 0 = padding.
        num_sequences: S of packed rows; `None` for rows of one sequence.

    Returns:
        `(batch, hidden)` or, packed, `(batch, S, hidden)`; the state at position 0 stands for an absent sequence.
    """
    if ids is None:
        return hidden_states[:, 0]
    if num_sequences is None:
        first = (ids > 0).to(torch.int8).argmax(dim=1)
        return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]
    numbers = torch.arange(1, num_sequences + 1, device=ids.device)
    first = (ids[:, None, :] == numbers[None, :, None]).to(torch.int8).argmax(dim=-1)
    return hidden_states.gather(1, first[..., None].expand(-1, -1, hidden_states.shape[-1]))


class UniLMEmbeddings(nn.Module):
    """Word, position and token-type embeddings, LayerNorm and dropout."""

    def __init__(self, config: UniLMConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`(batch, seq_len, hidden)` from word embeddings of that shape; no token types means type 0."""
        if token_type_ids is None:
            token_types = self.token_type_embeddings.weight[0]
        else:
            token_types = self.token_type_embeddings(token_type_ids)
        embeddings = inputs_embeds + token_types + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))
