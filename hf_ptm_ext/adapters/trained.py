"""What an adapted model trains: copies of new heads and LayerNorms beside the adapters, and its optimiser's groups."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from peft.utils import ModulesToSaveWrapper
from torch import nn

from .layers import BottleneckLayer

ADAPTERS, LAYER_NORMS, HEAD = "adapters", "layer_norms", "head"
_LAYER_NORM = re.compile(r"(Layer|RMS)Norm$")


def is_layer_norm(module: nn.Module) -> bool:
    """Whether a module is a LayerNorm, or an RMSNorm such as T5's."""
    return isinstance(module, nn.LayerNorm) or _LAYER_NORM.search(type(module).__name__) is not None


def never_trained_norms(model: nn.Module) -> list[str]:
    """Names of the LayerNorms that the model itself keeps frozen, since nothing that it predicts depends on them."""
    norms = {name: module for name, module in plain_modules(model) if is_layer_norm(module)}
    frozen = [name for name, norm in norms.items() if not any(value.requires_grad for value in norm.parameters())]
    return frozen if len(frozen) < len(norms) else []


def plain_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a model by name, as they were before anything was wrapped."""
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if not name or name.startswith(inside or ("\0",)):
            continue
        if isinstance(module, BottleneckLayer | ModulesToSaveWrapper):
            inside += (f"{name}.",)
        yield name, unwrapped(module)


def unwrapped(module: nn.Module) -> nn.Module:
    """What is inside of wrappers."""
    while True:
        if isinstance(module, BottleneckLayer):
            module = module.base_layer
        elif isinstance(module, ModulesToSaveWrapper):
            module = module.original_module
        else:
            return module


def new_parts(model: nn.Module) -> list[str]:
    """Names of the largest modules whose every weight is new: not in a loaded file, or on top of the base model."""
    base_name = getattr(model, "base_model_prefix", "")
    base: Any = getattr(model, base_name, None) if base_name else None
    if not isinstance(base, nn.Module) and not _loaded(model):
        return []
    vocabulary = {id(parameter) for module in _vocabulary_modules(model) for parameter in module.parameters()}
    if _loaded(model):
        new = {id(value) for value in model.parameters() if not getattr(value, "_is_hf_initialized", False)}
    else:
        new = {id(value) for value in model.parameters()} - {id(value) for value in base.parameters()}
    found: list[str] = []
    for name, module in plain_modules(model):
        own = [id(parameter) for parameter in module.parameters()]
        if not own or any(name.startswith(f"{outer}.") for outer in found):
            continue
        in_base = name.startswith(f"{base_name}.") or not isinstance(base, nn.Module)
        if in_base and any(part.isdigit() for part in name.split(".")):
            continue
        if new.issuperset(own) and vocabulary.isdisjoint(own):
            found.append(name)
    return found


def layer_norm_names(model: nn.Module, targets: Iterable[str], others: Iterable[str]) -> list[str]:
    """What to name in `modules_to_save` so that every LayerNorm is trained as a copy."""
    targets, others = set(targets), tuple(others)
    modules = dict(plain_modules(model))
    kept = [
        name
        for name, module in modules.items()
        if is_layer_norm(module) and not any(name == one or name.startswith(f"{one}.") for one in others)
    ]
    found: list[str] = []
    for ending in sorted({name.rpartition(".")[2] for name in kept}):
        members = [name for name in kept if name.rpartition(".")[2] == ending]
        matched = {name for name in modules if name.endswith(ending)}
        if matched <= set(kept) and targets.isdisjoint(members) and not ending.isdigit():
            found.append(ending)
        else:
            found += [f"{name}.base_layer" if name in targets else name for name in members]
    return found


def _loaded(model: nn.Module) -> bool:
    """Whether weights came from a file: transformers marks each parameter that did."""
    return any(getattr(parameter, "_is_hf_initialized", False) for parameter in model.parameters())


def _vocabulary_modules(model: nn.Module) -> list[nn.Module]:
    modules = []
    for name in ("get_input_embeddings", "get_output_embeddings"):
        try:
            module = getattr(model, name)()
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(module, nn.Module):
            modules.append(module)
    return modules


def adapter_parameter_groups(
    model: nn.Module, weight_decay: float = 0.01, head_learning_rate: float | None = None
) -> list[dict[str, Any]]:
    """The optimiser's groups of Houlsby et al.: adapters, LayerNorms and head, and nothing else.

    Args:
        model: with adapters, of any method of PEFT.
        weight_decay: of matrices of adapters and head, none on LayerNorms and biases (default 0.01, adapter-bert).
        head_learning_rate: learning rate of the head (default: the optimiser's, as in the paper).

    Returns:
        Groups with `params`, `weight_decay` and `name`: `adapters`, `adapters_no_decay`, `layer_norms`, `head` and
        `head_no_decay`, as far as there are such parameters.

    Raises:
        ValueError: nothing is trained.

    Examples:
        >>> from hf_ptm_ext import HoulsbyConfig
        >>> from peft import get_peft_model
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
        >>> model = get_peft_model(BertForSequenceClassification(BertConfig(**sizes)), HoulsbyConfig())
        >>> {group["name"]: group["weight_decay"] for group in adapter_parameter_groups(model)}
        {'adapters': 0.01, 'adapters_no_decay': 0.0, 'layer_norms': 0.0, 'head': 0.01, 'head_no_decay': 0.0}
    """
    norms = {id(value) for part in model.modules() if is_layer_norm(part) for value in part.parameters()}
    layers = [layer for layer in model.modules() if isinstance(layer, BottleneckLayer)]
    own_parts = [layer.part(kind) for layer in layers for kind in ("norm_before", "norm_after")]
    own_norms = {id(value) for part in own_parts for value in part.parameters()}
    groups: dict[str, dict[str, Any]] = {
        ADAPTERS: {"weight_decay": weight_decay},
        f"{ADAPTERS}_no_decay": {"weight_decay": 0.0},
        LAYER_NORMS: {"weight_decay": 0.0},
        HEAD: {"weight_decay": weight_decay},
        f"{HEAD}_no_decay": {"weight_decay": 0.0},
    }
    for name, value in model.named_parameters():
        if not value.requires_grad:
            continue
        kind = LAYER_NORMS if id(value) in norms - own_norms else HEAD if ".modules_to_save." in name else ADAPTERS
        if kind != LAYER_NORMS and value.dim() < 2:
            kind += "_no_decay"
        groups[kind].setdefault("params", []).append(value)
    found = [{**group, "name": kind} for kind, group in groups.items() if "params" in group]
    if not found:
        raise ValueError(
            f"`model` must have parameters to train, got none in a {type(model).__name__}: load its adapter with "
            "`is_trainable=True`."
        )
    if head_learning_rate is not None:
        for group in found:
            if group["name"].startswith(HEAD):
                group["lr"] = head_learning_rate
    return found
