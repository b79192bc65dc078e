"""IB-BERT checkpoints of the original TensorFlow code (google-research/mobilebert), and back.

The original's variables, read from an `.npz` (or any file of tensors) under TensorFlow's names
`bert/encoder/layer_0/bottleneck/input/dense/kernel`, become ours: dense kernels are transposed, `gamma` and `beta` are
weight and bias, the vocabulary head's own columns (`extra_output_weights`) are `cls.predictions.dense`. Files that
have our names already are read too. Names and shapes are those of the code; no published file was there to check with.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..models.ib_bert.configuration_ib_bert import AUTO_MAP, FIXED, IBBertConfig
from .layout import BUFFERS, RENAMES, TIED, Layout
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

SIZES = (
    "vocab_size",
    "hidden_size",
    "intra_bottleneck_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
FIELDS = (
    *SIZES,
    "embedding_size",
    "trigram_input",
    "padding_in_trigrams",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "classifier_activation",
    *FIXED,
)
# Optimisers' variables beside the weights.
STATE = r"(adam|lamb)_[mv]|global_step|beta[12]_power"
# Variables that ours are the transpose of.
TRANSPOSED = r"/kernel$|/extra_output_weights$"
# pattern of a key, replacement, what the report calls it
TENSORFLOW = (
    (r":0$", "", "suffix `:0` taken off"),
    (r"/extra_output_weights$", "/dense/weight", "`extra_output_weights` to `dense`"),
    (r"^cls/predictions/output_bias$", "cls/predictions/bias", "`output_bias` to `bias`"),
    (r"^cls/seq_relationship/output_(weights|bias)$", r"cls/seq_relationship/\1", "`output_...` of the sentence head"),
    (r"seq_relationship/weights$", "seq_relationship/weight", "`output_...` of the sentence head"),
    (r"/kernel$", "/weight", "`kernel` to `weight`, transposed"),
    (r"/gamma$", "/weight", "`gamma` to `weight`"),
    (r"/beta$", "/bias", "`beta` to `bias`"),
    (r"_embeddings$", "_embeddings/weight", "tables to `weight`"),
    (r"/layer_(\d+)/", r"/layer/\1/", "`layer_i` to `layer.i`"),
    (r"/", ".", "`/` to `.`"),
    (r"^mobilebert\.", "bert.", "prefix `mobilebert.` to `bert.`"),
)


def _pretraining_model(config: IBBertConfig) -> nn.Module:
    from ..models.ib_bert.modeling_ib_bert import IBBertForPreTraining

    return IBBertForPreTraining(config)


LAYOUT = Layout(
    title="IB-BERT",
    prefix="IBBert",
    model=_pretraining_model,
    renames=(*TENSORFLOW, *RENAMES),
    buffers=rf"{BUFFERS}|{STATE}",
    original_name=lambda name, config, names: _original_name(name) if any("/" in key for key in names) else name,
    dimensions=(
        (r".*word_embeddings\.weight|cls\.predictions\.(decoder\.weight|decoder\.bias|bias)", 0, "vocab_size"),
        (r".*word_embeddings\.weight|cls\.predictions\.decoder\.weight", 1, "embedding_size"),
        (r".*position_embeddings\.weight", 0, "max_position_embeddings"),
        (r".*token_type_embeddings\.weight", 0, "type_vocab_size"),
        (r".*\.intermediate\.dense\.(weight|bias)", 0, "intermediate_size"),
        (r".*\.attention\.self\..*|.*bottleneck\.input\..*", 0, "intra_bottleneck_size"),
        (r".*", -1, "hidden_size"),
    ),
)


def convert_config(original: Mapping[str, Any]) -> IBBertConfig:
    """Our configuration from the original's JSON (`uncased_L-24_H-1024_B-512_A-4.json`).

    Args:
        original: its options; what says nothing about the model is ignored. Its `gelu` is the tanh approximation, so
            it becomes `gelu_new`.

    Returns:
        The configuration, with the whole auto_map.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, a field is out of its range, or the options are MobileBERT's.

    Example:
        >>> options = dict(vocab_size=100, hidden_size=32, intra_bottleneck_size=64, num_hidden_layers=2,
        ...     num_attention_heads=4, intermediate_size=64, embedding_size=8, hidden_act="gelu", use_bottleneck=True)
        >>> convert_config(options).hidden_act
        'gelu_new'
    """
    fields = read_fields(original, FIELDS, SIZES)
    if fields.get("hidden_act") == "gelu":
        fields["hidden_act"] = "gelu_new"
    config = made_config(IBBertConfig, fields, "IB-BERT")
    for name in FIXED:
        if hasattr(config, name):
            delattr(config, name)
    config.auto_map = dict(AUTO_MAP)
    return config


def convert_state_dict(original: Mapping[str, torch.Tensor], config: IBBertConfig) -> dict[str, torch.Tensor]:
    """Our state dict from the original's variables.

    Args:
        original: tensors under TensorFlow's names; pooler and heads may be missing whole.
        config: what `convert_config` gave.

    Returns:
        The tensors under our names, the tied decoder included if the file has a vocabulary head.

    Raises:
        ValueError: a key, a shape or the number of layers does not fit, or weights are missing. Keys are named.

    Example:
        >>> config = IBBertConfig(vocab_size=9, hidden_size=8, intra_bottleneck_size=12, embedding_size=4,
        ...     num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> ours = _pretraining_model(config).state_dict()
        >>> original = revert_state_dict(ours, config)
        >>> original["bert/encoder/layer_0/bottleneck/input/dense/kernel"].shape
        torch.Size([8, 12])
        >>> converted = convert_state_dict(original, config)
        >>> converted.keys() == ours.keys(), all(torch.equal(converted[key], ours[key]) for key in ours)
        (True, True)
    """
    return LAYOUT.convert_tensors(_transposed(original), config)


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: IBBertConfig) -> dict[str, torch.Tensor]:
    """The original's variables from our state dict.

    Args:
        ours: tensors of `IBBertForPreTraining` or of a part of it.
        config: their configuration.

    Returns:
        The tensors under TensorFlow's names, without a copy of the tied word embeddings.

    Raises:
        ValueError: a key is not one of an IB-BERT pre-training model, or an untied decoder would be lost.
    """
    tied, embeddings = next(iter(TIED.items()))
    if tied in ours and embeddings in ours and not torch.equal(ours[tied], ours[embeddings]):
        raise ValueError(f"`{tied}` differs from `{embeddings}`, to which the original ties it: it would be lost.")
    reverted = {}
    for name, value in LAYOUT.revert_tensors(ours, config, tied_copies=False).items():
        key = _original_name(name)
        reverted[key] = value.t().contiguous() if re.search(TRANSPOSED, key) else value
    return reverted


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
    return LAYOUT.convert_file(_transposed(original), convert_config(options))


def revert_config(config: IBBertConfig) -> dict[str, Any]:
    """The original's JSON for a configuration of ours.

    Args:
        config: the configuration.

    Returns:
        What `convert_config` reads.

    Example:
        >>> revert_config(IBBertConfig())["hidden_act"]
        'gelu'
    """
    options = {name: getattr(config, name) for name in FIELDS if name not in FIXED and name != "padding_in_trigrams"}
    if config.hidden_act == "gelu_new":
        options["hidden_act"] = "gelu"
    return {**options, "use_bottleneck": True}


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: IBBertConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the original code names it.

    Args:
        ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
        config: their configuration.

    Returns:
        The variables and the options.

    Raises:
        ValueError: the checkpoint has heads that the original's pre-training model has not.
    """
    prefixed = {LAYOUT.describe_key(key)[0]: tensor for key, tensor in ours.items()}
    return revert_state_dict(prefixed, config), revert_config(config)


def _transposed(original: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        key: value.t() if re.search(TRANSPOSED, key.removesuffix(":0")) else value for key, value in original.items()
    }


def _original_name(name: str) -> str:
    """TensorFlow's name of one of our weights."""
    key = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name)
    special = {
        "cls.predictions.bias": "cls/predictions/output_bias",
        "cls.predictions.dense.weight": "cls/predictions/extra_output_weights",
        "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
        "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    }
    if key in special:
        return special[key]
    key = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", key)
    key = re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", key)
    key = re.sub(r"_embeddings\.weight$", "_embeddings", key)
    return re.sub(r"\.weight$", ".kernel", key).replace(".", "/")
