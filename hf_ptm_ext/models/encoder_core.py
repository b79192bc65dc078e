"""The canonical BERT block: post-LayerNorm self-attention and feed-forward layers under BERT's state-dict names.

Query, key and value are one matrix product at run time whenever the three are plain `nn.Linear` modules. As soon as
one of them is wrapped, hooked, quantised or parametrised, each runs as the module it is: nothing is bypassed.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .mask_contract_core import SequenceBounds

# Keyword arguments that upstream's code hands through every `forward`: decorators of the base model, the Trainer,
# configs with `use_cache`, `generate`, whose loop keeps the tokenizer that `stop_strings` came with.
UPSTREAM_ARGUMENTS = frozenset(
    {
        "output_hidden_states",
        "output_attentions",
        "return_dict",
        "num_items_in_batch",
        "use_cache",
        "is_causal",
        "debug_io",
        "debug_io_dir",
        "prune_layers",
        "tokenizer",
        "assistant_tokenizer",
    }
)


def refuse_unknown_arguments(model: str, unnamed: Mapping[str, Any], named: Iterable[str]) -> None:
    """Refuse keyword arguments that nothing reads: a misspelt mask would be ignored without notice."""
    unknown = [name for name, value in unnamed.items() if value is not None and name not in UPSTREAM_ARGUMENTS]
    if "token_type_ids" in unknown and torch.is_tensor(types := unnamed["token_type_ids"]) and not types.any():
        unknown.remove("token_type_ids")
    if not unknown:
        return
    known = sorted({*named} - {"self", "kwargs"})
    hints = []
    for name in unknown:
        similar = difflib.get_close_matches(name, known, n=1)
        hints.append(f"`{name}`" + (f" (did you mean `{similar[0]}`?)" if similar else ""))
    raise TypeError(
        f"{model} got keyword arguments that nothing reads: {', '.join(hints)}. The encoder's are "
        f"{', '.join(f'`{name}`' for name in known)}{'' if 'cache' in known else '; it has no cache'}."
    )


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain softmax attention, the naive reference of the other implementations."""
    # A division, as in the reference codes: a product rounds differently where the root of head_dim is no power of 2.
    scores = torch.matmul(query, key.transpose(2, 3)) / (1 / scaling)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2), weights


def is_plain_linear(module: nn.Module) -> bool:
    """Whether calling `module` is exactly `F.linear` on its own weight and bias, with nothing attached to it.

    Wrappers change the module's type, quantisation and sharding that of the weight, offloading replaces `forward`.
    """
    return (
        type(module) is nn.Linear
        and type(module.weight) is nn.Parameter
        and "forward" not in module.__dict__
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
    )


class SelfAttention(nn.Module):
    """Multi-head self-attention with separate query, key and value parameters, fused at run time where exact."""

    def __init__(
        self, config: Any, layer_idx: int, hidden_size: int | None = None, num_attention_heads: int | None = None
    ):
        super().__init__()
        width = config.hidden_size if hidden_size is None else hidden_size
        heads = config.num_attention_heads if num_attention_heads is None else num_attention_heads
        if width % heads:
            raise ValueError(f"`hidden_size` must be a multiple of `num_attention_heads`, got {width} and {heads}.")
        self.config = config
        self.layer_idx = layer_idx
        self.num_attention_heads = heads
        self.attention_head_size = width // heads
        self.scaling = self.attention_head_size**-0.5
        self.is_causal = False

        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value, each `(batch, seq_len, hidden)`."""
        modules = (self.query, self.key, self.value)
        if all(is_plain_linear(module) for module in modules):
            weight = torch.cat([module.weight for module in modules])
            bias = torch.cat([module.bias for module in modules])
            query, key, value = nn.functional.linear(hidden_states, weight, bias).chunk(3, dim=-1)
            return query, key, value
        return self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        plain_attention: bool = False,
        attention_function: Callable | None = None,
        cache: Cache | None = None,
        cache_layer: int | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend."""
        input_shape = hidden_states.shape[:-1]
        query, key, value = (
            part.reshape(*input_shape, self.num_attention_heads, self.attention_head_size).transpose(1, 2)
            for part in self.project(hidden_states)
        )
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx if cache_layer is None else cache_layer)
        implementation = "eager" if plain_attention else self.config._attn_implementation
        if attention_function is None:
            attention_function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        if isinstance(attention_mask, SequenceBounds):
            kwargs |= attention_mask.arguments()
            attention_mask = None
        room = -self.attention_head_size % 8 if implementation == "sdpa" and query.is_cuda else 0
        if room:  # fused kernels with a mask take heads of multiples of 8; zeros change neither scores nor sums
            query, key, value = (nn.functional.pad(part, (0, room)) for part in (query, key, value))
        context, weights = attention_function(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout.p if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        context = context[..., : self.attention_head_size] if room else context
        return context.reshape(*input_shape, -1), weights


class SelfOutput(nn.Module):
    """Projection, dropout, residual and LayerNorm after attention or after the feed-forward expansion."""

    def __init__(self, config: Any, input_size: int, hidden_size: int | None = None):
        super().__init__()
        width = config.hidden_size if hidden_size is None else hidden_size
        self.dense = nn.Linear(input_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """`LayerNorm(dropout(dense(hidden_states)) + residual)`, `(batch, seq_len, hidden)`."""
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)


class Attention(nn.Module):
    """Self-attention with its output block (`attention.self`, `attention.output` in the state dict)."""

    def __init__(self, config: Any, layer_idx: int):
        super().__init__()
        self.self = SelfAttention(config, layer_idx)
        self.output = SelfOutput(config, config.hidden_size)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Attention block output `(batch, seq_len, hidden)`."""
        context, _ = self.self(hidden_states, attention_mask, **kwargs)
        return self.output(context, hidden_states)


class Intermediate(nn.Module):
    """The feed-forward expansion: dense and activation."""

    def __init__(self, config: Any):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len, hidden)` to `(batch, seq_len, intermediate_size)`."""
        return self.intermediate_act_fn(self.dense(hidden_states))


class EncoderLayer(GradientCheckpointingLayer):
    """One post-LayerNorm transformer layer; returns one tensor."""

    def __init__(self, config: Any, layer_idx: int):
        super().__init__()
        self.attention = Attention(config, layer_idx)
        self.intermediate = Intermediate(config)
        self.output = SelfOutput(config, config.intermediate_size)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Layer output `(batch, seq_len, hidden)`."""
        attended = self.attention(hidden_states, attention_mask, **kwargs)
        return self.output(self.intermediate(attended), attended)


class LayerStack(nn.Module):
    """Layers (`encoder.layer.i` in the state dict), which ALBERT's options let run more than once.

    Those of group g (ALBERT's `albert_layer_groups.g.albert_layers`) are `g * inner_group_num` and following.
    """

    _layer_class: type[nn.Module] = EncoderLayer

    def __init__(self, config: Any):
        super().__init__()
        layers, groups = config.num_hidden_layers, config.num_hidden_groups
        inner, width = config.inner_group_num, config.embedding_size
        number = layers if groups is None else groups * inner
        self.layer = nn.ModuleList([self._layer_class(config, index) for index in range(number)])
        self.embedding_hidden_mapping_in = None if width is None else nn.Linear(width, config.hidden_size)
        self.order: list[int] | None = None
        if groups is not None:
            first = [int(place / (layers / groups)) * inner for place in range(layers)]
            self.order = [begin + place for begin in first for place in range(inner)]

    def mapped(self, embeddings: torch.Tensor) -> torch.Tensor:
        """The first layer's input."""
        mapping = self.embedding_hidden_mapping_in
        return embeddings if mapping is None else mapping(embeddings)

    def in_order(self) -> list[nn.Module]:
        """The layers as a text goes through them."""
        return [*self.layer] if self.order is None else [self.layer[place] for place in self.order]

    def place_of(self, depth: int, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a layer is told beside; a cache has a place for each depth, of a shared layer too."""
        if self.order is None or arguments.get("cache") is None:
            return arguments
        return {**arguments, "cache_layer": depth}


class Encoder(LayerStack):
    """The stack of layers."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        inner_layer: int | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run the stack."""
        inner_states, hidden_states = None, self.mapped(hidden_states)
        for index, layer in enumerate(self.in_order()):
            hidden_states = layer(hidden_states, attention_mask, **self.place_of(index, kwargs))
            if index == inner_layer:
                inner_states = hidden_states
        return hidden_states, inner_states


class Pooler(nn.Module):
    """BERT's pooler: dense and tanh over the state of a sequence's first token."""

    def __init__(self, config: Any):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_token_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., hidden)`."""
        return torch.tanh(self.dense(first_token_states))
