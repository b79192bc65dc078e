"""One state for each sequence: the first token's, the mean, the maximum, or the last token's."""

from typing import Any

import torch

from .inputs_kbert import first_token_states
from .visibility_kbert import Knowledge


def pooled_states(
    pooling: str,
    config: Any,
    states: torch.Tensor,
    real: torch.Tensor | None,
    knowledge: Knowledge | None,
    sequence_ids: torch.Tensor | None,
    num_sequences: int | None,
) -> torch.Tensor:
    """Pool the states of each sequence.

    Args:
        pooling: `"first"`, `"mean"`, `"max"` (over all tokens, knowledge included) or `"last"` (the last token of the
            trunk: a branch behind it is not the end of the text).
        config: under `reference_padding` rows that are not packed are pooled with their padding, and the last token is
            the row's.
        states: `(batch, seq_len, hidden)`.
        real: `(batch, seq_len)`, or `None` without padding.
        knowledge: the tree, or `None`.
        sequence_ids: `(batch, seq_len)` of packed rows, or `None`.
        num_sequences: S of packed rows; `None` reads the largest id (which waits for the device).

    Returns:
        `(batch, hidden)` or, packed, `(batch, S, hidden)`. For an absent sequence the mean and the maximum are 0, the
        others the state at position 0.
    """
    if pooling == "first":
        return first_token_states(states, real, sequence_ids, num_sequences)
    if sequence_ids is not None:
        return _pool(pooling, states, sequence_members(sequence_ids, real, num_sequences), knowledge)
    if config.reference_padding:
        real = knowledge = None
    if real is None:
        real = torch.ones_like(states[..., 0], dtype=torch.bool)
    return _pool(pooling, states, real[:, None], knowledge)[:, 0]


def sequence_members(sequence_ids: torch.Tensor, real: torch.Tensor | None, num_sequences: int | None) -> torch.Tensor:
    """Which tokens belong to each packed sequence.

    Args:
        sequence_ids: `(batch, seq_len)`, 1..S within a row, 0 = padding.
        real: `(batch, seq_len)`, or `None`.
        num_sequences: S; `None` reads the largest id.

    Returns:
        `(batch, S, seq_len)` boolean.
    """
    if num_sequences is None:
        num_sequences = max(int(sequence_ids.max()), 1)
    numbers = torch.arange(1, num_sequences + 1, device=sequence_ids.device)
    members = sequence_ids[:, None, :] == numbers[None, :, None]
    return members if real is None else members & real[:, None]


def _pool(pooling: str, states: torch.Tensor, members: torch.Tensor, knowledge: Knowledge | None) -> torch.Tensor:
    """`(batch, S, hidden)` from states and `(batch, S, seq_len)` members."""
    if pooling == "mean":
        weights = members.to(states.dtype)
        return weights @ states / weights.sum(dim=-1, keepdim=True).clamp(min=1)
    if pooling == "max":
        lowest = torch.finfo(states.dtype).min
        highest = [states.masked_fill(~one[..., None], lowest).amax(dim=1) for one in members.unbind(1)]
        return torch.stack(highest, dim=1).masked_fill(~members.any(dim=-1, keepdim=True), 0.0)
    if knowledge is not None:
        members = members & (knowledge.branches == 0)[:, None]
    places = torch.arange(states.shape[1], device=states.device)
    last = torch.where(members, places, 0).amax(dim=-1)
    return states.gather(1, last[..., None].expand(-1, -1, states.shape[-1]))
