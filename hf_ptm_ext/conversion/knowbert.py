"""KnowBERT checkpoints of the original code (allenai/kb) to ours and back.

An archive (tar.gz, to be unpacked) has config.json, weights.th and vocabulary/. Modules that are registered twice
there have their weights twice in the file. Sizes of the knowledge bases are read from the weights.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ..models.configuration_knowbert import KnowBertConfig
from .layout import BERT_FIELDS, PREFIX, RENAMES, Conversion, Layout, functions_of
from .options import check_options
from .tensors import Options, State, Tensors, has_part, layer_numbers, size_of

# Values of a knowledge base as `kar_config` names them -> ours.
VALUES = {
    "entity_dim": "entity_size",
    "linker_hidden": "linker_hidden_size",
    "loss_type": "linking_loss",
    **{
        name: name
        for name in (
            *("entity_vocab_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "margin"),
            *("threshold", "unknown_entity_id", "null_entity_id", "mask_entity_id", "part_of_speech_size"),
            "raw_entity_size",
        )
    },
}
KNOWLEDGE = "bert.knowledge."
# What the original has inside the linker.
LINKER = (
    *("bert_to_kg_projector", "span_extractor", "projected_span_layer_norm", "kg_layer_norm", "entity_embeddings"),
    *("span_encoder", "dot_attention_with_prior"),
)
TWICE = {"pretraining_heads.": "pretrained_bert.cls.", "pooler.": "pretrained_bert.bert.pooler."}
SPEECH = "entity_id_to_pos_index"
BERT_HEAD = 64  # width of an attention head in all of BERT's sizes


class KnowBertLayout(Layout):
    title, family, prefix = "KnowBERT", "knowbert", "KnowBert"
    config_class = KnowBertConfig
    fields = (
        *BERT_FIELDS,
        *("knowledge_bases", "knowledge_layer_norm_eps", "inverse_bias", "tie_word_embeddings", "is_decoder"),
        "position_embedding_type",
    )
    renames = (
        PREFIX,
        (r"^pretrained_bert\.(?=(bert|cls)\.)", "", "prefix `pretrained_bert.` taken off"),
        (r"^(\w+)_soldered_kg\.(entity_linker\.disambiguator\.)?", rf"{KNOWLEDGE}\1.", "`..._soldered_kg` to ours"),
        (r"(?<=\.span_extractor\.)_global_attention\._module\.", "", "`_global_attention._module` taken off"),
        *RENAMES[1:],
    )
    optional = rf"^{KNOWLEDGE}\w+\.entity_embeddings\.{SPEECH}$"
    other_parts = ("bert.pooler.", KNOWLEDGE)
    original_files = ("weights.th", "config.json")
    their_mark = r"^pretrained_bert\."

    def convert_config(self, original: Options) -> Any:
        return super().convert_config(flattened(original))

    def revert_config(self, config: Any) -> dict[str, Any]:
        """The reference's options, as `convert_config` takes them."""
        bases = config.knowledge_bases
        return {
            "bert_config": {name: getattr(config, name) for name in BERT_FIELDS},
            "soldered_layers": {name: base["insert_after_layer"] for name, base in bases.items()},
            "kar_config": {
                name: {theirs: base[ours] for theirs, ours in VALUES.items()} for name, base in bases.items()
            },
        }

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        assumed = {}
        words = "bert.embeddings.word_embeddings.weight"
        told = {
            "vocab_size": size_of(tensors, words),
            "hidden_size": size_of(tensors, words, 1),
            "max_position_embeddings": size_of(tensors, "bert.embeddings.position_embeddings.weight"),
            "type_vocab_size": size_of(tensors, "bert.embeddings.token_type_embeddings.weight"),
            "intermediate_size": size_of(tensors, "bert.encoder.layer.0.intermediate.dense.weight"),
            "num_hidden_layers": len(layer_numbers(tensors, "bert.encoder.layer.")) or None,
        }
        options |= {name: value for name, value in told.items() if options.get(name) is None and value is not None}
        if options.get("num_attention_heads") is None and (options.get("hidden_size") or 0) % BERT_HEAD == 0:
            options["num_attention_heads"] = max((options.get("hidden_size") or 0) // BERT_HEAD, 1)
            assumed["num_attention_heads"] = (
                f"{options['num_attention_heads']}: heads of BERT have the width {BERT_HEAD}"
            )
        bases = dict(options.get("knowledge_bases") or {})
        for name in dict.fromkeys(
            key[len(KNOWLEDGE) :].partition(".")[0] for key in tensors if key.startswith(KNOWLEDGE)
        ):
            if name not in bases:
                raise ValueError(f"`soldered_layers` must say behind which layer {name} acts, got {list(bases)}.")
            bases[name] = {**bases[name], **sizes_of(tensors, f"{KNOWLEDGE}{name}.")}
        options["knowledge_bases"] = bases
        return assumed

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        """As every family, from the weights of an unpacked archive and its options."""
        return super().convert_checkpoint(original, flattened(options))

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        kept = once(original)
        speech = {self.describe_key(key)[0]: one for key, one in kept.items() if key.endswith(SPEECH)}
        ours = super().convert_state_dict({key: one for key, one in kept.items() if not key.endswith(SPEECH)}, config)
        return {**ours, **speech}

    def reported(self, original: State, converted: Tensors, config: Any, assumed: dict[str, str]) -> Conversion:
        """As every family, with what is twice in the file."""
        kept = once(original)
        found = super().reported(kept, converted, config, assumed)
        twice = {key: "twice in the file" for key in original if key not in kept}
        return replace(found, dropped={**found.dropped, **twice})

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        speech = {name: one for name, one in ours.items() if name.endswith(SPEECH)}
        rest = {name: one for name, one in ours.items() if name not in speech}
        theirs = super().revert_state_dict(rest, config, tied_copies)
        theirs |= {self.their_name(name, config): one for name, one in speech.items()}
        for part, source in TWICE.items():
            theirs |= {part + key.removeprefix(source): one for key, one in theirs.items() if key.startswith(source)}
        return theirs

    def their_name(self, name: str, config: Any) -> str:
        if not name.startswith(KNOWLEDGE):
            return f"pretrained_bert.{name}"
        base, _, inside = name.removeprefix(KNOWLEDGE).partition(".")
        if inside.startswith("span_extractor."):
            inside = inside.replace("span_extractor.", "span_extractor._global_attention._module.")
        linker = "entity_linker.disambiguator." if inside.startswith(LINKER) else ""
        return f"{base}_soldered_kg.{linker}{inside}"


def once(original: State) -> dict[str, torch.Tensor]:
    """A file's tensors without those that are there a second time; copies that differ are refused."""
    if not has_part(original, "pretrained_bert."):
        return dict(original)
    kept = dict(original)
    for key in original:
        part = next((part for part in TWICE if key.startswith(part)), None)
        if part is None:
            continue
        source = TWICE[part] + key.removeprefix(part)
        if not torch.equal(kept.setdefault(source, original[key]), kept.pop(key)):
            raise ValueError(f"`{key}` differs from `{source}`, of which it is a copy: the file is damaged.")
    return kept


def sizes_of(tensors: State, part: str) -> dict[str, Any]:
    """What the weights of a knowledge base tell of it."""
    table = f"{part}entity_embeddings."
    speech = size_of(tensors, f"{table}pos_embeddings.weight", 1)
    rows = f"{table}weight" if speech is None else f"{table}entity_embeddings.weight"
    null = f"{part}dot_attention_with_prior.null_embedding"
    found = {
        "entity_vocab_size": size_of(tensors, rows),
        "raw_entity_size": size_of(tensors, rows, 1),
        "entity_size": size_of(tensors, f"{part}bert_to_kg_projector.weight"),
        "intermediate_size": size_of(tensors, f"{part}span_attention_layer.intermediate.dense.weight"),
        "linker_hidden_size": size_of(tensors, f"{part}dot_attention_with_prior.out_layer_1.weight"),
        "num_hidden_layers": len(layer_numbers(tensors, f"{part}span_encoder.layer.")) or None,
        "part_of_speech_size": speech or 0,
        "linking_loss": "margin" if null in tensors else "softmax",
    }
    if null not in tensors:  # whatever the options say, the best candidate is the link then
        found["threshold"] = None
    return {name: value for name, value in found.items() if value is not None or name == "threshold"}


def flattened(original: Any) -> Any:
    """The options of either kind of file, AllenNLP's or the three parts of `revert_config`, under our names."""
    if not isinstance(original, Mapping):
        return original
    model = original.get("model")
    inner = model if isinstance(model, Mapping) else original
    layers = inner.get("soldered_layers")
    if not isinstance(layers, Mapping):
        return {**original}
    given = part_of(original, "bert_config") or {}
    fields = {("vocab_size" if name == "vocab_size_or_config_json_file" else name): one for name, one in given.items()}
    bases: dict[str, Any] = {}
    for name, layer in layers.items():
        values = part_of(part_of(original, "kar_config"), name)
        soldered = part_of(part_of(inner, "soldered_kgs"), name)
        linker = part_of(soldered, "entity_linker")
        inside = part_of(linker, "span_encoder_config")
        named = {"threshold": linker.get("decode_threshold"), "margin": linker.get("margin")}
        named |= {"num_attention_heads": inside.get("num_attention_heads"), "linking_loss": linker.get("loss_type")}
        named |= {ours: values.get(theirs) for theirs, ours in VALUES.items() if theirs in values}
        bases[str(name)] = {ours: value for ours, value in named.items() if value is not None}
        check_options(bases[str(name)])
        bases[str(name)]["insert_after_layer"] = layer
    return {**fields, "knowledge_bases": bases}


def part_of(options: Any, name: str) -> Options:
    """A part of nested options, empty if it is none."""
    found = options.get(name) if isinstance(options, Mapping) else None
    return found if isinstance(found, Mapping) else {}


LAYOUT = KnowBertLayout()
globals().update(functions_of(LAYOUT))
