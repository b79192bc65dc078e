"""UniLM's attention modes: which tokens may see which, and the token types that tell the modes apart.

A sequence is [CLS] source [SEP] target [SEP] (or [CLS] a [SEP]); `source_lengths` counts [CLS] source [SEP]. Query i
may look at key j of the same sequence

    mode 0, bidirectional:  always          mode 2, right-to-left:  j >= i
    mode 1, left-to-right:  j <= i          mode 3, seq2seq:        j is in the source, or j <= i

so every token sees itself, and source tokens see the source alone. The masks are functions of per-token ids, and no
(length, length) tensor is ever passed in. Padding sees padding, so that no query is without a key.

Pseudo-masked fine-tuning (UniLMv2, Bao et al. 2020, https://arxiv.org/abs/2002.12804; microsoft/unilm, s2s-ft) appends
one pseudo token for each of the m target tokens, `pseudo_lengths` = m. The pseudo token of target token t has its
position and its token type, sees the source, the target before t, and itself; no other token sees it. So all of a
target is predicted in one pass, each word from the text on its left.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers.masking_utils import create_bidirectional_mask

from .configuration_unilm import UniLMConfig
from .heads_unilm import values_can_be_read
from .inputs_unilm import index_in_sequence
from .mask_contract_unilm import flex_mask

BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ = range(4)


class PseudoTokens(NamedTuple):
    """Where a batch's pseudo tokens are.

    Args:
        is_pseudo: `(batch, seq_len)` boolean.
        index: `(batch, seq_len)` number of each token in its sequence, of a pseudo token that of its target token.
    """

    is_pseudo: torch.Tensor
    index: torch.Tensor


def check_modes(lm_mode: torch.Tensor, ids: torch.Tensor | None) -> None:
    """Refuse modes that do not exist, where looking costs nothing: such a token would see nothing at all.

    Args:
        lm_mode: `(batch,)` or `(batch, S)`.
        ids: `(batch, seq_len)` sequence ids, or `None`.

    Raises:
        TypeError: the modes are no tensor.
        ValueError: a mode is not one of 0 to 3, or modes of several sequences come without `sequence_ids`.
    """
    if not torch.is_tensor(lm_mode):
        raise TypeError(
            f"`lm_mode` must be a tensor `(batch,)` with one mode per row, got {lm_mode!r}: use "
            "`torch.full((batch,), mode)`."
        )
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


def pseudo_tokens(
    index: torch.Tensor,
    ids: torch.Tensor | None,
    lm_mode: torch.Tensor | None,
    source_lengths: torch.Tensor | None,
    pseudo_lengths: torch.Tensor,
) -> PseudoTokens:
    """The tokens behind source and target that stand for the target's.

    Args:
        index: `(batch, seq_len)` number of each token in its sequence.
        ids: `(batch, seq_len)` sequence ids, or `None`.
        lm_mode: `(batch,)` or `(batch, S)`.
        source_lengths: `(batch,)` or `(batch, S)`.
        pseudo_lengths: the same shape: target tokens, which are as many as the pseudo tokens; 0 = none of them.

    Returns:
        Where they are, and what they stand for.

    Raises:
        ValueError: the sequences are in another mode, their source is unknown, or they have another length.
    """
    if source_lengths is None or lm_mode is None:
        raise ValueError(
            "`pseudo_lengths` needs `source_lengths` and `lm_mode` 3: pseudo tokens stand behind source and target."
        )
    seq_len = index.shape[1]
    count = per_token(pseudo_lengths, ids, seq_len)
    is_pseudo = (count > 0) & (index >= per_token(source_lengths, ids, seq_len) + count)
    if values_can_be_read(pseudo_lengths):
        if bool(((pseudo_lengths > 0) & (lm_mode != SEQ2SEQ)).any()):
            raise ValueError(
                f"`pseudo_lengths` must be 0 where `lm_mode` is not 3 (seq2seq), got {pseudo_lengths.tolist()} for "
                f"the modes {lm_mode.tolist()}."
            )
        got, asked = is_pseudo.sum(dim=1), pseudo_lengths.reshape(pseudo_lengths.shape[0], -1).sum(dim=1)
        if bool((got != asked).any()):
            raise ValueError(
                "`pseudo_lengths` must be m in sequences of `source_lengths` + 2 m tokens, got "
                f"{pseudo_lengths.tolist()}, which leaves {got.tolist()} pseudo tokens in each row: append one to the "
                "target for each of its tokens, [SEP] included."
            )
    return PseudoTokens(is_pseudo, torch.where(is_pseudo, index - count, index))


def own_token_types(config: UniLMConfig, modes: torch.Tensor, token_type_ids: torch.Tensor) -> torch.Tensor:
    """Seq2seq types for the 0 and 1 with which a tokenizer tells two segments apart.

    Args:
        config: has the types of seq2seq mode.
        modes: `(batch, seq_len)` mode of each token, 0 on padding.
        token_type_ids: `(batch, seq_len)`.

    Returns:
        `(batch, seq_len)`: in rows whose seq2seq tokens have none of the family's two types, 0 and 1 are replaced by
        them; other types and rows stay.
    """
    in_seq2seq = modes == SEQ2SEQ
    own = (token_type_ids == config.source_type_id) | (token_type_ids == config.target_type_id)
    foreign = in_seq2seq & ~(own & in_seq2seq).any(dim=1, keepdim=True)
    types = torch.where(foreign & (token_type_ids == 0), config.source_type_id, token_type_ids)
    return torch.where(foreign & (token_type_ids == 1), config.target_type_id, types)


def types_by_separator(
    config: UniLMConfig, input_ids: torch.Tensor | None, ids: torch.Tensor | None, packed: bool
) -> torch.Tensor:
    """Seq2seq token types of sequences about which nothing else is said: the source ends with the first [SEP].

    A sequence of one [SEP] or none is all source, as a prompt is.

    Args:
        config: has [SEP] (`eos_token_id`) and the types.
        input_ids: `(batch, seq_len)`, or `None`.
        ids: `(batch, seq_len)` sequence ids, 0 = padding, or `None`.
        packed: whether each run of equal ids is a sequence, or a row.

    Returns:
        `(batch, seq_len)`; padding is type 0.

    Raises:
        ValueError: there are no ids or no [SEP] to look for, or a sequence has more than two of them.
    """
    ends = config.eos_token_id
    if input_ids is None or ends is None:
        raise ValueError(
            "Seq2seq mode, the default here, needs `source_lengths`, the number of tokens of [CLS] source [SEP] in "
            "each sequence, or `token_type_ids` that tell source from target. Give one of them, or another `lm_mode`."
        )
    is_end = torch.zeros_like(input_ids, dtype=torch.bool)
    for end in [ends] if isinstance(ends, int) else ends:
        is_end |= input_ids == end
    if ids is not None:
        is_end &= ids != 0
    before = is_end.long().cumsum(dim=1) - is_end.long()
    if packed:
        columns = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        start = columns - index_in_sequence(input_ids.shape, input_ids.device, ids, packed=True)
        before = before - before.gather(1, start)
    if not torch.compiler.is_compiling() and bool(((before >= 2) & is_end).any()):
        raise ValueError(
            "`source_lengths` or `token_type_ids` must say where the source ends: a sequence has more than two [SEP] "
            f"(id {ends}), so [CLS] source [SEP] target [SEP] cannot be read off it. Give one of them."
        )
    types = torch.where(before == 0, config.source_type_id, config.target_type_id)
    return types if ids is None else torch.where(ids == 0, 0, types)


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
    """
    # No table of types: copying one to the device would wait for it.
    in_seq2seq = torch.where(is_source, config.source_type_id, config.target_type_id)
    bidirectional = (~is_source & is_source.any(dim=1, keepdim=True)).long()
    types = torch.where(modes == BIDIRECTIONAL, bidirectional, torch.where(modes == SEQ2SEQ, in_seq2seq, modes + 1))
    return types if ids is None else torch.where(ids == 0, 0, types)


def check_token_types(config: UniLMConfig, token_type_ids: torch.Tensor | None) -> None:
    """Refuse types that the table does not have, where looking costs nothing.

    Args:
        config: has the size of the table.
        token_type_ids: `(batch, seq_len)`, or `None`.

    Raises:
        ValueError: a type is negative or not below `type_vocab_size`.
    """
    if token_type_ids is None or not values_can_be_read(token_type_ids) or not token_type_ids.numel():
        return
    lowest, highest = int(token_type_ids.min()), int(token_type_ids.max())
    if lowest < 0 or highest >= config.type_vocab_size:
        raise ValueError(
            f"Token types (`token_type_ids`, or those of the modes) must be in [0, {config.type_vocab_size}), got "
            f"{lowest if lowest < 0 else highest}: `type_vocab_size` is {config.type_vocab_size}. Convert the "
            "checkpoint (`hf-ptm-ext convert unilm` extends a BERT table to 6 rows), set `source_type_id` and "
            "`target_type_id`, or pass `token_type_ids`."
        )


def visible_function(
    ids: torch.Tensor, modes: torch.Tensor, is_source: torch.Tensor, pseudo: PseudoTokens | None = None
) -> Callable[[Any, Any, Any, Any], torch.Tensor]:
    """Mask function of the four modes.

    Args:
        ids: `(batch, seq_len)` sequence ids, 0 = padding.
        modes: `(batch, seq_len)` mode of each token, 0 on padding.
        is_source: `(batch, seq_len)` first segment.
        pseudo: the pseudo tokens, if there are any.

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

    if pseudo is None:
        return visible

    def visible_beside_pseudo(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
        is_pseudo = pseudo.is_pseudo[batch, q]
        left_of_it = pseudo.index[batch, kv] < pseudo.index[batch, q]
        seen = visible(batch, head, q, kv) & ~pseudo.is_pseudo[batch, kv] & (~is_pseudo | left_of_it)
        return seen | (q == kv)

    return visible_beside_pseudo


def unilm_attention_mask(
    lm_mode: torch.Tensor,
    lengths: torch.Tensor,
    source_lengths: torch.Tensor | None = None,
    pseudo_lengths: torch.Tensor | None = None,
) -> torch.Tensor:
    """The attention mask of UniLM's modes as a boolean tensor, for use with another model.

    Boolean masks (true = may attend) are what `torch.nn.functional.scaled_dot_product_attention` takes; for a model
    that adds its mask to the scores, use `torch.where(mask, 0.0, torch.finfo(dtype).min)`; for one that takes 1 and 0,
    `mask.long()`.

    Args:
        lm_mode: `(batch,)` 0 bidirectional, 1 left-to-right, 2 right-to-left, 3 seq2seq.
        lengths: `(batch,)` number of tokens of each row, padding on the right.
        source_lengths: `(batch,)` tokens of [CLS] source [SEP], needed for mode 3.
        pseudo_lengths: `(batch,)` target tokens of rows that have a pseudo token for each behind them, 0 elsewhere.

    Returns:
        `(batch, 1, seq_len, seq_len)` boolean, query by key; padding sees padding.

    Raises:
        TypeError: `lm_mode` is no tensor.
        ValueError: modes or lengths that cannot be.

    Example:
        >>> mask = unilm_attention_mask(torch.tensor([3]), torch.tensor([4]), torch.tensor([2]))
        >>> mask[0, 0].int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    seq_len = int(lengths.max())
    ids = (torch.arange(seq_len, device=lengths.device)[None] < lengths[:, None]).long()
    check_modes(lm_mode, ids)
    index = index_in_sequence(ids.shape, ids.device, ids)
    modes = per_token(lm_mode, ids, seq_len)
    is_source = source_tokens(None, index, ids, lm_mode, source_lengths, None)
    pseudo = None
    if pseudo_lengths is not None:
        pseudo = pseudo_tokens(index, ids, lm_mode, source_lengths, pseudo_lengths)
    batch = torch.arange(lengths.shape[0], device=lengths.device)[:, None, None]
    q, kv = torch.arange(seq_len, device=lengths.device)[:, None], torch.arange(seq_len, device=lengths.device)
    return visible_function(ids, modes, is_source, pseudo)(batch, None, q[None], kv[None, None])[:, None]


def build_attention_mask(
    config: UniLMConfig,
    embeddings: torch.Tensor,
    ids: torch.Tensor | None,
    modes: torch.Tensor | None,
    is_source: torch.Tensor | None,
    pseudo: PseudoTokens | None = None,
) -> Any:
    """The attention mask in the form that the attention implementation wants.

    Args:
        config: names the attention implementation.
        embeddings: `(batch, seq_len, hidden)`, for shape, dtype and device.
        ids: `(batch, seq_len)` sequence ids, 0 = padding; `None` without padding and packing.
        modes: `(batch, seq_len)`, or `None` for bidirectional attention.
        is_source: `(batch, seq_len)` with `modes`.
        pseudo: the pseudo tokens, if there are any.

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
    function = visible_function(ids, modes, is_source, pseudo)
    if config._attn_implementation == "flex_attention":
        return flex_mask(function, embeddings, seq_len)
    return create_bidirectional_mask(config, embeddings, None, and_mask_function=function)
