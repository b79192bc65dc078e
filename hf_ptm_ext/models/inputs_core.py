"""What goes into an encoder: positions, attention masks, embeddings; and each sequence's first token.

In a row of nothing but padding all tokens see each other, as in the reference, where the same -10000 is added to every
score; in float32 that sum also rounds the scores to about 1e-3. On the CPU outside `torch.compile` the rounding is
reproduced, with eager attention and the reference's order of sums for the whole batch. In compiled graphs, on
accelerators and with flex attention, where looking for such rows would break the graph or wait for the device, scores
stay exact: hidden states then differ from the reference by about 1e-4 in these rows, and in these alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.utils.generic import is_flash_attention_requested

from .losses_core import value_outside, values_can_be_read
from .mask_contract_core import SequenceBounds, finished_mask, flex_mask, packed_flex_mask, two_dimensional

# What the reference adds to the score of a padding key. Any large value hides a key beside real ones; in a row without
# a real key it is added to all scores, where it changes nothing but their rounding.
REFERENCE_PADDING_BIAS = -10000.0
# Tokens of a block of flash attention, which runs blocks up to the longest sequence for each.
BOUNDS_STEP = 128


def run_begins(*columns: torch.Tensor) -> torch.Tensor:
    """`(batch, seq_len)` bool: where a run of equal values in all columns begins, padding included."""
    begins = torch.ones_like(columns[0], dtype=torch.bool)
    changes = torch.zeros_like(begins[:, 1:])
    for column in columns:
        changes = changes | (column[:, 1:] != column[:, :-1])
    begins[:, 1:] = changes
    return begins


def run_starts(*columns: torch.Tensor) -> torch.Tensor:
    """Index, for each token, of the first token of the run with its values in all columns."""
    begins = run_begins(*columns)
    runs = begins.cumsum(dim=1) - 1  # not cummax, which ONNX lacks
    places = torch.arange(begins.shape[1], device=begins.device)[None]
    return torch.zeros_like(runs).scatter_add(1, runs, torch.where(begins, places, 0)).gather(1, runs)


def position_ids_of(
    input_shape: torch.Size,
    device: torch.device,
    attention_mask: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """Positions counted from the first token of the own sequence, behind padding on the left.

    Padding of packed rows stays at 0: a row may be wider than the position table.
    """
    positions = torch.arange(input_shape[1], device=device)[None]
    if sequence_ids is not None:
        return torch.where(sequence_ids == 0, 0, positions - run_starts(sequence_ids))
    if two_dimensional(attention_mask):
        return (positions - first_place(attention_mask.to(torch.bool))[:, None]).clamp(min=0)
    return positions


def first_place(mask: torch.Tensor) -> torch.Tensor:
    """The first place of the last dimension that is marked, 0 where none is."""
    # Not argmax: compiled for a GPU it may give a place outside of a row in which all are equal.
    places = torch.arange(mask.shape[-1], device=mask.device)
    return torch.where(mask, places, mask.shape[-1]).amin(dim=-1) % mask.shape[-1]


def check_position_ids(position_ids: torch.Tensor, sequence_ids: torch.Tensor | None, config: Any) -> None:
    """Refuse positions that the table does not have, where looking costs nothing."""
    got = value_outside(position_ids, config.max_position_embeddings)
    if got is not None:
        packed = "" if sequence_ids is None else " Every packed sequence must fit the table by itself."
        raise ValueError(
            f"Positions (`position_ids`, or those counted per sequence) must be in [0, `max_position_embeddings` = "
            f"{config.max_position_embeddings}), got {got}: truncate the text or split it into windows.{packed}"
        )


def checked_positions(
    config: Any,
    states: torch.Tensor,
    position_ids: torch.Tensor | None,
    attention_mask: Any,
    sequence_ids: torch.Tensor | None,
) -> torch.Tensor:
    """Positions of a text, given or counted, for which the table has rows."""
    if position_ids is None:
        if sequence_ids is None:
            check_length(config, states.shape[1])
        position_ids = position_ids_of(states.shape[:2], states.device, attention_mask, sequence_ids)
    check_position_ids(position_ids, sequence_ids, config)
    return position_ids


def check_length(config: Any, length: int) -> None:
    """Refuse a text with more tokens than the table has positions."""
    if length > config.max_position_embeddings:
        raise ValueError(
            f"The input has {length} tokens and `max_position_embeddings` is {config.max_position_embeddings}: "
            "truncate it or split it into windows."
        )


def real_sequences(attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor) -> torch.Tensor:
    """The ids of packed sequences, 0 also where a mask hides tokens."""
    return sequence_ids if attention_mask is None else sequence_ids * attention_mask.to(sequence_ids.dtype)


def visible_function(
    attention_mask: Any, sequence_ids: torch.Tensor | None
) -> Callable[[Any, Any, Any, Any], torch.Tensor]:
    """Mask function: whether query `q` may look at key `kv`.

    Packed: both are of one sequence, or padding. Padded: the key is a real token; without any, everything is seen.
    """
    if sequence_ids is not None:
        ids = real_sequences(attention_mask, sequence_ids)
        return lambda batch, head, q, kv: ids[batch, q] == ids[batch, kv]
    real = attention_mask.to(torch.bool)
    real = real | ~real.any(dim=1, keepdim=True)
    return lambda batch, head, q, kv: real[batch, kv]


def has_empty_row(config: Any, attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None) -> bool:
    """Whether a padded batch has a row without any real token, where looking costs nothing."""
    if sequence_ids is not None or config._attn_implementation == "flex_attention":
        return False
    if not two_dimensional(attention_mask) or not values_can_be_read(attention_mask):
        return False
    return not bool(attention_mask.to(torch.bool).any(dim=1).all())


def build_attention_mask(
    config: Any, embeddings: torch.Tensor, attention_mask: Any, sequence_ids: torch.Tensor | None
) -> Any:
    """What the configured attention implementation takes for padded or packed rows, or for a finished mask alone."""
    if attention_mask is None and sequence_ids is None:
        return None
    if attention_mask is not None and not two_dimensional(attention_mask):
        return finished_mask(config, embeddings, attention_mask)
    if sequence_ids is not None and is_flash_attention_requested(config):
        return sequence_bounds(real_sequences(attention_mask, sequence_ids))
    if config._attn_implementation == "flex_attention":
        visible = visible_function(attention_mask, sequence_ids)
        if sequence_ids is None:
            return flex_mask(visible, embeddings, embeddings.shape[1])
        return packed_flex_mask(visible, real_sequences(attention_mask, sequence_ids))
    if sequence_ids is None:
        real = attention_mask.to(torch.bool)  # type: ignore[union-attr]
        empty = ~real.any(dim=1, keepdim=True)
        if has_empty_row(config, attention_mask, sequence_ids):
            bias = torch.zeros(real.shape, dtype=embeddings.dtype, device=embeddings.device)
            bias = bias.masked_fill(~real, torch.finfo(bias.dtype).min).masked_fill(empty, REFERENCE_PADDING_BIAS)
            return bias[:, None, None]
        return create_bidirectional_mask(config, embeddings, real | empty)
    return create_bidirectional_mask(
        config, embeddings, None, and_mask_function=visible_function(attention_mask, sequence_ids)
    )


@torch.compiler.disable
def sequence_bounds(ids: torch.Tensor) -> SequenceBounds:
    """Where the sequences of packed rows begin; a run of padding is one of them. Waits for the device.

    Both sizes are rounded up, since a compiled model is compiled for each: there are empty sequences at the end.
    """
    begins = run_begins(ids).flatten().nonzero().flatten()
    longest = int(nn.functional.pad(begins, (0, 1), value=ids.numel()).diff().max())
    number = 1 << (len(begins) - 1).bit_length()
    offsets = nn.functional.pad(begins, (0, number + 1 - len(begins)), value=ids.numel())
    return SequenceBounds(offsets.int(), -(-longest // BOUNDS_STEP) * BOUNDS_STEP)


def first_token_states(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    num_sequences: int | None = None,
) -> torch.Tensor:
    """State of each sequence's first token; without `num_sequences` it is the largest id (waits for the device)."""
    if sequence_ids is not None:
        if num_sequences is None:
            num_sequences = max(int(sequence_ids.max()), 1)
        numbers = torch.arange(1, num_sequences + 1, device=sequence_ids.device)
        first = first_place(sequence_ids[:, None, :] == numbers[None, :, None])
        return hidden_states.gather(1, first[..., None].expand(-1, -1, hidden_states.shape[-1]))
    if two_dimensional(attention_mask):
        first = first_place(attention_mask.to(torch.bool))
        return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]
    return hidden_states[:, 0]


def embedded_types(table: nn.Module, token_type_ids: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Token types by their table, type 0 if none are given; by a call of it, as it may be wrapped or quantised."""
    return table(torch.zeros(1, dtype=torch.long, device=like.device) if token_type_ids is None else token_type_ids)


class Embeddings(nn.Module):
    """Word, position and token-type embeddings, LayerNorm and dropout."""

    def __init__(self, config: Any):
        super().__init__()
        width = config.embedding_width
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        types_last: bool = False,
    ) -> torch.Tensor:
        """Add, normalise, drop.

        With `types_last` token types are added after the positions, as the reference does, not before, as upstream
        does. The last bit of the sum depends on it, and in an empty row the rounding of the scores.
        """
        token_types = embedded_types(self.token_type_embeddings, token_type_ids, inputs_embeds)
        added = (self.position_embeddings(position_ids), token_types)
        embeddings = inputs_embeds + added[0 if types_last else 1] + added[1 if types_last else 0]
        return self.dropout(self.LayerNorm(embeddings))
