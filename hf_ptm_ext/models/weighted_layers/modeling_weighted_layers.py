"""Weighted layers: features of any encoder as a learned mixture of all its layers (feature-based transfer).

ELMo (Peters et al., NAACL 2018) showed that tasks want different layers; its scalar mix (`mix_weighted_layers.py`)
lets a task choose. The encoder is left as it is by default; one number a layer, a scale and the head are trained.
What differs from fine-tuning BERT: no pooler, and the head reads the mixture.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple

from .block_weighted_layers import refuse_unknown_arguments
from .composite_weighted_layers import WeightedLayersComposite, WeightedLayersEncoderUser, kept_states, recorded
from .configuration_weighted_layers import AUTO_MAP, HF_PTM_EXT_VERSION, WeightedLayersConfig
from .heads_weighted_layers import classification_loss, problem_type_loss, span_extraction_loss
from .loading_weighted_layers import WeightedLayersLoading
from .mask_contract_weighted_layers import read_attention_mask, two_dimensional
from .mix_weighted_layers import ScalarMix

logger = logging.get_logger(__name__)


class WeightedLayersPreTrainedModel(WeightedLayersComposite, WeightedLayersLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all classes."""

    config: WeightedLayersConfig
    config_class = WeightedLayersConfig
    base_model_prefix = "weighted_layers"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _supports_attention_backend = True
    _auto_map = AUTO_MAP
    _has_converter = False
    _code_version = HF_PTM_EXT_VERSION

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ScalarMix):
            init.zeros_(module.weight)
            init.ones_(module.gamma)

    def mix_weights(self) -> dict[int, float]:
        """How much each hidden state counts in the mixture.

        Returns:
            Number of the hidden state (0 = embeddings) -> its share; the shares add up to 1.
        """
        mix = self.base_model.mix
        shares = mix.weight.detach().float().softmax(0).tolist()
        return dict(zip(self.config.mixed_layers, shares, strict=True))

    def regularized(self, loss: torch.Tensor | None) -> torch.Tensor | None:
        """A loss with the mixture's own term, `mix_l2_weight * ||w||^2`.

        Args:
            loss: the task's, `None` without targets.

        Returns:
            The sum.
        """
        if not self.config.mix_l2_weight:
            return loss
        if loss is None:
            if self.training and not torch.compiler.is_compiling():
                logger.warning_once(
                    f"`mix_l2_weight` is {self.config.mix_l2_weight}: its term is in the loss that the model makes of "
                    "targets. If the Trainer took the labels out (`label_smoothing_factor`, `compute_loss_func`), "
                    "its own loss lacks the term: return `model.regularized(loss)` in a `compute_loss_func`."
                )
            return None
        return loss + self.config.mix_l2_weight * self.base_model.mix.weight.float().square().sum()


class WeightedLayersModel(WeightedLayersPreTrainedModel):
    """The encoder and the mixture of its layers.

    Args:
        config: the configuration.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import WeightedLayersConfig, WeightedLayersModel
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> model = WeightedLayersModel(WeightedLayersConfig(encoder_config=tiny)).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 32])
        >>> [round(share, 2) for share in model.mix_weights().values()]
        [0.33, 0.33, 0.33]
    """

    def __init__(self, config: WeightedLayersConfig):
        super().__init__(config)
        self.encoder = WeightedLayersEncoderUser(config)
        self.mix = ScalarMix(len(config.mixed_layers), config.do_layer_norm, float(config.mix_dropout))
        self.post_init()

    def freeze(self) -> None:
        """Take the gradient from the encoder if the configuration freezes it."""
        self.encoder.freeze()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.model.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode and mix.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding.
            token_type_ids: `(batch, seq_len)`; left out for encoders that have none.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            output_hidden_states: whether the encoder's states are returned, or which (default: the configuration's).
            output_attentions: whether the encoder's attention weights are returned, with eager attention.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state`, the mixture `(batch, seq_len, hidden)`, and `pooler_output` `(batch, hidden)`, its
            first token or mean by `config.pooling`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`.
            TypeError: a keyword argument that nothing reads.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, MODEL_ARGUMENTS)
        text = inputs_embeds if input_ids is None else input_ids
        if text is not None:
            attention_mask = read_attention_mask(self.config, attention_mask, text)
        states, attentions = self.encoder(
            bool(self.asked("output_attentions", output_attentions)),
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
        )
        # A finished mask of more dimensions goes through to the encoder and says nothing of single tokens.
        tokens = attention_mask if two_dimensional(attention_mask) else None
        mixed = self.mix([states[layer] for layer in self.config.mixed_layers], tokens)
        return BaseModelOutputWithPooling(
            last_hidden_state=mixed,
            pooler_output=pooled(mixed, tokens, self.config.pooling),
            hidden_states=kept_states(states, self.asked("output_hidden_states", output_hidden_states)),
            attentions=attentions,
        )


MODEL_ARGUMENTS = tuple(inspect.signature(WeightedLayersModel.forward).parameters)


def pooled(states: torch.Tensor, attention_mask: torch.Tensor | None, pooling: str) -> torch.Tensor:
    """One vector a text.

    Args:
        states: `(batch, seq_len, hidden)`.
        attention_mask: `(batch, seq_len)`, or `None` for all text.
        pooling: "first" or "mean".

    Returns:
        `(batch, hidden)`; 0 for the mean of a text of padding alone.
    """
    real = torch.ones_like(states[..., 0]) if attention_mask is None else attention_mask.to(states.dtype)
    if pooling == "mean":
        return torch.einsum("bsh,bs->bh", states, real) / real.sum(1, keepdim=True).clamp(min=1)
    return states[torch.arange(states.shape[0], device=states.device), real.argmax(1)]


class WeightedLayersForSequenceClassification(WeightedLayersPreTrainedModel):
    """A class for a text, from the mixture's pooled vector.

    Args:
        config: the configuration.
    """

    def __init__(self, config: WeightedLayersConfig):
        super().__init__(config)
        self.weighted_layers = WeightedLayersModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: as in `WeightedLayersModel`.
            attention_mask: as in `WeightedLayersModel`.
            token_type_ids: as in `WeightedLayersModel`.
            position_ids: as in `WeightedLayersModel`.
            inputs_embeds: as in `WeightedLayersModel`.
            labels: classes `(batch,)`, or numbers; -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `WeightedLayersModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.
        """
        output = self.weighted_layers(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(output.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=self.regularized(loss), logits=logits, **recorded(output))


class WeightedLayersForTokenClassification(WeightedLayersPreTrainedModel):
    """A class for every token.

    Args:
        config: the configuration.
    """

    def __init__(self, config: WeightedLayersConfig):
        super().__init__(config)
        self.weighted_layers = WeightedLayersModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Classify tokens.

        Args:
            input_ids: as in `WeightedLayersModel`.
            attention_mask: as in `WeightedLayersModel`.
            token_type_ids: as in `WeightedLayersModel`.
            position_ids: as in `WeightedLayersModel`.
            inputs_embeds: as in `WeightedLayersModel`.
            labels: `(batch, seq_len)`, -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `WeightedLayersModel`.

        Returns:
            `loss` and `logits` `(batch, seq_len, num_labels)`.
        """
        output = self.weighted_layers(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(output.last_hidden_state))
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=self.regularized(loss), logits=logits, **recorded(output))


class WeightedLayersForQuestionAnswering(WeightedLayersPreTrainedModel):
    """First and last token of an answer.

    Args:
        config: the configuration.
    """

    def __init__(self, config: WeightedLayersConfig):
        super().__init__(config)
        self.weighted_layers = WeightedLayersModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Find answers.

        Args:
            input_ids: as in `WeightedLayersModel`.
            attention_mask: as in `WeightedLayersModel`.
            token_type_ids: as in `WeightedLayersModel`.
            position_ids: as in `WeightedLayersModel`.
            inputs_embeds: as in `WeightedLayersModel`.
            start_positions: `(batch,)`; places outside the row are ignored.
            end_positions: `(batch,)`.
            kwargs: as in `WeightedLayersModel`.

        Returns:
            `loss`, `start_logits` and `end_logits` `(batch, seq_len)`.
        """
        kwargs.pop("num_items_in_batch", None)
        output = self.weighted_layers(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        start_logits, end_logits = self.qa_outputs(output.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_extraction_loss(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringModelOutput(
            loss=self.regularized(loss), start_logits=start_logits, end_logits=end_logits, **recorded(output)
        )


__all__ = [
    "ScalarMix",
    "WeightedLayersForQuestionAnswering",
    "WeightedLayersForSequenceClassification",
    "WeightedLayersForTokenClassification",
    "WeightedLayersModel",
    "WeightedLayersPreTrainedModel",
]
