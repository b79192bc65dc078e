"""ERNIE-THU checkpoints of the original code (thunlp/ERNIE) to ours and back; names are BERT's, `_ent` for entities.

The kind of each layer is read from the keys. A BERT file has no entity side: it is new then, as where the original
begins. The entity table (`kg_embed`) is a file of its own, see `EntityTable.from_kg_embed`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..models.configuration_ernie_thu import MIX, NORM, SIM, ErnieThuConfig
from .layout import (
    BERT_FIELDS,
    BERT_SIZES,
    DIMENSIONS,
    ENCODER,
    LAYER_NORMS,
    MASKED_LM,
    NEXT_SENTENCE,
    PREFIX,
    WORD_EMBEDDINGS,
    Conversion,
    Layout,
    Shapes,
    functions_of,
)
from .tensors import State, Tensors, has_part, size_of

# Names of the original's sizes where they are in its config; its code has 100 and 4 as numbers.
THEIRS = {
    "layer_types": "fusion_layer_types",
    "ent_hidden_size": "entity_hidden_size",
    "ent_num_heads": "entity_num_attention_heads",
}
ENTITY_TABLE = "bert.entity_embeddings.weight"
ENTITY_SIDE, ENTITY_NAMES = "bert.encoder.layer.*_ent.*", r"^bert\.encoder\.layer\..*_ent\."
# A head of its own in the file -> the class that has it.
TASKS = {
    "typing.": "ErnieThuForEntityTyping",
    "classifier.": "ErnieThuForSequenceClassification",
    "qa_outputs.": "ErnieThuForQuestionAnswering",
}
# A pre-training head that is alone in the file -> the class that has it.
ALONE = {
    "cls.predictions.": "ErnieThuForMaskedLM",
    "cls.seq_relationship.": "ErnieThuForNextSentencePrediction",
}
LAYER = re.compile(r"bert\.encoder\.layer\.(\d{1,9})\.(.+)")


class ErnieThuLayout(Layout):
    title, family, prefix = "ERNIE-THU", "ernie_thu", "ErnieThu"
    config_class = ErnieThuConfig
    sizes = (*BERT_SIZES, "max_position_embeddings")
    fields = (
        *BERT_FIELDS,
        "position_embedding_type",
        "is_decoder",
        "entity_vocab_size",
        "entity_embeddings_in_checkpoint",
        "entity_loss_weight",
        *THEIRS.values(),
    )
    theirs = THEIRS
    own = fields[fields.index("layer_norm_eps") :]
    renames = (
        PREFIX,
        (r"^(embeddings|encoder|pooler|entity_embeddings)\.", r"bert.\1.", ENCODER[2]),
        *LAYER_NORMS,
    )
    foreign = "These keys fit nowhere in {title}"
    dimensions = (
        *DIMENSIONS,
        (r"bert\.encoder\.layer\.\d+\.intermediate\.dense_ent\.bias", 0, "intermediate_size"),
        (
            r".*\.dense_ent\.bias|.*\.LayerNorm_ent\..*|.*_ent\.(query|key|value|dense|LayerNorm)\..*",
            -1,
            "entity_hidden_size",
        ),
        (r".*\.output\.dense_ent\.weight|cls\.predictions_ent\..*", 0, "entity_hidden_size"),
        (r".*\.intermediate\.dense_ent\.weight|bert\.entity_embeddings\.weight", -1, "entity_hidden_size"),
        (r".*", -1, "hidden_size"),
    )
    heads = MASKED_LM | {"cls.predictions_ent.": "entity head"} | NEXT_SENTENCE
    other_parts = ("bert.pooler.", *TASKS)
    needs = dict.fromkeys(("cls.seq_relationship.", "typing.", "classifier."), "bert.pooler.")
    optional = rf"^{re.escape(ENTITY_TABLE)}$"
    original_files = ("pytorch_model.bin", "ernie_config.json")

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        types = infer_layer_types(tensors)
        if types is not None and not any(options.get(name) for name in ("layer_types", "fusion_layer_types")):
            options["layer_types"] = types
        inner = [name for name in tensors if name.endswith("intermediate.dense_ent.weight")]
        widths = {size_of(tensors, name, 1) for name in inner} - {None}
        if len(widths) == 1 and not any(options.get(name) for name in ("ent_hidden_size", "entity_hidden_size")):
            options["entity_hidden_size"] = widths.pop()
        rows = size_of(tensors, ENTITY_TABLE)
        options["entity_embeddings_in_checkpoint"] = rows is not None
        if rows is not None:
            options["entity_vocab_size"] = rows
        return {}

    def more_shapes(self, config: Any, tensors: State) -> Shapes:
        """The fine-tuned heads that a file has; the number of labels is the file's."""
        shapes: Shapes = {}
        for head, biased in (("typing", False), ("classifier", True), ("qa_outputs", True)):
            if has_part(tensors, f"{head}."):
                labels = 2 if head == "qa_outputs" else size_of(tensors, f"{head}.weight") or config.num_labels or 1
                shapes[f"{head}.weight"] = (labels, config.hidden_size)
                shapes |= {f"{head}.bias": (labels,)} if biased else {}
        return shapes

    def architecture(self, tensors: State, config: Any) -> str:
        tasks = [name for head, name in TASKS.items() if has_part(tensors, head)]
        present = [head for head in self.heads if has_part(tensors, head)]
        return tasks[0] if tasks else ALONE.get("".join(present), super().architecture(tensors, config))

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        knows_entities = self._check_types([self.describe_key(key)[0] for key in original], config)
        return Layout.convert_state_dict(self if knows_entities else BERT_FILE, original, config)

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        self._check_types(ours, config)
        return super().revert_state_dict(ours, config, tied_copies)

    def reported(self, original: State, converted: Tensors, config: Any, assumed: dict[str, str]) -> Conversion:
        """As every family; a fine-tuned head alone is kept, and an entity side that the file lacks is made."""
        found = super().reported(original, converted, config, assumed)
        tensors, dropped = found.tensors, found.dropped
        task = next((head for head in TASKS if has_part(converted, head)), None)
        if task is not None:
            if task != "qa_outputs.":
                config.num_labels = converted[f"{task}weight"].shape[0]
            if task == "typing.":
                config.problem_type = "multi_label_classification"
            names = {key: self.describe_key(key)[0] for key in original}
            unused = {key: name for key, name in names.items() if name in tensors and name.startswith("cls.")}
            dropped |= dict.fromkeys(unused, f"not in {found.architecture}")
            tensors = {name: one for name, one in tensors.items() if name not in unused.values()}
        fresh = {} if infer_layer_types(converted) is not None else self._fresh_entity_side(config, converted)
        return replace(
            found,
            tensors=tensors | fresh,
            dropped=dropped,
            initialised=found.initialised if task is None else {},
            filled={ENTITY_SIDE: "entity side of the encoder"} if fresh else {},
        )

    def revert_checkpoint(self, ours: State, config: Any) -> tuple[Tensors, dict[str, Any]]:
        """As every family; the entity table is a file of its own there."""
        kept = {name: one for name, one in ours.items() if self.describe_key(name)[0] != ENTITY_TABLE}
        return super().revert_checkpoint(kept, config)

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        """What is saved beside a converted model: a processor, still without a vocabulary of entities."""
        from ..models.processing_ernie_thu import ErnieThuProcessor

        return ErnieThuProcessor(super().wordpiece_tokenizer(vocab, config, do_lower_case))

    def _fresh_entity_side(self, config: Any, tensors: State) -> Tensors:
        """The encoder's entity side as training begins: normal weights, zero biases, LayerNorms of one and zero."""
        generator = torch.Generator().manual_seed(0)
        fresh = {}
        for name, shape in self.shapes(config, {}).items():
            if not re.match(ENTITY_NAMES, name):
                continue
            if name.endswith("bias"):
                value = torch.zeros(shape)
            elif len(shape) == 1:
                value = torch.ones(shape)
            else:
                value = config.initializer_range * torch.randn(shape, generator=generator)
            fresh[name] = value.to(tensors[WORD_EMBEDDINGS].dtype)
        return fresh

    def _check_types(self, names: Iterable[str], config: Any) -> bool:
        """Whether the names have an entity side; if so, layer for layer the one that the config describes."""
        self.check_layers(names, config)
        inferred, wanted = infer_layer_types(names), list(config.fusion_layer_types or [])
        if inferred is None or inferred == wanted:
            return inferred is not None
        wrong = [
            f"layer {number} is {theirs!r} in the file and {ours!r} in the config"
            for number, (theirs, ours) in enumerate(zip(inferred, wanted, strict=True))
            if theirs != ours
        ]
        raise ValueError(
            f"`fusion_layer_types` (the original's `layer_types`) must be {inferred}, as the file's keys say: "
            f"{'; '.join(wrong)}. Use the config that belongs to the weights."
        )


class _BertFile(ErnieThuLayout):
    """A file without an entity side, such as a BERT's."""

    optional = rf"{ENTITY_NAMES}|{ErnieThuLayout.optional}"


def infer_layer_types(names: Iterable[str]) -> list[str] | None:
    """The kind of each layer, from the keys that it has."""
    layers: dict[int, set[str]] = {}
    for name in names:
        match = LAYER.match(name)
        if match:
            layers.setdefault(int(match[1]), set()).add(match[2])
    types = []
    for number, parts in sorted(layers.items()):
        attends = any(part.startswith(("attention.self_ent.", "attention.output_ent.")) for part in parts)
        fuses = any("dense_ent." in part and not part.startswith("attention.") for part in parts)
        if attends and not fuses:
            raise ValueError(
                f"Layer {number} of the file has entity attention (`attention.self_ent`) and no fusion "
                "(`intermediate.dense_ent`, `output.dense_ent`): weights are missing."
            )
        types.append(NORM if attends else MIX if fuses else SIM)
    return types if set(types) - {SIM} else None


LAYOUT, BERT_FILE = ErnieThuLayout(), _BertFile()
globals().update(functions_of(LAYOUT))
