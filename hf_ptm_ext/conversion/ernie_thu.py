"""ERNIE-THU checkpoints of the original code (thunlp/ERNIE) to ours and back.

The original's names are ours: BERT's for the text, the same with `_ent` for the entities,

    bert.encoder.layer.N.attention.{self_ent,output_ent}.*                        in `norm` layers
    bert.encoder.layer.N.intermediate.dense_ent.*, .output.{dense_ent,LayerNorm_ent}.*  in `mix` and `norm` layers

so the kind of each layer is read from the keys and compared with the config. What has to be done: the config's names
(`layer_types` is `fusion_layer_types` here), `gamma`/`beta`, a `module.` prefix or a missing `bert.`, the tied copy of
the word embeddings. A BERT file has no entity side: it is new then, as at the start of the original's pre-training.
The entity table (`kg_embed`) is a file of its own, see `EntityTable.from_kg_embed`.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..models.ernie_thu.configuration_ernie_thu import AUTO_MAP, MIX, NORM, SIM, ErnieThuConfig
from .files import beside
from .layout import DIMENSIONS, TIED, WORD_EMBEDDINGS, Layout, Shapes, by_our_names, has_part, lacking_parts, size_of
from .options import check_options, made_config, read_fields
from .report import Conversion

__all__ = [
    "convert_checkpoint",
    "convert_config",
    "convert_state_dict",
    "describe_key",
    "infer_layer_types",
    "revert_checkpoint",
    "revert_config",
    "revert_state_dict",
    "wordpiece_tokenizer",
    "write_original",
]

Tensors = dict[str, torch.Tensor]

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
SAME_NAME = (
    *SIZES,
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "position_embedding_type",
    "is_decoder",
    "entity_hidden_size",
    "entity_num_attention_heads",
    "entity_vocab_size",
    "entity_loss_weight",
    "fusion_layer_types",
)
# Names of the original's sizes where they are in its config; its code has 100 and 4 as numbers.
RENAMED = {
    "layer_types": "fusion_layer_types",
    "ent_hidden_size": "entity_hidden_size",
    "ent_num_heads": "entity_num_attention_heads",
}

# Parts that a file has whole or not at all, and what is said of those of pre-training that it lacks.
PARTS = (
    "bert.pooler.",
    "cls.predictions.",
    "cls.predictions_ent.",
    "cls.seq_relationship.",
    "typing.",
    "classifier.",
    "qa_outputs.",
)
PRETRAINING_PARTS = {
    "cls.predictions.": "masked-language-model head",
    "cls.predictions_ent.": "entity head",
    "cls.seq_relationship.": "next-sentence head",
}
ENTITY_SIDE, ENTITY_NAMES = "bert.encoder.layer.*_ent.*", r"^bert\.encoder\.layer\..*_ent\."
# A head of its own in the file -> the class that has it.
TASKS = {
    "typing.": "ErnieThuForEntityTyping",
    "classifier.": "ErnieThuForSequenceClassification",
    "qa_outputs.": "ErnieThuForQuestionAnswering",
}
CHANGES = {
    "module.": "prefix `module.` taken off",
    "bert.": "prefix `bert.` put in front",
    "gamma/beta": "LayerNorm `gamma`, `beta` to `weight`, `bias`",
}
# Index buffers of old BERT files: no weights.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
LAYER = re.compile(r"bert\.encoder\.layer\.(\d{1,9})\.(.+)")


def _model(config: ErnieThuConfig) -> nn.Module:
    from ..models.ernie_thu.modeling_ernie_thu import ErnieThuForPreTraining

    return ErnieThuForPreTraining(config)


def _task_heads(config: ErnieThuConfig, tensors: Mapping[str, torch.Tensor]) -> Shapes:
    """The fine-tuned heads that a file has; the number of labels is the file's."""
    shapes: Shapes = {}
    for head, biased in (("typing", False), ("classifier", True), ("qa_outputs", True)):
        if has_part(tensors, f"{head}."):
            labels = 2 if head == "qa_outputs" else size_of(tensors, f"{head}.weight") or config.num_labels or 1
            shapes[f"{head}.weight"] = (labels, config.hidden_size)
            shapes |= {f"{head}.bias": (labels,)} if biased else {}
    return shapes


LAYOUT = Layout(
    title="ERNIE-THU",
    foreign="These keys fit nowhere in ERNIE-THU",
    model=_model,
    dimensions=(
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
    ),
    parts=PARTS,
    needs=dict.fromkeys(("cls.seq_relationship.", "typing.", "classifier."), "bert.pooler."),
    more_shapes=_task_heads,
)


def convert_config(original: Mapping[str, Any]) -> ErnieThuConfig:
    """Our configuration from the original's `ernie_config.json` or from a BERT `config.json`.

    Args:
        original: the file's fields. What says nothing about the model (ids, lengths, seeds, optimiser options) is
            ignored. `layer_types` becomes `fusion_layer_types`; without it the published proportions are taken.
            `ent_hidden_size` and `ent_num_heads` are 100 and 4 if they are not there, as in the original's code.

    Returns:
        The configuration, with the whole auto_map.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, a field is out of its range, or a layer type does not exist (the original's code
            skips such a layer and puts a `sim` layer at the end).

    Example:
        >>> options = dict(vocab_size=100, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        ...     intermediate_size=64, max_position_embeddings=48, layer_types=["sim", "mix"])
        >>> config = convert_config(options)
        >>> config.fusion_layer_types, config.entity_hidden_size
        (['sim', 'mix', 'sim'], 100)
    """
    check_options(original, RENAMED)
    fields = read_fields(original, SAME_NAME, SIZES)
    for theirs, ours in RENAMED.items():
        if original.get(theirs) is not None:
            fields.setdefault(ours, original[theirs])
    config = made_config(ErnieThuConfig, fields, "ERNIE-THU")
    config.auto_map = dict(AUTO_MAP)
    return config


def describe_key(key: str) -> tuple[str, tuple[str, ...]]:
    """Our name for a key of a file, and what was changed.

    Args:
        key: a name as the file has it.

    Returns:
        The name and the changes, each `module.` (taken off), `bert.` (put in front) or `gamma/beta`.

    Example:
        >>> describe_key("module.encoder.layer.6.output.LayerNorm_ent.gamma")
        ('bert.encoder.layer.6.output.LayerNorm_ent.weight', ('module.', 'bert.', 'gamma/beta'))
    """
    changes = []
    name = key
    if name.startswith("module."):
        name = name.removeprefix("module.")
        changes.append("module.")
    if re.match(r"(embeddings|encoder|pooler|entity_embeddings)\.", name):
        name = f"bert.{name}"
        changes.append("bert.")
    renamed = re.sub(r"(LayerNorm(?:_ent)?)\.gamma$", r"\1.weight", name)
    renamed = re.sub(r"(LayerNorm(?:_ent)?)\.beta$", r"\1.bias", renamed)
    if renamed != name:
        changes.append("gamma/beta")
    return renamed, tuple(changes)


def infer_layer_types(names: Mapping[str, Any]) -> list[str] | None:
    """The kind of each layer, from the keys that it has.

    Args:
        names: our names, such as the keys of a state dict.

    Returns:
        One kind per layer, or `None` if the file has no entity side (a BERT) or no layers.

    Raises:
        ValueError: a layer has entity attention without the fusion.

    Example:
        >>> infer_layer_types({"bert.encoder.layer.0.output.dense.weight": 0,
        ...     "bert.encoder.layer.1.output.dense_ent.weight": 0})
        ['sim', 'mix']
    """
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


def convert_state_dict(original: Mapping[str, torch.Tensor], config: ErnieThuConfig) -> Tensors:
    """Our state dict from the original's.

    Args:
        original: tensors under the names of the reference code or of a BERT file; heads may be missing whole, and so
            may the entity side (a BERT).
        config: what `convert_config` gave; its `fusion_layer_types` are compared with the keys.

    Returns:
        The tensors under our names, those of the file itself (no copies); tied entries of the head are there whether
        the file has them or not. With all heads of pre-training in the file it is exactly what
        `ErnieThuForPreTraining(config).load_state_dict` takes.

    Raises:
        ValueError: a key, a shape, the number or kinds of layers do not fit the config, weights of the encoder or a
            part of a head are missing, or the tied copy differs from what it is tied to. Keys are named.

    Example:
        >>> from hf_ptm_ext.models.ernie_thu.modeling_ernie_thu import ErnieThuForPreTraining
        >>> config = ErnieThuConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, entity_hidden_size=4)
        >>> ours = ErnieThuForPreTraining(config).state_dict()
        >>> converted = convert_state_dict(revert_state_dict(ours, config), config)
        >>> converted.keys() == ours.keys(), all(torch.equal(converted[key], ours[key]) for key in ours)
        (True, True)
    """
    named = ((describe_key(key)[0], key, tensor) for key, tensor in original.items())
    converted, sources = by_our_names(item for item in named if item[0] not in BUFFERS)
    layout = LAYOUT if _check_types(converted, config) else replace(LAYOUT, optional=ENTITY_NAMES)
    return layout.check(converted, sources, config)


def revert_state_dict(
    ours: Mapping[str, torch.Tensor], config: ErnieThuConfig, tied_copies: bool | None = None
) -> Tensors:
    """The original's state dict from ours.

    Args:
        ours: tensors under our names, of one of our classes or of a part of it.
        config: their configuration.
        tied_copies: whether to write the head's copy of the word embeddings, as the original's files have it. `None`
            (default) writes it if `ours` has it as an entry of its own, so what `convert_state_dict` added is left out
            again.

    Returns:
        The tensors under the original's names: ours, with one bias of the head and no `decoder.bias`.

    Raises:
        ValueError: a key is not one of an ERNIE-THU model, or a bias untied from its head would be lost.
    """
    _check_types(ours, config)
    return LAYOUT.revert_tensors(ours, config, tied_copies)


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found, reading from the file what its options leave open.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`; layer types that they lack are read from the keys, and so is the width of an
            entity vector.

    Returns:
        Configuration, tensors and report. Tied copies are not among the tensors, and neither are heads that the file
        lacks: loading says that they are new. An entity side that the file lacks is: the same random one every time,
        so that the encoder that was written is one model.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.

    Example:
        >>> from hf_ptm_ext.models.ernie_thu.modeling_ernie_thu import ErnieThuForPreTraining
        >>> config = ErnieThuConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, entity_hidden_size=4)
        >>> original, options = revert_checkpoint(ErnieThuForPreTraining(config).state_dict(), config)
        >>> conversion = convert_checkpoint(original, options)
        >>> conversion.architecture, conversion.initialised
        ('ErnieThuForPreTraining', {})
    """
    check_options(options, (*SAME_NAME, *RENAMED))
    names = {key: describe_key(key) for key in original}
    tensors = {name: original[key] for key, (name, _) in names.items()}
    options = dict(options)
    inferred = infer_layer_types(tensors)
    if inferred is not None and not any(options.get(name) for name in ("layer_types", "fusion_layer_types")):
        options["layer_types"] = inferred
    widths = {size_of(tensors, name, 1) for name in tensors if name.endswith("intermediate.dense_ent.weight")} - {None}
    if len(widths) == 1 and not any(options.get(name) for name in ("ent_hidden_size", "entity_hidden_size")):
        options["entity_hidden_size"] = widths.pop()
    rows = size_of(tensors, "bert.entity_embeddings.weight")
    config = convert_config(options)
    if rows is not None:
        config.entity_vocab_size, config.entity_embeddings_in_checkpoint = rows, True
    converted = convert_state_dict(original, config)
    architecture = _architecture(converted)
    task = next((head for head in TASKS if any(name.startswith(head) for name in converted)), None)
    if task in ("typing.", "classifier."):
        config.num_labels = converted[f"{task}weight"].shape[0]
    if task == "typing.":
        config.problem_type = "multi_label_classification"
    tied = LAYOUT.tied_names(config)
    dropped = {key: "an index buffer, no weight" for key, (name, _) in names.items() if name in BUFFERS}
    dropped |= {key: f"tied to `{TIED[name]}`" for key, (name, _) in names.items() if name in tied}
    kept = {name: tensor for name, tensor in converted.items() if name not in tied}
    if task is not None:
        unused = [name for name in kept if name.startswith("cls.")]
        dropped |= {key: f"not in {architecture}" for key, (name, _) in names.items() if name in unused}
        kept = {name: tensor for name, tensor in kept.items() if name not in unused}
    fresh = {} if inferred is not None else _fresh_entity_side(config, converted)
    kept |= fresh
    parts = PRETRAINING_PARTS if task is None else {}
    counts = Counter(change for _, changes in names.values() for change in changes)
    return Conversion(
        config=config,
        tensors=kept,
        architecture=architecture,
        renamed={CHANGES[change]: number for change, number in counts.items()},
        dropped=dropped,
        initialised=lacking_parts(converted, parts),
        filled={ENTITY_SIDE: "entity side of the encoder"} if fresh else {},
    )


def revert_config(config: ErnieThuConfig) -> dict[str, Any]:
    """The original's options for a configuration of ours.

    Args:
        config: the configuration.

    Returns:
        What `convert_config` reads. The original's code has 100 and 4 as numbers; other sizes of the entity side need
        the changes that its authors list in issue 67 of thunlp/ERNIE.

    Example:
        >>> revert_config(ErnieThuConfig(num_hidden_layers=2))["layer_types"]
        ['mix', 'norm']
    """
    ours = {"layer_norm_eps", "pad_token_id", "position_embedding_type", "is_decoder", "entity_loss_weight"}
    names = [name for name in SAME_NAME if name not in ours and not name.startswith(("entity_", "fusion_"))]
    options = {name: getattr(config, name) for name in names}
    return {**options, **{theirs: getattr(config, name) for theirs, name in RENAMED.items()}}


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: ErnieThuConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the original's code reads it.

    Args:
        ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
        config: their configuration.

    Returns:
        The state dict, the tied copy included, and the options. A table inside the checkpoint is left out: the
        original keeps vectors in files of their own.

    Raises:
        ValueError: as `revert_state_dict`.
    """
    named = {describe_key(key)[0]: tensor for key, tensor in ours.items()}
    named.pop("bert.entity_embeddings.weight", None)
    return revert_state_dict(named, config, tied_copies=True), revert_config(config)


def wordpiece_tokenizer(vocab: Mapping[str, int], config: ErnieThuConfig, do_lower_case: bool) -> Any:
    """What is saved beside a converted model: a processor, still without a vocabulary of entities.

    Args:
        vocab: pieces and their ids.
        config: the configuration.
        do_lower_case: whether the vocabulary is lower case.

    Returns:
        An `ErnieThuProcessor` with a fast BERT tokenizer.
    """
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]

    from ..models.ernie_thu.processing_ernie_thu import ErnieThuProcessor

    tokenizer = BertTokenizerFast(
        vocab=dict(vocab), do_lower_case=do_lower_case, model_max_length=config.max_position_embeddings
    )
    return ErnieThuProcessor(tokenizer)


def write_original(
    folder: Path, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any], source: Path
) -> None:
    """Write the original's files under the names that its code asks for.

    Args:
        folder: where to.
        tensors: what `revert_checkpoint` gave.
        options: likewise.
        source: the folder of ours; its tokenizer becomes `vocab.txt`.
    """
    torch.save(dict(tensors), folder / "pytorch_model.bin")
    with open(folder / "ernie_config.json", "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(dict(options), indent=2) + "\n")
    if beside(source, ("tokenizer.json", "vocab.txt")) is None:
        return
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]

    vocab = BertTokenizerFast.from_pretrained(source).get_vocab()
    with open(folder / "vocab.txt", "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__))


def _architecture(names: Mapping[str, Any]) -> str:
    """The class that holds all parts of a file."""
    for head, name in TASKS.items():
        if any(key.startswith(head) for key in names):
            return name
    heads = [head for head in PRETRAINING_PARTS if any(key.startswith(head) for key in names)]
    if not heads:
        return "ErnieThuModel"
    alone = {
        "cls.predictions.": "ErnieThuForMaskedLM",
        "cls.seq_relationship.": "ErnieThuForNextSentencePrediction",
    }
    return alone.get(heads[0], "ErnieThuForPreTraining") if len(heads) == 1 else "ErnieThuForPreTraining"


def _fresh_entity_side(config: ErnieThuConfig, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The encoder's entity side as training begins: normal weights, zero biases, LayerNorms of one and zero."""
    generator = torch.Generator().manual_seed(0)
    dtype = tensors[WORD_EMBEDDINGS].dtype
    fresh = {}
    for name, shape in LAYOUT.shapes(config, {}).items():
        if not re.match(ENTITY_NAMES, name):
            continue
        if name.endswith("bias"):
            value = torch.zeros(shape)
        elif len(shape) == 1:
            value = torch.ones(shape)
        else:
            value = config.initializer_range * torch.randn(shape, generator=generator)
        fresh[name] = value.to(dtype)
    return fresh


def _check_types(names: Mapping[str, torch.Tensor], config: ErnieThuConfig) -> bool:
    """Whether the names have an entity side; if so, layer for layer the one that the config describes."""
    LAYOUT.check_layers(names, config)
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
