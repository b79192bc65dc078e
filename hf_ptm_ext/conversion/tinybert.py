"""TinyBERT checkpoints of the original code (huawei-noah/Pretrained-Language-Model, TinyBERT), and back.

They are BERTs under BERT's names with configs that do not say so (without `model_type` no Auto class reads them), and
with `fit_dense`, the projection of the student's states to the teacher's width. The model becomes upstream's
`BertForSequenceClassification`, `BertForPreTraining` or `BertModel`; the projection what `DistillationModel` and
`DistillationTrainer` keep beside a student.

The released classifier reads relu(pooled output), which no configuration of BERT expresses: call
`hf_ptm_ext.distillation.rectify_classifier_input(model)` for its very predictions.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import BertConfig

from .files import name_some
from .layout import BUFFERS, RENAMES, Layout, check_weights, size_of
from .options import made_config, read_fields
from .report import Conversion

__all__ = [
    "convert_checkpoint",
    "convert_config",
    "convert_projections",
    "convert_state_dict",
    "revert_checkpoint",
    "revert_config",
    "revert_projections",
    "revert_state_dict",
]

# What `hf-ptm-ext convert --to-original` finds in the source's config.
MODEL_TYPE = "bert"
# The file beside a student, as `DistillationTrainer` writes it.
PROJECTIONS_FILE = "distill_projections.safetensors"
PROJECTION = r"^(module\.)?fit_dense\.(weight|bias)$"
# Projections of other releases (one a layer) and of teachers, which no objective here reads.
OTHER_PROJECTIONS = r"^(module\.)?fit_denses\."
# Name of the shared projection in `DistillationModel.auxiliary_state_dict()`.
AUXILIARY = "terms.hidden.fit_dense"

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
FIELDS = (
    *SIZES,
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "num_labels",
    "id2label",
    "label2id",
)
# Short names of the same sizes, as lists of sizes have them.
SHORT = {
    "vocab": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "max_position": "max_position_embeddings",
    "type_vocab": "type_vocab_size",
    "labels": "num_labels",
}
RELU = "pooled output; the released code reads its relu, as a model does after `rectify_classifier_input(model)`"


def _pretraining_model(config: BertConfig) -> nn.Module:
    from transformers import BertForPreTraining

    return BertForPreTraining(config)


def _classifier(config: BertConfig) -> nn.Module:
    from transformers import BertForSequenceClassification

    return BertForSequenceClassification(config)


# gamma and beta of old files, and an encoder without a prefix, are read too.
PRETRAINING = Layout(title="TinyBERT", prefix="Bert", model=_pretraining_model, renames=RENAMES, buffers=BUFFERS)
CLASSIFIER = replace(PRETRAINING, model=_classifier, parts=(), needs={}, tied={})


def convert_config(original: Mapping[str, Any], part: str = "student") -> BertConfig:
    """Upstream's configuration from TinyBERT's `config.json`.

    Args:
        original: its options; what says nothing about the model (`cell`, `structure`, `pre_trained`) is ignored. Short
            names (`hidden`, `layers`) and one set of sizes for each of `student` and `teacher` are read too.
        part: whose sizes, if there are two sets.

    Returns:
        The configuration of a BERT.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, or `part` is neither student nor teacher.

    Example:
        >>> options = {"hidden_size": 312, "intermediate_size": 1200, "num_attention_heads": 12,
        ...     "num_hidden_layers": 4, "vocab_size": 30522, "cell": {}, "structure": []}
        >>> convert_config(options).hidden_size
        312
    """
    if part not in ("student", "teacher"):
        raise ValueError(f"`part` must be 'student' or 'teacher', got {part!r}.")
    if isinstance(original, Mapping):
        nested = original.get(part)
        original = {**original, **nested} if isinstance(nested, Mapping) else original
        original = {SHORT.get(name, name): value for name, value in original.items()}
    return made_config(BertConfig, read_fields(original, FIELDS, SIZES), "TinyBERT")


def convert_state_dict(original: Mapping[str, torch.Tensor], config: BertConfig) -> dict[str, torch.Tensor]:
    """Upstream's state dict from the original's.

    Args:
        original: tensors under the original's names; `fit_dense` is left to `convert_projections`.
        config: what `convert_config` gave.

    Returns:
        The tensors of a `BertForSequenceClassification` if there is a `classifier`, else of a `BertForPreTraining` as
        far as the file has it, the tied decoder included.

    Raises:
        ValueError: a key, a shape or the number of layers does not fit, or weights are missing. Keys are named.

    Example:
        >>> config = BertConfig(
        ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> original = {**_classifier(config).state_dict(), "fit_dense.weight": torch.zeros(16, 8)}
        >>> "fit_dense.weight" in convert_state_dict(original, config)
        False
    """
    model = {key: value for key, value in original.items() if not _is_projection(key)}
    return _layout(model).convert_tensors(model, config)


def convert_projections(original: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The projection of the student's states, for `DistillationModel.load_auxiliary_state_dict`.

    Args:
        original: tensors under the original's names.

    Returns:
        Weight and bias under the names that presets `tinybert-general` and `tinybert-intermediate` give them; empty if
        there are none.

    Example:
        >>> list(convert_projections({"fit_dense.weight": torch.zeros(16, 8)}))
        ['terms.hidden.fit_dense.weight']
    """
    found = {key: re.match(PROJECTION, key) for key in original}
    return {f"{AUXILIARY}.{match[2]}": original[key] for key, match in found.items() if match}


def revert_state_dict(
    ours: Mapping[str, torch.Tensor],
    config: BertConfig,
    projections: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor]:
    """The original's state dict from upstream's.

    Args:
        ours: tensors of `BertForSequenceClassification`, of `BertForPreTraining` or of a part of it.
        config: their configuration.
        projections: what `convert_projections` gave or `distill_projections.safetensors` holds.

    Returns:
        The tensors under the original's names, `fit_dense` among them if it was given.

    Raises:
        ValueError: a key is not one of the model's, or a projection is not the shared one.
    """
    return {**_layout(ours).revert_tensors(ours, config), **revert_projections(projections or {}, config)}


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`; the number of labels is read from the classifier's bias.

    Returns:
        Configuration, tensors and report.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.
    """
    model = {key: value for key, value in original.items() if not _is_projection(key)}
    config = convert_config(options)
    layout = _layout(model)
    if layout is CLASSIFIER:
        labels = next((size_of(model, key) for key in model if key.endswith("classifier.bias")), None)
        if labels is not None and labels != config.num_labels:
            config.num_labels = labels
    conversion = layout.convert_file(model, config)
    kept = convert_projections(original)
    _check_projection(kept, config)
    dropped = {
        key: f"no weight of the model, but of its training: in {PROJECTIONS_FILE}"
        if kept and re.match(PROJECTION, key)
        else "projections of single layers, of training alone"
        for key in original
        if key not in model
    }
    conversion = replace(conversion, dropped={**conversion.dropped, **dropped})
    if layout is CLASSIFIER:
        return replace(
            conversion,
            architecture="BertForSequenceClassification",
            initialised={},
            assumed={"classifier reads the": RELU},
        )
    return conversion


def more_files(original: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Files that `hf-ptm-ext convert` writes beside the model.

    Args:
        original: tensors under the original's names.

    Returns:
        File name -> tensors.
    """
    projections = convert_projections(original)
    return {PROJECTIONS_FILE: projections} if projections else {}


def revert_config(config: BertConfig) -> dict[str, Any]:
    """The original's `config.json` for a configuration of upstream's.

    Args:
        config: the configuration.

    Returns:
        What `convert_config` reads.

    Example:
        >>> revert_config(BertConfig(hidden_size=312))["hidden_size"]
        312
    """
    left_out = ("id2label", "label2id", "num_labels", "pad_token_id")
    options = {name: getattr(config, name) for name in FIELDS if name not in left_out}
    return {**options, "cell": {}, "structure": [], "pre_trained": "", "training": ""}


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: BertConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A BERT checkpoint as the original code reads it.

    Args:
        ours: tensors as one of upstream's classes saved them.
        config: their configuration.

    Returns:
        The state dict, with the decoder's copy of the word embeddings, and the options.

    Raises:
        ValueError: the checkpoint has heads that the original's models have not.
    """
    return _layout(ours).revert_file(ours, config), revert_config(config)


def revert_projections(
    projections: Mapping[str, torch.Tensor], config: BertConfig | None = None
) -> dict[str, torch.Tensor]:
    """`fit_dense` of the original from the projections beside a student.

    Args:
        projections: what `convert_projections` gave or `distill_projections.safetensors` holds.
        config: the student's, to compare the projection with (default: it is not).

    Returns:
        The tensors under the original's names.

    Raises:
        ValueError: a projection is not the shared one, or does not fit the student.
    """
    names = {key: key.removeprefix(f"{AUXILIARY}.") for key in projections}
    foreign = [key for key, name in names.items() if name not in ("weight", "bias")]
    if foreign:
        raise ValueError(
            f"`projections` must hold the one projection that TinyBERT shares among all states, `{AUXILIARY}.*`, got "
            f"{foreign[0]!r}: the original has no place for it. Leave it out."
        )
    if config is not None:
        _check_projection(projections, config)
    return {f"fit_dense.{name}": projections[key] for key, name in names.items()}


def _check_projection(projections: Mapping[str, torch.Tensor], config: BertConfig) -> None:
    """The projection must be whole, a weight and a bias of floating point numbers that reads the model's states."""
    if not projections:
        return
    check_weights(projections)
    weight, bias = (projections.get(f"{AUXILIARY}.{name}") for name in ("weight", "bias"))
    lacking = [name for name, value in (("weight", weight), ("bias", bias)) if value is None]
    if weight is None or bias is None:
        raise ValueError(f"The projection lacks {name_some([f'fit_dense.{name}' for name in lacking])}.")
    if weight.ndim != 2 or weight.shape[1] != config.hidden_size or bias.shape != weight.shape[:1]:
        raise ValueError(
            f"`fit_dense` must be a weight (width of the teacher, `hidden_size` = {config.hidden_size}) and its bias, "
            f"got the shapes {tuple(weight.shape)} and {tuple(bias.shape)}."
        )


def _is_projection(key: str) -> bool:
    return re.match(PROJECTION, key) is not None or re.match(OTHER_PROJECTIONS, key) is not None


def _layout(tensors: Mapping[str, torch.Tensor]) -> Layout:
    return CLASSIFIER if any(re.match(r"(module\.)?classifier\.", key) for key in tensors) else PRETRAINING
