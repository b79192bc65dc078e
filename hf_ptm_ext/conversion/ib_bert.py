"""IB-BERT checkpoints of the original TensorFlow code (google-research/mobilebert), and back.

Names and shapes are those of the code; no published file was there to check with.
"""

import re
from typing import Any

import torch

from ..models.configuration_ib_bert import FIXED, IBBertConfig
from .layout import BERT_SIZES, BUFFERS, DECODER, RENAMES, WORD_EMBEDDINGS, Layout, functions_of
from .tensors import Options, State, Tensors

# Optimisers' variables beside the weights.
STATE = r"(adam|lamb)_[mv]|global_step|beta[12]_power"
# pattern of a key, replacement, what the report calls it
OWN = (r"/extra_output_weights(:0)?$", "/dense/weight", "`extra_output_weights` to `dense`")
PREFIXED = (r"^mobilebert\.", "bert.", "prefix `mobilebert.` to `bert.`")
# TensorFlow's names, back.
TO_TENSORFLOW = (
    (r"\.layer\.(\d+)\.", r".layer_\1."),
    (r"^cls\.predictions\.bias$", "cls/predictions/output_bias"),
    (r"^cls\.predictions\.dense\.weight$", "cls/predictions/extra_output_weights"),
    (r"^cls\.seq_relationship\.(weight|bias)$", r"cls/seq_relationship/output_\1"),
    (r"output_weight$", "output_weights"),
    (r"LayerNorm\.weight$", "LayerNorm.gamma"),
    (r"LayerNorm\.bias$", "LayerNorm.beta"),
    (r"_embeddings\.weight$", "_embeddings"),
    (r"\.weight$", ".kernel"),
    (r"\.", "/"),
)


class IBBertLayout(Layout):
    title, family, prefix = "IB-BERT", "ib_bert", "IBBert"
    config_class = IBBertConfig
    sizes = (*BERT_SIZES, "intra_bottleneck_size")
    fields = (
        *sizes,
        "embedding_size",
        "trigram_input",
        "padding_in_trigrams",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "max_position_embeddings",
        "type_vocab_size",
        "initializer_range",
        "classifier_activation",
        *FIXED,
    )
    own = ("padding_in_trigrams",)
    fixed = tuple(FIXED)
    renames = (OWN, *RENAMES, PREFIXED)
    transposed = r"/(kernel|extra_output_weights)(:0)?$"
    buffers = rf"{BUFFERS}|{STATE}"
    their_mark = "/"
    dimensions = (
        (r".*word_embeddings\.weight|cls\.predictions\.(decoder\.weight|decoder\.bias|bias)", 0, "vocab_size"),
        (r".*word_embeddings\.weight|cls\.predictions\.decoder\.weight", 1, "embedding_size"),
        (r".*position_embeddings\.weight", 0, "max_position_embeddings"),
        (r".*token_type_embeddings\.weight", 0, "type_vocab_size"),
        (r".*\.intermediate\.dense\.(weight|bias)", 0, "intermediate_size"),
        (r".*\.attention\.self\..*|.*bottleneck\.input\..*", 0, "intra_bottleneck_size"),
        (r".*", -1, "hidden_size"),
    )

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        return {**fields, "hidden_act": "gelu_new"} if fields.get("hidden_act") == "gelu" else fields

    def revert_config(self, config: Any) -> dict[str, Any]:
        options = {**super().revert_config(config), "use_bottleneck": True}
        return {**options, "hidden_act": "gelu"} if config.hidden_act == "gelu_new" else options

    def their_name(self, name: str, config: Any) -> str:
        for pattern, replacement in TO_TENSORFLOW:
            name = re.sub(pattern, replacement, name)
        return name

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The original's variables, which never have a copy of the word embeddings."""
        if DECODER in ours and WORD_EMBEDDINGS in ours and not torch.equal(ours[DECODER], ours[WORD_EMBEDDINGS]):
            raise ValueError(
                f"`{DECODER}` differs from `{WORD_EMBEDDINGS}`, to which the original ties it: it would be lost."
            )
        reverted = super().revert_state_dict(ours, config, tied_copies=False)
        kernels = [key for key in reverted if re.search(self.transposed, key)]
        return {**reverted, **{key: reverted[key].t().contiguous() for key in kernels}}


LAYOUT = IBBertLayout()
globals().update(functions_of(LAYOUT))
