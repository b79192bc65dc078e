"""ZEN (Diao et al. 2019, https://arxiv.org/abs/1911.00720; reference code sinovation/ZEN).

A character BERT beside a second, smaller encoder of the n-grams that a lexicon finds in the text; after each layer a
token gets the states of the n-grams around it (see `ngrams_zen.py`). A text without any is BERT of the same weights.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.output_capturing import OutputRecorder

from .base_core import FamilyPreTrainedModel, by_depth, encoder_forward
from .configuration_zen import AUTO_MAP, HF_PTM_EXT_VERSION, ZenConfig
from .encoder_core import Pooler, SelfAttention
from .inputs_core import Embeddings, build_attention_mask, checked_positions, has_empty_row
from .mask_contract_core import read_attention_mask, refuse_learnt_tokens
from .ngrams_zen import (
    ZenNgramEmbeddings,
    ZenNgramEncoder,
    ZenTextLayer,
    build_ngram_mask,
    check_ngrams,
    ngram_membership,
)
from .pretraining_core import MlmAndNspHead
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)


def _ask_for_gradient(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
    output.requires_grad_(True)


class ZenPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all ZEN classes."""

    config: ZenConfig
    config_class = ZenConfig
    _supports_flash_attn = True
    _no_split_modules = ["Embeddings", "ZenNgramEmbeddings", "EncoderLayer", "ZenTextLayer"]
    _can_record_outputs = {
        "hidden_states": by_depth(ZenTextLayer),
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="layer"),
    }
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _example_sizes = FamilyPreTrainedModel._example_sizes + ", word_vocab_size=9"
    _layer_stacks = ("encoder.layer", "encoder.word_layers")
    _input_parts = ("embeddings.", "word_embeddings.", "encoder.embedding_hidden_mapping_in.")
    _added_parts = {r"^(bert\.)?(encoder\.word_layers|word_embeddings)\.": "n-gram encoder"}

    def enable_input_require_grads(self) -> None:
        """Of the n-grams too: a reentrant checkpoint has no gradient if nothing that goes in asks for one."""
        super().enable_input_require_grads()
        for module in self.modules():
            if isinstance(module, ZenNgramEmbeddings):
                self._require_grads_hooks.append(module.register_forward_hook(_ask_for_gradient))


class ZenModel(ZenPreTrainedModel):
    """The bare encoder of text and n-grams.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenModel
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = ZenModel(config).eval()
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 9, 3]]),
        ...     ngram_ids=torch.tensor([[5, 6]]),  # of the tokens 7 8, and of 7 8 9
        ...     ngram_positions=torch.tensor([[1, 1]]),
        ...     ngram_lengths=torch.tensor([[2, 3]]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 5, 32])
    """

    def __init__(self, config: ZenConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.word_embeddings = ZenNgramEmbeddings(config)
        self.encoder = ZenNgramEncoder(config)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Of its own:
            ngram_ids: `(batch, ngrams)` lines of the lexicon, 0 = padding; without it a text has no n-grams.
            ngram_positions: `(batch, ngrams)` place in the row of each n-gram's first token.
            ngram_lengths: `(batch, ngrams)` number of tokens of each n-gram, 0 = padding.
            ngram_attention_mask: `(batch, ngrams)`, 0 where other n-grams do not see it; 0 on padding if left out.
            ngram_token_type_ids: `(batch, ngrams)`; type 0 if left out.
            ngram_position_matrix: `(batch, seq_len, ngrams)`, the reference's form of the places: 1 where a token is
                part of an n-gram. Instead of `ngram_positions` and `ngram_lengths`.
            kwargs: `output_hidden_states`, `output_attentions` (of the text), `return_dict` as upstream; others are
                refused.
        """
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, ngram_positions=ngram_positions)
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        position_ids = checked_positions(self.config, words, position_ids, attention_mask, sequence_ids)
        input_shape = words.shape[:2]
        check_ngrams(
            self.config,
            input_shape,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
        )
        # Rounds as the reference does, see the top of `inputs_core.py`.
        empty_row = has_empty_row(self.config, attention_mask, sequence_ids)
        embeddings = self.embeddings(words, position_ids, token_type_ids, types_last=empty_row)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)

        if ngram_ids is None or not ngram_ids.shape[1]:
            # One n-gram of padding, of which no token is part: the graph is the same, and so are distributed steps.
            ngram_ids = ngram_positions = ngram_lengths = position_ids.new_zeros(input_shape[0], 1)
            ngram_attention_mask = ngram_token_type_ids = ngram_position_matrix = None
        ngram_states = self.word_embeddings(ngram_ids, ngram_token_type_ids)
        membership = ngram_membership(
            input_shape[1], ngram_positions, ngram_lengths, ngram_position_matrix, ngram_states.dtype
        )
        ngram_mask = build_ngram_mask(ngram_states, ngram_ids, ngram_attention_mask, membership, sequence_ids)

        hidden_states = self.encoder(
            embeddings, ngram_states, membership, mask, ngram_mask, plain_attention=empty_row, **kwargs
        )
        pooled = self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


class ZenForPreTraining(MlmAndNspHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with its pre-training heads: masked tokens and next sentence."""


class ZenForMaskedLM(MaskedLMHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with the masked-language-model head alone."""


class ZenForNextSentencePrediction(NextSentenceHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with the next-sentence head alone."""


class ZenForSequenceClassification(SequenceClassificationHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with a classification or regression head on the pooled output."""


class ZenForTokenClassification(TokenClassificationHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with a classification head on every token."""


class ZenForQuestionAnswering(QuestionAnsweringHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with start and end logits for extractive question answering; rows hold one sequence each."""


class ZenForMultipleChoice(MultipleChoiceHead, ZenPreTrainedModel, encoder=ZenModel):
    """ZEN with one score per choice on the pooled output."""
