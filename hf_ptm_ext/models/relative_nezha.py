"""Functional relative positions (Wei et al. 2019, section 2.3): sinusoids of the distance, in scores and values.

    score(i, j) = (q_i . k_j + q_i . R[i, j]) / sqrt(d),    output_i = sum_j softmax(score)_ij (v_j + R[i, j])
    R[i, j][2m] = sin(p / 10000^(2m/d)),  R[i, j][2m + 1] = cos(p / 10000^(2m/d)),  p = clip(j - i, -k, k) + k

k is `max_relative_position` and d the size of a head. The second sum needs the attention weights, which fused kernels
never hold: eager and sdpa attention are the same computation here, and flex and flash attention are refused.
"""

from typing import Any

import torch
from torch import nn

from .losses_core import values_can_be_read


def sinusoid_table(max_relative_position: int, head_size: int, device: torch.device) -> torch.Tensor:
    """The encodings of all distances from -k to k."""
    dtype = torch.float64 if device.type in ("cpu", "cuda") else torch.float32
    places = torch.arange(2 * max_relative_position + 1, dtype=dtype, device=device)
    powers = torch.arange(0, head_size - 1, 2, dtype=dtype, device=device) / head_size
    angles = places[:, None] / torch.pow(10000.0, powers)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return nn.functional.pad(table, (0, head_size % 2))


def relative_encodings(
    seq_len: int, max_relative_position: int, head_size: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """R for a row of tokens."""
    table = sinusoid_table(max_relative_position, head_size, device).to(dtype)
    places = torch.arange(seq_len, device=device)
    distances = (places[None, :] - places[:, None]).clamp(-max_relative_position, max_relative_position)
    return table[distances + max_relative_position]


def relative_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    relative_encodings: torch.Tensor,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention with `(seq_len, seq_len, head_size)` encodings of distances in scores and values."""
    scores = torch.matmul(query, key.transpose(2, 3))
    # The reference's order of sums, on which the rounding of a row of padding depends.
    scores = (scores + torch.einsum("bhqd,qkd->bhqk", query, relative_encodings)) / (1 / scaling)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    context = torch.matmul(weights, value) + torch.einsum("bhqk,qkd->bhqd", weights, relative_encodings)
    return context.transpose(1, 2), weights


def check_consecutive(position_ids: torch.Tensor, real: torch.Tensor | None) -> None:
    """Refuse positions that are not the places in the row, where looking costs nothing; the numbers are not read."""
    if not values_can_be_read(position_ids):
        return
    steps = position_ids[:, 1:] - position_ids[:, :-1]
    wrong = steps != 1
    if real is not None:
        wrong &= (real[:, 1:] == real[:, :-1]) & (real[:, 1:] != 0)
    if wrong.any():
        row, place = wrong.nonzero()[0].tolist()
        raise ValueError(
            "`position_ids` must rise by 1 from token to token of a sequence, since NEZHA counts distances in the "
            f"row; got a step of {int(steps[row, place])} behind token {place} of row {row}. Leave them out."
        )
