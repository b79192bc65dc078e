"""Where adapters go in each architecture.

A Houlsby adapter acts behind the dropout of a sub-layer's output and in front of the residual sum, so what is wrapped
is that dropout, or the projection where none follows. A Pfeiffer adapter needs the sum h + x alone: the LayerNorm that
takes it is wrapped, or, where LayerNorms stand in front, the part of the layer that returns it.

BART and its kind apply their dropout by a function, so there is nothing behind the projections to wrap: the tuner
wraps every such projection of a layer and lets the wrapper draw the layer's dropout instead.
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


_BERT = Placement(
    layer=r"layer\.\d+",
    houlsby=r"layer\.\d+\.(attention\.)?output\.dropout",
    pfeiffer=r"layer\.\d+\.output\.LayerNorm",
)
# The n-gram encoder beside the text's has layers of the same kind.
_ZEN = Placement(
    layer=r"(layer|word_layers)\.\d+",
    houlsby=r"(layer|word_layers)\.\d+\.(attention\.)?output\.dropout",
    pfeiffer=r"(layer|word_layers)\.\d+\.output\.LayerNorm",
)
_MPNET = Placement(
    layer=r"layer\.\d+",
    houlsby=r"layer\.\d+\.(attention|output)\.dropout",
    pfeiffer=r"layer\.\d+\.output\.LayerNorm",
)
# No dropout follows the attention's projection.
_DISTILBERT = Placement(
    layer=r"layer\.\d+",
    houlsby=r"layer\.\d+\.(attention\.out_lin|ffn\.dropout)",
    pfeiffer=r"layer\.\d+\.output_layer_norm",
)
# No dropout follows the feed-forward part.
_ALBERT = Placement(
    layer=r"albert_layer_groups\.\d+\.albert_layers\.\d+",
    houlsby=r"albert_layer_groups\.\d+\.albert_layers\.\d+\.(attention\.output_dropout|ffn_output)",
    pfeiffer=r"albert_layer_groups\.\d+\.albert_layers\.\d+\.full_layer_layer_norm",
)
_MASS = Placement(
    layer=r"layers\.\d+",
    houlsby=r"layers\.\d+\.(self_attn_dropout|dropout)",
    pfeiffer=r"layers\.\d+\.final_layer_norm",
)
_DROPPED_PROJECTIONS = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
_BART = Placement(
    layer=r"layers\.\d+",
    houlsby=r"layers\.\d+\.(self_attn\.out_proj|fc2)",
    pfeiffer=r"layers\.\d+\.final_layer_norm",
    dropped_projections=_DROPPED_PROJECTIONS,
)
# BART's names with LayerNorms in front: the layer returns the sum.
_MBART = Placement(
    layer=r"layers\.\d+",
    houlsby=r"layers\.\d+\.(self_attn\.out_proj|fc2)",
    pfeiffer=r"layers\.\d+",
    dropped_projections=_DROPPED_PROJECTIONS,
)
# Sub-layer 1 of a decoder's block is attention to the source, which gets no adapter.
_T5 = Placement(
    layer=r"block\.\d+",
    houlsby=r"(encoder\.block\.\d+\.layer\.[01]|decoder\.block\.\d+\.layer\.[02])\.dropout",
    pfeiffer=r"(encoder\.block\.\d+\.layer\.1|decoder\.block\.\d+\.layer\.2)",
)

# The wrapped encoder (RoBERTa, or another of BERT's kind) alone, not the layers of the knowledge adapters beside it.
_COMPOSITE = Placement(
    layer=r"encoder\.model\.encoder\.layer\.\d+",
    houlsby=r"encoder\.model\.encoder\.layer\.\d+\.(attention\.)?output\.dropout",
    pfeiffer=r"encoder\.model\.encoder\.layer\.\d+\.output\.LayerNorm",
)

# Inside the bottlenecks, where attention and feed-forward part are; nothing is dropped there.
_IB_BERT = Placement(
    layer=r"layer\.\d+",
    houlsby=r"layer\.\d+\.(attention\.output\.dropout|output\.dense)",
    pfeiffer=r"layer\.\d+\.output\.LayerNorm",
)

# Families here with BERT's module names, and with BART's.
BERT_LIKE = ("spanbert", "unilm", "ernie_thu", "kbert", "nezha", "zen", "k_adapter", "weighted_layers", "ib_bert")
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
    **dict.fromkeys(("k_adapter", "weighted_layers"), _COMPOSITE),
    "ib_bert": _IB_BERT,
    "mpnet": _MPNET,
    "distilbert": _DISTILBERT,
    "albert": _ALBERT,
    **dict.fromkeys(("t5", "mt5", "umt5"), _T5),
    **dict.fromkeys(("bart", "plbart", "marian", "blenderbot-small"), _BART),
    **dict.fromkeys(("mbart", "pegasus", "m2m_100", "blenderbot"), _MBART),
    **dict.fromkeys(BART_LIKE, _MASS),
}

__all__ = ["BART_LIKE", "BERT_LIKE", "PLACEMENTS", "Placement"]
