"""Saving a model and its adapter as one checkpoint that loads by the Auto classes, without this package and PEFT."""

import copy
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from torch import nn

from ..files import read_json, write_json
from ..hub.adapted import ADAPTED, adapted_auto_map
from ..hub.export import finish_folder
from ..hub.folders import written_whole
from ..models.bottleneck_core import FIELD, PARTS, AdaptedModule
from .layers import BottleneckLayer, HoulsbyLayer, PfeifferLayer
from .trained import unwrapped
from .tuner import BottleneckModel

OPTIONS = ("non_linearity", "scaling", "dropout", "ln_before", "ln_after")


def save_adapted(model: PeftModel, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model and its active adapter as one checkpoint.

    A method that can be merged (LoRA) is: the checkpoint is a plain one. Houlsby and Pfeiffer adapters stay what they
    are; the checkpoint carries their code and that of the model's family, and gives exactly the outputs of `model`.
    Either loads by the Auto classes, with `trust_remote_code=True` where it has code.

    Args:
        model: of PEFT; it stays as it is.
        folder: a new or empty one.
        overwrite: whether a checkpoint that is there may be replaced.

    Returns:
        The folder.

    Raises:
        TypeError: the model has no adapter.
        ValueError: the method is neither merged nor of this package, such as prompts in front of the text; or no auto
            class gives the model's class.
        FileExistsError: the folder has files and `overwrite` is not set.

    Examples:
        >>> import tempfile
        >>> from hf_ptm_ext import HoulsbyConfig, save_adapted
        >>> from peft import get_peft_model
        >>> from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification
        >>> sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
        >>> model = get_peft_model(BertForSequenceClassification(BertConfig(**sizes)), HoulsbyConfig())
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     folder = save_adapted(model, f"{parent}/whole")
        ...     loaded = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
        >>> type(loaded).__name__
        'AdaptedBertForSequenceClassification'
    """
    if not isinstance(model, PeftModel):
        raise TypeError(f"`model` must be adapted by PEFT, got {type(model).__name__}: save it by `save_pretrained`.")
    folder, tuner = Path(folder), model.base_model
    if isinstance(tuner, BottleneckModel):
        base, fields = with_adapters(model)
        with written_whole(folder, overwrite) as partial:
            base.save_pretrained(partial)
            config = read_json(partial / "config.json")
            write_json(partial / "config.json", {**config, **fields}, sort_keys=True)
            finish_folder(partial)
        return folder
    if not hasattr(tuner, "merge_and_unload"):
        method = model.active_peft_config.peft_type
        raise ValueError(
            f"`model` must have an adapter in its layers, got {getattr(method, 'value', method)}, which stands in "
            "front of the text and cannot be merged: save it alone."
        )
    merged = copy.deepcopy(model).merge_and_unload()
    with written_whole(folder, overwrite) as partial:
        merged.save_pretrained(partial)
    return folder


def with_adapters(model: PeftModel) -> tuple[Any, dict[str, Any]]:
    """The base model with plain modules for PEFT's, and what its configuration must say; weights are shared."""
    source: Any = model.get_base_model()
    tuner: Any = model.base_model
    adapter = model.active_adapter
    spoken = model.peft_config[adapter]
    base_class = type(source.base_model) if source.base_model is not source else None
    auto_map = adapted_auto_map(type(source.config), type(source), base_class)
    kept = {id(value): value for value in (*source.parameters(), *source.buffers())}
    base = copy.deepcopy(source, kept)
    options = {name: getattr(spoken, name) for name in OPTIONS}
    places = {}
    for name, module in list(base.named_modules()):
        if isinstance(module, BottleneckLayer):
            places[name] = _place(module, adapter)
            _put(base, name, _plain(module, adapter, places[name], options))
        elif isinstance(module, ModulesToSaveWrapper):
            copies = module.modules_to_save
            _put(base, name, copies[adapter] if adapter in copies else unwrapped(module))
    fields = {
        "model_type": f"{ADAPTED.prefix}{source.config.model_type}",
        "architectures": [f"Adapted{type(source).__name__}"],
        "auto_map": auto_map,
        FIELD: {
            "method": tuner.method,
            "options": options,
            "places": places,
            "dropped_elsewhere": sorted(tuner._residual_dropouts),
            "float32": _kept_in_float32(source, adapter),
        },
    }
    return base, fields


def _kept_in_float32(model: Any, adapter: str) -> bool:
    """Whether the adapter is more exact than the model, as PEFT makes it beside one of half precision."""
    downs = (one.part("down") for one in model.modules() if isinstance(one, BottleneckLayer))
    kinds = {one[adapter].weight.dtype for one in downs if adapter in one}
    return kinds == {torch.float32} != {model.dtype}


def _place(module: BottleneckLayer, adapter: str) -> dict[str, Any]:
    """What `AdaptedModule` must know of a place."""
    has_adapter = adapter in module.options
    return {
        "hidden_size": module.hidden_size,
        "bottleneck_size": module.part("down")[adapter].out_features if has_adapter else None,
        "takes_sum": isinstance(module, PfeifferLayer) and module.takes_sum,
        "residual_dropout": module.residual_dropout if isinstance(module, HoulsbyLayer) else 0.0,
    }


def _plain(module: BottleneckLayer, adapter: str, place: dict[str, Any], options: dict[str, Any]) -> AdaptedModule:
    """The module that does what PEFT's does, with the same weights."""
    with torch.device("meta"):  # draws no random numbers
        plain = AdaptedModule(module.base_layer, place, options)
    for name in PARTS:
        if adapter in module.part(name):
            setattr(plain, name, module.part(name)[adapter])
    return plain.train(module.training)


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of one by name."""
    owner, _, child = name.rpartition(".")
    setattr(model.get_submodule(owner), child, module)
