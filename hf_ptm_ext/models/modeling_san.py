"""An encoder under MT-DNN's stochastic answer network, see `answers_san.py`: a class for a pair of texts."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from .answers_san import StochasticAnswerHead
from .base_core import FamilyPreTrainedModel
from .composite_core import AroundEncoder, without_pooler
from .configuration_san import AUTO_MAP, HF_PTM_EXT_VERSION, SanConfig
from .losses_core import problem_type_loss


class SanPreTrainedModel(AroundEncoder, FamilyPreTrainedModel):
    """Loading, saving and initialisation; the encoder is the base model itself, which tasks may share."""

    config: SanConfig
    config_class = SanConfig
    base_model_prefix = "encoder"
    _auto_map = AUTO_MAP
    _has_converter = False
    _code_version = HF_PTM_EXT_VERSION

    def _init_weights(self, module: nn.Module) -> None:
        """torch's own initialisation of both kinds of layers."""
        if isinstance(module, nn.Linear | nn.GRUCell):
            width = module.in_features if isinstance(module, nn.Linear) else module.hidden_size
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -(width**-0.5), width**-0.5)


class SanForSequenceClassification(SanPreTrainedModel):
    """A class or a number for a pair of texts, which are told apart by `token_type_ids`.

    `from_encoder(CHECKPOINT, num_labels=...)` begins with a trained encoder.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import SanConfig, SanForSequenceClassification
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> model = SanForSequenceClassification(SanConfig(encoder_config=tiny, num_labels=3))
        >>> ids, segments = torch.tensor([[2, 5, 3, 6, 3]]), torch.tensor([[0, 0, 0, 1, 1]])
        >>> model(input_ids=ids, token_type_ids=segments, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, config: SanConfig):
        super().__init__(config)
        self.encoder = without_pooler(config.encoder_config)
        labels: Any = config.num_labels
        self.classifier = StochasticAnswerHead(
            config.hidden_size, labels, config.turns, config.turn_dropout, config.classifier_dropout
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Classify pairs.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding.
            token_type_ids: 0 = first text, 1 = second, `(batch, seq_len)`.
            labels: classes, or numbers for regression, `(batch,)`; -100 ignored.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            num_items_in_batch: labels over all micro-batches of an update.
            output_hidden_states: whether the encoder's states are returned.
            output_attentions: whether the encoder's attention weights are returned, with eager attention.

        Returns:
            `loss` if there are labels, and `logits` `(batch, num_labels)`.

        Raises:
            ValueError: a row has no second text.
        """
        if token_type_ids is None or not bool((token_type_ids == 1).any(dim=-1).all()):
            raise ValueError(
                f"`token_type_ids` must mark a second text by 1 in every row, got {token_type_ids}: it is on pairs."
            )
        encoded = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            output_hidden_states=self.asked("output_hidden_states", output_hidden_states),
            output_attentions=self.asked("output_attentions", output_attentions),
            return_dict=True,
        )
        real = torch.ones_like(token_type_ids) if attention_mask is None else attention_mask
        first, second = ((token_type_ids == number) & real.bool() for number in (0, 1))
        logits = self.classifier(encoded.last_hidden_state, first, second)
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, encoded, loss=loss, logits=logits)
