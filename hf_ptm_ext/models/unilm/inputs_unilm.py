"""What goes into UniLM's encoder: attention modes, token types, positions, embeddings; and each first token.

A sequence is [CLS] source [SEP] target [SEP] (or [CLS] a [SEP]); `source_lengths` counts [CLS] source [SEP]. Query i
may look at key j of the same sequence

    mode 0, bidirectional:  always          mode 2, right-to-left:  j >= i
    mode 1, left-to-right:  j <= i          mode 3, seq2seq:        j is in the source, or j <= i

so every token sees itself, and source tokens see the source alone. The masks are functions of per-token ids, and no
(length, length) tensor is ever passed in. Padding sees padding, so that no query is without a key.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from .configuration_unilm import UniLMConfig
from .heads_unilm import values_can_be_read

BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ = range(4)


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
    counted = positions - torch.where(starts, positions, 0).cummax(dim=1).values
    return torch.where(ids == 0, 0, counted)


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


def check_modes(lm_mode: torch.Tensor, ids: torch.Tensor | None) -> None:
    """Refuse modes that do not exist, where looking costs nothing: such a token would see nothing at all.

    Args:
        lm_mode: `(batch,)` or `(batch, S)`.
        ids: `(batch, seq_len)` sequence ids, or `None`.

    Raises:
        ValueError: a mode is not one of 0 to 3, or modes of several sequences come without `sequence_ids`.
    """
    if lm_mode.dim() > 1 and ids is None:
        raise ValueError(
            f"`lm_mode` must be `(batch,)` without `sequence_ids`, got {tuple(lm_mode.shape)}: pass `sequence_ids` of "
            "the packed rows, or one mode per row."
        )
    if (
        values_can_be_read(lm_mode)
        and lm_mode.numel()
        and not 0 <= int(lm_mode.min()) <= int(lm_mode.max()) <= SEQ2SEQ
    ):
        raise ValueError(
            "`lm_mode` must be 0 (bidirectional), 1 (left-to-right), 2 (right-to-left) or 3 (seq2seq), got "
            f"{sorted(set(lm_mode.flatten().tolist()))}."
        )


def per_token(values: torch.Tensor, ids: torch.Tensor | None, seq_len: int) -> torch.Tensor:
    """Spread a value per sequence over its tokens.

    Args:
        values: `(batch,)`, or `(batch, S)` of packed rows.
        ids: `(batch, seq_len)` sequence ids, 0 = padding.
        seq_len: length of the rows.

    Returns:
        `(batch, seq_len)`; 0 on padding.
    """
    if values.dim() == 1:
        spread = values[:, None].expand(-1, seq_len)
        return spread if ids is None else torch.where(ids == 0, 0, spread)
    return torch.where(ids == 0, 0, values.gather(1, (ids - 1).clamp(min=0)))


def source_tokens(
    config: UniLMConfig,
    index: torch.Tensor,
    ids: torch.Tensor | None,
    lm_mode: torch.Tensor,
    source_lengths: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
) -> torch.Tensor:
    """Which tokens are the first segment.

    Args:
        config: has `source_type_id`.
        index: `(batch, seq_len)` number of each token in its sequence.
        ids: `(batch, seq_len)` sequence ids, or `None`.
        lm_mode: `(batch,)` or `(batch, S)`.
        source_lengths: `(batch,)` or `(batch, S)`; without it `token_type_ids` tell.
        token_type_ids: `(batch, seq_len)`, or `None`.

    Returns:
        `(batch, seq_len)` boolean.

    Raises:
        ValueError: a sequence is in seq2seq mode, and neither lengths nor token types are there.
    """
    if source_lengths is not None:
        return index < per_token(source_lengths, ids, index.shape[1])
    if token_type_ids is not None:
        return token_type_ids == config.source_type_id
    if not values_can_be_read(lm_mode) or bool((lm_mode == SEQ2SEQ).any()):
        raise ValueError(
            "`lm_mode` 3 (seq2seq) needs `source_lengths`, the number of tokens of [CLS] source [SEP] in each "
            "sequence, or `token_type_ids` that tell source from target. Give one of them."
        )
    return torch.zeros_like(index, dtype=torch.bool)


def default_token_types(
    config: UniLMConfig, modes: torch.Tensor, is_source: torch.Tensor, ids: torch.Tensor | None
) -> torch.Tensor:
    """UniLM's token types: 0/1 bidirectional, 2 left-to-right, 3 right-to-left, source and target in seq2seq.

    Args:
        config: has the types of seq2seq mode.
        modes: `(batch, seq_len)` mode of each token.
        is_source: `(batch, seq_len)` first segment; where lengths are unknown nothing is, and all of mode 0 is type 0.
        ids: `(batch, seq_len)` sequence ids, or `None`; padding is type 0.

    Returns:
        `(batch, seq_len)`.

    Raises:
        ValueError: the token-type table lacks a row that a mode needs.
    """
    # No table of types: copying one to the device would wait for it.
    in_seq2seq = torch.where(is_source, config.source_type_id, config.target_type_id)
    bidirectional = (~is_source & is_source.any(dim=1, keepdim=True)).long()
    types = torch.where(modes == BIDIRECTIONAL, bidirectional, torch.where(modes == SEQ2SEQ, in_seq2seq, modes + 1))
    types = types if ids is None else torch.where(ids == 0, 0, types)
    if values_can_be_read(types) and types.numel() and int(types.max()) >= config.type_vocab_size:
        raise ValueError(
            f"The token types of these modes reach {int(types.max())} and `type_vocab_size` is "
            f"{config.type_vocab_size}. Convert the checkpoint (`hf-ptm-ext convert unilm` extends a BERT table to 6 "
            "rows), set `source_type_id` and `target_type_id`, or pass `token_type_ids`."
        )
    return types


def visible_function(
    ids: torch.Tensor, modes: torch.Tensor, is_source: torch.Tensor
) -> Callable[[Any, Any, Any, Any], torch.Tensor]:
    """Mask function of the four modes.

    Args:
        ids: `(batch, seq_len)` sequence ids, 0 = padding.
        modes: `(batch, seq_len)` mode of each token, 0 on padding.
        is_source: `(batch, seq_len)` first segment.

    Returns:
        A function of (batch, head, query, key) indices.
    """

    def visible(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
        mode = modes[batch, q]
        allowed = (
            (mode == BIDIRECTIONAL)
            | ((mode == LEFT_TO_RIGHT) & (kv <= q))
            | ((mode == RIGHT_TO_LEFT) & (kv >= q))
            | ((mode == SEQ2SEQ) & (is_source[batch, kv] | (kv <= q)))
        )
        return (ids[batch, q] == ids[batch, kv]) & allowed

    return visible


def unilm_attention_mask(
    lm_mode: torch.Tensor, lengths: torch.Tensor, source_lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """The attention mask of UniLM's modes as a boolean tensor, for use with another model.

    Boolean masks (true = may attend) are what `torch.nn.functional.scaled_dot_product_attention` takes; for a model
    that adds its mask to the scores, use `torch.where(mask, 0.0, torch.finfo(dtype).min)`; for one that takes 1 and 0,
    `mask.long()`.

    Args:
        lm_mode: `(batch,)` 0 bidirectional, 1 left-to-right, 2 right-to-left, 3 seq2seq.
        lengths: `(batch,)` number of tokens of each row, padding on the right.
        source_lengths: `(batch,)` tokens of [CLS] source [SEP], needed for mode 3.

    Returns:
        `(batch, 1, seq_len, seq_len)` boolean, query by key; padding sees padding.

    Example:
        >>> mask = unilm_attention_mask(torch.tensor([3]), torch.tensor([4]), torch.tensor([2]))
        >>> mask[0, 0].int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    seq_len = int(lengths.max())
    ids = (torch.arange(seq_len, device=lengths.device)[None] < lengths[:, None]).long()
    index = index_in_sequence(ids.shape, ids.device, ids)
    modes = per_token(lm_mode, ids, seq_len)
    is_source = source_tokens(None, index, ids, lm_mode, source_lengths, None)
    batch = torch.arange(len(lengths), device=lengths.device)[:, None, None]
    q, kv = torch.arange(seq_len, device=lengths.device)[:, None], torch.arange(seq_len, device=lengths.device)
    return visible_function(ids, modes, is_source)(batch, None, q[None], kv[None, None])[:, None]


def build_attention_mask(
    config: UniLMConfig,
    embeddings: torch.Tensor,
    ids: torch.Tensor | None,
    modes: torch.Tensor | None,
    is_source: torch.Tensor | None,
) -> Any:
    """What the configured attention implementation takes.

    Args:
        config: decides the implementation.
        embeddings: `(batch, seq_len, hidden)`, for shape, dtype and device.
        ids: `(batch, seq_len)` sequence ids, or `None` without padding and packing.
        modes: `(batch, seq_len)`, or `None` for bidirectional attention.
        is_source: `(batch, seq_len)` with `modes`.

    Returns:
        An additive mask (eager), a boolean one (sdpa), a `BlockMask` (flex), or `None` when nothing is hidden.
    """
    if ids is None and modes is None:
        return None
    batch, seq_len = embeddings.shape[:2]
    if ids is None:
        ids = torch.ones(batch, seq_len, dtype=torch.long, device=embeddings.device)
    if modes is None:
        modes = torch.zeros_like(ids)
        is_source = torch.zeros_like(ids, dtype=torch.bool)
    function = visible_function(ids, modes, is_source)
    if config._attn_implementation == "flex_attention":
        # Upstream's builder cannot be traced into a compiled graph; building the blocks here can.
        from torch.nn.attention.flex_attention import create_block_mask

        return create_block_mask(function, batch, None, seq_len, seq_len, device=embeddings.device)
    return create_bidirectional_mask(config, embeddings, None, and_mask_function=function)


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
