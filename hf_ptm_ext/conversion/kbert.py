"""K-BERT checkpoints of autoliuweijie/K-BERT, UER-py and TencentPretrain (names until 2021 and since), and back.

UER's LayerNorm divides by the unbiased standard deviation: with `layer_norm_style="uer"` the model does so too, with
`"hf"` gamma is multiplied by sqrt((N - 1) / N) ("folded"), which is the same up to epsilon. Weights of Google's BERT
(`google_model.bin`) were renamed for UER, not trained in it: they need no folding. UER's segment table has three rows,
the first for padding: `type_vocab_size=3` keeps it, 2 drops it, which only poolings over padding notice.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from ..models.configuration_kbert import KBertConfig
from .files import name_some
from .layout import BERT_FIELDS, BERT_SIZES, DECODER, WORD_EMBEDDINGS, Conversion, Layout, Shapes, functions_of
from .options import check_options
from .tensors import Options, State, Tensors, has_part, layer_numbers, size_of

logger = logging.get_logger(__name__)

# UER's sizes -> ours.
UER_SIZES = {
    "hidden_size": "hidden_size",
    "layers_num": "num_hidden_layers",
    "heads_num": "num_attention_heads",
    "feedforward_size": "intermediate_size",
}
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
LAYOUTS = ("old", "new")
SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
FROM_UER_NAME = "UER's name to BERT's"
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
NEXT_SENTENCE_TARGET = re.compile(r"(module\.)?target\.(nsp|sp)[._]linear_[12]\.(weight|bias)")


class KBertLayout(Layout):
    title, family, prefix = "K-BERT", "kbert", "KBert"
    config_class = KBertConfig
    fields = (
        *BERT_FIELDS,
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
    sizes = ()
    infers_sizes = True  # the weights say all but the number of heads
    foreign = "These keys fit nowhere in {title}"
    other_parts = ("bert.pooler.", "classifier.", "qa_outputs.")
    field_names = {"num_hidden_layers": "`layers_num` (`num_hidden_layers`)"}
    example = "encoder.transformer.0.layer_norm_1.gamma"
    vocabulary_files = ("vocab.txt", "google_zh_vocab.txt", "google_vocab.txt")

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        check_options(original, UER_OPTIONS)
        if _is_uer_config(original):
            _check_uer_architecture(original)
            fields |= _uer_fields(original, fields)
        missing = [name for name in (*BERT_SIZES, "max_position_embeddings") if name not in fields]
        if missing:
            raise ValueError(
                f"The original config must give the sizes of the model; {name_some(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing. Pass the config file that belongs to the weights."
            )
        if "id2label" in fields:
            fields.pop("num_labels", None)
        return fields

    def describe_key(self, key: str) -> tuple[str, tuple[str, ...]]:
        bare = key.removeprefix("module.")
        stem, _, parameter = bare.rpartition(".")
        layer = re.match(r"encoder\.transformer\.(\d+)\.(.+)", stem)
        ours = FROM_UER.get(stem)
        if layer and layer[2] in FROM_UER_LAYER:
            ours = f"bert.encoder.layer.{layer[1]}.{FROM_UER_LAYER[layer[2]]}"
        if ours is None:
            return super().describe_key(key)
        ours = "cls.predictions" if (ours, parameter) == ("cls.predictions.decoder", "bias") else ours
        name, changes = super().describe_key(f"{ours}.{parameter}")
        return name, (*((self.renames[0][2],) if bare != key else ()), FROM_UER_NAME, *changes)

    def more_shapes(self, config: Any, tensors: State) -> Shapes:
        """The fine-tuned heads that a file has; the number of labels is the file's."""
        shapes: Shapes = {}
        for head in ("classifier", "qa_outputs"):
            if has_part(tensors, f"{head}."):
                labels = size_of(tensors, f"{head}.bias") or config.num_labels or 1
                shapes |= {f"{head}.weight": (labels, config.hidden_size), f"{head}.bias": (labels,)}
        return shapes

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        """As it is; of UER's segments the first row, which is for padding, is left out where the config says so."""
        of_uer = name == SEGMENTS and FROM_UER_NAME in self.describe_key(key)[1] and tensor.ndim
        return {name: tensor[1:] if of_uer and len(tensor) == config.type_vocab_size + 1 else tensor}

    def name_in_file(self, name: str, config: Any, keys: Iterable[str]) -> str:
        """As UER's files have it, in the layout of this one, unless it is a BERT's."""
        keys = [key.removeprefix("module.") for key in keys]
        if not has_part(keys, "encoder.transformer."):
            return name
        return _uer_name(name, {}, int(any(key.startswith(("embedding.word.", "target.mlm.")) for key in keys)))

    def convert_state_dict(self, original: State, config: Any, fold_layer_norm: bool | None = None) -> Tensors:
        """Our state dict from UER's; style and names say whether LayerNorms are folded, if nothing else does."""
        folds = self._folds(original, config, fold_layer_norm)
        left_out = _superseded(original)
        if left_out:
            logger.warning(
                f"The file has a classifier and a next-sentence target. K-BERT pools once: {name_some(left_out)} are "
                "left out, and `output_layer_1` is the pooler."
            )
        kept = {key: tensor for key, tensor in original.items() if key not in left_out}
        converted = super().convert_state_dict(kept, config)
        return _scale_layer_norms(converted, config, 0.5) if folds else converted

    def revert_state_dict(
        self,
        ours: State,
        config: Any,
        tied_copies: bool | None = None,
        layout: str = "old",
        fold_layer_norm: bool | None = None,
    ) -> Tensors:
        """UER's state dict from ours, under the names of its old (K-BERT's) or new layout."""
        if layout not in LAYOUTS:
            raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}, got {layout!r}.")
        unfolds = config.layer_norm_style == "hf" if fold_layer_norm is None else fold_layer_norm
        if unfolds and config.layer_norm_style == "uer":
            raise ValueError(
                "`fold_layer_norm` must be False under `layer_norm_style='uer'`: gammas are UER's already."
            )
        for key in ours:
            if key.startswith("qa_outputs."):
                raise ValueError(f"`{key}` has no name in K-BERT's code. Save the encoder alone, or another head.")
        kept = self.untied(ours, config, tied_copies)
        reverted = {}
        for key, tensor in (_scale_layer_norms(kept, config, -0.5) if unfolds else kept).items():
            if key == SEGMENTS and config.type_vocab_size == 2:
                tensor = torch.cat([torch.zeros_like(tensor[:1]), tensor])
            reverted[_uer_name(key, ours, LAYOUTS.index(layout))] = tensor
        return reverted

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        check_options(options, (*self.fields, *UER_OPTIONS))
        options = dict(options)
        fold, parity = options.pop("fold_layer_norm", None), options.pop("reference_parity", False)
        names = {key: self.describe_key(key) for key in original}
        tensors = {name: original[key] for key, (name, _) in names.items()}
        is_uer = any(FROM_UER_NAME in changes for _, changes in names.values())
        assumed = _infer_sizes(options, tensors, is_uer)
        rows = size_of(tensors, SEGMENTS) or UER_SEGMENTS
        if is_uer:
            options.setdefault("layer_norm_style", "uer" if parity else "hf")
            options.setdefault("reference_padding", parity)
            options.setdefault("type_vocab_size", 2 if rows == UER_SEGMENTS and not parity else rows)
        decoder, words = tensors.get(DECODER), tensors.get(WORD_EMBEDDINGS)
        if is_uer and decoder is not None and words is not None and "tie_weights" not in options:
            options.setdefault("tie_word_embeddings", torch.equal(decoder, words))
        for head in ("classifier", "qa_outputs"):
            labels = size_of(tensors, f"{head}.bias")
            if labels is not None and not options.get("id2label"):
                options["num_labels"] = labels
        config = self.convert_config(options)
        converted = self.convert_state_dict(original, config, fold)
        found = self.reported(original, converted, config, assumed)
        dropped, renamed = dict(found.dropped), dict(found.renamed)
        dropped |= dict.fromkeys(_superseded(original), "the classifier's first layer is the pooler")
        if self._folds(original, config, fold):
            norms = sum(bool(LAYER_NORM.fullmatch(name)) for name in converted)
            renamed["LayerNorm `gamma` times sqrt((N - 1) / N)"] = norms
        if is_uer and config.type_vocab_size < rows:
            key = next(key for key, (name, _) in names.items() if name == SEGMENTS)
            dropped[f"row 0 of `{key}`"] = "the segment of padding"
        kind = _architecture(converted, original, options)
        return replace(found, architecture=kind, dropped=dropped, renamed=renamed)

    def revert_config(self, config: Any) -> dict[str, Any]:
        """UER's json for a configuration of ours."""
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

    def made_up(self, config: Any) -> list[str]:
        notes = []
        if config.type_vocab_size == 2:
            table = EMBEDDINGS[SEGMENTS.removesuffix(".weight")][0]
            notes.append(f"row 0 of `{table}.weight`: zeros, UER's for padding")
        if config.layer_norm_style == "hf":
            notes.append("LayerNorm `gamma` divided by sqrt((N - 1) / N): equal to the source's up to rounding")
        return notes

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        """K-BERT's tokenizer, without a graph until it is given one."""
        from ..models.tokenization_kbert import KBertTokenizer

        options: dict[str, Any] = {}
        if config.first_token_type_id:
            tags = any(name.endswith("ForTokenClassification") for name in config.architectures or ())
            options = {"reference": "ner" if tags else "classification", "use_predicate": not tags}
        length = config.max_position_embeddings
        return KBertTokenizer(dict(vocab), do_lower_case, kg=None, model_max_length=length, **options)

    def _folds(self, original: Options, config: Any, fold_layer_norm: bool | None) -> bool:
        if fold_layer_norm and config.layer_norm_style == "uer":
            raise ValueError(
                "`fold_layer_norm` must be False under `layer_norm_style='uer'`: the model computes UER's LayerNorm "
                "from UER's gammas. Set the style to 'hf' to fold."
            )
        if fold_layer_norm is None:
            uer = any(FROM_UER_NAME in self.describe_key(key)[1] for key in original)
            return config.layer_norm_style == "hf" and uer
        return fold_layer_norm


def _is_uer_config(original: Options) -> bool:
    return any(name in original for name in ("layers_num", "heads_num", "feedforward_size", "emb_size"))


def _uer_fields(original: Options, given: Options) -> dict[str, Any]:
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


def _check_uer_architecture(original: Options) -> None:
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


def _superseded(original: Options) -> list[str]:
    """Keys of a next-sentence target beside a classifier, which has a first layer of its own."""
    if not any(key.removeprefix("module.").startswith("output_layer_1.") for key in original):
        return []
    return [key for key in original if NEXT_SENTENCE_TARGET.fullmatch(key)]


def _scale_layer_norms(tensors: State, config: Any, power: float) -> Tensors:
    """Every gamma times ((N - 1) / N) ** power, N the width."""
    width = config.hidden_size
    factor = math.pow((width - 1) / width, power)
    return {
        name: (tensor.double() * factor).to(tensor.dtype) if LAYER_NORM.fullmatch(name) else tensor
        for name, tensor in tensors.items()
    }


def _uer_name(name: str, ours: Options, layout: int) -> str:
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


def _infer_sizes(options: dict[str, Any], tensors: State, is_uer: bool) -> dict[str, str]:
    """Complete the options from the file; what no weight tells is returned with the reason for its value."""
    found = {
        "vocab_size": size_of(tensors, WORD_EMBEDDINGS),
        "max_position": size_of(tensors, "bert.embeddings.position_embeddings.weight"),
        "segment_vocab": size_of(tensors, SEGMENTS),
        "hidden_size": size_of(tensors, WORD_EMBEDDINGS, 1),
        "layers_num": max(layer_numbers(tensors, "bert.encoder.layer."), default=-1) + 1 or None,
        "feedforward_size": size_of(tensors, "bert.encoder.layer.0.intermediate.dense.weight"),
    }
    as_bert = not is_uer and not _is_uer_config(options)
    names = {**UER_SIZES, "max_position": "max_position_embeddings", "segment_vocab": "type_vocab_size"}
    for name, value in found.items():
        ours = names.get(name, name)
        known = (name, ours, "max_seq_length") if name == "max_position" else (name, ours)
        if value is not None and not any(options.get(one) for one in known):
            options[ours if as_bert else name] = value
    heads = "num_attention_heads" if as_bert else "heads_num"
    if not any(options.get(name) for name in ("heads_num", "num_attention_heads")) and options.get("hidden_size"):
        options[heads] = max(options["hidden_size"] // 64, 1)
        return {heads: f"{options[heads]}: no option says how many, and the published models' heads are 64 wide"}
    return {}


def _architecture(tensors: Options, keys: Iterable[str], options: Options) -> str:
    """The class that holds all of it."""
    named = [name for name in options.get("architectures") or () if name in CLASSIFIERS]
    if has_part(tensors, "qa_outputs."):
        return "KBertForQuestionAnswering"
    if has_part(tensors, "classifier."):
        if named:
            return f"K{named[0]}"
        tags = any(re.fullmatch(r"(module\.)?output_layer\.weight", key) for key in keys)
        pools = has_part(tensors, "bert.pooler.") and not tags
        return "KBertForSequenceClassification" if pools else "KBertForTokenClassification"
    if has_part(tensors, "cls.seq_relationship."):
        return "KBertForPreTraining"
    return "KBertForMaskedLM" if has_part(tensors, "cls.predictions.") else "KBertModel"


LAYOUT = KBertLayout()
globals().update(functions_of(LAYOUT))
