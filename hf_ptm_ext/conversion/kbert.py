"""K-BERT checkpoints of the original code (autoliuweijie/K-BERT) and of UER-py and TencentPretrain to ours and back.

The names of these three (old layout: K-BERT and UER until 2021; new layout: since then) become BERT's:

    embedding.word_embedding    embedding.word.embedding    bert.embeddings.word_embeddings
    encoder.transformer.N.self_attn.linear_layers.0         bert.encoder.layer.N.attention.self.query
    target.mlm_linear_1         target.mlm.linear_1         cls.predictions.transform.dense
    target.nsp_linear_1         target.sp.linear_1          bert.pooler.dense
    output_layer_1, output_layer_2  (a classifier's)        bert.pooler.dense, classifier
    output_layer                    (a tagger's)            classifier

Two things are more than names. UER's LayerNorm divides by the unbiased standard deviation: with
`layer_norm_style="uer"` the model computes it, with `"hf"` gamma is multiplied by sqrt((N - 1) / N) ("folded") so that
BERT's LayerNorm gives the same up to epsilon. A file whose weights come from Google's BERT (`google_model.bin`) was
renamed, not trained, in UER: it needs no folding. And UER's segment table has three rows, the first for padding:
`type_vocab_size=3` keeps it, 2 drops it, which only poolings over padding notice.

Files in BERT format are read too: prefix `bert.` or none (encoder only), `module.` in front, `weight`/`bias` or
`gamma`/`beta`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from ..models.kbert.configuration_kbert import AUTO_MAP, KBertConfig
from .files import name_some
from .layout import (
    TIED,
    WORD_EMBEDDINGS,
    Layout,
    Shapes,
    by_our_names,
    check_weights,
    has_part,
    lacking_parts,
    layer_numbers,
    size_of,
)
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
    "wordpiece_tokenizer",
]

logger = logging.get_logger(__name__)

Tensors = dict[str, torch.Tensor]

# The command needs no config file: the weights say all but the number of heads.
INFERS_SIZES = True
VOCABULARY_FILES = ("vocab.txt", "google_zh_vocab.txt", "google_vocab.txt")
LAYOUTS = ("old", "new")

# UER's sizes -> ours.
UER_SIZES = {
    "hidden_size": "hidden_size",
    "layers_num": "num_hidden_layers",
    "heads_num": "num_attention_heads",
    "feedforward_size": "intermediate_size",
}
BERT_SIZES = (*UER_SIZES.values(), "vocab_size", "max_position_embeddings")
SAME_NAME = (
    *BERT_SIZES,
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "position_embedding_type",
    "is_decoder",
    "classifier_dropout",
    "pooling",
    "use_visible_matrix",
    "use_soft_positions",
    "layer_norm_style",
    "reference_padding",
    "first_token_type_id",
    "tie_word_embeddings",
    "num_labels",
    "id2label",
    "label2id",
)
# What UER's json does not hold: the Chinese vocabulary of Google's BERT and its position table.
UER_VOCABULARY, UER_POSITIONS, UER_SEGMENTS = 21128, 512, 3
# UER's and K-BERT's options of other names than ours.
UER_OPTIONS = (*UER_SIZES, "emb_size", "dropout", "max_position", "max_seq_length", "segment_vocab")
UER_OPTIONS += ("no_vm", "tie_weights", "labels_num", "architectures")
# Options of UER and TencentPretrain that make another architecture, and the values under which they do not.
UER_ARCHITECTURE = {
    "encoder": ("transformer", "bert"),
    "embedding": ("bert", "word_pos_seg", ["word", "pos", "seg"]),
    "mask": ("fully_visible",),
    "layernorm": ("normal",),
    "layernorm_positioning": ("post",),
    "feed_forward": ("dense",),
    **dict.fromkeys(
        (
            "remove_embedding_layernorm",
            "remove_transformer_bias",
            "remove_attention_scale",
            "relative_position_embedding",
            "rotary_position_embedding",
            "factorized_embedding_parameterization",
            "parameter_sharing",
            "has_residual_attention",
        ),
        (False,),
    ),
}

SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
# Parts that a file has whole or not at all, and what is said of those of pre-training that it lacks.
PARTS = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.", "classifier.", "qa_outputs.")
PRETRAINING_PARTS = {
    "cls.predictions.": "masked-language-model head",
    "cls.seq_relationship.": "next-sentence head",
}
CHANGES = {
    "module.": "prefix `module.` taken off",
    "bert.": "prefix `bert.` put in front",
    "gamma/beta": "LayerNorm `gamma`, `beta` to `weight`, `bias`",
    "uer": "UER's name to BERT's",
}
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
LAYER_NORM = re.compile(r"(.*\.)?LayerNorm\.weight")

# Names without `.weight`, `.bias`, `.gamma`, `.beta`: ours -> (old layout, new layout).
EMBEDDINGS = {
    "bert.embeddings.word_embeddings": ("embedding.word_embedding", "embedding.word.embedding"),
    "bert.embeddings.position_embeddings": ("embedding.position_embedding", "embedding.pos.embedding"),
    "bert.embeddings.token_type_embeddings": ("embedding.segment_embedding", "embedding.seg.embedding"),
    "bert.embeddings.LayerNorm": ("embedding.layer_norm", "embedding.layer_norm"),
}
LAYER = {
    "attention.self.query": "self_attn.linear_layers.0",
    "attention.self.key": "self_attn.linear_layers.1",
    "attention.self.value": "self_attn.linear_layers.2",
    "attention.output.dense": "self_attn.final_linear",
    "attention.output.LayerNorm": "layer_norm_1",
    "intermediate.dense": "feed_forward.linear_1",
    "output.dense": "feed_forward.linear_2",
    "output.LayerNorm": "layer_norm_2",
}
TARGETS = {
    "cls.predictions.transform.dense": ("target.mlm_linear_1", "target.mlm.linear_1"),
    "cls.predictions.transform.LayerNorm": ("target.layer_norm", "target.mlm.layer_norm"),
    "cls.predictions.decoder": ("target.mlm_linear_2", "target.mlm.linear_2"),
    "bert.pooler.dense": ("target.nsp_linear_1", "target.sp.linear_1"),
    "cls.seq_relationship": ("target.nsp_linear_2", "target.sp.linear_2"),
}
CLASSIFIERS = ("BertForSequenceClassification", "BertForTokenClassification", "BertForMultipleChoice")
CLASSIFIER = {"output_layer_1": "bert.pooler.dense", "output_layer_2": "classifier", "output_layer": "classifier"}
FROM_UER = {
    **{theirs: ours for ours, names in {**EMBEDDINGS, **TARGETS}.items() for theirs in names},
    **CLASSIFIER,
    # Layouts in between the two.
    "target.sp_linear_1": "bert.pooler.dense",
    "target.sp_linear_2": "cls.seq_relationship",
    "target.nsp.linear_1": "bert.pooler.dense",
    "target.nsp.linear_2": "cls.seq_relationship",
}
FROM_UER_LAYER = {theirs: ours for ours, theirs in LAYER.items()}
NEXT = "cls.seq_relationship."
NEXT_SENTENCE = re.compile(r"(module\.)?target\.(nsp|sp)[._]linear_[12]\.(weight|bias)")


def _model(config: KBertConfig) -> nn.Module:
    from ..models.kbert.modeling_kbert import KBertForPreTraining

    return KBertForPreTraining(config)


def _task_heads(config: KBertConfig, tensors: Mapping[str, torch.Tensor]) -> Shapes:
    """The fine-tuned heads that a file has; the number of labels is the file's."""
    shapes: Shapes = {}
    for head in ("classifier", "qa_outputs"):
        if has_part(tensors, f"{head}."):
            labels = size_of(tensors, f"{head}.bias") or config.num_labels or 1
            shapes |= {f"{head}.weight": (labels, config.hidden_size), f"{head}.bias": (labels,)}
    return shapes


def _name_in_file(name: str, config: KBertConfig, names: Iterable[str]) -> str:
    """As UER's files have it, in the layout of this one, unless it is a BERT's."""
    keys = [key.removeprefix("module.") for key in names]
    if not has_part(keys, "encoder.transformer."):
        return name
    return _uer_name(name, {}, int(any(key.startswith(("embedding.word.", "target.mlm.")) for key in keys)))


LAYOUT = Layout(
    title="K-BERT",
    foreign="These keys fit nowhere in K-BERT",
    model=_model,
    parts=PARTS,
    more_shapes=_task_heads,
    field_names={"num_hidden_layers": "`layers_num` (`num_hidden_layers`)"},
    example="encoder.transformer.0.layer_norm_1.gamma",
    original_name=_name_in_file,
)


def convert_config(original: Mapping[str, Any]) -> KBertConfig:
    """Our configuration from UER's json, K-BERT's options, or a BERT `config.json`.

    Args:
        original: the fields. UER's sizes are `hidden_size`, `layers_num`, `heads_num`, `feedforward_size`; its json
            says nothing about the tables, so `vocab_size` is 21,128 without an entry (Google's Chinese vocabulary),
            `max_position` (or `max_seq_length`) 512 and `segment_vocab` 3. `dropout` is both of BERT's; `pooling`,
            `no_vm` and `labels_num` are K-BERT's own. A UER model becomes what it is there: its LayerNorm
            (`layer_norm_style="uer"`), its padding (`reference_padding`), three segment rows, an own decoder matrix
            unless `tie_weights` is set, no dropout in a classifier; our own fields in `original` say otherwise. What
            says nothing about the model is ignored.

    Returns:
        The configuration, with the whole auto_map.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, a field is out of its range, or the options ask for another architecture.

    Example:
        >>> uer = dict(emb_size=32, hidden_size=32, feedforward_size=64, heads_num=4, layers_num=2, dropout=0.1)
        >>> config = convert_config(uer)
        >>> config.num_hidden_layers, config.type_vocab_size, config.layer_norm_style
        (2, 3, 'uer')
    """
    check_options(original, UER_OPTIONS)
    fields = read_fields(original, SAME_NAME, ())
    if _is_uer_config(original):
        _check_uer_architecture(original)
        fields |= _uer_fields(original, fields)
    missing = [name for name in BERT_SIZES if name not in fields]
    if missing:
        raise ValueError(
            f"The original config must give the sizes of the model; {name_some(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. Pass the config file that belongs to the weights."
        )
    if "id2label" in fields:
        fields.pop("num_labels", None)
    config = made_config(KBertConfig, fields, "K-BERT")
    config.auto_map = dict(AUTO_MAP)
    return config


def _is_uer_config(original: Mapping[str, Any]) -> bool:
    return any(name in original for name in ("layers_num", "heads_num", "feedforward_size", "emb_size"))


def _uer_fields(original: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Our fields for UER's, those that `given` has already left out."""
    missing = [name for name, ours in UER_SIZES.items() if original.get(name) is None and ours not in given]
    if missing:
        raise ValueError(f"UER's config must give the sizes of the model; it lacks {name_some(missing)}.")

    def first(*names: str, default: Any) -> Any:
        return next((original[name] for name in names if original.get(name) is not None), default)

    dropout = first("dropout", default=0.1)
    fields = {ours: original[name] for name, ours in UER_SIZES.items() if original.get(name) is not None}
    fields |= {
        "vocab_size": UER_VOCABULARY,
        "max_position_embeddings": first("max_position", "max_seq_length", default=UER_POSITIONS),
        "type_vocab_size": first("segment_vocab", default=UER_SEGMENTS),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout": 0.0,
        "tie_word_embeddings": bool(first("tie_weights", default=False)),
        "use_visible_matrix": not first("no_vm", default=False),
        "layer_norm_style": "uer",
        "reference_padding": True,
    }
    if original.get("labels_num") is not None:
        fields["num_labels"] = original["labels_num"]
    types = given.get("type_vocab_size", fields["type_vocab_size"])
    fields["first_token_type_id"] = int(types > 2)
    return {name: value for name, value in fields.items() if name not in given}


def _check_uer_architecture(original: Mapping[str, Any]) -> None:
    """Refuse what K-BERT's encoder is not."""
    width = original.get("emb_size")
    if width is not None and original.get("hidden_size") is not None and width != original["hidden_size"]:
        raise ValueError(
            f"`emb_size` must be `hidden_size`, got {width} and {original['hidden_size']}: K-BERT has no factorised "
            "embeddings."
        )
    for name, allowed in UER_ARCHITECTURE.items():
        value = original.get(name)
        if value is not None and value not in allowed:
            raise ValueError(f"`{name}` must be {allowed[-1]!r} in a K-BERT, got {value!r}: another architecture.")


def describe_key(key: str) -> tuple[str, tuple[str, ...]]:
    """Our name for a key of a file, and what was changed.

    Args:
        key: a name as the file has it.

    Returns:
        The name and the changes, each `module.` (taken off), `bert.` (put in front), `gamma/beta` or `uer`.

    Example:
        >>> describe_key("encoder.transformer.3.layer_norm_1.gamma")
        ('bert.encoder.layer.3.attention.output.LayerNorm.weight', ('uer', 'gamma/beta'))
        >>> describe_key("target.mlm.linear_2.bias")
        ('cls.predictions.bias', ('uer',))
        >>> describe_key("module.encoder.layer.3.output.LayerNorm.weight")
        ('bert.encoder.layer.3.output.LayerNorm.weight', ('module.', 'bert.'))
    """
    changes = []
    name = key
    if name.startswith("module."):
        name = name.removeprefix("module.")
        changes.append("module.")
    stem, _, parameter = name.rpartition(".")
    layer = re.match(r"encoder\.transformer\.(\d+)\.(.+)", stem)
    ours = FROM_UER.get(stem)
    if layer and layer[2] in FROM_UER_LAYER:
        ours = f"bert.encoder.layer.{layer[1]}.{FROM_UER_LAYER[layer[2]]}"
    if ours is not None:
        changes.append("uer")
        name = f"{ours}.{parameter}"
        if name == "cls.predictions.decoder.bias":
            name = "cls.predictions.bias"
    elif re.match(r"(embeddings|pooler|encoder\.layer)\.", name):
        name = f"bert.{name}"
        changes.append("bert.")
    renamed = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    renamed = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", renamed)
    if renamed != name:
        changes.append("gamma/beta")
    return renamed, tuple(changes)


def convert_state_dict(
    original: Mapping[str, torch.Tensor], config: KBertConfig, fold_layer_norm: bool | None = None
) -> Tensors:
    """Our state dict from the original's.

    Args:
        original: tensors under the names of K-BERT, UER, TencentPretrain or BERT; targets and heads may be missing
            whole. A classifier's first layer takes the place of the next-sentence target's, which is left out then.
        config: what `convert_config` gave. With `type_vocab_size` one less than UER's table has rows, row 0 (padding)
            is dropped.
        fold_layer_norm: whether to multiply every LayerNorm's gamma by sqrt((N - 1) / N), for weights TRAINED in UER
            under `layer_norm_style="hf"`. `None` (default) folds UER's files under that style. Pass False for
            `google_model.bin`, whose weights were only renamed, and True for a file that UER's own converter made (the
            `uer/...` models of the Hub): that converter does not fold.

    Returns:
        The tensors under our names, those of the file itself where nothing is computed; tied entries of the head are
        there whether the file has them or not.

    Raises:
        ValueError: a key, a shape or the number of layers does not fit the config, weights of the encoder or a part of
            a head are missing, a tied copy differs from what it is tied to, or gammas are to be folded for a model
            that computes UER's LayerNorm. Keys are named.

    Example:
        >>> from hf_ptm_ext.models.kbert.modeling_kbert import KBertForPreTraining
        >>> config = KBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8, layer_norm_style="uer", type_vocab_size=3)
        >>> ours = KBertForPreTraining(config).state_dict()
        >>> converted = convert_state_dict(revert_state_dict(ours, config, layout="new"), config)
        >>> converted.keys() == ours.keys(), all(torch.equal(converted[key], ours[key]) for key in ours)
        (True, True)
    """
    folds = _folds(original, config, fold_layer_norm)
    left_out = _superseded(original)
    if left_out:
        logger.warning(
            f"The file has a classifier and a next-sentence target. K-BERT pools once: {name_some(left_out)} are left "
            "out, and `output_layer_1` is the pooler."
        )
    named = []
    for key, tensor in original.items():
        name, changes = describe_key(key)
        if name in BUFFERS or key in left_out:
            continue
        if name == SEGMENTS and "uer" in changes and tensor.ndim and len(tensor) == config.type_vocab_size + 1:
            check_weights({key: tensor})
            tensor = tensor[1:]
        named.append((name, key, tensor))
    converted, sources = by_our_names(named)
    converted = LAYOUT.check(converted, sources, config)
    return _scale_layer_norms(converted, config, 0.5) if folds else converted


def revert_state_dict(
    ours: Mapping[str, torch.Tensor],
    config: KBertConfig,
    layout: str = "old",
    fold_layer_norm: bool | None = None,
    tied_copies: bool | None = None,
) -> Tensors:
    """UER's state dict from ours.

    Args:
        ours: tensors under our names, of one of our classes or of a part of it.
        config: their configuration. A table of two token types gets UER's row for padding, zeros, in front.
        layout: names of K-BERT and of UER until 2021, `"old"` (default), or those of UER and TencentPretrain since,
            `"new"`.
        fold_layer_norm: whether gammas are those of BERT's LayerNorm and have to be divided by sqrt((N - 1) / N) for
            UER to compute the same. `None` (default): under `layer_norm_style="hf"`. Pass what the file was converted
            with to get its own values back.
        tied_copies: whether to write the decoder's copy of the word embeddings, as the original's files have it.
            `None` (default) writes it if `ours` has it as an entry of its own, so what `convert_state_dict` added is
            left out again.

    Returns:
        The tensors under UER's names, LayerNorms with `gamma` and `beta`. A pooler goes with the classifier, if there
        is one and no next-sentence head, else with the next-sentence target.

    Raises:
        ValueError: a key is not one of a K-BERT model or has no name in UER, or a bias untied from its head would be
            lost.

    Example:
        >>> from hf_ptm_ext.models.kbert.modeling_kbert import KBertForSequenceClassification
        >>> config = KBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8)
        >>> reverted = revert_state_dict(KBertForSequenceClassification(config).state_dict(), config)
        >>> reverted["embedding.segment_embedding.weight"].shape, "output_layer_1.weight" in reverted
        (torch.Size([3, 8]), True)
    """
    if layout not in LAYOUTS:
        raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}, got {layout!r}.")
    unfolds = config.layer_norm_style == "hf" if fold_layer_norm is None else fold_layer_norm
    if unfolds and config.layer_norm_style == "uer":
        raise ValueError("`fold_layer_norm` must be False under `layer_norm_style='uer'`: gammas are UER's already.")
    for key in ours:
        if key.startswith("qa_outputs."):
            raise ValueError(f"`{key}` has no name in K-BERT's code. Save the encoder alone, or another head.")
    kept = LAYOUT.revert_tensors(ours, config, tied_copies)
    reverted = {}
    for key, tensor in (_scale_layer_norms(kept, config, -0.5) if unfolds else kept).items():
        if key == SEGMENTS and config.type_vocab_size == 2:
            tensor = torch.cat([torch.zeros_like(tensor[:1]), tensor])
        reverted[_uer_name(key, ours, LAYOUTS.index(layout))] = tensor
    return reverted


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found, reading from the file what its options leave open.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`; sizes that they lack are read from the file (a head is then 64 wide). UER's
            files become models that work as BERTs do: LayerNorms folded, two token types, padding without influence.
            `reference_parity=True` keeps all of that as it is in the reference, `fold_layer_norm=False` leaves gammas
            alone (`google_model.bin`).

    Returns:
        Configuration, tensors and report. Tied copies are not among the tensors, and neither are heads that the file
        lacks: loading says that those are new.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.

    Example:
        >>> from hf_ptm_ext.models.kbert.modeling_kbert import KBertForPreTraining
        >>> config = KBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8)
        >>> original, options = revert_checkpoint(KBertForPreTraining(config).state_dict(), config)
        >>> conversion = convert_checkpoint(original, options)
        >>> conversion.architecture, conversion.config.type_vocab_size, conversion.config.layer_norm_style
        ('KBertForPreTraining', 2, 'hf')
    """
    names = {key: describe_key(key) for key in original}
    tensors = {name: original[key] for key, (name, _) in names.items()}
    is_uer = any("uer" in changes for _, changes in names.values())
    check_options(options, (*SAME_NAME, *UER_OPTIONS))
    options = dict(options)
    fold = options.pop("fold_layer_norm", None)
    parity = options.pop("reference_parity", False)
    assumed = _infer_sizes(options, tensors, is_uer)
    rows = size_of(tensors, SEGMENTS) or UER_SEGMENTS
    if is_uer:
        options.setdefault("layer_norm_style", "uer" if parity else "hf")
        options.setdefault("reference_padding", parity)
        options.setdefault("type_vocab_size", 2 if rows == UER_SEGMENTS and not parity else rows)
    decoder, words = tensors.get("cls.predictions.decoder.weight"), tensors.get(WORD_EMBEDDINGS)
    if is_uer and decoder is not None and words is not None and "tie_weights" not in options:
        options.setdefault("tie_word_embeddings", torch.equal(decoder, words))
    for head in ("classifier", "qa_outputs"):
        labels = size_of(tensors, f"{head}.bias")
        if labels is not None and not options.get("id2label"):
            options["num_labels"] = labels
    config = convert_config(options)
    converted = convert_state_dict(original, config, fold)
    tied = LAYOUT.tied_names(config)
    dropped = {key: "an index buffer, no weight" for key, (name, _) in names.items() if name in BUFFERS}
    dropped |= {key: f"tied to `{TIED[name]}`" for key, (name, _) in names.items() if name in tied}
    dropped |= dict.fromkeys(_superseded(original), "the classifier's first layer is the pooler")
    counts = Counter(change for _, changes in names.values() for change in changes)
    renamed = {CHANGES[change]: number for change, number in counts.items()}
    if _folds(original, config, fold):
        renamed["LayerNorm `gamma` times sqrt((N - 1) / N)"] = sum(bool(LAYER_NORM.fullmatch(n)) for n in converted)
    if is_uer and config.type_vocab_size < rows:
        dropped[f"row 0 of `{next(k for k, (n, _) in names.items() if n == SEGMENTS)}`"] = "the segment of padding"
    architecture = _architecture(converted, names, options)
    return Conversion(
        config=config,
        tensors={name: tensor for name, tensor in converted.items() if name not in tied},
        architecture=architecture,
        renamed=renamed,
        dropped=dropped,
        initialised=lacking_parts(converted, PRETRAINING_PARTS),
        assumed=assumed,
    )


def revert_config(config: KBertConfig) -> dict[str, Any]:
    """UER's json for a configuration of ours.

    Args:
        config: the configuration.

    Returns:
        What UER and K-BERT read, and what `convert_config` reads beside it.

    Example:
        >>> revert_config(KBertConfig(num_hidden_layers=3))["layers_num"]
        3
    """
    options = {theirs: getattr(config, ours) for theirs, ours in UER_SIZES.items()}
    return options | {
        "emb_size": config.hidden_size,
        "dropout": config.hidden_dropout_prob,
        "hidden_act": config.hidden_act,
        "vocab_size": config.vocab_size,
        "max_position": config.max_position_embeddings,
        "segment_vocab": 3 if config.type_vocab_size == 2 else config.type_vocab_size,
        "pooling": config.pooling,
        "no_vm": not config.use_visible_matrix,
        "tie_weights": config.tie_word_embeddings,
    }


def revert_checkpoint(ours: Mapping[str, torch.Tensor], config: KBertConfig) -> tuple[Tensors, dict[str, Any]]:
    """A checkpoint of ours as UER's code reads it, under the names of K-BERT.

    Args:
        ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
        config: their configuration.

    Returns:
        The state dict, tied copies included, and the json.

    Raises:
        ValueError: the checkpoint has a head that the original has not.

    Example:
        >>> from hf_ptm_ext.models.kbert.modeling_kbert import KBertForPreTraining
        >>> config = KBertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=8, max_position_embeddings=8)
        >>> original, options = revert_checkpoint(KBertForPreTraining(config).state_dict(), config)
        >>> options["layers_num"], original["target.mlm_linear_2.weight"].shape
        (1, torch.Size([9, 8]))
    """
    named = {describe_key(key)[0]: tensor for key, tensor in ours.items()}
    return revert_state_dict(named, config, tied_copies=True), revert_config(config)


def made_up(config: KBertConfig) -> list[str]:
    """What `revert_checkpoint` writes that is no value of ours, for the report."""
    notes = []
    if config.type_vocab_size == 2:
        notes.append(f"row 0 of `{EMBEDDINGS[SEGMENTS.removesuffix('.weight')][0]}.weight`: zeros, UER's for padding")
    if config.layer_norm_style == "hf":
        notes.append("LayerNorm `gamma` divided by sqrt((N - 1) / N): equal to the source's up to rounding")
    return notes


def wordpiece_tokenizer(vocab: Mapping[str, int], config: KBertConfig, do_lower_case: bool) -> Any:
    """The tokenizer of a converted checkpoint: K-BERT's, without a graph until it is given one.

    Args:
        vocab: piece -> id.
        config: gives the longest input, and says whether token types are the reference's, which takes its input style.
        do_lower_case: whether the vocabulary is lower case.

    Returns:
        A `KBertTokenizer`.

    Example:
        >>> vocab = {token: number for number, token in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] 我".split())}
        >>> tokenizer = wordpiece_tokenizer(vocab, KBertConfig(max_position_embeddings=128), True)
        >>> tokenizer.kg, tokenizer.model_max_length, tokenizer("我")["input_ids"]
        (None, 128, [2, 5, 3])
    """
    from ..models.kbert.tokenization_kbert import KBertTokenizer

    options: dict[str, Any] = {}
    if config.first_token_type_id:
        tags = any(name.endswith("ForTokenClassification") for name in config.architectures or ())
        options = {"reference": "ner" if tags else "classification", "use_predicate": not tags}
    length = config.max_position_embeddings
    return KBertTokenizer(dict(vocab), do_lower_case, kg=None, model_max_length=length, **options)


def _superseded(original: Mapping[str, Any]) -> list[str]:
    """Keys of a next-sentence target beside a classifier, which has a first layer of its own."""
    if not any(key.removeprefix("module.").startswith("output_layer_1.") for key in original):
        return []
    return [key for key in original if NEXT_SENTENCE.fullmatch(key)]


def _folds(original: Mapping[str, Any], config: KBertConfig, fold_layer_norm: bool | None) -> bool:
    if fold_layer_norm and config.layer_norm_style == "uer":
        raise ValueError(
            "`fold_layer_norm` must be False under `layer_norm_style='uer'`: the model computes UER's LayerNorm from "
            "UER's gammas. Set the style to 'hf' to fold."
        )
    if fold_layer_norm is None:
        return config.layer_norm_style == "hf" and any("uer" in describe_key(key)[1] for key in original)
    return fold_layer_norm


def _scale_layer_norms(tensors: Mapping[str, torch.Tensor], config: KBertConfig, power: float) -> Tensors:
    """Every gamma times ((N - 1) / N) ** power, N the width."""
    width = config.hidden_size
    factor = math.pow((width - 1) / width, power)
    return {
        name: (tensor.double() * factor).to(tensor.dtype) if LAYER_NORM.fullmatch(name) else tensor
        for name, tensor in tensors.items()
    }


def _uer_name(name: str, ours: Mapping[str, Any], layout: int) -> str:
    """UER's name for one of ours."""
    if name == "cls.predictions.bias":
        return f"{TARGETS['cls.predictions.decoder'][layout]}.bias"
    stem, _, parameter = name.rpartition(".")
    layer = re.match(r"bert\.encoder\.layer\.(\d+)\.(.+)", stem)
    pools = (
        has_part(ours, "bert.pooler.")
        and has_part(ours, "classifier.")
        and not has_part(ours, "cls.seq_relationship.")
    )
    if stem.endswith("LayerNorm"):
        parameter = {"weight": "gamma", "bias": "beta"}[parameter]
    if layer:
        return f"encoder.transformer.{layer[1]}.{LAYER[layer[2]]}.{parameter}"
    if stem == "classifier":
        return f"output_layer{'_2' if pools else ''}.{parameter}"
    if stem == "bert.pooler.dense" and pools:
        return f"output_layer_1.{parameter}"
    names = {**EMBEDDINGS, **TARGETS}.get(stem)
    return name if names is None else f"{names[layout]}.{parameter}"


def _infer_sizes(options: dict[str, Any], tensors: Mapping[str, torch.Tensor], is_uer: bool) -> dict[str, str]:
    """Complete the options from the file; what no weight tells is returned with the reason for its value."""

    found = {
        "vocab_size": size_of(tensors, WORD_EMBEDDINGS),
        "max_position": size_of(tensors, "bert.embeddings.position_embeddings.weight"),
        "segment_vocab": size_of(tensors, SEGMENTS),
        "hidden_size": size_of(tensors, WORD_EMBEDDINGS, 1),
        "layers_num": max(layer_numbers(tensors, "bert.encoder.layer."), default=-1) + 1 or None,
        "feedforward_size": size_of(tensors, "bert.encoder.layer.0.intermediate.dense.weight"),
    }
    aliases = {"max_position": ("max_position_embeddings", "max_seq_length"), "segment_vocab": ("type_vocab_size",)}
    aliases |= {name: (ours,) for name, ours in UER_SIZES.items()}
    as_bert = not is_uer and not _is_uer_config(options)
    ours = {**UER_SIZES, "max_position": "max_position_embeddings", "segment_vocab": "type_vocab_size"}
    for name, value in found.items():
        if value is not None and not any(options.get(known) for known in (name, *aliases.get(name, ()))):
            options[ours.get(name, name) if as_bert else name] = value
    heads = "num_attention_heads" if as_bert else "heads_num"
    if not any(options.get(name) for name in ("heads_num", "num_attention_heads")) and options.get("hidden_size"):
        options[heads] = max(options["hidden_size"] // 64, 1)
        return {heads: f"{options[heads]}: no option says how many, and the published models' heads are 64 wide"}
    return {}


def _architecture(tensors: Mapping[str, Any], names: Mapping[str, tuple[str, Any]], options: Mapping[str, Any]) -> str:
    """The class that holds all of it."""
    named = [name for name in options.get("architectures") or () if name in CLASSIFIERS]
    if has_part(tensors, "qa_outputs."):
        return "KBertForQuestionAnswering"
    if has_part(tensors, "classifier."):
        if named:
            return f"K{named[0]}"
        tags = any(re.fullmatch(r"(module\.)?output_layer\.weight", key) for key in names)
        pools = has_part(tensors, "bert.pooler.") and not tags
        return "KBertForSequenceClassification" if pools else "KBertForTokenClassification"
    if has_part(tensors, "cls.seq_relationship."):
        return "KBertForPreTraining"
    return "KBertForMaskedLM" if has_part(tensors, "cls.predictions.") else "KBertModel"
