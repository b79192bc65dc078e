"""SpanBERT checkpoints of the original code (facebookresearch/SpanBERT, fairseq names) to ours and back.

The original keeps everything under `decoder.` and calls the two parameters of a LayerNorm `gamma` and `beta`; the rest
of a name is BERT's and ours:

    decoder.bert.embeddings.LayerNorm.gamma               bert.embeddings.LayerNorm.weight
    decoder.cls.pair_target_predictions...layer_norm1.beta   cls.pair_target_predictions...layer_norm1.bias

Both heads have a copy of the word embeddings (`decoder.cls.*.decoder.weight`), which some files leave out. Files in
BERT format are read too: prefix `bert.` or none (encoder only), `module.` in front, `weight`/`bias` or `gamma`/`beta`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..models.spanbert.configuration_spanbert import AUTO_MAP, SpanBertConfig
from .files import name_some
from .layout import DIMENSIONS, WORD_EMBEDDINGS, Layout, Shapes, by_our_names, has_part, size_of
from .layout import TIED as BERT_TIED
from .options import check_options, made_config, read_fields
from .report import Conversion

__all__ = [
    "convert_checkpoint",
    "convert_config",
    "convert_state_dict",
    "describe_key",
    "revert_checkpoint",
    "revert_config",
    "revert_state_dict",
]

# Always this width in the reference: the option of that name is read, but never reaches the head.
PAIR_POSITION_WIDTH = 200

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
    "max_pair_targets",
    "pair_target_layer",
    "sbo_loss_weight",
    "next_sentence_prediction",
    "add_pooling_layer",
)

# Options of the reference that decide about a field of another name.
OPTIONS = ("no_nsp", "pair_loss_weight", "pad_id")

# Our tied entries -> the entry that they repeat.
TIED = {
    **BERT_TIED,
    "cls.pair_target_predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.pair_target_predictions.decoder.bias": "cls.pair_target_predictions.bias",
}
# Groups that a file has whole or not at all: the heads that an encoder-only file lacks.
HEADS = ("bert.pooler.", "cls.predictions.", "cls.pair_target_predictions.", "cls.seq_relationship.")
HEAD_NAMES = {
    "cls.predictions.": "masked-language-model head",
    "cls.pair_target_predictions.": "span boundary head",
    "cls.seq_relationship.": "next-sentence head",
}
CHANGES = {
    "module.": "prefix `module.` taken off",
    "decoder.": "prefix `decoder.` taken off",
    "bert.": "prefix `bert.` put in front",
    "gamma/beta": "LayerNorm `gamma`, `beta` to `weight`, `bias`",
}
# Index buffers of old BERT files: no weights.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


def _model(config: SpanBertConfig) -> nn.Module:
    from ..models.spanbert.modeling_spanbert import SpanBertForPreTraining

    return SpanBertForPreTraining(config)


def _pooler(config: SpanBertConfig, tensors: Mapping[str, torch.Tensor]) -> Shapes:
    """What a config with a pooler has beside the pre-training model."""
    width = config.hidden_size
    shapes: Shapes = {"bert.pooler.dense.weight": (width, width), "bert.pooler.dense.bias": (width,)}
    return shapes if config.add_pooling_layer else {}


def _name_in_file(name: str, config: SpanBertConfig, names: Iterable[str]) -> str:
    """As the reference's files have it, unless the file is a BERT's."""
    return f"decoder.{_original_layer_norm(name)}" if any(key.startswith("decoder.") for key in names) else name


LAYOUT = Layout(
    title="SpanBERT",
    foreign="These keys fit nowhere in SpanBERT",
    model=_model,
    dimensions=(
        *DIMENSIONS,
        (r"cls\.pair_target_predictions\.position_embeddings\.weight", 0, "max_pair_targets"),
        (r"cls\.pair_target_predictions\.position_embeddings\.weight", 1, "pair_positional_embedding_size"),
        (r".*", -1, "hidden_size"),
    ),
    parts=HEADS,
    tied=TIED,
    more_shapes=_pooler,
    example="decoder.bert.encoder.layer.0.output.dense.weight",
    original_name=_name_in_file,
)


def convert_config(original: Mapping[str, Any]) -> SpanBertConfig:
    """Our configuration from the original's options or from a BERT `config.json`.

    Args:
        original: the options of the reference code (its command line or its `BertConfig`) or BERT's fields. What says
            nothing about the model (ids, lengths, seeds, masking and optimiser options) is ignored, and so is
            `pair_positional_embedding_size`: the reference always uses 200. Of the reference's own options, `no_nsp`
            decides about the next-sentence head and the pooler, `pair_loss_weight` becomes `sbo_loss_weight` (without
            it 1.0, the released recipe).

    Returns:
        The configuration, with the whole auto_map.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, or a field is out of its range.

    Example:
        >>> options = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, no_nsp=True,
        ...     intermediate_size=64, max_position_embeddings=48, max_pair_targets=6, mask_id=4)
        >>> config = convert_config(options)
        >>> config.max_pair_targets, config.pair_positional_embedding_size, config.next_sentence_prediction
        (6, 200, False)
    """
    check_options(original, OPTIONS)
    fields = read_fields(original, SAME_NAME, SIZES)
    if "no_nsp" in original:
        fields.setdefault("next_sentence_prediction", not original["no_nsp"])
        fields.setdefault("add_pooling_layer", fields["next_sentence_prediction"])
    if original.get("pair_loss_weight") is not None:
        fields.setdefault("sbo_loss_weight", original["pair_loss_weight"])
    if original.get("pad_id") is not None:
        fields.setdefault("pad_token_id", original["pad_id"])
    config = made_config(SpanBertConfig, fields | {"pair_positional_embedding_size": PAIR_POSITION_WIDTH}, "SpanBERT")
    config.auto_map = dict(AUTO_MAP)
    return config


def describe_key(key: str) -> tuple[str, tuple[str, ...]]:
    """Our name for a key of a file, and what was changed.

    Args:
        key: a name as the file has it.

    Returns:
        The name and the changes, each `module.` or `decoder.` (a prefix taken off), `bert.` (put in front) or
        `gamma/beta`.

    Example:
        >>> describe_key("decoder.cls.pair_target_predictions.mlp_layer_norm.layer_norm1.gamma")
        ('cls.pair_target_predictions.mlp_layer_norm.layer_norm1.weight', ('decoder.', 'gamma/beta'))
        >>> describe_key("bert.encoder.gamma_rays")
        ('bert.encoder.gamma_rays', ())
    """
    changes = []
    name = key
    if name.startswith("module."):
        name = name.removeprefix("module.")
        changes.append("module.")
    if re.match(r"decoder\.(bert|cls)\.", name):
        name = name.removeprefix("decoder.")
        changes.append("decoder.")
    if re.match(r"(embeddings|encoder|pooler)\.", name):
        name = f"bert.{name}"
        changes.append("bert.")
    renamed = re.sub(r"(LayerNorm|layer_norm[12])\.gamma$", r"\1.weight", name)
    renamed = re.sub(r"(LayerNorm|layer_norm[12])\.beta$", r"\1.bias", renamed)
    if renamed != name:
        changes.append("gamma/beta")
    return renamed, tuple(changes)


def convert_state_dict(original: Mapping[str, torch.Tensor], config: SpanBertConfig) -> dict[str, torch.Tensor]:
    """Our state dict from the original's.

    Args:
        original: tensors under the names of the reference code, or of a BERT file; heads may be missing whole.
        config: what `convert_config` gave.

    Returns:
        The tensors under our names, those of the file itself (no copies); tied entries of the heads are there whether
        the file has them or not. With all heads in the file it is exactly what
        `SpanBertForPreTraining(config).load_state_dict` takes.

    Raises:
        ValueError: a key, a shape or the number of layers does not fit the config, weights of the encoder or a part of
            a head are missing, or a tied copy differs from what it is tied to. Keys are named.

    Example:
        >>> config = SpanBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, max_pair_targets=2)
        >>> from hf_ptm_ext.models.spanbert.modeling_spanbert import SpanBertForPreTraining
        >>> ours = SpanBertForPreTraining(config).state_dict()
        >>> original = revert_state_dict(ours, config)
        >>> converted = convert_state_dict(original, config)
        >>> converted.keys() == ours.keys(), all(torch.equal(converted[key], ours[key]) for key in ours)
        (True, True)
    """
    named = ((describe_key(key)[0], key, tensor) for key, tensor in original.items())
    converted, sources = by_our_names(item for item in named if item[0] not in BUFFERS)
    _check_heads(sources, config)
    return LAYOUT.check(converted, sources, config)


def revert_state_dict(
    ours: Mapping[str, torch.Tensor], config: SpanBertConfig, tied_copies: bool | None = None
) -> dict[str, torch.Tensor]:
    """The original's state dict from ours.

    Args:
        ours: tensors under our names, of `SpanBertForPreTraining` or of a part of it.
        config: their configuration.
        tied_copies: whether to write the heads' copies of the word embeddings, as the reference's own files have
            them. `None` (default) writes those that `ours` has as entries of their own, so what `convert_state_dict`
            added is left out again.

    Returns:
        The tensors under the reference's names: prefix `decoder.`, LayerNorms with `gamma` and `beta`, a bias per head
        and no `decoder.bias`.

    Raises:
        ValueError: a key is not one of a SpanBERT pre-training model, or a bias untied from its head would be lost.

    Example:
        >>> config = SpanBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, max_pair_targets=2)
        >>> from hf_ptm_ext.models.spanbert.modeling_spanbert import SpanBertForPreTraining
        >>> ours = SpanBertForPreTraining(config).state_dict()
        >>> [key for key in revert_state_dict(ours, config) if key.endswith("embeddings.LayerNorm.weight")]
        []
        >>> [key for key in revert_state_dict(ours, config) if key.endswith("embeddings.LayerNorm.gamma")]
        ['decoder.bert.embeddings.LayerNorm.gamma']
    """
    reverted = LAYOUT.revert_tensors(ours, config, tied_copies)
    return {f"decoder.{_original_layer_norm(key)}": tensor for key, tensor in reverted.items()}


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found, reading from the file what its options leave open.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`. Whether there is a pooler and a next-sentence head, and the size of the span
            boundary head's table, are taken from the file where the options do not say.

    Returns:
        Configuration, tensors and report. Tied copies are not among the tensors, and neither are heads that the file
        lacks: loading says that those are new.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.

    Example:
        >>> config = SpanBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, max_pair_targets=2)
        >>> from hf_ptm_ext.models.spanbert.modeling_spanbert import SpanBertForPreTraining
        >>> ours = SpanBertForPreTraining(config).state_dict()
        >>> original, options = revert_checkpoint(ours, config)
        >>> conversion = convert_checkpoint(original, options)
        >>> conversion.architecture, conversion.initialised
        ('SpanBertForPreTraining', {})
    """
    names = {key: describe_key(key) for key in original}
    named = {name: original[key] for key, (name, _) in names.items()}
    options = dict(options)
    if "no_nsp" not in options:
        for option, head in (
            ("next_sentence_prediction", "cls.seq_relationship."),
            ("add_pooling_layer", "bert.pooler."),
        ):
            options.setdefault(option, has_part(named, head))
    rows = size_of(named, "cls.pair_target_predictions.position_embeddings.weight")
    if rows is not None and options.get("max_pair_targets") is None:
        options["max_pair_targets"] = rows
    config = convert_config(options)
    converted = convert_state_dict(original, config)
    tied = LAYOUT.tied_names(config)
    dropped = {key: "an index buffer, no weight" for key, (name, _) in names.items() if name in BUFFERS}
    dropped |= {key: f"tied to `{TIED[name]}`" for key, (name, _) in names.items() if name in tied}
    heads = {head: what for head, what in HEAD_NAMES.items() if any(name.startswith(head) for name in converted)}
    wanted = [head for head in HEAD_NAMES if head != "cls.seq_relationship." or config.next_sentence_prediction]
    counts = Counter(change for _, changes in names.values() for change in changes)
    if not heads:
        architecture = "SpanBertModel"
    elif heads.keys() == {"cls.predictions."}:
        architecture = "SpanBertForMaskedLM"
    else:
        architecture = "SpanBertForPreTraining"
    return Conversion(
        config=config,
        tensors={name: tensor for name, tensor in converted.items() if name not in tied},
        architecture=architecture,
        renamed={CHANGES[change]: number for change, number in counts.items()},
        dropped=dropped,
        initialised={f"{head}*": HEAD_NAMES[head] for head in wanted if head not in heads},
    )


def revert_config(config: SpanBertConfig) -> dict[str, Any]:
    """The options of the reference code for a configuration of ours.

    Args:
        config: the configuration.

    Returns:
        What `convert_config` reads, under the reference's names.

    Example:
        >>> options = revert_config(SpanBertConfig(max_pair_targets=6))
        >>> options["no_nsp"], options["pair_loss_weight"], convert_config(options).max_pair_targets
        (True, 1.0, 6)
    """
    own = ("sbo_loss_weight", "next_sentence_prediction", "add_pooling_layer", "position_embedding_type", "is_decoder")
    options = {name: getattr(config, name) for name in SAME_NAME if name not in own and hasattr(config, name)}
    options["pair_positional_embedding_size"] = config.pair_positional_embedding_size
    options["pair_loss_weight"] = config.sbo_loss_weight
    options["no_nsp"] = not config.next_sentence_prediction
    return options


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: SpanBertConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the reference code reads it.

    Args:
        ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
        config: their configuration.

    Returns:
        The state dict of `model.pt`, tied copies included, and the options.

    Raises:
        ValueError: the checkpoint has heads that the reference has not, or its boundary head has a table of another
            width than the reference's 200.

    Example:
        >>> config = SpanBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, max_pair_targets=2)
        >>> from hf_ptm_ext.models.spanbert.modeling_spanbert import SpanBertForPreTraining
        >>> ours = SpanBertForPreTraining(config).state_dict()
        >>> original, options = revert_checkpoint(ours, config)
        >>> options["no_nsp"], "decoder.cls.predictions.decoder.weight" in original
        (True, True)
    """
    if config.pair_positional_embedding_size != PAIR_POSITION_WIDTH:
        raise ValueError(
            f"`pair_positional_embedding_size` must be {PAIR_POSITION_WIDTH}, the only width that the reference has, "
            f"got {config.pair_positional_embedding_size}."
        )
    named = {describe_key(key)[0]: tensor for key, tensor in ours.items()}
    return revert_state_dict(named, config, tied_copies=True), revert_config(config)


def _original_layer_norm(name: str) -> str:
    name = re.sub(r"(LayerNorm|layer_norm[12])\.weight$", r"\1.gamma", name)
    return re.sub(r"(LayerNorm|layer_norm[12])\.bias$", r"\1.beta", name)


def _check_heads(sources: Mapping[str, str], config: SpanBertConfig) -> None:
    """Heads that the file has and the config has not, or the other way round, and the field that says so."""
    heads = {head: [key for name, key in sources.items() if name.startswith(head)] for head in HEADS}
    if heads["cls.seq_relationship."] and not config.next_sentence_prediction:
        raise ValueError(
            f"The file has a next-sentence head, {name_some(heads['cls.seq_relationship.'])}: set "
            "`next_sentence_prediction` to true (the original's `no_nsp` to false)."
        )
    if heads["bert.pooler."] and not (config.add_pooling_layer or config.next_sentence_prediction):
        raise ValueError(
            f"The file has a pooler, {name_some(heads['bert.pooler.'])}: set `add_pooling_layer` to true."
        )
    if config.next_sentence_prediction and has_part(sources, "cls.") and not heads["cls.seq_relationship."]:
        raise ValueError(
            "The config has `next_sentence_prediction` and the file no next-sentence head (`cls.seq_relationship.*`): "
            "set the field to false (the original's `no_nsp` to true)."
        )
