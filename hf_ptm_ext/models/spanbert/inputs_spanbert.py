"""What goes into SpanBERT's encoder: positions, attention masks, embeddings; and each sequence's first token.

Padded rows count positions from the first real token, packed rows (`sequence_ids`) from each sequence's own start.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from .configuration_spanbert import SpanBertConfig


def position_ids_of(
    input_shape: torch.Size,
    device: torch.device,
    attention_mask: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """Positions counted from the first token of the own sequence.

    Args:
        input_shape: `(batch, seq_len)`.
        device: where the positions are made.
        attention_mask: `(batch, seq_len)`; leading zeros (left padding) shift the count.
        sequence_ids: `(batch, seq_len)`; the count restarts where the id changes, and padding (0) stays at 0: a row
            may be wider than the position table.

    Returns:
        `(batch, seq_len)`, or `(1, seq_len)` if all rows are alike.
    """
    positions = torch.arange(input_shape[1], device=device)[None]
    if sequence_ids is not None:
        starts = torch.ones_like(sequence_ids, dtype=torch.bool)
        starts[:, 1:] = sequence_ids[:, 1:] != sequence_ids[:, :-1]
        counted = positions - torch.where(starts, positions, 0).cummax(dim=1).values
        return torch.where(sequence_ids == 0, 0, counted)
    if attention_mask is not None and attention_mask.dim() == 2:
        padding = attention_mask.to(torch.bool).to(torch.int8).argmax(dim=1, keepdim=True)
        return (positions - padding).clamp(min=0)
    return positions


def visible_function(
    attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None
) -> Callable[[Any, Any, Any, Any], torch.Tensor]:
    """Mask function: whether query `q` may look at key `kv`.

    Packed rows: both belong to one sequence, so padding sees padding and no query is without a key. Padded rows: the
    key is a real token; in a row without any, everything sees everything, as under the reference's constant bias.
    """
    if sequence_ids is not None:
        ids = sequence_ids if attention_mask is None else sequence_ids * attention_mask.to(sequence_ids.dtype)
        return lambda batch, head, q, kv: ids[batch, q] == ids[batch, kv]
    real = attention_mask.to(torch.bool)
    real = real | ~real.any(dim=1, keepdim=True)
    return lambda batch, head, q, kv: real[batch, kv]


def build_attention_mask(
    config: SpanBertConfig,
    embeddings: torch.Tensor,
    attention_mask: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
) -> Any:
    """What the configured attention implementation takes for padded or packed rows.

    Args:
        config: decides the implementation.
        embeddings: `(batch, seq_len, hidden)`, for shape, dtype and device.
        attention_mask: `(batch, seq_len)`, or a finished 4-D mask or `BlockMask` that goes through unchanged.
        sequence_ids: `(batch, seq_len)`, 1..S within a row, 0 = padding.

    Returns:
        An additive mask (eager), a boolean one (sdpa), a `BlockMask` (flex), or `None` when nothing is hidden.
    """
    if attention_mask is None and sequence_ids is None:
        return None
    if attention_mask is not None and not (torch.is_tensor(attention_mask) and attention_mask.dim() == 2):
        return attention_mask
    if config._attn_implementation == "flex_attention":
        # Upstream's builder cannot be traced into a compiled graph; building the blocks here can.
        from torch.nn.attention.flex_attention import create_block_mask

        batch, seq_len = embeddings.shape[:2]
        function = visible_function(attention_mask, sequence_ids)
        return create_block_mask(function, batch, None, seq_len, seq_len, device=embeddings.device)
    if sequence_ids is None:
        real = attention_mask.to(torch.bool)
        return create_bidirectional_mask(config, embeddings, real | ~real.any(dim=1, keepdim=True))
    return create_bidirectional_mask(
        config, embeddings, None, and_mask_function=visible_function(attention_mask, sequence_ids)
    )


def first_token_states(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    num_sequences: int | None = None,
) -> torch.Tensor:
    """State of each sequence's first token.

    Args:
        hidden_states: `(batch, seq_len, hidden)`.
        attention_mask: `(batch, seq_len)`, to find the first token of left-padded rows.
        sequence_ids: `(batch, seq_len)` of packed rows.
        num_sequences: S of packed rows; `None` reads the largest id (which waits for the device).

    Returns:
        `(batch, hidden)` or, packed, `(batch, S, hidden)`; the state at position 0 stands for an absent sequence.
    """
    if sequence_ids is not None:
        if num_sequences is None:
            num_sequences = max(int(sequence_ids.max()), 1)
        numbers = torch.arange(1, num_sequences + 1, device=sequence_ids.device)
        first = (sequence_ids[:, None, :] == numbers[None, :, None]).to(torch.int8).argmax(dim=-1)
        return hidden_states.gather(1, first[..., None].expand(-1, -1, hidden_states.shape[-1]))
    if attention_mask is not None and torch.is_tensor(attention_mask) and attention_mask.dim() == 2:
        first = attention_mask.to(torch.bool).to(torch.int8).argmax(dim=1)
        return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]
    return hidden_states[:, 0]


class SpanBertEmbeddings(nn.Module):
    """Word, position and token-type embeddings, LayerNorm and dropout."""

    def __init__(self, config: SpanBertConfig):
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
