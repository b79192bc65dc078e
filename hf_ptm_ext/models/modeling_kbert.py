"""K-BERT (Liu et al. 2020, https://arxiv.org/abs/1909.07606; reference code autoliuweijie/K-BERT).

BERT whose input is a tree: objects of a knowledge graph hang as branches on the words they belong to, by soft
positions and a visible matrix (see `visibility_kbert.py`). There is no new weight; without `word_index` and
`branch_id` it is BERT, bit for bit. Where paper and released code differ, the code is followed: all tokens of a word
see its branches, not the last one alone. What the original does otherwise, in LayerNorm and on padding, are switches
of the config.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .base_core import FamilyPreTrainedModel, encoder_forward
from .configuration_kbert import AUTO_MAP, HF_PTM_EXT_VERSION, KBertConfig
from .encoder_core import Encoder, Pooler
from .inputs_core import Embeddings, first_token_states
from .mask_contract_core import read_attention_mask
from .pretraining_core import MlmAndNspHead
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)
from .visibility_kbert import SentenceTree

UER_EPSILON = 1e-6


class KBertUerLayerNorm(nn.LayerNorm):
    """UER's LayerNorm: gamma * (x - mean) / (s + 1e-6) + beta, with the unbiased standard deviation s.

    `nn.LayerNorm` divides by the biased one and has its epsilon under the root: up to epsilon the two are the same
    function if gamma is multiplied by sqrt((N - 1) / N).
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., hidden)`."""
        std, mean = torch.std_mean(hidden_states, dim=-1, keepdim=True)
        return self.weight * (hidden_states - mean) / (std + UER_EPSILON) + self.bias


def use_uer_layer_norm(model: nn.Module) -> None:
    """Put UER's LayerNorm in the place of every plain one."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is nn.LayerNorm:
                norm = KBertUerLayerNorm(child.normalized_shape, device="meta")
                norm.weight, norm.bias = child.weight, child.bias
                setattr(module, name, norm)


class KBertPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all K-BERT classes."""

    config: KBertConfig
    config_class = KBertConfig
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION

    def post_init(self) -> None:
        """As upstream; the config decides which LayerNorm the modules have."""
        self.config.check_choices()
        if self.config.layer_norm_style == "uer":
            use_uer_layer_norm(self)
        super().post_init()


class KBertModel(KBertPreTrainedModel):
    """The bare encoder: BERT's, with knowledge as branches and packed rows.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler; `None` (default) reads `config.add_pooling_layer`.
        pooling: what the pooler is fed with; `None` (default) reads `config.pooling`.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertModel
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = KBertModel(config).eval()
        >>> output = model(
        ...     torch.tensor([[2, 7, 20, 21, 8, 3]]),  # 20 21 is what a graph knows about 7
        ...     word_index=torch.tensor([[0, 1, 1, 1, 2, 3]]),
        ...     branch_id=torch.tensor([[0, 0, 1, 1, 0, 0]]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 6, 32])
    """

    def __init__(self, config: KBertConfig, add_pooling_layer: bool | None = None, pooling: str | None = None):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        with_pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = Pooler(config) if with_pooler else None
        self._pooling = pooling
        self.post_init()

    @encoder_forward
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Of its own:
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; may be left out with knowledge, whose -1 says the
                same. Other forms in `mask_contract_core.py`.
            token_type_ids: `(batch, seq_len)`; `config.first_token_type_id` if left out.
            position_ids: `(batch, seq_len)`; if left out, counted along the tree with knowledge, else from the first
                real token, per sequence.
            word_index: `(batch, seq_len)` word of the trunk that each token belongs to or hangs on, -1 on padding.
            branch_id: `(batch, seq_len)` 0 on the trunk, another number for each branch of a word, -1 on padding.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        text = SentenceTree(words.shape[:2], word_index, branch_id, attention_mask, sequence_ids)
        position_ids = text.position_ids(self.config, words, position_ids)
        token_type_ids = text.token_types(self.config, words, token_type_ids)
        # Rounds as the reference does, see the tops of `visibility_kbert.py` and `inputs_core.py`.
        tree, plain = text.attention(self.config)
        if plain:
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(words, position_ids, token_type_ids, types_last=plain)
        mask = text.mask(self.config, embeddings, tree)
        hidden_states, _ = self.encoder(embeddings, mask, **kwargs)
        pooled = None
        if self.pooler is not None:
            pooling = self.config.pooling if self._pooling is None else self._pooling
            pooled = self.pooler(pooled_states(pooling, self.config, hidden_states, text, num_sequences))
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


def pooled_states(
    pooling: str, config: Any, states: torch.Tensor, text: SentenceTree, num_sequences: int | None
) -> torch.Tensor:
    """Pool `"first"`, `"mean"`, `"max"` (over all tokens, knowledge included) or `"last"`, the last token of the
    trunk.

    Under `reference_padding` rows that are not packed are pooled with their padding, and the last token is the row's.
    """
    if pooling == "first":
        return first_token_states(states, text.real, text.sequence_ids, num_sequences)
    real, trunk = text.real, None if text.branches is None else text.branches == 0
    if text.sequence_ids is not None:
        return _pool(pooling, states, sequence_members(text.sequence_ids, real, num_sequences), trunk)
    if config.reference_padding:
        real = trunk = None
    if real is None:
        real = torch.ones_like(states[..., 0], dtype=torch.bool)
    return _pool(pooling, states, real[:, None], trunk)[:, 0]


def sequence_members(sequence_ids: torch.Tensor, real: torch.Tensor | None, num_sequences: int | None) -> torch.Tensor:
    """Which tokens belong to each packed sequence."""
    if num_sequences is None:
        num_sequences = max(int(sequence_ids.max()), 1)
    numbers = torch.arange(1, num_sequences + 1, device=sequence_ids.device)
    members = sequence_ids[:, None, :] == numbers[None, :, None]
    return members if real is None else members & real[:, None]


def _pool(pooling: str, states: torch.Tensor, members: torch.Tensor, trunk: torch.Tensor | None) -> torch.Tensor:
    """`(batch, S, hidden)` from states and `(batch, S, seq_len)` members."""
    if pooling == "mean":
        weights = members.to(states.dtype)
        return weights @ states / weights.sum(dim=-1, keepdim=True).clamp(min=1)
    if pooling == "max":
        lowest = torch.finfo(states.dtype).min
        highest = [states.masked_fill(~one[..., None], lowest).amax(dim=1) for one in members.unbind(1)]
        return torch.stack(highest, dim=1).masked_fill(~members.any(dim=-1, keepdim=True), 0.0)
    if trunk is not None:
        members = members & trunk[:, None]
    places = torch.arange(states.shape[1], device=states.device)
    last = torch.where(members, places, 0).amax(dim=-1)
    return states.gather(1, last[..., None].expand(-1, -1, states.shape[-1]))


class KBertForPreTraining(MlmAndNspHead, KBertPreTrainedModel, encoder=KBertModel):
    """K-BERT with the pre-training heads of its encoder: masked tokens and the next sentence."""

    def new_encoder(self, config: KBertConfig, pooled: bool) -> KBertModel:
        """Its next-sentence head is trained on the first token, whatever a classifier pools."""
        return KBertModel(config, add_pooling_layer=True, pooling="first")


class KBertForMaskedLM(MaskedLMHead, KBertPreTrainedModel, encoder=KBertModel):
    """K-BERT with the masked-language-model head alone."""


class KBertForSequenceClassification(SequenceClassificationHead, KBertPreTrainedModel, encoder=KBertModel):
    """K-BERT with a classification or regression head on the pooled output (`config.pooling`).

    As in BERT the pooled state goes through the pooler, which a BERT checkpoint brings along trained; in the reference
    that layer is new, and there is no dropout behind it (`classifier_dropout=0.0`).
    """


class KBertForTokenClassification(TokenClassificationHead, KBertPreTrainedModel, encoder=KBertModel):
    """K-BERT with a classification head on every token; label knowledge -100, or with a class of its own."""

    def tagging_loss(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor:
        if labels.shape != logits.shape[:-1]:
            raise ValueError(
                f"`labels` must have a class for each token, those of knowledge too, {tuple(logits.shape[:-1])}, got "
                f"{tuple(labels.shape)}. Let the tokenizer make them (`word_labels`), or place them by `word_ids()`."
            )
        return super().tagging_loss(logits, labels, num_items_in_batch)


class KBertForQuestionAnswering(QuestionAnsweringHead, KBertPreTrainedModel, encoder=KBertModel):
    """K-BERT with start and end logits for extractive question answering; rows hold one sequence each.

    Tokens of knowledge have logits like all others: look for an answer on the trunk, where `branch_id` is 0.
    """


class KBertForMultipleChoice(MultipleChoiceHead, KBertPreTrainedModel, encoder=KBertModel):
    """K-BERT with one score per choice on the pooled output."""
