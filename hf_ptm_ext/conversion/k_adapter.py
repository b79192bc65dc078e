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

from ..models.k_adapter.configuration_k_adapter import AUTO_MAP, KAdapterConfig

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
    if not isinstance(original, Mapping):
        raise TypeError(f"`original` must be a mapping of options, got {type(original).__name__}.")
    width = int(original.get("base_hidden_size", 1024))
    encoder = original.get("encoder_config") or {
        "model_type": "roberta",
        "hidden_size": width,
        "num_hidden_layers": int(original.get("base_layers", 24)),
        "num_attention_heads": max(width // HEAD_WIDTH, 1),
        "intermediate_size": 4 * width,
        "vocab_size": 50265,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    }
    fields = {ours: original[theirs] for theirs, ours in FIELDS.items() if original.get(theirs) is not None}
    adapters = list(original.get("adapters", ["fac"]))
    config = KAdapterConfig(encoder_config=encoder, adapters=adapters, respect_padding=False, **fields)
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
        ValueError: a key is none of the original's, named.

    Example:
        >>> config = convert_config({"adapters": ["fac"]})
        >>> list(convert_state_dict({"adapter.1.up_project.bias": torch.zeros(1024)}, config))
        ['k_adapter.adapters.fac.part.1.up_project.bias']
    """
    converted, unknown = {}, []
    for key, value in original.items():
        name = _ours(re.sub(r"^(module|model)\.", "", key), config)
        if name is None:
            unknown.append(key)
        else:
            converted[name] = value
    if unknown:
        raise ValueError(
            f"`original` has {len(unknown)} keys that are none of K-Adapter's: {', '.join(sorted(unknown)[:5])}."
        )
    return converted


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: KAdapterConfig) -> dict[str, torch.Tensor]:
    """The original's names from ours, for the first adapter of the configuration; the encoder is left out.

    Args:
        ours: tensors of one of our classes with a pre-training head.
        config: their configuration.

    Returns:
        Tensors under the original's names.

    Example:
        >>> config = convert_config({"adapters": ["fac"]})
        >>> list(revert_state_dict({"k_adapter.fusion.fac.bias": torch.zeros(1024)}, config))
        ['com_dense.bias']
    """
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
    return found


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
