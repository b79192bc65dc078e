"""What ERNIE-THU's models return: upstream's outputs and the entity stream."""

from dataclasses import dataclass
from typing import Any

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


@dataclass
class ErnieThuModelOutput(BaseModelOutputWithPooling):
    """Output of `ErnieThuModel`.

    Entity states are as the reference passes them on: at positions without an entity they are not zero. Multiply by
    the entity mask where that matters.

    Args:
        last_hidden_state: text, `(batch, seq_len, hidden)`.
        pooler_output: `(batch, hidden)` or, packed, `(batch, S, hidden)`; `None` without a pooler.
        hidden_states: embeddings and the text of each layer, `(batch, seq_len, hidden)` each.
        attentions: text attention of each layer, `(batch, heads, seq_len, seq_len)` each, eager attention only.
        entity_last_hidden_state: `(batch, seq_len, entity_hidden)`.
        entity_hidden_states: entity vectors and the entity stream after each layer, with `hidden_states`.
        entity_attentions: entity attention of each `norm` layer, `(batch, entity_heads, seq_len, seq_len)` each, with
            `attentions`.
    """

    entity_last_hidden_state: torch.Tensor | None = None
    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuForPreTrainingOutput(ModelOutput):
    """Output of `ErnieThuForPreTraining`.

    `output.logits` and `output["logits"]` are other names of `prediction_logits`, where upstream's code looks for the
    vocabulary logits (label smoothing, losses of one's own). It is no field: keys, values and the tuple hold each
    tensor once.

    Args:
        loss: weighted sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens.
        nsp_loss: next-sentence term, mean over sequences.
        entity_loss: denoising entity term before its weight, mean over labelled positions.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`.
        entity_logits: `(batch, seq_len, candidates)`; `None` without candidates, and in training unless asked for.
        hidden_states: as in `ErnieThuModelOutput`, like all that follow.
        attentions: text attention of each layer.
        entity_hidden_states: entity vectors and the entity stream after each layer.
        entity_attentions: entity attention of each `norm` layer.
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

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__("prediction_logits" if key == "logits" else key)

    @property
    def logits(self) -> torch.Tensor | None:
        """`prediction_logits`, under the name that upstream's code reads."""
        return self.prediction_logits


@dataclass
class ErnieThuMaskedLMOutput(MaskedLMOutput):
    """Upstream's output with `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuNextSentencePredictorOutput(NextSentencePredictorOutput):
    """Upstream's output with `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuSequenceClassifierOutput(SequenceClassifierOutput):
    """Upstream's output with `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuTokenClassifierOutput(TokenClassifierOutput):
    """Upstream's output with `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    """Upstream's output with `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class ErnieThuMultipleChoiceOutput(MultipleChoiceModelOutput):
    """Upstream's output with `entity_hidden_states` and `entity_attentions`, see `ErnieThuModelOutput`."""

    entity_hidden_states: tuple[torch.Tensor, ...] | None = None
    entity_attentions: tuple[torch.Tensor, ...] | None = None
