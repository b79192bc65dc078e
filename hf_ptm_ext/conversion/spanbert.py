"""SpanBERT checkpoints of the original code (facebookresearch/SpanBERT, fairseq names) to ours and back.

Both heads have a copy of the word embeddings, which some files leave out. Files in BERT format are read too.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch

from ..models.configuration_spanbert import SpanBertConfig
from .files import name_some
from .layout import (
    BERT_FIELDS,
    BERT_SIZES,
    DIMENSIONS,
    MASKED_LM,
    NEXT_SENTENCE,
    PREFIX,
    RENAMES,
    TIED,
    WORD_EMBEDDINGS,
    Layout,
    Shapes,
    functions_of,
)
from .options import check_options
from .tensors import Tensors, has_part, size_of

# Always this width in the reference: the option of that name is read, but never reaches the head.
PAIR_POSITION_WIDTH = 200
PAIRS = "cls.pair_target_predictions."


class SpanBertLayout(Layout):
    title, family, prefix = "SpanBERT", "spanbert", "SpanBert"
    config_class = SpanBertConfig
    sizes = (*BERT_SIZES, "max_position_embeddings")
    fields = (
        *BERT_FIELDS,
        "position_embedding_type",
        "is_decoder",
        "max_pair_targets",
        "pair_target_layer",
        "sbo_loss_weight",
        "next_sentence_prediction",
        "add_pooling_layer",
    )
    theirs = {"pair_loss_weight": "sbo_loss_weight", "pad_id": "pad_token_id"}
    own = ("sbo_loss_weight", "next_sentence_prediction", "add_pooling_layer", "position_embedding_type", "is_decoder")
    renames = (PREFIX, (r"^decoder\.(?=(bert|cls)\.)", "", "prefix `decoder.` taken off"), *RENAMES[1:])
    foreign = "These keys fit nowhere in {title}"
    dimensions = (
        *DIMENSIONS,
        (rf"{re.escape(PAIRS)}position_embeddings\.weight", 0, "max_pair_targets"),
        (rf"{re.escape(PAIRS)}position_embeddings\.weight", 1, "pair_positional_embedding_size"),
        (r".*", -1, "hidden_size"),
    )
    heads = MASKED_LM | {PAIRS: "span boundary head"} | NEXT_SENTENCE
    tied = TIED | {f"{PAIRS}decoder.weight": WORD_EMBEDDINGS, f"{PAIRS}decoder.bias": f"{PAIRS}bias"}
    example = "decoder.bert.encoder.layer.0.output.dense.weight"
    their_mark = r"^decoder\."

    def adjusted(self, fields: dict[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
        check_options(original, ("no_nsp",))
        if "no_nsp" in original:
            fields.setdefault("next_sentence_prediction", not original["no_nsp"])
            fields.setdefault("add_pooling_layer", fields["next_sentence_prediction"])
        return fields | {"pair_positional_embedding_size": PAIR_POSITION_WIDTH}

    def complete_options(self, options: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
        if "no_nsp" not in options:
            options.setdefault("next_sentence_prediction", has_part(tensors, "cls.seq_relationship."))
            options.setdefault("add_pooling_layer", has_part(tensors, "bert.pooler."))
        rows = size_of(tensors, f"{PAIRS}position_embeddings.weight")
        if rows is not None and options.get("max_pair_targets") is None:
            options["max_pair_targets"] = rows
        return {}

    def revert_config(self, config: Any) -> dict[str, Any]:
        if config.pair_positional_embedding_size != PAIR_POSITION_WIDTH:
            raise ValueError(
                f"`pair_positional_embedding_size` must be {PAIR_POSITION_WIDTH}, the only width that the reference "
                f"has, got {config.pair_positional_embedding_size}."
            )
        more = {"pair_positional_embedding_size": PAIR_POSITION_WIDTH, "no_nsp": not config.next_sentence_prediction}
        return super().revert_config(config) | more

    def more_shapes(self, config: Any, tensors: Mapping[str, torch.Tensor]) -> Shapes:
        """The pooler that a config may have beside the pre-training model."""
        width = config.hidden_size
        shapes: Shapes = {"bert.pooler.dense.weight": (width, width), "bert.pooler.dense.bias": (width,)}
        return shapes if config.add_pooling_layer else {}

    def their_name(self, name: str, config: Any) -> str:
        name = re.sub(r"(LayerNorm|layer_norm[12])\.weight$", r"\1.gamma", name)
        return "decoder." + re.sub(r"(LayerNorm|layer_norm[12])\.bias$", r"\1.beta", name)

    def check(self, converted: Tensors, sources: Mapping[str, str], config: Any) -> Tensors:
        """As every family; heads that only file or config have are told with the field that says so."""
        sentences = [key for name, key in sources.items() if name.startswith("cls.seq_relationship.")]
        pooler = [key for name, key in sources.items() if name.startswith("bert.pooler.")]
        if sentences and not config.next_sentence_prediction:
            raise ValueError(
                f"The file has a next-sentence head, {name_some(sentences)}: set `next_sentence_prediction` to true "
                "(the original's `no_nsp` to false)."
            )
        if pooler and not (config.add_pooling_layer or config.next_sentence_prediction):
            raise ValueError(f"The file has a pooler, {name_some(pooler)}: set `add_pooling_layer` to true.")
        if config.next_sentence_prediction and has_part(sources, "cls.") and not sentences:
            raise ValueError(
                "The config has `next_sentence_prediction` and the file no next-sentence head "
                "(`cls.seq_relationship.*`): set the field to false (the original's `no_nsp` to true)."
            )
        return super().check(converted, sources, config)


LAYOUT = SpanBertLayout()
globals().update(functions_of(LAYOUT))
