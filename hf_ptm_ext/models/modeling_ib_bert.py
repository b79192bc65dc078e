"""IB-BERT, MobileBERT's teacher (Sun et al. 2020, https://arxiv.org/abs/2004.02984; code google-research/mobilebert).

A BERT-large whose states are narrow between layers and wide inside them (see `layers_ib_bert.py`), over narrow word
embeddings joined with their neighbours', which neither padding nor another packed sequence is. Its feature maps have
MobileBERT's width and its attention as many heads, so both are handed on layer by layer.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .base_core import FamilyPreTrainedModel, encoder_forward
from .configuration_ib_bert import AUTO_MAP, HF_PTM_EXT_VERSION, IBBertConfig
from .inputs_core import build_attention_mask, checked_positions, has_empty_row
from .layers_ib_bert import IBBertBottleneckAttention, IBBertEmbeddings, IBBertEncoder, IBBertLayer, pooler_of
from .losses_core import PredictionHeadTransform
from .mask_contract_core import read_attention_mask
from .pretraining_core import MlmAndNspHead
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
    VocabularyModel,
)


class IBBertFactorizedHead(nn.Module):
    """The vocabulary head: the first `embedding_size` columns of its matrix are the word embeddings (tied), the others
    a matrix of its own (`cls.predictions.dense`, as in MobileBERT).
    """

    def __init__(self, config: Any):
        super().__init__()
        self.embedding_size = config.embedding_size
        self.transform = PredictionHeadTransform(config)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size)
        own = config.hidden_size - config.embedding_size
        # (own, vocab_size), transposed as MobileBERT has it
        self.dense = nn.Linear(config.vocab_size, own, bias=False) if own else None
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., vocab_size)`."""
        states = self.transform(hidden_states)
        logits = self.decoder(states[..., : self.embedding_size])
        return logits if self.dense is None else logits + states[..., self.embedding_size :] @ self.dense.weight


class IBBertFactorizedModel(VocabularyModel):
    """Mixin in front of the family's base class for models with `cls.predictions`: resizing keeps the own columns."""

    def _resize_token_embeddings(self: Any, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        own = self.cls.predictions.dense
        if own is not None:
            trains = own.weight.requires_grad
            mean_resizing = kwargs.get("mean_resizing", args[2] if len(args) > 2 else True)
            self.cls.predictions.dense = self._get_resized_lm_head(
                own, embeddings.weight.shape[0], transposed=True, mean_resizing=mean_resizing
            ).requires_grad_(trains)
        return embeddings


class IBBertPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all IB-BERT classes."""

    config: IBBertConfig
    config_class = IBBertConfig
    _supports_flash_attn = True
    _no_split_modules = ["IBBertEmbeddings", "IBBertLayer"]
    _can_record_outputs = {"hidden_states": IBBertLayer, "attentions": IBBertBottleneckAttention}
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _example_sizes = "vocab_size=60, hidden_size=32, intra_bottleneck_size=48, num_hidden_layers=2, embedding_size=8"
    _vocabulary_head = IBBertFactorizedHead
    # A DataParallel wrapper's prefix, and the student's, whose embeddings and heads have the same names.
    _legacy_keys = {r"^module\.": "", r"^mobilebert\.": "bert."}


class IBBertModel(IBBertPreTrainedModel):
    """The bare encoder.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import IBBertConfig, IBBertModel
        >>> config = IBBertConfig(
        ...     vocab_size=60, hidden_size=32, intra_bottleneck_size=48, num_hidden_layers=2, embedding_size=8,
        ...     intermediate_size=64
        ... )
        >>> model = IBBertModel(config).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 32])
    """

    def __init__(self, config: IBBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = IBBertEmbeddings(config)
        self.encoder = IBBertEncoder(config)
        self.pooler = pooler_of(config) if add_pooling_layer else None
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
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; a finished one (`mask_contract_core.py`)
                does not say what is padding: `sequence_ids` must.
            inputs_embeds: `(batch, seq_len, embedding_size)` instead of `input_ids`.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        position_ids = checked_positions(self.config, words, position_ids, attention_mask, sequence_ids)
        # Rounds as the reference does in such a row.
        if has_empty_row(self.config, attention_mask, sequence_ids):
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(words, position_ids, token_type_ids, attention_mask, sequence_ids)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        hidden_states = self.encoder(embeddings, mask, **kwargs)
        pooled = self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


class IBBertForPreTraining(IBBertFactorizedModel, MlmAndNspHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with its pre-training heads: masked tokens and next sentence."""


class IBBertForMaskedLM(IBBertFactorizedModel, MaskedLMHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with the masked-language-model head alone."""


class IBBertForNextSentencePrediction(NextSentenceHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with the next-sentence head alone."""


class IBBertForSequenceClassification(SequenceClassificationHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with a classification or regression head on the pooled output."""


class IBBertForTokenClassification(TokenClassificationHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with a classification head on every token."""


class IBBertForQuestionAnswering(QuestionAnsweringHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with start and end logits for extractive question answering; rows hold one sequence each."""


class IBBertForMultipleChoice(MultipleChoiceHead, IBBertPreTrainedModel, encoder=IBBertModel):
    """IB-BERT with one score per choice on the pooled output."""
