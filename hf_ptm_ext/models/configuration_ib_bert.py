"""IB-BERT configuration: BERT's fields, the narrow states between layers and the wide ones inside them."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_ib_bert.IBBertConfig",
    "AutoModel": "modeling_ib_bert.IBBertModel",
    "AutoModelForPreTraining": "modeling_ib_bert.IBBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_ib_bert.IBBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_ib_bert.IBBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_ib_bert.IBBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_ib_bert.IBBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_ib_bert.IBBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_ib_bert.IBBertForMultipleChoice",
}
# What the original's config may say of a layer, and what it says of IB-BERT's: anything else is MobileBERT or BERT.
FIXED = {
    "use_bottleneck": True,
    "use_bottleneck_attention": False,
    "key_query_shared_bottleneck": False,
    "num_feedforward_networks": 1,
    "normalization_type": "layer_norm",
}


@strict
class IBBertConfig(BertFamilyConfig):
    """Configuration of IB-BERT, MobileBERT's teacher (Sun et al. 2020, https://arxiv.org/abs/2004.02984).

    Defaults are those of `uncased_L-24_H-1024_B-512_A-4.json` in google-research/mobilebert. Fields not listed are
    BERT's.

    Args:
        hidden_size: width of the states between layers, MobileBERT's too (default 512).
        intra_bottleneck_size: width inside a layer, attention's and the residual's (default 1024).
        intermediate_size: width of the feed-forward expansion (default 4096).
        num_attention_heads: number of heads, MobileBERT's too (default 4).
        embedding_size: width of the word embeddings (default 128).
        trigram_input: whether each token's embedding is joined with those of its two neighbours before it is brought
            to `hidden_size` (default True).
        padding_in_trigrams: whether padding beside a token counts as a neighbour, as in the reference, so that a row's
            last token depends on how far the row was padded (default False: beyond a text's ends there is nothing).
        hidden_act: activation (default `gelu_new`: the reference's gelu is the tanh approximation).
        classifier_activation: whether the pooler has a dense layer and tanh (default True), or is the first state.

    Examples:
        >>> from hf_ptm_ext import IBBertConfig
        >>> config = IBBertConfig()
        >>> config.hidden_size, config.intra_bottleneck_size
        (512, 1024)
    """

    model_type = "ib_bert"
    _reads_bert = False
    _called = "an IB-BERT"
    _fixed = {"is_decoder": False, "num_hidden_groups": None, **FIXED}

    hidden_size: int = 512
    intra_bottleneck_size: int = 1024
    num_hidden_layers: int = 24
    num_attention_heads: int = 4
    intermediate_size: int = 4096
    embedding_size: int = 128
    trigram_input: bool = True
    padding_in_trigrams: bool = False
    hidden_act: str = "gelu_new"
    classifier_activation: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.intra_bottleneck_size % self.num_attention_heads:
            raise ValueError(
                "`intra_bottleneck_size` must be a multiple of `num_attention_heads`, got "
                f"{self.intra_bottleneck_size} and {self.num_attention_heads}."
            )
        if not 1 <= self.embedding_size <= self.hidden_size:
            raise ValueError(
                f"`embedding_size` must be in [1, `hidden_size` = {self.hidden_size}], got {self.embedding_size}."
            )
