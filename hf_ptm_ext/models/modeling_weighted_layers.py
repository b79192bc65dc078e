"""Weighted layers: features of any encoder as a learned mixture of all its layers, as ELMo's (Peters et al. 2018).

The encoder is left as it is by default; one number a layer, a scale and the head are trained.
"""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput, logging
from transformers.utils.generic import can_return_tuple

from .base_core import FamilyPreTrainedModel, arguments_of
from .composite_core import CompositeModel, EncoderUser, kept_states
from .configuration_weighted_layers import AUTO_MAP, HF_PTM_EXT_VERSION, WeightedLayersConfig
from .encoder_core import refuse_unknown_arguments
from .mask_contract_core import read_attention_mask, two_dimensional
from .mix_weighted_layers import ScalarMix
from .task_heads_core import QuestionAnsweringHead, SequenceClassificationHead, TokenClassificationHead

logger = logging.get_logger(__name__)


class WeightedLayersPreTrainedModel(CompositeModel, FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all classes."""

    config: WeightedLayersConfig
    config_class = WeightedLayersConfig
    base_model_prefix = "weighted_layers"
    _auto_map = AUTO_MAP
    _has_converter = False
    _code_version = HF_PTM_EXT_VERSION

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ScalarMix):
            init.zeros_(module.weight)
            init.ones_(module.gamma)

    def mix_weights(self) -> dict[int, float]:
        """How much each hidden state counts in the mixture."""
        mix = self.base_model.mix
        shares = mix.weight.detach().float().softmax(0).tolist()
        return dict(zip(self.config.mixed_layers or (), shares, strict=True))

    def regularized(self, loss: torch.Tensor | None) -> torch.Tensor | None:
        """A loss with the mixture's own term, `mix_l2_weight * ||w||^2`."""
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

    def head_output(self, output_class: type[ModelOutput], encoded: Any, **fields: Any) -> Any:
        """What a head returns, with the mixture's own term in the loss."""
        return super().head_output(output_class, encoded, **{**fields, "loss": self.regularized(fields["loss"])})


class WeightedLayersModel(WeightedLayersPreTrainedModel):
    """The encoder and the mixture of its layers.

    Examples:
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
        self.encoder = EncoderUser(config)
        self.mix = ScalarMix(len(config.mixed_layers or ()), config.do_layer_norm, float(config.mix_dropout))
        self.post_init()

    def freeze(self) -> None:
        """Take the gradient from the encoder if the configuration freezes it."""
        self.encoder.freeze()

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
            refuse_unknown_arguments(type(self).__name__, kwargs, arguments_of(type(self)))
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
        inside: Any = self.encoder.model
        if hasattr(inside, "real_words"):  # ELMo, whose padding is known without a mask
            tokens = inside.real_words(input_ids, tokens)
        bounded = tokens is not None and self.encoder.bounded
        counted = inside.bounded(input_ids, tokens)[1] if bounded else tokens
        mixed = self.mix([states[layer] for layer in self.config.mixed_layers or ()], counted)
        if bounded:
            mixed, *states = [inside.without_boundaries(one, tokens) for one in (mixed, *states)]
        return BaseModelOutputWithPooling(
            last_hidden_state=mixed,
            pooler_output=pooled(mixed, tokens, self.config.pooling),
            hidden_states=kept_states(states, self.asked("output_hidden_states", output_hidden_states)),
            attentions=attentions,
        )


def pooled(states: torch.Tensor, attention_mask: torch.Tensor | None, pooling: str) -> torch.Tensor:
    """One vector a text."""
    real = torch.ones_like(states[..., 0]) if attention_mask is None else attention_mask.to(states.dtype)
    if pooling == "mean":
        return torch.einsum("bsh,bs->bh", states, real) / real.sum(1, keepdim=True).clamp(min=1)
    return states[torch.arange(states.shape[0], device=states.device), real.argmax(1)]


class WeightedLayersForSequenceClassification(
    SequenceClassificationHead, WeightedLayersPreTrainedModel, encoder=WeightedLayersModel
):
    """A class for a text, from the mixture's pooled vector."""


class WeightedLayersForTokenClassification(
    TokenClassificationHead, WeightedLayersPreTrainedModel, encoder=WeightedLayersModel
):
    """A class for every token."""


class WeightedLayersForQuestionAnswering(
    QuestionAnsweringHead, WeightedLayersPreTrainedModel, encoder=WeightedLayersModel
):
    """First and last token of an answer."""
