"""Which modules of a model are trained as a copy beside the adapters: new heads, and LayerNorms if wanted."""

import re
from collections.abc import Iterable, Iterator

from peft.utils import ModulesToSaveWrapper
from torch import nn

from .layers import BottleneckLayer

_LAYER_NORM = re.compile(r"(Layer|RMS)Norm$")


def is_layer_norm(module: nn.Module) -> bool:
    """Whether a module is a LayerNorm, or an RMSNorm such as T5's.

    Args:
        module: any.

    Example:
        >>> is_layer_norm(nn.LayerNorm(4)), is_layer_norm(nn.Linear(4, 4))
        (True, False)
    """
    return isinstance(module, nn.LayerNorm) or _LAYER_NORM.search(type(module).__name__) is not None


def never_trained_norms(model: nn.Module) -> list[str]:
    """Names of the LayerNorms that the model itself keeps frozen, since nothing that it predicts depends on them.

    Args:
        model: before PEFT freezes it.

    Returns:
        Names; none if all LayerNorms are frozen, which says nothing of single ones.

    Example:
        >>> never_trained_norms(nn.Sequential(nn.LayerNorm(2), nn.LayerNorm(2).requires_grad_(False)))
        ['1']
    """
    norms = {name: module for name, module in plain_modules(model) if is_layer_norm(module)}
    frozen = [name for name, norm in norms.items() if not any(value.requires_grad for value in norm.parameters())]
    return frozen if len(frozen) < len(norms) else []


def plain_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a model by name, as they were before anything was wrapped.

    Args:
        model: with or without adapters.

    Yields:
        Name and module; what lies inside a wrapped module is left out.

    Example:
        >>> [name for name, _ in plain_modules(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))]
        ['0', '1']
    """
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if not name or name.startswith(inside or ("\0",)):
            continue
        if isinstance(module, BottleneckLayer | ModulesToSaveWrapper):
            inside += (f"{name}.",)
        yield name, unwrapped(module)


def unwrapped(module: nn.Module) -> nn.Module:
    """What is inside of wrappers.

    Args:
        module: wrapped or not.

    Example:
        >>> unwrapped(nn.Dropout(0.1))
        Dropout(p=0.1, inplace=False)
    """
    while True:
        if isinstance(module, BottleneckLayer):
            module = module.base_layer
        elif isinstance(module, ModulesToSaveWrapper):
            module = module.original_module
        else:
            return module


def new_parts(model: nn.Module) -> list[str]:
    """Names of the largest modules whose every weight is new, so that only training gives them a meaning.

    In a model that was loaded, the weights that its file lacked; in one that was built from a configuration, the
    heads on top of the base model. Embeddings, heads over the vocabulary and parts of numbered layers of the base
    model are no such parts.

    Args:
        model: a model of transformers.

    Returns:
        Names in the model.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
        >>> new_parts(BertForSequenceClassification(BertConfig(**sizes)))
        ['classifier']
    """
    base_name = getattr(model, "base_model_prefix", "")
    base = getattr(model, base_name, None) if base_name else None
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
    """What to name in `modules_to_save` so that every LayerNorm is trained as a copy.

    Args:
        model: the model without adapters.
        targets: names of the modules that adapters wrap; a LayerNorm among them is found inside its wrapper.
        others: names of modules that are trained whole anyway; LayerNorms in them are left to them.

    Returns:
        Endings of names where they suffice, whole names otherwise.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
        >>> layer_norm_names(BertModel(BertConfig(**sizes)), [], [])
        ['LayerNorm']
    """
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


__all__ = ["is_layer_norm", "layer_norm_names", "never_trained_norms", "new_parts", "plain_modules", "unwrapped"]
