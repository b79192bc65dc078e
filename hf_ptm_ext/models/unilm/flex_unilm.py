# Generated from models/canonical/inputs_canonical.py by scripts/sync_copies.py; change that file.
"""Masks of tokens for flex attention."""

from collections.abc import Callable
from typing import Any

import torch


def two_dimensional(mask: Any) -> bool:
    """Whether a mask is one of tokens, `(batch, tokens)`, and no finished one."""
    return torch.is_tensor(mask) and mask.dim() == 2


def flex_mask(visible: Callable[..., torch.Tensor], states: torch.Tensor, keys: int) -> Any:
    """The block mask of a function; upstream's builder cannot be traced into a compiled graph.

    Args:
        visible: function of (batch, head, query, key) indices.
        states: `(batch, queries, hidden)`.
        keys: number of keys.

    Returns:
        A `BlockMask`.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(visible, states.shape[0], None, states.shape[1], keys, device=states.device)
