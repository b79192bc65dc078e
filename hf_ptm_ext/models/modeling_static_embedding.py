"""Static embeddings: word vectors as a model, with a mean over a text (fastText's classifier, Joulin et al. 2017)."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.generic import can_return_tuple

from .composite_core import kept_states
from .configuration_static_embedding import AUTO_MAP, HF_PTM_EXT_VERSION, StaticEmbeddingConfig
from .recurrent_core import RecurrentPreTrainedModel, masked_mean
from .task_heads_core import SequenceClassificationHead, TokenClassificationHead


class StaticEmbeddings(nn.Module):
    """Vectors and, for a weighted mean, weights of words."""

    def __init__(self, config: StaticEmbeddingConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.token_weights = None
        if config.pooling == "idf":
            self.token_weights = nn.Parameter(torch.ones(config.vocab_size))


class StaticEmbeddingPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by all classes."""

    config: StaticEmbeddingConfig
    config_class = StaticEmbeddingConfig
    base_model_prefix = "static_embedding"
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _input_parts = ("embeddings.",)
    _example_sizes = "vocab_size=60, embedding_size=8"

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, StaticEmbeddings) and module.token_weights is not None:
            init.ones_(module.token_weights)

    def _resize_token_embeddings(self, new_num_tokens: int | None, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = self.base_model.embeddings
        resized = super()._resize_token_embeddings(new_num_tokens, *args, **kwargs)
        old = embeddings.token_weights
        if old is not None:
            weights = old.new_ones(len(resized.get_parameter("weight")))
            weights[: len(old)] = old.detach()[: len(weights)]
            embeddings.token_weights = nn.Parameter(weights)
        return resized


class StaticEmbeddingModel(StaticEmbeddingPreTrainedModel):
    """Vectors of words, and of texts.

    Examples:
        >>> from hf_ptm_ext import StaticEmbeddingConfig, StaticEmbeddingModel, WordVectors
        >>> from hf_ptm_ext.data import word_tokenizer
        >>> vectors = WordVectors(["good", "film"], [[1.0, 0.0], [0.0, 1.0]])
        >>> tokenizer = word_tokenizer(vectors.words)
        >>> model = StaticEmbeddingModel(StaticEmbeddingConfig(vocab_size=4, embedding_size=2))
        >>> model = StaticEmbeddingModel.from_word_vectors(vectors, tokenizer)
        >>> model(**tokenizer("good film", return_tensors="pt")).pooler_output.tolist()
        [[0.5, 0.5]]
    """

    def __init__(self, config: StaticEmbeddingConfig):
        super().__init__(config)
        self.embeddings = StaticEmbeddings(config)
        self.post_init()
        self.freeze()

    def freeze(self) -> None:
        """Take the gradient from the vectors if the configuration freezes them."""
        if self.config.freeze_embeddings:
            self.embeddings.word_embeddings.requires_grad_(False)

    @classmethod
    @torch.no_grad()
    def from_word_vectors(cls, vectors: Any, tokenizer: Any, **fields: Any) -> "StaticEmbeddingModel":
        """A model of word vectors.

        Args:
            vectors: `WordVectors`; of fastText, words that have no vector are made of their n-grams.
            tokenizer: Of whole words (`data.word_tokenizer(vectors.words)`), or of others' pieces; those that have no
                vector are zeros.
            fields: Fields of the configuration.

        Raises:
            ValueError: the tokenizer and the vectors share no word.
        """
        sizes = {"vocab_size": len(tokenizer), "embedding_size": vectors.width, "pad_token_id": tokenizer.pad_token_id}
        model = cls(cls.config_class(**{**sizes, **fields})).eval()
        table, vocab = model.embeddings.word_embeddings.weight, tokenizer.get_vocab()
        table.zero_()
        special = set(tokenizer.all_special_tokens)
        unknown = [word for word in vocab if word not in vectors and word not in special]
        if vectors.subwords is not None and unknown:
            table[[vocab[word] for word in unknown]] = torch.from_numpy(vectors.vectors(unknown)).to(table)
        model.set_word_vectors(tokenizer, vectors)
        return model

    @torch.no_grad()
    def fit_idf(self, rows: Iterable[Iterable[int]]) -> None:
        """Set the words' weights to log((1 + texts) / (1 + texts with the word)) + 1, of texts as rows of ids."""
        if self.embeddings.token_weights is None:
            raise ValueError(f"`config.pooling` must be 'idf', got {self.config.pooling!r}.")
        texts, counts = 0, Counter[int]()
        for row in rows:
            texts += 1
            counts.update({int(number) for number in row})
        found = torch.tensor([1.0 + counts[number] for number in range(self.config.vocab_size)])
        self.embeddings.token_weights.copy_(((1 + texts) / found).log() + 1)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Look up.

        Args:
            input_ids: `(batch, seq_len)` words.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding (default: no padding).
            inputs_embeds: `(batch, seq_len, embedding_size)` vectors instead; every word counts alike then.
            output_hidden_states: whether the vectors are also returned as the only hidden state.
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, embedding_size)`, 0 at padding, and `pooler_output`, the texts'.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, or attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        real = self.checked(words, attention_mask, output_attentions, kwargs)
        states = words * real[..., None].to(words.dtype)
        weights: torch.Tensor = real.to(words.dtype)
        if self.embeddings.token_weights is not None and input_ids is not None:
            weights = weights * self.embeddings.token_weights[input_ids]
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=masked_mean(states, weights),
            hidden_states=kept_states((states,), wanted),
        )


class StaticEmbeddingForSequenceClassification(
    SequenceClassificationHead, StaticEmbeddingPreTrainedModel, encoder=StaticEmbeddingModel
):
    """Word vectors with a classification or regression head on the text's vector."""


class StaticEmbeddingForTokenClassification(
    TokenClassificationHead, StaticEmbeddingPreTrainedModel, encoder=StaticEmbeddingModel
):
    """Word vectors with a classification head on every word."""
