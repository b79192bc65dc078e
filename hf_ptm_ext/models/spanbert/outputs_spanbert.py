"""What SpanBERT's models return where upstream has no output of that shape."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput


@dataclass
class SpanBertModelOutput(BaseModelOutputWithPooling):
    """Output of `SpanBertModel`: upstream's, and one inner state.

    Args:
        last_hidden_state: `(batch, seq_len, hidden)`.
        pooler_output: `(batch, hidden)` or, packed, `(batch, S, hidden)`; `None` without a pooler.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each, eager attention only.
        inner_hidden_state: output of `inner_layer`, if one was asked for.
    """

    inner_hidden_state: torch.Tensor | None = None


@dataclass
class SpanBertForPreTrainingOutput(ModelOutput):
    """Output of `SpanBertForPreTraining`.

    `output.logits` and `output["logits"]` are other names of `prediction_logits`, where upstream's code looks for the
    vocabulary logits (label smoothing, losses of one's own). It is no field: keys, values and the tuple hold each
    tensor once.

    Args:
        loss: weighted sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens.
        sbo_loss: span boundary term before its weight, sum over span targets / (their number + 1).
        nsp_loss: next-sentence term, mean over sequences.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        boundary_logits: `(batch, pairs, max_pair_targets, vocab_size)`; `None` without pairs, and in training unless
            asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`; `None` without the next-sentence head.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each, eager attention only.
    """

    loss: torch.Tensor | None = None
    mlm_loss: torch.Tensor | None = None
    sbo_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    boundary_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__("prediction_logits" if key == "logits" else key)

    @property
    def logits(self) -> torch.Tensor | None:
        """`prediction_logits`, under the name that upstream's code reads."""
        return self.prediction_logits
