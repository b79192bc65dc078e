"""What K-BERT's pre-training model returns, where upstream has no output of that shape."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.utils import ModelOutput


@dataclass
class KBertForPreTrainingOutput(ModelOutput):
    """Output of `KBertForPreTraining`.

    `output.logits` and `output["logits"]` are other names of `prediction_logits`, where upstream's code looks for the
    vocabulary logits (label smoothing, losses of one's own). It is no field: keys, values and the tuple hold each
    tensor once.

    Args:
        loss: sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens.
        nsp_loss: next-sentence term, mean over labelled sequences.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each, eager attention only.
    """

    loss: torch.Tensor | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__("prediction_logits" if key == "logits" else key)

    @property
    def logits(self) -> torch.Tensor | None:
        """`prediction_logits`, under the name that upstream's code reads."""
        return self.prediction_logits
