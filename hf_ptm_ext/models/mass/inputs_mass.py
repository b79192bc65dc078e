"""What goes into MASS's encoder and decoder: positions, masks, and the decoder's input made from labels.

The t-th real token of a sequence (t = 0, 1, ...) has position t, whatever padding stands before it, so that left and
right padding give the same result. Position t is row pad_token_id + 1 + t of a table; row pad_token_id belongs to
padding and is zero, the rows before it are never read. These are the rows of the reference's tables.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from .configuration_mass import MassConfig
from .losses_mass import values_can_be_read
from .mask_contract_mass import finished_mask, flex_mask, two_dimensional


class MassPositionalEmbedding(nn.Embedding):
    """Learned positions behind the padding row.

    Args:
        num_positions: tokens that a sequence may have.
        embedding_dim: width.
        padding_idx: id of the padding token, whose row stands for "no position".
    """

    def __init__(self, num_positions: int, embedding_dim: int, padding_idx: int):
        super().__init__(num_positions + padding_idx + 1, embedding_dim, padding_idx)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        """`(batch or 1, seq_len, hidden)` from positions `(batch or 1, seq_len)`, -1 at padding."""
        return super().forward(positions + self.padding_idx + 1)


def source_limit(config: MassConfig) -> int:
    """Tokens that a source may have."""
    return config.max_position_embeddings if config.max_source_positions is None else config.max_source_positions


def target_limit(config: MassConfig) -> int:
    """Tokens that a target may have."""
    return config.max_position_embeddings if config.max_target_positions is None else config.max_target_positions


def count_positions(mask: torch.Tensor) -> torch.Tensor:
    """Position of each real token among the real tokens of its row.

    Args:
        mask: `(batch, seq_len)`, true or 1 at real tokens.

    Returns:
        `(batch, seq_len)` int64, -1 at padding.

    Example:
        >>> count_positions(torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])).tolist()
        [[-1, -1, 0, 1, 2], [0, 1, 2, -1, -1]]
    """
    real = mask.to(torch.bool).long()
    return real.cumsum(dim=1) * real - 1


def real_tokens(config: MassConfig, input_ids: torch.Tensor | None) -> torch.Tensor | None:
    """The mask that the reference reads off the ids: whatever is not padding is real.

    Args:
        config: has the padding token.
        input_ids: `(batch, seq_len)`, or `None`.

    Returns:
        `(batch, seq_len)` boolean, or `None` without ids.
    """
    return None if input_ids is None else input_ids != config.pad_token_id


def token_positions(
    mask: Any, embeddings: torch.Tensor, limit: int, side: str, past: int | torch.Tensor = 0
) -> torch.Tensor:
    """Positions of the tokens that a side is fed.

    Args:
        mask: `(batch, past + seq_len)`, 1 real and 0 padding; anything else means that all tokens are real.
        embeddings: `(batch, seq_len, hidden)` of the tokens fed.
        limit: tokens that the side may have.
        side: `"source"` or `"target"`, for the message.
        past: tokens in the cache.

    Returns:
        `(batch or 1, seq_len)`, -1 at padding.

    Raises:
        ValueError: a row has more tokens than the table has positions.
    """
    seq_len = embeddings.shape[1]
    counted = two_dimensional(mask)
    if counted:
        positions, width = count_positions(mask)[:, -seq_len:], mask.shape[1]
    else:
        positions = torch.arange(seq_len, device=embeddings.device)[None] + past
        width = limit if torch.is_tensor(past) else past + seq_len  # a static cache has no more room than its size
    if width > limit:
        readable = counted and not (torch.compiler.is_compiling() or mask.is_meta)
        longest = int(positions.max()) + 1 if readable else width
        if longest > limit:
            how = "truncate it" if side == "source" else "truncate it, or lower `max_new_tokens` in generation"
            raise ValueError(
                f"The {side} has {longest} tokens and there are {limit} positions (`max_{side}_positions`, by default "
                f"`max_position_embeddings`): {how}."
            )
    return positions


def check_position_ids(positions: torch.Tensor, seq_len: int, limit: int) -> None:
    """Refuse positions of another shape or, where looking costs nothing, outside the table.

    Args:
        positions: `(batch, seq_len)`, -1 at padding.
        seq_len: tokens fed.
        limit: positions of the table.

    Raises:
        ValueError: the shape does not fit, or a position is below -1 or not below `limit`.
    """
    if positions.shape[-1] != seq_len:
        raise ValueError(
            f"`decoder_position_ids` must have one position for each of the {seq_len} tokens fed, got the shape "
            f"{tuple(positions.shape)}."
        )
    if not values_can_be_read(positions) or not positions.numel():
        return
    lowest, highest = int(positions.min()), int(positions.max())
    if lowest < -1 or highest >= limit:
        raise ValueError(
            f"`decoder_position_ids` must be positions 0 <= position < {limit} (`max_target_positions`, by default "
            f"`max_position_embeddings`) or -1 at padding, got {lowest if lowest < -1 else highest}. They are counted "
            "from 0 at the first token of the original sequence."
        )


def check_source_mask(mask: Any) -> None:
    """Refuse a source mask with a row for each token of the source: it says nothing about what the target may see.

    Args:
        mask: as a caller gave it.

    Raises:
        ValueError: it has more than one query.
    """
    if torch.is_tensor(mask) and mask.dim() > 2 and mask.shape[-2] != 1:
        raise ValueError(
            "`attention_mask` must be (batch, source_len), or have one query for all, since the target sees the "
            f"source by it too, got shape {tuple(mask.shape)}. For a mask of the source alone call the encoder, and "
            "pass `encoder_outputs`."
        )


def padding_mask(
    config: MassConfig, states: torch.Tensor, mask: Any, encoder_states: torch.Tensor | None = None
) -> Any:
    """What the attention implementation takes to hide padding keys.

    Args:
        config: decides the implementation.
        states: `(batch, queries, hidden)`, for shape, dtype and device.
        mask: what `read_attention_mask` gave: `(batch, keys)`, or a finished mask; `None` hides nothing.
        encoder_states: `(batch, keys, hidden)` in cross-attention.

    Returns:
        An additive mask (eager), a boolean one (sdpa), a `BlockMask` (flex), or `None` when nothing is hidden.
    """
    if mask is not None and not two_dimensional(mask):
        return finished_mask(config, states, mask)
    if config._attn_implementation == "flex_attention" and mask is not None:
        real = mask.to(torch.bool)
        return flex_mask(lambda batch, head, q, kv: real[batch, kv], states, mask.shape[1])
    # Upstream leaves out a mask of ones, but looking at it makes an accelerator wait.
    may_look = mask is None or values_can_be_read(mask)
    return create_bidirectional_mask(
        config, states, mask, encoder_hidden_states=encoder_states, allow_is_bidirectional_skip=may_look
    )


def causal_mask(config: MassConfig, states: torch.Tensor, mask: Any, cache: Cache | None) -> Any:
    """What the attention implementation takes to hide later tokens, and padding if there is a mask.

    Args:
        config: decides the implementation.
        states: `(batch, queries, hidden)`.
        mask: as in `padding_mask`, `(batch, keys so far)`; a finished mask hides later tokens itself; `None` hides no
            padding: behind the real tokens it cannot be seen anyway.
        cache: keys and values of earlier tokens.

    Returns:
        As `padding_mask`; `None` leaves it to the implementation's own causal attention.
    """
    if mask is not None and not two_dimensional(mask):
        return finished_mask(config, states, mask)
    if config._attn_implementation == "flex_attention":
        queries = states.shape[1]
        past = 0 if cache is None else cache.get_seq_length()
        keys = queries if cache is None else cache.get_mask_sizes(queries, 0)[0]
        if mask is None:
            return flex_mask(lambda batch, head, q, kv: kv <= q + past, states, keys)
        real = nn.functional.pad(mask.to(torch.bool), (0, keys - mask.shape[1]))
        return flex_mask(lambda batch, head, q, kv: (kv <= q + past) & real[batch, kv], states, keys)
    may_look = mask is None or values_can_be_read(mask)
    return create_causal_mask(config, states, mask, cache, allow_is_causal_skip=may_look)


def check_start(start: Any, vocab_size: int) -> None:
    """Refuse a start token that the vocabulary has not, as the published models' 102 in a smaller one.

    Args:
        start: what the decoder is fed first; upstream's `generate` also takes `None`, and one for each row.
        vocab_size: entries of the vocabulary.

    Raises:
        ValueError: it is outside the vocabulary.
    """
    if isinstance(start, int) and not 0 <= start < vocab_size:
        raise ValueError(
            f"`decoder_start_token_id` must be the tokenizer's [SEP], below `vocab_size` = {vocab_size}, got {start}: "
            "the decoder is fed it first. Set it and `eos_token_id` to `tokenizer.sep_token_id`."
        )


def shift_right(ids: torch.Tensor, real: torch.Tensor, start: int, pad: int) -> torch.Tensor:
    """The decoder's input: the start token, then each token but the last, between the same padding.

    Args:
        ids: `(batch, seq_len)` target tokens.
        real: `(batch, seq_len)`, true at real tokens; holes among them count as tokens.
        start: what the decoder is fed first.
        pad: the padding token, also fed for a hole.

    Returns:
        `(batch, seq_len)`.

    Example:
        >>> ids = torch.tensor([[7, 8, 3, -100], [-100, 7, 8, 3]])
        >>> shift_right(ids, ids != -100, start=3, pad=0).tolist()
        [[3, 7, 8, 0], [0, 3, 7, 8]]
    """
    count = real.long().cumsum(dim=1)
    begun, ended = count > 0, count == count[:, -1:]
    inside = begun & ~(ended & ~real)
    previous = torch.cat([ids.new_full((ids.shape[0], 1), start), ids[:, :-1]], dim=1)
    first = real & (count == 1)
    shifted = previous.masked_fill(first, start).masked_fill(~inside, pad)
    return shifted.masked_fill(shifted == -100, pad)
