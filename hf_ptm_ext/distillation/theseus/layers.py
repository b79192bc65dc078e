"""The list of an encoder's layers, wherever its class keeps it, and a shorter copy of the encoder."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from ..layouts import CUSTOM_LAYOUT, LAYOUTS, base_model, layout_of

# Config fields with one entry a layer.
PER_LAYER = ("layer_types", "fusion_layer_types")
# Model type -> how many leading outputs of a layer are the leading inputs of the next (1 for all others).
STREAMS = {"ernie_thu": 2, "xlnet": 2}


def find_layers(model: Any, argument: str = "predecessor", alike: bool = True) -> nn.ModuleList:
    """The list of an encoder's layers: of a known family, by `_distill_qkv`, or the only one of that length.

    With `alike` any of them must be able to take another's place; without it each must at least be there for itself.
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TypeError(f"`{argument}` must be a model of transformers, got {type(model).__name__}.")
    name = type(model).__name__
    if hasattr(model, "peft_config"):
        raise ValueError(f"`{argument}` is a {name} with adapters of PEFT: merge them first (`merge_and_unload`).")
    config: Any = model.config
    _refuse_unequal_layers(name, config, argument, alike)
    base = base_model(model)
    if config.model_type in LAYOUTS or any(hasattr(type(each), CUSTOM_LAYOUT) for each in (model, base)):
        return base.get_submodule(layout_of(model).layers)
    number = getattr(config, "num_hidden_layers", None)
    lists = {path: each for path, each in base.named_modules() if isinstance(each, nn.ModuleList)}
    found = {path: each for path, each in lists.items() if len(each) == number}
    if len(found) != 1:
        raise ValueError(
            f"`{argument}`: {name} must have one list of `num_hidden_layers` = {number} layers, got "
            f"{sorted(found) or f'none (its lists: {sorted(lists)})'}. Give the class an attribute `{CUSTOM_LAYOUT}` "
            "whose first entry is the path of the list from the base model."
        )
    return next(iter(found.values()))


def _refuse_unequal_layers(name: str, config: Any, argument: str, alike: bool) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    reason = None
    if getattr(config, "num_hidden_groups", None) is not None:  # ALBERT, and ours with its options
        reason = "all its layers are one, or few (`num_hidden_groups`)"
    elif getattr(config, "conv_kernel_size", 0) and config.model_type.startswith("deberta"):
        reason = "a convolution follows its first layer (`conv_kernel_size`)"
    elif not alike:
        pass
    elif len(kinds) > 1:
        reason = f"its layers attend in several ways ({', '.join(sorted(kinds))})"
    elif config.model_type == "zen" and config.num_hidden_word_layers:
        reason = "each of its layers reads the n-grams of its own depth (`num_hidden_word_layers`)"
    if reason is not None:
        others = "any of which can take another's place" if alike else "each of which can be left out"
        raise ValueError(f"`{argument}` must be a stack of layers {others}; in {name} {reason}.")


def copy_with_layers(model: Any, layers: nn.ModuleList, chosen: Sequence[int]) -> Any:
    """Copy a model with some of its layers only, in their order; config fields with one entry a layer follow."""
    # Everything but the other layers: `deepcopy` takes what `memo` has already.
    memo: dict[int, Any] = {}
    memo[id(layers)] = nn.ModuleList(copy.deepcopy(layers[place], memo) for place in chosen)
    shorter = copy.deepcopy(model, memo)
    config = shorter.config
    for name in PER_LAYER:
        kinds = getattr(config, name, None)
        if isinstance(kinds, list | tuple) and len(kinds) == len(layers):
            setattr(config, name, [kinds[place] for place in chosen])
    config.num_hidden_layers = len(chosen)
    return shorter


def make_successor(predecessor: Any, layers: int) -> Any:
    """Copy a model with its first layers only, as the reference initialises a successor.

    Args:
        predecessor: the model; it is not changed.
        layers: how many layers are kept.

    Returns:
        A model of the same class with `num_hidden_layers` = `layers`, sharing nothing with the predecessor.

    Raises:
        TypeError: as `find_layers`.
        ValueError: as `find_layers`, or a number of layers that does not divide the predecessor's.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2)
        >>> make_successor(BertModel(tiny), 2).config.num_hidden_layers
        2
    """
    kept = find_layers(predecessor)
    check_division(len(kept), layers)
    return copy_with_layers(predecessor, kept, range(layers))


def check_division(layers: int, modules: int) -> int:
    """Refuse a successor whose modules stand for unequal numbers of layers."""
    if not 0 < modules <= layers or layers % modules:
        divisors = [number for number in range(1, layers + 1) if layers % number == 0]
        raise ValueError(
            f"`successor_layers` must divide the predecessor's {layers} layers, got {modules!r}; possible: "
            f"{', '.join(map(str, divisors))}."
        )
    return layers // modules
