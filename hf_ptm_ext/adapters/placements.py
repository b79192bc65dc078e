"""Where adapters go in each architecture.

Houlsby's act between the dropout of a sub-layer's output and the residual sum: that dropout is wrapped, or the
projection where none follows, whose dropout the wrapper draws. Pfeiffer's need the sum alone: the LayerNorm that takes
it is wrapped, or, where LayerNorms stand in front, the part of the layer that returns it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Targets in one architecture, as regular expressions of module names without what stands in front of a layer.

    Args:
        layer: a layer's name.
        houlsby: modules whose output is a sub-layer's, dropout included; in BART's kind projections.
        pfeiffer: LayerNorms of the feed-forward part, or modules that return the sum.
        dropped_projections: names in a layer of all projections whose output the layer drops by a function, with the
            probability in its attribute `dropout`.
    """

    layer: str
    houlsby: str
    pfeiffer: str
    dropped_projections: tuple[str, ...] = ()


def _in_layer(layer: str, houlsby: str, pfeiffer: str, dropped_projections: tuple[str, ...] = ()) -> Placement:
    """Of names inside a layer; none for Pfeiffer's is the layer itself."""
    inside = rf"{layer}\.{pfeiffer}" if pfeiffer else layer
    return Placement(layer, rf"{layer}\.{houlsby}", inside, dropped_projections)


_BERT_LAYER = (r"(attention\.)?output\.dropout", r"output\.LayerNorm")
_BERT = _in_layer(r"layer\.\d+", *_BERT_LAYER)
# The n-gram encoder beside the text's has layers of the same kind.
_ZEN = _in_layer(r"(layer|word_layers)\.\d+", *_BERT_LAYER)
# The wrapped encoder (RoBERTa, or another of BERT's kind) alone, not the layers of the knowledge adapters beside it.
_COMPOSITE = _in_layer(r"encoder\.model\.encoder\.layer\.\d+", *_BERT_LAYER)
# Inside the bottlenecks, where attention and feed-forward part are; nothing is dropped there.
_IB_BERT = _in_layer(r"layer\.\d+", r"(attention\.output\.dropout|output\.dense)", r"output\.LayerNorm")
_MPNET = _in_layer(r"layer\.\d+", r"(attention|output)\.dropout", r"output\.LayerNorm")
# No dropout follows the attention's projection.
_DISTILBERT = _in_layer(r"layer\.\d+", r"(attention\.out_lin|ffn\.dropout)", "output_layer_norm")
# No dropout follows the feed-forward part.
_ALBERT = _in_layer(
    r"albert_layer_groups\.\d+\.albert_layers\.\d+", r"(attention\.output_dropout|ffn_output)", "full_layer_layer_norm"
)
_MASS = _in_layer(r"layers\.\d+", "(self_attn_dropout|dropout)", "final_layer_norm")
_PROJECTIONS = (r"(self_attn\.out_proj|fc2)", ("self_attn.out_proj", "encoder_attn.out_proj", "fc2"))
_BART = _in_layer(r"layers\.\d+", _PROJECTIONS[0], "final_layer_norm", _PROJECTIONS[1])
_TRANSFO_XL = _in_layer(r"layers\.\d+", r"(dec_attn\.drop|pos_ff\.CoreNet\.4)", r"pos_ff\.layer_norm")
# BART's names with LayerNorms in front: the layer returns the sum.
_MBART = _in_layer(r"layers\.\d+", _PROJECTIONS[0], "", _PROJECTIONS[1])
# Sub-layer 1 of a decoder's block is attention to the source, which gets no adapter.
_T5 = Placement(
    layer=r"block\.\d+",
    houlsby=r"(encoder\.block\.\d+\.layer\.[01]|decoder\.block\.\d+\.layer\.[02])\.dropout",
    pfeiffer=r"(encoder\.block\.\d+\.layer\.1|decoder\.block\.\d+\.layer\.2)",
)

# Families here with BERT's module names, and with BART's.
BERT_LIKE = (
    *("spanbert", "unilm", "ernie_thu", "kbert", "knowbert", "nezha", "zen", "ib_bert"),
    *("k_adapter", "weighted_layers", "ktnet", "san"),
)
BART_LIKE = ("mass", "mass_nmt")

PLACEMENTS = {
    **dict.fromkeys(
        (
            *("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "deberta", "deberta-v2"),
            *("bert-generation", "layoutlm", "roc_bert", "data2vec-text", "rembert", "splinter"),
            *BERT_LIKE,
        ),
        _BERT,
    ),
    "zen": _ZEN,
    **dict.fromkeys(("k_adapter", "weighted_layers", "ktnet"), _COMPOSITE),
    "ib_bert": _IB_BERT,
    "transfo_xl": _TRANSFO_XL,
    "mpnet": _MPNET,
    "distilbert": _DISTILBERT,
    "albert": _ALBERT,
    **dict.fromkeys(("t5", "mt5", "umt5"), _T5),
    **dict.fromkeys(("bart", "plbart", "marian", "blenderbot-small"), _BART),
    **dict.fromkeys(("mbart", "pegasus", "m2m_100", "blenderbot"), _MBART),
    **dict.fromkeys(BART_LIKE, _MASS),
}
