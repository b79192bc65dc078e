"""What MASS-NMT's models return where upstream has no output of that shape."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import BaseModelOutput


@dataclass
class MassNmtEncoderOutput(BaseModelOutput):
    """Output of the encoder: upstream's, and what of the source the decoder may see.

    The mask stands here because `generate` runs the encoder once and forgets its `input_ids`, which tell where [MASK]
    is.

    Args:
        last_hidden_state: `(batch, source_len, hidden)`, zero at padding.
        hidden_states: embeddings and the output of each layer, `(batch, source_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, source_len, source_len)` each, eager attention only.
        cross_attention_mask: `(batch, source_len)` bool, True at real tokens other than [MASK].
    """

    cross_attention_mask: torch.Tensor | None = None
