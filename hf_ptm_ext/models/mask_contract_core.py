"""What an attention mask may be, the same for every family; a dimension of one stands for all rows or queries:

    (batch, keys)                    any type: a token is seen where the mask is not 0
    (batch, queries, keys)           bool or int: a query sees a key where the mask is not 0
    (batch, 1 or heads, queries, keys)   the same
    either of the last two, float    added to the scores, as upstream does: 0 where a key is seen, -inf where it is not

A query that would see nothing sees everything. Upstream hands masks of four dimensions on as they are, so that its
eager attention adds a 1 to what should be seen, and fused kernels refuse integers.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import torch
from transformers.cache_utils import Cache
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import is_flash_attention_requested

# Queries and keys of a block of flex attention, torch's own choice.
FLEX_BLOCK = 128


class SequenceBounds(NamedTuple):
    """What stands in the place of a mask of packed rows for flash attention, whose kernels read no mask."""

    offsets: torch.Tensor  # `(sequences + 1,)`, int32: first token of each sequence, all rows as one
    longest: int  # tokens that no sequence exceeds

    def arguments(self) -> dict[str, Any]:
        """What transformers calls them."""
        offsets, longest = self
        return {
            "cu_seq_lens_q": offsets,
            "cu_seq_lens_k": offsets,
            "max_length_q": longest,
            "max_length_k": longest,
        }


def takes_past_key_values(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let `past_key_values`, PEFT's name for learnt keys, be the old name of `cache`; the one that holds tokens
    counts.

    `prefix_length` of a cache under the old name says how many of its entries stand in front of all text.
    """
    renamed = deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")(forward)

    @functools.wraps(forward)
    def named(*args: Any, **kwargs: Any) -> Any:
        old = kwargs.get("past_key_values")
        if old is None:
            kwargs.pop("past_key_values", None)
            return forward(*args, **kwargs)
        if not isinstance(old, Cache):
            raise TypeError(f"`past_key_values` must be a `Cache` of transformers, got {type(old).__name__}.")
        if "cache" in kwargs:
            cache = kwargs.pop("cache")
            if cache is not None and cache.get_seq_length():
                del kwargs["past_key_values"]
                return forward(*args, **kwargs, cache=cache)
        setattr(old, "prefix_length", old.get_seq_length())  # noqa: B010 (a note of ours on upstream's object)
        return renamed(*args, **kwargs)

    return named


def over_cache(mask: Any, keys: int | torch.Tensor) -> Any:
    """A mask of tokens over all keys: what a cache holds in front of them, a learnt prefix, is seen."""
    if not two_dimensional(mask) or torch.is_tensor(keys) or mask.shape[1] >= keys:
        return mask
    return torch.nn.functional.pad(mask, (keys - mask.shape[1], 0), value=True)


def refuse_learnt_tokens(model: Any, mask: Any, inputs_embeds: torch.Tensor | None, **places: Any) -> None:
    """Refuse places of tokens where PEFT's prompt tuning has put learnt tokens in front, which no place counts.

    PEFT says nothing of them, but its masks are of floats, and without a mask its model is frozen.
    """
    given = [name for name, value in places.items() if value is not None]
    if inputs_embeds is None or not given:
        return
    frozen = mask is None and not any(value.requires_grad for value in model.base_model.parameters())
    if frozen or (two_dimensional(mask) and mask.is_floating_point()):
        raise ValueError(
            f"`{given[0]}` must be left out with learnt tokens in front of the text, PEFT's prompt tuning and "
            "p-tuning, which it does not count. Use LoRA, or `PrefixTuningConfig` if the model generates; where no "
            "such tokens are, pass an `attention_mask` of integers."
        )


def two_dimensional(mask: Any) -> TypeGuard[torch.Tensor]:
    """Whether a mask is one of tokens, `(batch, tokens)`, and no finished one."""
    return torch.is_tensor(mask) and mask.dim() == 2


def flex_mask(visible: Callable[..., torch.Tensor], states: torch.Tensor, keys: int) -> Any:
    """The block mask of a function; upstream's builder cannot be traced into a compiled graph."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(visible, states.shape[0], None, states.shape[1], keys, device=states.device)


def packed_flex_mask(visible: Callable[..., torch.Tensor], ids: torch.Tensor) -> Any:
    """The block mask of packed rows from the first and last sequence of each block of tokens.

    torch's builder asks the function about all pairs of tokens first, which takes memory by the square of the row.
    """
    from torch.nn.attention.flex_attention import BlockMask

    length = ids.shape[1]
    # Padding ends a row, so its id is the last; a block's tokens are those between its first and its last id.
    last_id = torch.iinfo(torch.int32).max
    ids = ids.int().masked_fill(ids == 0, last_id)
    ids = torch.nn.functional.pad(ids, (0, -length % FLEX_BLOCK), value=last_id)
    blocks = ids.unflatten(1, (-1, FLEX_BLOCK))
    first, last = blocks.amin(dim=-1), blocks.amax(dim=-1)
    whole = first == last
    full = whole[:, :, None] & whole[:, None] & (first[:, :, None] == first[:, None])
    part = (first[:, :, None] <= last[:, None]) & (first[:, None] <= last[:, :, None]) & ~full
    counts, orders = [], []
    for seen in (part[:, None], full[:, None]):
        counts.append(seen.sum(dim=-1, dtype=torch.int32))
        orders.append(seen.int().argsort(dim=-1, descending=True, stable=True).int())
    return BlockMask.from_kv_blocks(
        counts[0],
        orders[0],
        counts[1],
        orders[1],
        BLOCK_SIZE=FLEX_BLOCK,
        mask_mod=visible,
        seq_lengths=(length, length),
    )


def read_attention_mask(
    config: Any, mask: Any, states: torch.Tensor, keys: int | None = None, name: str = "attention_mask"
) -> Any:
    """Check a mask, and give it one of three forms."""
    flex = config._attn_implementation == "flex_attention"
    if mask is None or (flex and hasattr(mask, "mask_mod")):
        return mask
    if not torch.is_tensor(mask):
        raise TypeError(
            f"`{name}` must be a tensor, or a `BlockMask` with attn_implementation='flex_attention', got "
            f"{type(mask).__name__}."
        )
    if not torch.compiler.is_compiling():
        _check_shape(config, mask, states, states.shape[1] if keys is None else keys, name)
    if mask.dim() == 2:
        return (mask != 0).expand(states.shape[0], -1)
    if is_flash_attention_requested(config):
        raise ValueError(
            f"`{name}` must be (batch, keys) with attn_implementation={config._attn_implementation!r}, whose kernels "
            f"read no other, got the shape {tuple(mask.shape)}. Use 'sdpa'."
        )
    if mask.dim() == 3:
        mask = mask[:, None]
    if not mask.is_floating_point():
        return mask != 0
    readable = not (torch.compiler.is_compiling() or torch.jit.is_tracing()) and type(mask) is torch.Tensor
    if readable and mask.device.type == "cpu" and bool(((mask == 0) | (mask == 1)).all()) and mask.min() < mask.max():
        raise ValueError(
            f"`{name}` of {mask.dim()} dimensions and type {mask.dtype} is added to the scores, and this one has 1 "
            "and 0 in it: pass `mask.bool()` if 1 stands for what is seen."
        )
    return mask


def _check_shape(config: Any, mask: torch.Tensor, states: torch.Tensor, keys: int, name: str) -> None:
    """Refuse shapes that fit no text of the batch."""
    batch, queries = states.shape[:2]
    heads = 1 if config._attn_implementation == "flex_attention" else getattr(config, "num_attention_heads", 1)
    wanted = {2: [batch], 3: [batch, queries], 4: [batch, heads, queries]}.get(mask.dim())
    good = wanted is not None and all(size in (1, want) for size, want in zip(mask.shape, wanted, strict=False))
    if not good or mask.is_complex() or (mask.shape[-1] != keys and (keys >= 0 or mask.shape[-1] < queries)):
        width = keys if keys >= 0 else "cached + queries"
        raise ValueError(
            f"`{name}` must be (batch, keys) = ({batch}, {width}), (batch, queries, keys) = ({batch}, {queries}, "
            f"{width}) or (batch, 1, queries, keys), got {mask.dtype} of shape {tuple(mask.shape)}."
        )


def finished_mask(config: Any, states: torch.Tensor, mask: Any) -> Any:
    """A finished mask in the form that the configured attention implementation takes."""
    if not torch.is_tensor(mask):
        return mask
    dtype = states.dtype
    lowest = torch.finfo(dtype).min
    if mask.dtype == torch.bool:
        mask = mask | ~mask.any(dim=-1, keepdim=True)
        if config._attn_implementation == "sdpa":
            return mask
        mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, lowest)
    mask = mask.to(dtype).clamp(min=lowest)
    mask = mask.masked_fill(mask.amax(dim=-1, keepdim=True) == lowest, 0.0)
    if config._attn_implementation == "flex_attention":  # its kernel looks entries up: no dimension is one for all
        return mask.expand(states.shape[0], 1, states.shape[1], -1)
    return mask
