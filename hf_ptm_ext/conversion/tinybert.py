"""TinyBERT checkpoints of the original code (huawei-noah/Pretrained-Language-Model, TinyBERT), and back.

They are BERTs with `fit_dense`, the projection of the student's states, which lies beside a student here. The released
classifier reads relu(pooled output): call `hf_ptm_ext.distillation.rectify_classifier_input(model)` for the same.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers import BertConfig

from .files import beside, name_some, read_checkpoint
from .layout import BERT_FIELDS, Conversion, Layout, functions_of
from .tensors import Options, State, Tensors, check_weights, size_of

# The file beside a student, as `DistillationTrainer` writes it.
PROJECTIONS_FILE = "distill_projections.safetensors"
PROJECTION = r"^(module\.)?fit_dense\.(weight|bias)$"
# Projections of other releases (one a layer) and of teachers, which no objective here reads.
OTHER_PROJECTIONS = r"^(module\.)?fit_denses\."
# Name of the shared projection in `DistillationModel.auxiliary_state_dict()`.
AUXILIARY = "terms.hidden.fit_dense"
# Short names of sizes, as lists of sizes have them.
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


class TinyBertLayout(Layout):
    title, family, prefix = "TinyBERT", "tinybert", "Bert"
    model_type = "bert"
    config_class = BertConfig
    fields = (*BERT_FIELDS, "num_labels", "id2label", "label2id")
    own = ("pad_token_id", "num_labels", "id2label", "label2id")
    model_class = "BertForPreTraining"

    def model(self, config: Any) -> nn.Module:
        made: nn.Module = getattr(transformers, self.model_class)(config)
        return made

    def convert_config(self, original: Options, part: str = "student") -> Any:
        """Upstream's configuration from TinyBERT's `config.json`, of the student or the teacher where it has both."""
        if part not in ("student", "teacher"):
            raise ValueError(f"`part` must be 'student' or 'teacher', got {part!r}.")
        if isinstance(original, Mapping):
            nested = original.get(part)
            original = {**original, **nested} if isinstance(nested, Mapping) else original
            original = {SHORT.get(name, name): value for name, value in original.items()}
        return super().convert_config(original)

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        model = {key: value for key, value in original.items() if not _is_projection(key)}
        return Layout.convert_state_dict(_layout(model), model, config)

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        model = {key: value for key, value in original.items() if not _is_projection(key)}
        config, layout = self.convert_config(options), _layout(model)
        labels = next((size_of(model, key) for key in model if key.endswith("classifier.bias")), None)
        if labels is not None and labels != config.num_labels:
            config.num_labels = labels
        assumed = {"classifier reads the": RELU} if layout is CLASSIFIER else {}
        found = layout.reported(model, layout.convert_state_dict(model, config), config, assumed)
        kept = convert_projections(original)
        _check_projection(kept, config)
        dropped = {
            key: f"no weight of the model, but of its training: in {PROJECTIONS_FILE}"
            if kept and re.match(PROJECTION, key)
            else "projections of single layers, of training alone"
            for key in original
            if key not in model
        }
        return replace(found, dropped={**found.dropped, **dropped})

    def more_files(self, original: State) -> dict[str, Tensors]:
        projections = convert_projections(original)
        return {PROJECTIONS_FILE: projections} if projections else {}

    def revert_config(self, config: Any) -> dict[str, Any]:
        return {**super().revert_config(config), "cell": {}, "structure": [], "pre_trained": "", "training": ""}

    def revert_checkpoint(self, ours: State, config: Any) -> tuple[Tensors, dict[str, Any]]:
        return Layout.revert_checkpoint(_layout(ours), ours, config)

    def revert_more_files(self, folder: Path, config: Any) -> Tensors:
        file = beside(folder, (PROJECTIONS_FILE,))
        return revert_projections({} if file is None else read_checkpoint(file).tensors, config)


class _Classifier(TinyBertLayout):
    """A file with a classifier, which has no other head."""

    heads, other_parts, needs, tied = {}, (), {}, {}
    model_class = "BertForSequenceClassification"

    def architecture(self, tensors: State, config: Any) -> str:
        return self.model_class


LAYOUT, CLASSIFIER = TinyBertLayout(), _Classifier()
globals().update(functions_of(LAYOUT))


def _layout(tensors: State) -> Layout:
    return CLASSIFIER if any(re.match(r"(module\.)?classifier\.", key) for key in tensors) else LAYOUT


def _is_projection(key: str) -> bool:
    return re.match(PROJECTION, key) is not None or re.match(OTHER_PROJECTIONS, key) is not None


def convert_projections(original: State) -> Tensors:
    """The projection of the student's states, for `DistillationModel.load_auxiliary_state_dict`."""
    found = {key: re.match(PROJECTION, key) for key in original}
    return {f"{AUXILIARY}.{match[2]}": original[key] for key, match in found.items() if match}


def revert_projections(projections: State, config: BertConfig | None = None) -> Tensors:
    """`fit_dense` of the original from the projections beside a student."""
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


def revert_state_dict(ours: State, config: BertConfig, projections: State | None = None) -> Tensors:
    """The original's state dict from upstream's, and from the projections beside it."""
    reverted = Layout.revert_state_dict(_layout(ours), ours, config)
    return {**reverted, **revert_projections(projections or {}, config)}


def _check_projection(projections: State, config: BertConfig) -> None:
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
