"""Languages, masks and positions of MASS-NMT's inputs.

A row has one source and one target language. Positions count real tokens from 0, so padding on either side changes
nothing; the decoder of pre-training gets the original positions of the few tokens it is fed.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from .configuration_mass_nmt import MassNmtConfig
from .losses_mass_nmt import values_can_be_read
from .mask_contract_mass_nmt import finished_mask, flex_mask, two_dimensional


def languages(
    config: MassNmtConfig, langs: torch.Tensor | None, batch: int, device: torch.device, name: str
) -> torch.Tensor:
    """Check language ids, as `(batch,)` or `(batch, seq_len)`.

    Args:
        config: has the number of languages.
        langs: ids `(batch,)`, `(batch, 1)` or, per token, `(batch, seq_len)`; `None` will do for one language.
        batch: rows of the input.
        device: of the input.
        name: the argument they came in, for the messages.

    Returns:
        The ids, zeros for one language without any.

    Raises:
        ValueError: ids are missing, of another shape, or not those of a language.
    """
    known = f"the languages are {config.lang2id}" if config.lang2id else f"`n_langs` is {config.n_langs}"
    if langs is None:
        if config.n_langs > 1:
            raise ValueError(
                f"`{name}` must be given: a `(batch,)` tensor with the language id of each row ({known}), got none."
            )
        return torch.zeros(batch, dtype=torch.long, device=device)
    if not torch.is_tensor(langs) or langs.dim() not in (1, 2) or langs.shape[0] != batch:
        got = f"the shape {tuple(langs.shape)}" if torch.is_tensor(langs) else repr(langs)
        raise ValueError(f"`{name}` must be a tensor of language ids, `(batch,)` with batch = {batch}, got {got}.")
    if values_can_be_read(langs):
        wrong = langs[(langs < 0) | (langs >= config.n_langs)]
        if wrong.numel():
            raise ValueError(f"`{name}` must be ids of languages, {known}, got {sorted(set(wrong.tolist()))}.")
    return langs.to(device)


def language_ids(
    config: MassNmtConfig, langs: torch.Tensor | int | str | None, batch: int, device: torch.device, name: str
) -> torch.Tensor:
    """Language ids of rows from what `generate` takes.

    Args:
        config: has the languages.
        langs: one id or code for all rows, or ids per row.
        batch: number of rows.
        device: where the ids should be.
        name: the argument they came in.

    Returns:
        `(batch,)` ids.

    Raises:
        ValueError: a code that `config.lang2id` lacks, or as `languages`.
    """
    if isinstance(langs, str):
        if langs not in (config.lang2id or {}):
            known = ", ".join(config.lang2id or {}) or "none: `config.lang2id` is not set, pass an id"
            raise ValueError(f"`{name}` must be a language of the model ({known}), got {langs!r}.")
        langs = config.lang2id[langs]
    if isinstance(langs, int):
        langs = torch.full((batch,), langs, device=device)
    return row_languages(languages(config, langs, batch, device, name))


def row_languages(langs: torch.Tensor) -> torch.Tensor:
    """The language of each row, `(batch,)`: as the reference takes a batch's, the largest id of its tokens."""
    return langs if langs.dim() == 1 else langs.amax(dim=1)


def padding_mask(config: MassNmtConfig, input_ids: torch.Tensor | None) -> torch.Tensor | None:
    """Real tokens of ids that came without a mask: all but the padding token.

    Args:
        config: has the padding token.
        input_ids: `(batch, seq_len)`, or `None`.

    Returns:
        `(batch, seq_len)` bool, or `None` where nothing tells them apart.
    """
    pad = config.pad_token_id
    return None if input_ids is None or pad is None else input_ids != pad


def visible_source(
    config: MassNmtConfig, input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> torch.Tensor | None:
    """What of the source the decoder sees: real tokens, [MASK] aside. Tokens replaced at random stay visible.

    Args:
        config: has the [MASK] token.
        input_ids: `(batch, source_len)`; without ids no [MASK] is known.
        attention_mask: `(batch, source_len)`, or `None` for all.

    Returns:
        `(batch, source_len)` bool, or `None` for all.

    Raises:
        ValueError: the mask is of another form.
    """
    if torch.is_tensor(attention_mask) and attention_mask.dim() != 2:
        raise ValueError(
            f"`attention_mask` must be `(batch, source_len)`, got the shape {tuple(attention_mask.shape)}."
        )
    seen = None if attention_mask is None else attention_mask.bool()
    if input_ids is None or config.mask_token_id is None:
        return seen
    unmasked = input_ids != config.mask_token_id
    return unmasked if seen is None else seen & unmasked


def padding_keys(
    config: MassNmtConfig,
    inputs_embeds: torch.Tensor,
    mask: torch.Tensor | None,
    source_states: torch.Tensor | None = None,
) -> Any:
    """What the attention implementation takes to hide keys from all queries alike.

    Args:
        config: decides the implementation.
        inputs_embeds: `(batch, queries, hidden)`.
        mask: `(batch, keys)`, or `None` for all.
        source_states: `(batch, keys, hidden)` in cross-attention.

    Returns:
        An additive mask (eager), a boolean one (sdpa), a `BlockMask` (flex), or `None` when nothing is hidden.
    """
    if mask is not None and not two_dimensional(mask):
        return finished_mask(config, inputs_embeds, mask)
    if config._attn_implementation == "flex_attention" and mask is not None:
        real = mask.to(torch.bool)
        return flex_mask(lambda batch, head, q, kv: real[batch, kv], inputs_embeds, mask.shape[1])
    # Upstream leaves out a mask of ones, but looking at it makes an accelerator wait.
    may_look = mask is None or values_can_be_read(mask)
    return create_bidirectional_mask(
        config, inputs_embeds, mask, encoder_hidden_states=source_states, allow_is_bidirectional_skip=may_look
    )


def causal_keys(
    config: MassNmtConfig, inputs_embeds: torch.Tensor, mask: Any, cache: EncoderDecoderCache | None
) -> Any:
    """What the attention implementation takes to hide later tokens, and padding if there is a mask.

    Args:
        config: decides the implementation.
        inputs_embeds: `(batch, queries, hidden)`.
        mask: `(batch, keys so far)`; a finished mask hides later tokens itself.
        cache: keys and values of earlier tokens.

    Returns:
        As `padding_keys`; `None` leaves it to the implementation's own causal attention.
    """
    own = None if cache is None else cache.self_attention_cache
    if mask is not None and not two_dimensional(mask):
        return finished_mask(config, inputs_embeds, mask)
    if config._attn_implementation == "flex_attention":
        queries = inputs_embeds.shape[1]
        past = 0 if own is None else own.get_seq_length()
        keys = queries if own is None else own.get_mask_sizes(queries, 0)[0]
        if mask is None:
            return flex_mask(lambda batch, head, q, kv: kv <= q + past, inputs_embeds, keys)
        real = nn.functional.pad(mask.to(torch.bool), (0, keys - mask.shape[1]))
        return flex_mask(lambda batch, head, q, kv: (kv <= q + past) & real[batch, kv], inputs_embeds, keys)
    may_look = mask is None or values_can_be_read(mask)
    return create_causal_mask(config, inputs_embeds, mask, own, allow_is_causal_skip=may_look)


def token_positions(attention_mask: torch.Tensor | None, length: int, seen: int, device: torch.device) -> torch.Tensor:
    """Positions that count real tokens from 0.

    Args:
        attention_mask: `(batch, seen + length)`, or `None` for all.
        length: number of tokens of this call.
        seen: tokens in the cache.
        device: of the input.

    Returns:
        `(batch, length)`, or `(1, length)` without a mask.
    """
    if attention_mask is None:
        return torch.arange(length, device=device)[None] + seen  # what a static cache has seen is a tensor
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, -length:]


def check_positions_fit(config: MassNmtConfig, position_ids: torch.Tensor, name: str) -> None:
    """Refuse positions that the table does not have, where looking costs nothing.

    Args:
        config: has the size of the table.
        position_ids: `(batch, seq_len)`.
        name: the argument they came in.

    Raises:
        ValueError: some position is below -1 or beyond the table.
    """
    if not values_can_be_read(position_ids) or not position_ids.numel():
        return
    low, high = int(position_ids.min()), int(position_ids.max())
    if low < -1 or high >= config.max_position_embeddings:
        raise ValueError(
            f"`{name}` must be positions below `max_position_embeddings` = {config.max_position_embeddings}, -1 "
            f"at padding, got {low} to {high}: truncate the text."
        )


def check_length(config: MassNmtConfig, length: int, what: str) -> None:
    """Refuse more tokens than positions.

    Args:
        config: has the size of the position tables.
        length: number of tokens.
        what: the text, for the message.

    Raises:
        ValueError: there are too many.
    """
    if length > config.max_position_embeddings:
        raise ValueError(
            f"The {what} has {length} tokens and `max_position_embeddings` is {config.max_position_embeddings}: "
            "truncate it."
        )


def without_padding(labels: torch.Tensor, config: MassNmtConfig) -> torch.Tensor:
    """Labels with -100 where padding is, as the reference predicts no padding.

    Args:
        labels: `(batch, target_len)`.
        config: has the padding token.

    Returns:
        `(batch, target_len)`.
    """
    return labels if config.pad_token_id is None else labels.masked_fill(labels == config.pad_token_id, -100)


def shift_right(labels: torch.Tensor, config: MassNmtConfig) -> torch.Tensor:
    """Decoder input that predicts the labels: the start token, then the labels but the last, between their padding.

    Args:
        labels: `(batch, target_len)`: w1 .. wn </s>, -100 or padding on either side.
        config: has the start and padding tokens.

    Returns:
        `(batch, target_len)`: </s> w1 .. wn, padding on the same side.

    Raises:
        ValueError: the config has no start or no padding token.

    Example:
        >>> shift_right(torch.tensor([[7, 8, 1, -100], [-100, 7, 8, 1]]), MassNmtConfig()).tolist()
        [[1, 7, 8, 2], [2, 1, 7, 8]]
    """
    start, pad = config.decoder_start_token_id, config.pad_token_id
    if start is None or pad is None:
        raise ValueError(
            "`decoder_input_ids` must be given, or `config.decoder_start_token_id` and `config.pad_token_id` be set."
        )
    labels = without_padding(labels, config)
    real = labels != -100
    before, behind = real.cumsum(dim=1), real.flip(1).cumsum(dim=1).flip(1)
    shifted = labels.roll(1, dims=1).masked_fill(real & (before == 1), start)
    return shifted.masked_fill((shifted == -100) | (before == 0) | (behind == 0), pad)
