"""How UniLM generates: a [MASK] is fed behind the text, its prediction is the next token, its states are dropped.

Step t feeds what is new (the prompt, then the token chosen last) and one [MASK]; the logits of the [MASK] choose the
next token. Keys and values of the [MASK] leave the cache at once, before a beam search reorders it. Source tokens see
the source, later tokens the source and what stands before them; positions count real tokens, so padding on either side
changes nothing.
"""

from typing import Any

import torch

from .configuration_unilm import UniLMConfig
from .inputs_unilm import LEFT_TO_RIGHT, SEQ2SEQ

REFUSED = {
    "assistant_model": "assisted decoding checks several tokens at once",
    "prompt_lookup_num_tokens": "prompt lookup checks several tokens at once",
}


def check_generation(config: UniLMConfig, prompt_length: int, lm_mode: int, options: dict[str, Any]) -> None:
    """Refuse what this way of generating cannot do, before the first step.

    Args:
        config: has the position table and the [MASK] token.
        prompt_length: tokens of the longest prompt, padding aside.
        lm_mode: 3 or 1.
        options: the keyword arguments of `generate`.

    Raises:
        ValueError: an unknown mode, no [MASK], more tokens than positions, or a decoding method that feeds several
            tokens at once.
    """
    if lm_mode not in (SEQ2SEQ, LEFT_TO_RIGHT):
        raise ValueError(f"`lm_mode` must be 3 (seq2seq) or 1 (left-to-right) in generation, got {lm_mode}.")
    if config.mask_token_id is None:
        raise ValueError("`config.mask_token_id` must be the tokenizer's [MASK]: generation feeds it. Set it.")
    for name, reason in REFUSED.items():
        if options.get(name) is not None:
            raise ValueError(f"`{name}` cannot be used: {reason}, and UniLM feeds a [MASK] for each. Leave it out.")
    if options.get("cache_implementation") not in (None, "dynamic"):
        raise ValueError(
            f"`cache_implementation` must be 'dynamic', got {options['cache_implementation']!r}: the [MASK] leaves "
            "the cache after every step."
        )
    generation_config = options.get("generation_config")

    def limit(name: str) -> int | None:
        return options.get(name) if options.get(name) is not None else getattr(generation_config, name, None)

    new = limit("max_new_tokens")
    total = prompt_length + new if new is not None else limit("max_length")
    if total is not None and total > config.max_position_embeddings:
        raise ValueError(
            f"Source and target need {total} positions and `max_position_embeddings` is "
            f"{config.max_position_embeddings}: truncate the source or lower `max_new_tokens`."
        )


def prompt_token_types(config: UniLMConfig, attention_mask: torch.Tensor, lm_mode: int) -> torch.Tensor:
    """Token types of a prompt: the source's, or those of left-to-right text; 0 on padding.

    Args:
        config: has `source_type_id`.
        attention_mask: `(batch, seq_len)`.
        lm_mode: 3 or 1.

    Returns:
        `(batch, seq_len)`.
    """
    token_type = config.source_type_id if lm_mode == SEQ2SEQ else 2
    return torch.where(attention_mask.to(torch.bool), token_type, 0)


def step_inputs(
    config: UniLMConfig,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    token_type_ids: torch.Tensor,
    prompt_length: int,
    cached: int,
    dtype: torch.dtype,
    lm_mode: int,
) -> dict[str, torch.Tensor]:
    """What one step feeds: the tokens that the cache lacks and a [MASK].

    Args:
        config: has the [MASK] token and the token types.
        input_ids: `(batch, length)` prompt and everything generated.
        attention_mask: `(batch, length)`.
        token_type_ids: `(batch, length)`.
        prompt_length: columns of the prompt; what stands behind is generated.
        cached: tokens whose keys and values are in the cache.
        dtype: of the additive mask.
        lm_mode: 3 or 1.

    Returns:
        `input_ids`, `token_type_ids`, `position_ids` `(batch, n)` and the additive `attention_mask`
        `(batch, 1, n, length + 1)` of the n tokens fed.
    """
    batch, length = input_ids.shape
    device = input_ids.device

    def extended(values: torch.Tensor, last: int) -> torch.Tensor:
        return torch.cat([values, torch.full((batch, 1), last, dtype=values.dtype, device=device)], dim=1)

    fed = slice(cached, length + 1)
    valid = extended(attention_mask.to(torch.bool), True)
    positions = (valid.long().cumsum(dim=1) - 1).clamp(min=0)
    types = extended(token_type_ids, config.target_type_id if lm_mode == SEQ2SEQ else 2)
    columns = torch.arange(length + 1, device=device)
    source = valid & (columns < prompt_length) if lm_mode == SEQ2SEQ else torch.zeros_like(valid)
    queries = columns[fed]
    before = columns[None, :] <= queries[:, None]
    visible = source[:, None, :] | (before[None] & ~source[:, fed, None])
    visible = (visible & valid[:, None, :]) | (columns[None, :] == queries[:, None])[None]
    mask = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(~visible, torch.finfo(dtype).min)
    return {
        "input_ids": extended(input_ids, config.mask_token_id)[:, fed],
        "token_type_ids": types[:, fed],
        "position_ids": positions[:, fed],
        "attention_mask": mask[:, None],
    }
