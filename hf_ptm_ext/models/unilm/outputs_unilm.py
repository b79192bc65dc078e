"""What UniLM's models return where upstream has no output of that shape."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput


@dataclass
class UniLMModelOutput(BaseModelOutputWithPooling):
    """Output of `UniLMModel`: upstream's, and the cache of generation.

    Args:
        last_hidden_state: `(batch, seq_len, hidden)`.
        pooler_output: `(batch, hidden)` or, packed, `(batch, S, hidden)`; `None` without a pooler.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each, eager attention only.
        cache: keys and values of all tokens fed so far, if a cache was given.
    """

    cache: Cache | None = None


@dataclass
class UniLMForPreTrainingOutput(ModelOutput):
    """Output of `UniLMForPreTraining`.

    `output.logits` and `output["logits"]` are other names of `prediction_logits`, where upstream's code looks for the
    vocabulary logits.

    Args:
        loss: sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens of all modes.
        nsp_loss: next-sentence term, mean over labelled sequences.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`; `None` without the next-sentence head.
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


@dataclass
class UniLMGenerationOutput(ModelOutput):
    """Output of `UniLMForConditionalGeneration`.

    Args:
        loss: fine-tuning loss.
        logits: `(batch, seq_len, vocab_size)`; `None` in training with labels unless asked for.
        cache: keys and values of all tokens fed so far, if a cache was given.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each, eager attention only.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
