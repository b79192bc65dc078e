"""K-Adapter files of the original code (microsoft/K-Adapter), and back.

A file has one adapter and the layers that it was trained with; the encoder is taken from a folder or repository that
is named beside it, or stays new.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ..models.configuration_k_adapter import KAdapterConfig
from .layout import PREFIX, Conversion, Layout, functions_of
from .options import check_options
from .tensors import Options, State, Tensors, TokenizerFiles, has_part, layer_numbers, size_of

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
# RoBERTa-large's, for what the options leave open.
ENCODER = {
    "model_type": "roberta",
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
HEAD_WIDTH = 64
WITH_HEADS = ("KAdapterForRelationClassification", "KAdapterForDependencyHeads")
OURS = "k_adapter."
OUR_ENCODER = f"{OURS}encoder."


class KAdapterLayout(Layout):
    """The layout of a file with these adapters; its own names are those of the first one."""

    title, family, prefix = "K-Adapter", "k_adapter", "KAdapter"
    config_class = KAdapterConfig
    theirs = FIELDS
    infers_sizes = True
    foreign = "These keys are none of {title}'s"
    stacks = ()
    dimensions = ((r"classifier\.out_proj\..*", 0, "num_labels"),)
    heads = {OUR_ENCODER: "encoder, which `--encoder` names"}
    needs = {"attention.": "classifier."}
    tied = {}
    their_mark = r"^(module\.|model\.)?adapter\."
    wordpieces = False
    pipeline_tag = "text-classification"

    def __init__(self, adapters: Sequence[str] = ("fac",), syntactic: bool = False):
        self.syntactic, first = syntactic, adapters[0]
        joins = (f"{OURS}{kind}.{name}." for kind in ("adapters", "fusion") for name in adapters)
        self.other_parts = (*joins, f"{OURS}fusion_of_all.", "classifier.", "attention.")
        names = "|".join(map(re.escape, adapters))
        adapter = rf"{OURS}adapters.{first}.part.\1."
        self.renames = (
            (r"^(module|model)\.", "", PREFIX[2]),
            (
                r"^adapter\.(\d+)\.(?=(down_project|encoder|up_project)\.)",
                adapter,
                "`adapter.i` to the adapter's part",
            ),
            (rf"^task_dense_({names})\.(?=(weight|bias)$)", rf"{OURS}fusion.\1.", "`task_dense_...` to `fusion`"),
            (r"^com_dense\.", f"{OURS}fusion.{first}.", "`com_dense` to `fusion`"),
            (r"^task_dense\.", f"{OURS}fusion_of_all.", "`task_dense` to `fusion_of_all`"),
            (r"^(?=(dense|out_proj)\.)", "classifier.", "prefix `classifier.` put in front"),
            (r"^self_attention\.(?=(self|output)\.)", "attention.", "`self_attention` to `attention`"),
        )
        self.back = (
            (rf"^{OURS}adapters\.{re.escape(first)}\.part\.", "adapter."),
            (rf"^{OURS}fusion\.{re.escape(first)}\.", "com_dense."),
            (r"^classifier\.", ""),
            (r"^attention\.", "self_attention."),
        )

    def of(self, names: State, config: Any) -> "KAdapterLayout":
        """The layout of a file with these names, and of this config."""
        syntactic = any(re.match(r"(module\.|model\.)?(self_)?attention\.", name) for name in names)
        return KAdapterLayout(config.adapters, syntactic)

    def convert_config(self, original: Options) -> Any:
        """Our configuration from the original's options; what is missing is RoBERTa-large's and the run scripts'."""
        check_options(original, (*FIELDS, "base_hidden_size", "base_layers", "adapters"))
        if isinstance(original.get("encoder_config"), Mapping):
            check_options(original["encoder_config"])
        width = original.get("base_hidden_size", 1024)
        encoder = original.get("encoder_config") or {
            **ENCODER,
            "hidden_size": width,
            "num_hidden_layers": original.get("base_layers", 24),
            "num_attention_heads": max(width // HEAD_WIDTH, 1),
            "intermediate_size": 4 * width,
        }
        fields = {ours: original[theirs] for theirs, ours in FIELDS.items() if original.get(theirs) is not None}
        adapters = list(original.get("adapters", ["fac"]))
        return self.made({**fields, "encoder_config": encoder, "adapters": adapters, "respect_padding": False})

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        syntactic = has_part(tensors, "attention.")
        part = f"{OURS}adapters.fac.part."
        first = f"{part}{min(layer_numbers(tensors, part), default=0)}."
        inner = f"{first}encoder.layer."
        found = {
            "adapters": ["lin" if syntactic else "fac"],
            "base_hidden_size": size_of(tensors, f"{first}down_project.weight", 1),
            "adapter_hidden_size": size_of(tensors, f"{first}down_project.weight"),
            "adapter_intermediate_size": size_of(tensors, f"{inner}0.intermediate.dense.weight"),
            "adapter_transformer_layers": max(layer_numbers(tensors, inner), default=-1) + 1 or None,
            "max_seq_length" if syntactic else "num_relations": size_of(tensors, "classifier.out_proj.weight"),
        }
        for name, value in found.items():
            if value is not None and options.get(name) is None:
                options[name] = value
        if options.get("adapter_list") is None:
            return {"adapter_layers": "[0, 11, 22] of 24 layers, or as many of others, as in the run scripts"}
        return {}

    def tokenizer_from(self, *arguments: Any, **options: Any) -> TokenizerFiles:
        return {}, ["none: copy the encoder's"]

    def revert_config(self, config: Any) -> dict[str, Any]:
        """The options that `convert_config` reads."""
        encoder = config.encoder_config
        options = {theirs: getattr(config, ours) for theirs, ours in FIELDS.items()}
        sizes = {"base_hidden_size": encoder.hidden_size, "base_layers": encoder.num_hidden_layers}
        return {**options, **sizes, "adapters": list(config.adapters), "encoder_config": encoder.to_dict()}

    def model(self, config: Any) -> nn.Module:
        from ..models.modeling_k_adapter import KAdapterForDependencyHeads, KAdapterForRelationClassification

        return (KAdapterForDependencyHeads if self.syntactic else KAdapterForRelationClassification)(config)

    def architecture(self, tensors: State, config: Any) -> str:
        return "KAdapterForDependencyHeads" if self.syntactic else "KAdapterForRelationClassification"

    def their_name(self, name: str, config: Any) -> str:
        for pattern, replacement in self.back:
            if re.match(pattern, name):
                return re.sub(pattern, replacement, name)
        return name

    def tied_names(self, config: Any) -> set[str]:
        return set()

    def check_layers(self, names: Any, config: Any) -> None:
        """The numbers of the adapter's parts and of their layers."""
        part = f"{OURS}adapters.{config.adapters[0]}.part."
        numbers = layer_numbers(names, part)
        layers = layer_numbers(names, f"{part}{min(numbers, default=0)}.encoder.layer.")
        for name, found, wanted in (
            ("adapter_list", len(numbers), len(config.adapter_layers or [])),
            ("adapter_transformer_layers", len(layers), config.adapter_num_hidden_layers),
        ):
            if numbers and found != wanted:
                raise ValueError(f"`{name}` says {wanted}, and the file has {found} of them: correct the config.")

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        """Our names, for the adapter and the layers beside it."""
        return Layout.convert_state_dict(self.of(original, config), original, config)

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        """Convert a file; the option `encoder` names what the encoder's weights are taken from."""
        options, encoder = with_encoder(options)
        check_options(options, FIELDS)
        assumed = self.complete_options(options, {self.describe_key(key)[0]: one for key, one in original.items()})
        config = self.convert_config(options)
        layout, converted = self.of(original, config), self.convert_state_dict(original, config)
        own = layout.shapes(config, {}) if encoder else {}
        converted |= {f"{OUR_ENCODER}{name}": one for name, one in encoder.items() if f"{OUR_ENCODER}{name}" in own}
        return layout.reported(original, converted, config, assumed)

    def check_ours(self, ours: State, config: Any) -> None:
        self.check_layers(ours, config)
        super().check_ours(ours, config)

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The original's names, for the first adapter of the configuration; the encoder is left out."""
        layout = self.of(ours, config)
        layout.check_ours(ours, config)
        found = {layout.their_name(name, config): tensor for name, tensor in ours.items()}
        kept = {name: tensor for name, tensor in found.items() if not name.startswith(OURS)}
        if not kept:
            raise ValueError(f"There are no weights of an adapter, got {len(ours)} others.")
        return kept

    def revert_checkpoint(self, ours: State, config: Any) -> tuple[Tensors, dict[str, Any]]:
        """A file of the original, which holds a single adapter."""
        if len(config.adapters) > 1:
            raise ValueError(f"`adapters` must be one, as in the original's files, got {list(config.adapters)}.")
        architecture = (config.architectures or ["KAdapterModel"])[0]
        if architecture not in WITH_HEADS:
            raise ValueError(
                f"`source` must be of {' or '.join(WITH_HEADS)}, whose head an original file has, got {architecture}: "
                "`save_adapter` writes the adapter alone."
            )
        return self.revert_state_dict(ours, config), self.revert_config(config)


def with_encoder(options: Mapping[str, Any]) -> tuple[dict[str, Any], Tensors]:
    """Options whose `encoder`, if it is named, has become its configuration, and its weights."""
    options = dict(options)
    name = options.pop("encoder", None)
    if name is None:
        return options, {}
    from transformers import AutoModel

    loaded = AutoModel.from_pretrained(name)
    weights = {f"model.{key}": tensor for key, tensor in loaded.state_dict().items()}
    return {**options, "encoder_config": loaded.config.to_dict()}, weights


LAYOUT = KAdapterLayout()
globals().update(functions_of(LAYOUT))
