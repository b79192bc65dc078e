"""Static embeddings' configuration: the table's size and how a text's vector is made of its words'."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import WordFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_static_embedding.StaticEmbeddingConfig",
    "AutoModel": "modeling_static_embedding.StaticEmbeddingModel",
    "AutoModelForSequenceClassification": "modeling_static_embedding.StaticEmbeddingForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_static_embedding.StaticEmbeddingForTokenClassification",
}
POOLINGS = ("mean", "idf")


@strict
class StaticEmbeddingConfig(WordFamilyConfig):
    """Configuration of word vectors as a model (word2vec: Mikolov et al. 2013, https://arxiv.org/abs/1301.3781).

    Args:
        vocab_size: number of words (default 30522).
        embedding_size: width of the vectors (default 300).
        pooling: how a text's vector is made: `mean` (default) of its words, or `idf`, their mean by one trained weight
            a word, which begins at 1 or at its inverse document frequency (`fit_idf`).
        freeze_embeddings: whether the vectors stay as they are (default False: as fastText's classifier).
        classifier_dropout: dropout in front of the heads (default 0.1).
        initializer_range: standard deviation of new vectors and heads (default 0.1).
        pad_token_id: the padding word (default 0).

    Examples:
        >>> from hf_ptm_ext import StaticEmbeddingConfig
        >>> StaticEmbeddingConfig(embedding_size=50).hidden_size
        50
    """

    model_type = "static_embedding"

    pooling: str = "mean"
    freeze_embeddings: bool = False
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.pooling not in POOLINGS:
            raise ValueError(f"`pooling` must be one of {', '.join(POOLINGS)}, got {self.pooling!r}.")

    @property
    def hidden_size(self) -> int:
        """Width of a word's and of a text's vector."""
        return self.embedding_size
