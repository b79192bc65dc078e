"""NEZHA checkpoints of the original code (huawei-noah/Pretrained-Language-Model) and of transformers 4, and back.

The original's names are BERT's and ours. Files of transformers 4 have the prefix `nezha.`, and old ones the fixed
encodings of the distances in every layer, which are no weights. `gamma` and `beta`, a `module.` in front and encoders
without a prefix are read too. All of these also load by `from_pretrained` as they are.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..models.nezha.configuration_nezha import AUTO_MAP, NezhaConfig
from .layout import BUFFERS, RENAMES, Layout
from .options import made_config, read_fields
from .report import Conversion

__all__ = [
    "convert_checkpoint",
    "convert_config",
    "convert_state_dict",
    "revert_checkpoint",
    "revert_config",
    "revert_state_dict",
]

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
FIELDS = (
    *SIZES,
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "max_relative_position",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "tie_word_embeddings",
    "use_relative_position",
    "is_decoder",
)


def _pretraining_model(config: NezhaConfig) -> nn.Module:
    from ..models.nezha.modeling_nezha import NezhaForPreTraining

    return NezhaForPreTraining(config)


LAYOUT = Layout(
    title="NEZHA",
    prefix="Nezha",
    model=_pretraining_model,
    renames=(RENAMES[0], (r"^nezha\.", "bert.", "prefix `nezha.` to `bert.`"), *RENAMES[1:]),
    buffers=rf"relative_positions_encoding\.|{BUFFERS}",
)


def convert_config(original: Mapping[str, Any]) -> NezhaConfig:
    """Our configuration from the original's `bert_config.json` or transformers 4's `config.json`.

    Args:
        original: its options; what says nothing about the model (ids, lengths, seeds) is ignored.

    Returns:
        The configuration, with the whole auto_map.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, a field is out of its range, or the model has absolute positions
            (`use_relative_position` false).

    Example:
        >>> options = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        ...     intermediate_size=64, max_relative_position=4, use_relative_position=True)
        >>> convert_config(options).max_relative_position
        4
    """
    fields = read_fields(original, FIELDS, SIZES)
    config = made_config(NezhaConfig, fields, "NEZHA")
    if "use_relative_position" in fields:
        del config.use_relative_position
    config.auto_map = dict(AUTO_MAP)
    return config


def convert_state_dict(original: Mapping[str, torch.Tensor], config: NezhaConfig) -> dict[str, torch.Tensor]:
    """Our state dict from the original's.

    Args:
        original: tensors under the original's names; pooler and heads may be missing whole.
        config: what `convert_config` gave.

    Returns:
        The tensors under our names, the tied decoder included if the file has a vocabulary head.

    Raises:
        ValueError: a key, a shape or the number of layers does not fit, or weights are missing. Keys are named.

    Example:
        >>> config = NezhaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8)
        >>> ours = _pretraining_model(config).state_dict()
        >>> original = revert_state_dict(ours, config)
        >>> converted = convert_state_dict(original, config)
        >>> converted.keys() == ours.keys(), all(torch.equal(converted[key], ours[key]) for key in ours)
        (True, True)
    """
    return LAYOUT.convert_tensors(original, config)


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: NezhaConfig) -> dict[str, torch.Tensor]:
    """The original's state dict from ours.

    Args:
        ours: tensors of `NezhaForPreTraining` or of a part of it.
        config: their configuration.

    Returns:
        The tensors under the original's names, without the entries that `convert_state_dict` added.

    Raises:
        ValueError: a key is not one of a NEZHA pre-training model, or an untied bias would be lost.
    """
    return LAYOUT.revert_tensors(ours, config)


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`.

    Returns:
        Configuration, tensors and report.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.
    """
    return LAYOUT.convert_file(original, convert_config(options))


def revert_config(config: NezhaConfig) -> dict[str, Any]:
    """The original's `bert_config.json` for a configuration of ours.

    Args:
        config: the configuration.

    Returns:
        What `convert_config` reads.

    Example:
        >>> revert_config(NezhaConfig(max_relative_position=9))["max_relative_position"]
        9
    """
    own = ("pad_token_id", "tie_word_embeddings", "is_decoder")
    options = {name: getattr(config, name) for name in FIELDS if name not in own and hasattr(config, name)}
    return {**options, "use_relative_position": True}


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: NezhaConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the original code reads it.

    Args:
        ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
        config: their configuration.

    Returns:
        The state dict, with the decoder's copy of the word embeddings, and the options.

    Raises:
        ValueError: the checkpoint has heads that the original's pre-training model has not.
    """
    return LAYOUT.revert_file(ours, config), revert_config(config)
