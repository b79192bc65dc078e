"""What ERNIE-THU's models return: upstream's outputs and the entity stream."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput

from .pretraining_core import PreTrainingOutput


@dataclass
class ErnieThuModelOutput(BaseModelOutputWithPooling):
    """Output of `ErnieThuModel`: upstream's for the text, and the same of the entities.

    Args:
        entity_last_hidden_state: `(batch, seq_len, entity_hidden)`, not zero at positions without an entity, as the
            reference passes it on.
        entity_hidden_states: entity vectors and the entity stream after each layer, with `hidden_states`.
        entity_attentions: of each `norm` layer, `(batch, entity_heads, seq_len, seq_len)` each, with `attentions`.
    """

    entity_last_hidden_state: torch.Tensor | None = None
    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuForPreTrainingOutput(PreTrainingOutput):
    """As `MlmAndNspOutput`, with the entity term and stream.

    Args:
        entity_loss: denoising entity term before its weight, mean over labelled positions.
        entity_logits: `(batch, seq_len, candidates)`; `None` without candidates, and in training unless asked for.
    """

    loss: torch.Tensor | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None
    entity_loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    entity_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class EntityStream:
    """What upstream's outputs lack: `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuMaskedLMOutput(EntityStream, MaskedLMOutput):
    """Upstream's output of the head, with the entity stream."""


@dataclass
class ErnieThuNextSentencePredictorOutput(EntityStream, NextSentencePredictorOutput):
    """Upstream's output of the head, with the entity stream."""


@dataclass
class ErnieThuSequenceClassifierOutput(EntityStream, SequenceClassifierOutput):
    """Upstream's output of the head, with the entity stream."""


@dataclass
class ErnieThuTokenClassifierOutput(EntityStream, TokenClassifierOutput):
    """Upstream's output of the head, with the entity stream."""


@dataclass
class ErnieThuQuestionAnsweringOutput(EntityStream, QuestionAnsweringModelOutput):
    """Upstream's output of the head, with the entity stream."""


@dataclass
class ErnieThuMultipleChoiceOutput(EntityStream, MultipleChoiceModelOutput):
    """Upstream's output of the head, with the entity stream."""


# The output of a head -> the same with the entity stream.
BOTH_STREAMS: dict[type[ModelOutput], type[ModelOutput]] = {
    MaskedLMOutput: ErnieThuMaskedLMOutput,
    NextSentencePredictorOutput: ErnieThuNextSentencePredictorOutput,
    SequenceClassifierOutput: ErnieThuSequenceClassifierOutput,
    TokenClassifierOutput: ErnieThuTokenClassifierOutput,
    QuestionAnsweringModelOutput: ErnieThuQuestionAnsweringOutput,
    MultipleChoiceModelOutput: ErnieThuMultipleChoiceOutput,
}
