# Generated from models/canonical/inputs_canonical.py by scripts/sync_copies.py; change that file.
"""What goes into an encoder: positions, attention masks, embeddings; and each sequence's first token.

Padded rows count positions from the first real token, packed rows (`sequence_ids`) from each sequence's own start.

A row of nothing but padding is defined: all its tokens see each other, as in the reference, where the same -10000 is
added to every score. In float32 that sum also rounds the scores to about 1e-3. On the CPU outside `torch.compile` the
rounding is reproduced, with eager attention and the reference's order of sums for the whole batch, so hidden states
and logits are the reference's for such a row too. In compiled graphs, on accelerators and with flex attention, where
looking for such rows would break the graph or wait for the device, scores stay exact: hidden states then differ from
the reference by about 1e-4 in these rows, and in these alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from .heads_kbert import values_can_be_read
from .mask_contract_kbert import finished_mask, flex_mask, two_dimensional

# What the reference adds to the score of a padding key. Any large value hides a key beside real ones; in a row without
# a real key it is added to all scores, where it changes nothing but their rounding.
REFERENCE_PADDING_BIAS = -10000.0


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
        runs = starts.cumsum(dim=1) - 1  # not cummax, which ONNX lacks
        begins = torch.zeros_like(runs).scatter_add(1, runs, torch.where(starts, positions, 0))
        return torch.where(sequence_ids == 0, 0, positions - begins.gather(1, runs))
    if two_dimensional(attention_mask):
        padding = attention_mask.to(torch.bool).to(torch.int8).argmax(dim=1, keepdim=True)
        return (positions - padding).clamp(min=0)
    return positions


def check_position_ids(position_ids: torch.Tensor, sequence_ids: torch.Tensor | None, config) -> None:
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


def visible_function(
    attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None
) -> Callable[[Any, Any, Any, Any], torch.Tensor]:
    """Mask function: whether query `q` may look at key `kv`.

    Packed rows: both belong to one sequence, so padding sees padding and no query is without a key. Padded rows: the
    key is a real token; in a row without any, everything sees everything.

    Args:
        attention_mask: `(batch, seq_len)`, or `None` with `sequence_ids`.
        sequence_ids: `(batch, seq_len)` of packed rows, or `None`.

    Returns:
        A function of (batch, head, query, key) indices.
    """
    if sequence_ids is not None:
        ids = sequence_ids if attention_mask is None else sequence_ids * attention_mask.to(sequence_ids.dtype)
        return lambda batch, head, q, kv: ids[batch, q] == ids[batch, kv]
    real = attention_mask.to(torch.bool)
    real = real | ~real.any(dim=1, keepdim=True)
    return lambda batch, head, q, kv: real[batch, kv]


def has_empty_row(config, attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None) -> bool:
    """Whether a padded batch has a row without any real token, where looking costs nothing.

    Args:
        config: decides the attention implementation.
        attention_mask: `(batch, seq_len)`, or anything else that a model takes.
        sequence_ids: `(batch, seq_len)` of packed rows, in which padding sees padding: no row is empty.

    Returns:
        False where values cannot be read and for flex attention: such rows then see themselves without rounding.
    """
    if sequence_ids is not None or config._attn_implementation == "flex_attention":
        return False
    if not two_dimensional(attention_mask) or not values_can_be_read(attention_mask):
        return False
    return not bool(attention_mask.to(torch.bool).any(dim=1).all())


def build_attention_mask(
    config,
    embeddings: torch.Tensor,
    attention_mask: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
) -> Any:
    """What the configured attention implementation takes for padded or packed rows.

    Args:
        config: decides the implementation.
        embeddings: `(batch, seq_len, hidden)`, for shape, dtype and device.
        attention_mask: what `read_attention_mask` gave: `(batch, seq_len)`, or a finished mask, which is all.
        sequence_ids: `(batch, seq_len)`, 1..S within a row, 0 = padding.

    Returns:
        An additive mask (eager), a boolean one (sdpa), a `BlockMask` (flex), or `None` when nothing is hidden. With an
        empty row (`has_empty_row`) an additive mask `(batch, 1, 1, seq_len)`, for plain attention.
    """
    if attention_mask is None and sequence_ids is None:
        return None
    if attention_mask is not None and not two_dimensional(attention_mask):
        return finished_mask(config, embeddings, attention_mask)
    if config._attn_implementation == "flex_attention":
        return flex_mask(visible_function(attention_mask, sequence_ids), embeddings, embeddings.shape[1])
    if sequence_ids is None:
        real = attention_mask.to(torch.bool)
        empty = ~real.any(dim=1, keepdim=True)
        if has_empty_row(config, attention_mask, sequence_ids):
            bias = torch.zeros(real.shape, dtype=embeddings.dtype, device=embeddings.device)
            bias = bias.masked_fill(~real, torch.finfo(bias.dtype).min).masked_fill(empty, REFERENCE_PADDING_BIAS)
            return bias[:, None, None]
        return create_bidirectional_mask(config, embeddings, real | empty)
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
    if two_dimensional(attention_mask):
        first = attention_mask.to(torch.bool).to(torch.int8).argmax(dim=1)
        return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]
    return hidden_states[:, 0]


class KBertEmbeddings(nn.Module):
    """Word, position and token-type embeddings, LayerNorm and dropout."""

    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        types_last: bool = False,
    ) -> torch.Tensor:
        """Add, normalise, drop.

        Args:
            inputs_embeds: `(batch, seq_len, hidden)` word embeddings.
            position_ids: `(batch, seq_len)` or `(1, seq_len)`.
            token_type_ids: `(batch, seq_len)`; `None` means type 0.
            types_last: whether to add the token types after the positions, as the reference does, and not before, as
                upstream does. The last bit of the sum depends on it, and in an empty row the rounding of the scores.

        Returns:
            `(batch, seq_len, hidden)`.
        """
        if token_type_ids is None:
            token_types = self.token_type_embeddings.weight[0]
        else:
            token_types = self.token_type_embeddings(token_type_ids)
        added = (self.position_embeddings(position_ids), token_types)
        embeddings = inputs_embeds + added[not types_last] + added[types_last]
        return self.dropout(self.LayerNorm(embeddings))
