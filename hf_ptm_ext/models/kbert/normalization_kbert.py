"""UER's LayerNorm: gamma * (x - mean) / (s + 1e-6) + beta, with the unbiased standard deviation s.

`nn.LayerNorm` divides by the biased one (N instead of N - 1) and has its epsilon under the root. Up to epsilon the two
are the same function if gamma is multiplied by sqrt((N - 1) / N); at a width of 768 the factor is 0.99935.
"""

import torch
from torch import nn

UER_EPSILON = 1e-6


class KBertUerLayerNorm(nn.LayerNorm):
    """LayerNorm as UER-py and K-BERT compute it; its parameters have the names of `nn.LayerNorm`'s.

    Example:
        >>> import torch
        >>> norm = KBertUerLayerNorm(2)
        >>> norm(torch.tensor([[1.0, 3.0]])).detach()  # nn.LayerNorm: -1 and 1
        tensor([[-0.7071,  0.7071]])
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden)` to `(..., hidden)`."""
        std, mean = torch.std_mean(hidden_states, dim=-1, keepdim=True)
        return self.weight * (hidden_states - mean) / (std + UER_EPSILON) + self.bias


def use_uer_layer_norm(model: nn.Module) -> None:
    """Put UER's LayerNorm in the place of every plain one.

    Args:
        model: changed in place; its parameters stay the same objects.
    """
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is nn.LayerNorm:
                norm = KBertUerLayerNorm(child.normalized_shape, device="meta")
                norm.weight, norm.bias = child.weight, child.bias
                setattr(module, name, norm)
