"""What goes into ERNIE-THU's entity stream: vectors, where entities are, and which of them see each other.

The first token of every sequence counts as an entity although its vector is zero, as in the reference's training, so
that each sequence has a key to attend to.
"""

from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from .configuration_ernie_thu import ErnieThuConfig
from .inputs_core import first_place, run_begins
from .losses_core import values_can_be_read


class ErnieThuEntityInput(nn.Module):
    """The entrance of the entity stream, where it is recorded: vectors in the text's dtype and on its device."""

    def forward(self, entity_embeds: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len, entity_hidden)`, like `embeddings`."""
        return entity_embeds.to(device=embeddings.device, dtype=embeddings.dtype)


def check_entities(
    config: ErnieThuConfig,
    input_shape: torch.Size,
    entity_ids: torch.Tensor | None,
    entity_mask: torch.Tensor | None,
    entity_embeds: torch.Tensor | None,
) -> None:
    """Refuse entity inputs of `ErnieThuModel.forward` that do not fit the text, `(batch, seq_len)`, or each other."""
    expected = tuple(input_shape)
    for name, value in (("entity_ids", entity_ids), ("entity_mask", entity_mask), ("entity_embeds", entity_embeds)):
        if value is not None and not torch.is_tensor(value):
            raise TypeError(f"`{name}` must be a tensor, got {type(value).__name__}. Pass `return_tensors='pt'`.")
    if entity_ids is not None and entity_embeds is not None:
        raise ValueError(
            f"At most one of `entity_ids` and `entity_embeds` may be given, got {tuple(entity_ids.shape)} and "
            f"{tuple(entity_embeds.shape)}: ids are looked up in the table."
        )
    for name, value in (("entity_ids", entity_ids), ("entity_mask", entity_mask)):
        if value is not None and tuple(value.shape) != expected:
            raise ValueError(
                f"`{name}` must have the shape of the text, (batch, seq_len) = {expected}, got {tuple(value.shape)}."
            )
    if entity_embeds is not None:
        width = config.entity_hidden_size
        if tuple(entity_embeds.shape) != (*expected, width):
            raise ValueError(
                f"`entity_embeds` must be (batch, seq_len, `entity_hidden_size`) = {(*expected, width)}, got "
                f"{tuple(entity_embeds.shape)}. Vectors of another width need a config with that `entity_hidden_size`."
            )
    if entity_ids is None:
        return
    if entity_ids.is_floating_point() or entity_ids.dtype == torch.bool:
        raise TypeError(f"`entity_ids` must be integers, got {entity_ids.dtype}. Vectors go in as `entity_embeds`.")
    if values_can_be_read(entity_ids) and entity_ids.numel() and int(entity_ids.min()) < 0:
        raise ValueError(
            f"`entity_ids` must be rows of the entity table, 0 = no entity, got {int(entity_ids.min())}. The "
            "original's ids begin at 0 with -1 for no entity: add 1."
        )


def is_padding_mask(attention_mask: Any) -> bool:
    """Whether it says which tokens are real, `(batch, seq_len)`, and is not a finished mask."""
    return torch.is_tensor(attention_mask) and attention_mask.dim() == 2


def default_entity_mask(
    input_shape: torch.Size,
    device: torch.device,
    entity_ids: torch.Tensor | None = None,
    entity_embeds: torch.Tensor | None = None,
    attention_mask: Any = None,
    sequence_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """`(batch, seq_len)` bool: where an entity is, and the first real token of each sequence."""
    real = attention_mask.to(torch.bool) if is_padding_mask(attention_mask) else None
    if sequence_ids is not None:
        real = sequence_ids != 0 if real is None else real & (sequence_ids != 0)
        first = run_begins(sequence_ids) & (sequence_ids != 0)
    else:
        positions = torch.arange(input_shape[1], device=device)[None]
        at = 0 if real is None else first_place(real)[:, None]
        first = (positions == at).expand(input_shape)
    if entity_ids is not None:
        present = entity_ids != 0
    elif entity_embeds is not None:
        present = (entity_embeds != 0).any(dim=-1)
    else:
        return first
    return (present if real is None else present & real) | first


def build_entity_attention_mask(
    config: ErnieThuConfig, entity_states: torch.Tensor, entity_mask: torch.Tensor, sequence_ids: torch.Tensor | None
) -> Any:
    """What the attention implementation takes for attention among entities, the keys of `entity_mask`.

    A sequence without a single entity sees all of itself; what comes out is cleared at these positions.
    """
    if sequence_ids is None:
        keys = entity_mask | ~entity_mask.any(dim=1, keepdim=True)

        def visible(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
            return keys[batch, kv]
    else:
        runs = run_begins(sequence_ids).long().cumsum(dim=1) - 1
        counts = torch.zeros_like(runs).scatter_add(1, runs, entity_mask.long())
        keys = entity_mask | (counts.gather(1, runs) == 0)

        def visible(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
            return keys[batch, kv] & (sequence_ids[batch, q] == sequence_ids[batch, kv])

    if config._attn_implementation == "flex_attention":
        # Upstream's builder cannot be traced into a compiled graph; building the blocks here can.
        from torch.nn.attention.flex_attention import create_block_mask

        batch, seq_len = entity_states.shape[:2]
        return create_block_mask(visible, batch, None, seq_len, seq_len, device=entity_states.device)
    return create_bidirectional_mask(config, entity_states, None, and_mask_function=visible)
