"""K-Adapter files of the original code (microsoft/K-Adapter), and back.

A file of the original has one adapter and the layers that it was trained with, without the encoder: `adapter.I.*` for
the part at the I-th hidden state, `com_dense` (what joins encoder and adapter), `dense` and `out_proj` (the
classifier) and, for the "lin" adapter, `self_attention.*`. Those of a fine-tuned model are `task_dense_<adapter>` and
`task_dense`.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..models.k_adapter.configuration_k_adapter import AUTO_MAP, KAdapterConfig
from .layout import Layout, by_our_names, check_weights, has_part, layer_numbers
from .options import check_options, made_config

__all__ = ["convert_config", "convert_state_dict", "revert_state_dict"]

# What the original's constants and options are called -> ours.
FIELDS = {
    "adapter_list": "adapter_layers",
    "adapter_hidden_size": "adapter_hidden_size",
    "adapter_transformer_layers": "adapter_num_hidden_layers",
    "adapter_heads": "adapter_num_attention_heads",
    "adapter_intermediate_size": "adapter_intermediate_size",
    "adapter_skip_layers": "adapter_skip_layers",
    "max_seq_length": "max_head_positions",
    "num_relations": "num_labels",
    "layer_norm_eps": "layer_norm_eps",
    "fusion_mode": "fusion",
}
HEAD_WIDTH = 64
PREFIX = "k_adapter."


def convert_config(original: Mapping[str, Any]) -> KAdapterConfig:
    """Our configuration from the original's options; what is missing is RoBERTa-large's and the run scripts'.

    Args:
        original: `base_hidden_size` and `base_layers` of the encoder (or `encoder_config`, whole), `adapters` (names,
            default `["fac"]`), the options of the original by their names there; others are ignored.

    Returns:
        The configuration, in which padding is attended to, as in training.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: see `KAdapterConfig`.

    Example:
        >>> convert_config({"adapters": ["lin"], "adapter_list": [0, 11, 22]}).adapter_hidden_size
        768
    """
    check_options(original, (*FIELDS, "base_hidden_size", "base_layers", "adapters"))
    if isinstance(original.get("encoder_config"), Mapping):
        check_options(original["encoder_config"])
    width = original.get("base_hidden_size", 1024)
    encoder = original.get("encoder_config") or {
        "model_type": "roberta",
        "hidden_size": width,
        "num_hidden_layers": original.get("base_layers", 24),
        "num_attention_heads": max(width // HEAD_WIDTH, 1),
        "intermediate_size": 4 * width,
        "vocab_size": 50265,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    }
    fields = {ours: original[theirs] for theirs, ours in FIELDS.items() if original.get(theirs) is not None}
    adapters = list(original.get("adapters", ["fac"]))
    fields |= {"encoder_config": encoder, "adapters": adapters, "respect_padding": False}
    config = made_config(KAdapterConfig, fields, "K-Adapter")
    config.auto_map = dict(AUTO_MAP)
    return config


def convert_state_dict(original: Mapping[str, torch.Tensor], config: KAdapterConfig) -> dict[str, torch.Tensor]:
    """Our names from the original's, for the adapter and the layers beside it; the encoder is not in such files.

    Args:
        original: tensors under the original's names, with or without a `module.` or `model.` in front.
        config: what `convert_config` gave; `adapters[0]` is whose `adapter.I.*` and `com_dense` these are.

    Returns:
        Tensors of `KAdapterForRelationClassification` or, with `self_attention.*`, `KAdapterForDependencyHeads`, to be
        loaded with `strict=False`.

    Raises:
        ValueError: a key is none of the original's, or an adapter, a layer that joins or a head lacks weights, or has
            others than the config asks for; all are named.

    Example:
        >>> config = convert_config({"adapters": ["fac"]})
        >>> joins = {"com_dense.weight": torch.zeros(1024, 2048), "com_dense.bias": torch.zeros(1024)}
        >>> list(convert_state_dict(joins, config))
        ['k_adapter.fusion.fac.weight', 'k_adapter.fusion.fac.bias']
    """
    names = {key: _ours(re.sub(r"^(module|model)\.", "", key), config) for key in original}
    unknown = sorted(key for key, name in names.items() if name is None)
    if unknown:
        raise ValueError(f"`original` has {len(unknown)} keys that are none of K-Adapter's: {', '.join(unknown[:5])}.")
    tensors, sources = by_our_names((name, key, original[key]) for key, name in names.items() if name is not None)
    return _layout(tensors, config).check(tensors, sources, config)


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: KAdapterConfig) -> dict[str, torch.Tensor]:
    """The original's names from ours, for the first adapter of the configuration; the encoder is left out.

    Args:
        ours: tensors of one of our classes with a pre-training head.
        config: their configuration.

    Returns:
        Tensors under the original's names.

    Raises:
        ValueError: there are none of the adapter's, or some of them or of a head are missing.

    Example:
        >>> config = convert_config({"adapters": ["fac"]})
        >>> joins = {"com_dense.weight": torch.zeros(1024, 2048), "com_dense.bias": torch.zeros(1024)}
        >>> list(revert_state_dict(convert_state_dict(joins, config), config))
        ['com_dense.weight', 'com_dense.bias']
    """
    _layout(ours, config).check_ours(ours, config)
    name = config.adapters[0]
    renames = (
        (rf"^{PREFIX}adapters\.{re.escape(name)}\.part\.", "adapter."),
        (rf"^{PREFIX}fusion\.{re.escape(name)}\.", "com_dense."),
        (r"^classifier\.", ""),
        (r"^attention\.", "self_attention."),
    )
    found = {}
    for key, value in ours.items():
        for pattern, replacement in renames:
            if re.match(pattern, key):
                found[re.sub(pattern, replacement, key)] = value
                break
    check_weights(found)
    return found


def _layout(tensors: Mapping[str, torch.Tensor], config: KAdapterConfig) -> Layout:
    """The layout of a file, by its head; the encoder, adapters, what joins them and the head may be missing whole."""
    part = f"{PREFIX}adapters.{config.adapters[0]}.part."
    numbers = layer_numbers(tensors, part)
    layers = layer_numbers(tensors, f"{part}{min(numbers, default=0)}.encoder.layer.")
    for name, found, wanted in (
        ("adapter_list", len(numbers), len(config.adapter_layers or [])),
        ("adapter_transformer_layers", len(layers), config.adapter_num_hidden_layers),
    ):
        if numbers and found != wanted:
            raise ValueError(f"`{name}` says {wanted}, and the file has {found} of them: correct the config.")

    def model(config: KAdapterConfig) -> nn.Module:
        from ..models.k_adapter.modeling_k_adapter import KAdapterForDependencyHeads, KAdapterForRelationClassification

        heads = KAdapterForDependencyHeads if has_part(tensors, "attention.") else KAdapterForRelationClassification
        return heads(config)

    joins = [f"{PREFIX}{kind}.{name}." for kind in ("adapters", "fusion") for name in config.adapters]
    return Layout(
        title="K-Adapter",
        model=model,
        stacks=(),
        dimensions=((r"classifier\.out_proj\..*", 0, "num_labels"),),
        parts=(*joins, f"{PREFIX}fusion_of_all.", f"{PREFIX}encoder.", "classifier.", "attention."),
        needs={"attention.": "classifier."},
        tied={},
    )


def _ours(key: str, config: KAdapterConfig) -> str | None:
    """Our name of one of the original's keys, `None` if it is none of them."""
    name = config.adapters[0]
    task = re.match(r"^task_dense_(\w+)\.(weight|bias)$", key)
    if task and task[1] in config.adapters:
        return f"{PREFIX}fusion.{task[1]}.{task[2]}"
    for pattern, replacement in (
        (r"^adapter\.(\d+)\.(?=(down_project|encoder|up_project)\.)", rf"{PREFIX}adapters.{name}.part.\1."),
        (r"^com_dense\.", f"{PREFIX}fusion.{name}."),
        (r"^task_dense\.", f"{PREFIX}fusion_of_all."),
        (r"^(?=(dense|out_proj)\.)", "classifier."),
        (r"^self_attention\.(?=(self|output)\.)", "attention."),
    ):
        if re.match(pattern, key):
            return re.sub(pattern, replacement, key)
    return None
