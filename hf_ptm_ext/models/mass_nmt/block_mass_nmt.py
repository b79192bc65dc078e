# Generated from models/canonical/encoder_canonical.py by scripts/sync_copies.py; change that file.
"""What every block of ours shares: refusal of unread arguments, eager attention, plain linear modules."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

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
    """Refuse keyword arguments that nothing reads: a misspelt mask would be ignored without notice.

    Args:
        model: name of the model class, for the message.
        unnamed: what its `forward` got as `**kwargs`; values of `None` stand for "not given" and pass, and so do the
            zeros that tokenizers give as `token_type_ids`.
        named: the arguments that its `forward` names, to suggest one of them.

    Raises:
        TypeError: a keyword argument is neither upstream's nor `None`.
    """
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
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain softmax attention, the naive reference of the other implementations.

    Args:
        module: the attention module, for its `training` flag.
        query: `(batch, heads, seq_len, head_dim)`.
        key: `(batch, heads, seq_len, head_dim)`.
        value: `(batch, heads, seq_len, head_dim)`.
        attention_mask: additive, broadcastable to `(batch, heads, seq_len, seq_len)`, or `None`.
        scaling: factor of the scores.
        dropout: probability of dropping an attention weight.
        kwargs: ignored; other implementations read them.

    Returns:
        The context `(batch, seq_len, heads, head_dim)` and the weights `(batch, heads, seq_len, seq_len)`.
    """
    # A division, as in the reference codes: a product rounds differently where the root of head_dim is no power of 2.
    scores = torch.matmul(query, key.transpose(2, 3)) / (1 / scaling)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2), weights


def is_plain_linear(module: nn.Module) -> bool:
    """Whether calling `module` is exactly `F.linear` on its own weight and bias, with nothing attached to it.

    Wrappers and parametrisations change the module's type, quantisation and sharding that of the weight, offloading
    replaces `forward`, everything else comes as a hook.

    Args:
        module: what stands where a projection is.

    Returns:
        True if the product with its weight and bias may be computed without calling it.
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
