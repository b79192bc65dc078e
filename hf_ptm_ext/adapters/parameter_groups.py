"""The optimiser's groups of Houlsby et al.: adapters, LayerNorms and head, and nothing else.

google-research/adapter-bert trains these three collections of variables, with weight decay on matrices of adapters and
head, none on LayerNorms and biases.
"""

from typing import Any

from torch import nn

from .layers import BottleneckLayer
from .trained_whole import is_layer_norm

ADAPTERS, LAYER_NORMS, HEAD = "adapters", "layer_norms", "head"


def adapter_parameter_groups(
    model: nn.Module, weight_decay: float = 0.01, head_learning_rate: float | None = None
) -> list[dict[str, Any]]:
    """Parameter groups of what an adapted model trains.

    Args:
        model: with adapters, of any method of PEFT.
        weight_decay: of matrices of adapters and head (default 0.01, adapter-bert).
        head_learning_rate: learning rate of the head (default: the optimiser's, as in the paper).

    Returns:
        Groups with `params`, `weight_decay` and `name`: `adapters`, `adapters_no_decay`, `layer_norms`, `head` and
        `head_no_decay`, as far as there are such parameters.

    Raises:
        ValueError: nothing is trained.

    Example:
        >>> from hf_ptm_ext import HoulsbyConfig
        >>> from peft import get_peft_model
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
        >>> model = get_peft_model(BertForSequenceClassification(BertConfig(**sizes)), HoulsbyConfig())
        >>> {group["name"]: group["weight_decay"] for group in adapter_parameter_groups(model)}
        {'adapters': 0.01, 'adapters_no_decay': 0.0, 'layer_norms': 0.0, 'head': 0.01, 'head_no_decay': 0.0}
    """
    norms = {id(value) for part in model.modules() if is_layer_norm(part) for value in part.parameters()}
    own_norms = {
        id(value)
        for layer in model.modules()
        if isinstance(layer, BottleneckLayer)
        for kind in ("norm_before", "norm_after")
        for value in layer.part(kind).parameters()
    }
    groups: dict[str, list[nn.Parameter]] = {}
    for name, value in model.named_parameters():
        if not value.requires_grad:
            continue
        whole = ".modules_to_save." in name
        if id(value) in norms - own_norms:
            kind = LAYER_NORMS
        else:
            kind = HEAD if whole else ADAPTERS
            if value.dim() < 2:
                kind += "_no_decay"
        groups.setdefault(kind, []).append(value)
    if not groups:
        raise ValueError("`model` must have parameters to train, got none: load its adapter with `is_trainable=True`.")
    order = [ADAPTERS, f"{ADAPTERS}_no_decay", LAYER_NORMS, HEAD, f"{HEAD}_no_decay"]
    result = []
    for kind in (name for name in order if name in groups):
        decays = kind in (ADAPTERS, HEAD)
        group: dict[str, Any] = {
            "params": groups[kind],
            "weight_decay": weight_decay if decays else 0.0,
            "name": kind,
        }
        if head_learning_rate is not None and kind.startswith(HEAD):
            group["lr"] = head_learning_rate
        result.append(group)
    return result


__all__ = ["adapter_parameter_groups"]
