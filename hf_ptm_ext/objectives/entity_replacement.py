"""WKLM's entity-replacement objective (Xiong et al., ICLR 2020, https://arxiv.org/abs/1912.09637).

Some entity mentions of a text are replaced by the name of another entity of the same type. A classifier reads the
states around each mention and says whether the mention is the original:

    p(original) = softmax( W dropout([h(position before), h(position after)]) + b )
    loss        = mlm_loss + entity_loss          entity_loss: mean cross entropy over mentions

h is what the vocabulary projection reads (after the masked-LM head's dense layer, activation and LayerNorm), as in the
code at https://github.com/xwhan/fairseq-wklm. Fine-tuned models are plain BERT: the classifier is left behind.
"""

import torch

from .token_losses import label_smoothed_loss

ORIGINAL, REPLACED = 1, 0


def boundary_states(states: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """Concatenate the states of the tokens before and after each mention.

    Args:
        states: `(batch, seq_len, hidden)`.
        start: first token of each mention, `(batch, mentions)`; padding mentions may hold anything in the row.
        end: the token behind its last one, `(batch, mentions)`.

    Returns:
        `(batch, mentions, 2 * hidden)`: before, after. Positions outside the row are moved to its ends.

    Examples:
        >>> states = torch.arange(5.0).reshape(1, 5, 1)
        >>> boundary_states(states, torch.tensor([[1]]), torch.tensor([[3]]))
        tensor([[[0., 3.]]])
    """
    last = states.shape[1] - 1
    rows = torch.arange(len(states), device=states.device).unsqueeze(1)
    before, after = (start - 1).clamp(0, last), end.clamp(0, last)
    return torch.cat([states[rows, before], states[rows, after]], dim=-1)


def entity_replacement_loss(
    logits: torch.Tensor, entity_labels: torch.Tensor, num_mentions: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean cross entropy over real mentions.

    Args:
        logits: `(batch, mentions, 2)`.
        entity_labels: 1 = original, 0 = replaced, -100 = padding, `(batch, mentions)`.
        num_mentions: mentions over all micro-batches of an update (default: those of this batch).

    Returns:
        A scalar; 0 with a gradient graph if there is no mention.

    Examples:
        >>> entity_replacement_loss(torch.zeros(1, 2, 2), torch.tensor([[1, -100]])).item()  # log 2
        0.6931471824645996
    """
    return label_smoothed_loss(logits, entity_labels, num_mentions)
