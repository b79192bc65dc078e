"""NEZHA (Wei et al. 2019, https://arxiv.org/abs/1909.00204; reference code huawei-noah/Pretrained-Language-Model).

BERT without a table of positions: fixed sinusoids of the distance between two tokens go into every attention score and
into every value (see `relative_nezha.py`). Rows may be longer than any table.
"""

import functools
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .base_core import FamilyPreTrainedModel, encoder_forward
from .configuration_nezha import AUTO_MAP, HF_PTM_EXT_VERSION, NezhaConfig
from .encoder_core import Encoder, Pooler
from .inputs_core import build_attention_mask, embedded_types
from .mask_contract_core import read_attention_mask, two_dimensional
from .pretraining_core import MlmAndNspHead
from .relative_nezha import check_consecutive, relative_attention_forward, relative_encodings
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)


class NezhaEmbeddings(nn.Module):
    """Word and token-type embeddings, LayerNorm and dropout."""

    def __init__(self, config: NezhaConfig):
        super().__init__()
        width = config.embedding_width
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, inputs_embeds: torch.Tensor, token_type_ids: torch.Tensor | None = None) -> torch.Tensor:
        """`(batch, seq_len, hidden)` word embeddings and `(batch, seq_len)` types (`None`: 0) to the first states."""
        types = self.token_type_embeddings
        added = embedded_types(types, token_type_ids, inputs_embeds)
        return self.dropout(self.LayerNorm(inputs_embeds + added))


class NezhaPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all NEZHA classes."""

    config: NezhaConfig
    config_class = NezhaConfig
    _supports_flex_attn = False  # the values depend on the distance, which no kernel of upstream's knows
    _no_split_modules = ["NezhaEmbeddings", "EncoderLayer"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    # A DataParallel wrapper's prefix, transformers 4's prefix.
    _legacy_keys = {r"^module\.": "", r"^nezha\.": "bert."}
    # transformers 4 stored the fixed encodings in every layer, and default token types.
    _keys_to_ignore_on_load_unexpected = [
        r"relative_positions_encoding\.positions_encoding$",
        r"embeddings\.(position_ids|token_type_ids)$",
    ]


class NezhaModel(NezhaPreTrainedModel):
    """The bare encoder.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaModel
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaModel(config).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 32])
    """

    def __init__(self, config: NezhaConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = NezhaEmbeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config) if add_pooling_layer else None
        self.post_init()

    @encoder_forward
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Of its own:
            position_ids: `(batch, seq_len)`; not read, as distances are counted in the row, but refused if they would
                give other distances.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        if position_ids is not None:
            padding = attention_mask if two_dimensional(attention_mask) else None
            check_consecutive(position_ids, padding if sequence_ids is None else sequence_ids)
        embeddings = self.embeddings(words, token_type_ids)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        encodings = relative_encodings(
            embeddings.shape[1],
            self.config.max_relative_position,
            self.config.hidden_size // self.config.num_attention_heads,
            embeddings.dtype,
            embeddings.device,
        )
        attention = functools.partial(relative_attention_forward, relative_encodings=encodings)
        hidden_states, _ = self.encoder(embeddings, mask, attention_function=attention, **kwargs)
        pooled = self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


class NezhaForPreTraining(MlmAndNspHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with its pre-training heads: masked tokens and next sentence."""


class NezhaForMaskedLM(MaskedLMHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with the masked-language-model head alone."""


class NezhaForNextSentencePrediction(NextSentenceHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with the next-sentence head alone."""


class NezhaForSequenceClassification(SequenceClassificationHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with a classification or regression head on the pooled output."""


class NezhaForTokenClassification(TokenClassificationHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with a classification head on every token."""


class NezhaForQuestionAnswering(QuestionAnsweringHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with start and end logits for extractive question answering; rows hold one sequence each."""


class NezhaForMultipleChoice(MultipleChoiceHead, NezhaPreTrainedModel, encoder=NezhaModel):
    """NEZHA with one score per choice on the pooled output."""
