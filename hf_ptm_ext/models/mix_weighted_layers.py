"""ELMo's scalar mix (Peters et al., NAACL 2018, equation 1; AllenNLP's `ScalarMix` has the layer dropout).

mix = gamma * sum over k of softmax(w)_k * h_k,   w = 0 and gamma = 1 at the start
"""

from collections.abc import Sequence

import torch
from torch import nn

EPSILON = 1e-12
# What a layer's logit is set to when the layer is left out.
LEFT_OUT = -1e20


class ScalarMix(nn.Module):
    """A learned mixture of layers.

    Args:
        num_layers: number of layers that are mixed.
        do_layer_norm: whether each layer is normalised first (default: no).
        dropout: probability with which a layer is left out in training (default: 0).
        trainable: whether weights and gamma are trained (default: yes).

    Raises:
        ValueError: there is no layer, or `dropout` is no probability.

    Examples:
        >>> mix = ScalarMix(2)
        >>> mix([torch.tensor([[1.0]]), torch.tensor([[3.0]])]).tolist()
        [[2.0]]
    """

    def __init__(self, num_layers: int, do_layer_norm: bool = False, dropout: float = 0.0, trainable: bool = True):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}.")
        if not 0 <= dropout <= 1:
            raise ValueError(f"`dropout` must be a probability in [0, 1], got {dropout}.")
        self.do_layer_norm, self.dropout = do_layer_norm, dropout
        self.weight = nn.Parameter(torch.zeros(num_layers), requires_grad=trainable)
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=trainable)

    def shares(self) -> torch.Tensor:
        """How much each layer counts, `(num_layers,)`; the sum is 1.

        Returns:
            The softmax of the weights, some of them left out in training.
        """
        logits = self.weight.float()
        if self.training and self.dropout:
            logits = logits.masked_fill(torch.rand_like(logits) < self.dropout, LEFT_OUT)
        return logits.softmax(0)

    def forward(self, layers: Sequence[torch.Tensor], mask: torch.Tensor | None = None) -> torch.Tensor:
        """Mix.

        Args:
            layers: `num_layers` tensors `(..., hidden)` of one shape.
            mask: 1 = token, 0 = padding, of the layers' leading shape; read by layer normalisation only.

        Returns:
            `(..., hidden)`.

        Raises:
            ValueError: another number of layers.
        """
        if len(layers) != len(self.weight):
            raise ValueError(f"`layers` must be {len(self.weight)}, got {len(layers)}.")
        shares = self.shares().to(layers[0].dtype)
        parts = [normalized(layer, mask) for layer in layers] if self.do_layer_norm else layers
        return self.gamma.to(layers[0].dtype) * sum(share * part for share, part in zip(shares, parts, strict=True))


def normalized(layer: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean 0 and variance 1 over all tokens that count and the width."""
    values = layer.float()  # sums over a batch leave the range of half precision
    counted = torch.ones_like(values[..., :1]) if mask is None else mask.unsqueeze(-1).float()
    number = (counted.sum() * layer.shape[-1]).clamp(min=1)
    mean = (values * counted).sum() / number
    variance = ((values - mean).square() * counted).sum() / number
    return ((values - mean) / (variance + EPSILON).sqrt()).to(layer.dtype)
