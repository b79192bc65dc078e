"""Which layers bear fewer bits: Q-BERT's sensitivity by the Hessian (Shen et al. 2020, section 3.1).

    Omega_i = |mean(lambda_i)| + std(lambda_i)

where lambda_i is the largest eigenvalue of the Hessian of the loss in the weights of layer i on a share of the data;
mean and standard deviation are over several shares. Eigenvalues come from power iteration.
"""

import re
from collections.abc import Mapping, Sequence
from statistics import mean, pstdev
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..trainers.parameter_groups import encoder_layers


def top_eigenvalues(
    model: nn.Module, batch: Mapping[str, Any], count: int = 1, iterations: int = 20, seed: int = 0
) -> list[list[float]]:
    """The largest eigenvalues of the Hessian of the loss in the matrices of each layer.

    Args:
        model: with a `loss` in its output; it is evaluated without dropout and left as it was.
        batch: what its `forward` takes, labels included.
        count: eigenvalues a layer, by magnitude, the later ones orthogonal to those before.
        iterations: of the power iteration.
        seed: of its first vectors.

    Returns:
        For each layer, from the bottom, `count` eigenvalues.

    Raises:
        ValueError: the model has no list of layers, or `count` or `iterations` is less than 1.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> batch = {"input_ids": torch.tensor([[1, 2, 3]]), "labels": torch.tensor([1])}
        >>> len(top_eigenvalues(BertForSequenceClassification(tiny), batch, iterations=2))
        2
    """
    if count < 1 or iterations < 1:
        raise ValueError(f"`count` and `iterations` must be at least 1, got {count} and {iterations}.")
    training, found = model.training, []
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    # Other kernels of attention have no second derivative.
    with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        for prefixes in encoder_layers(model):
            weights = [value for name, value in model.named_parameters() if name.startswith(prefixes)]
            weights = [value for value in weights if value.dim() > 1 and value.requires_grad]
            loss = model(**batch).loss
            gradients = torch.autograd.grad(loss, weights, create_graph=True)
            found.append(_power_iteration(gradients, weights, count, iterations, generator))
    model.train(training)
    return found


def _power_iteration(
    gradients: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], count: int, iterations: int, generator: Any
) -> list[float]:
    values: list[float] = []
    vectors: list[list[torch.Tensor]] = []
    for _ in range(count):
        vector = [torch.randn(one.shape, generator=generator).to(one) for one in weights]
        value = 0.0
        for _ in range(iterations):
            for other in vectors:
                part = _dot(vector, other)
                vector = [one - part * two for one, two in zip(vector, other, strict=True)]
            length = _dot(vector, vector).sqrt().clamp(min=1e-30)
            vector = [one / length for one in vector]
            product = torch.autograd.grad(gradients, weights, vector, retain_graph=True)
            value = float(_dot(product, vector))
            last, vector = vector, list(product)
        values.append(value)
        vectors.append(last)
    return values


def _dot(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(one * two).sum() for one, two in zip(first, second, strict=True)]).sum()


def hessian_sensitivity(
    model: nn.Module, batches: Sequence[Mapping[str, Any]], iterations: int = 20, seed: int = 0
) -> list[dict[str, float]]:
    """How much each layer suffers from fewer bits.

    Args:
        model: as `top_eigenvalues`, fine-tuned.
        batches: shares of the training data, labels included (paper: 10 % each).
        iterations: of the power iteration.
        seed: of its first vectors.

    Returns:
        For each layer, from the bottom, `mean` and `std` of its largest eigenvalue over batches, and `sensitivity`.

    Raises:
        ValueError: no batch, or as `top_eigenvalues`.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> batches = [{"input_ids": torch.tensor([[1, 2, word]]), "labels": torch.tensor([1])} for word in (3, 4)]
        >>> sorted(hessian_sensitivity(BertForSequenceClassification(tiny), batches, iterations=2)[0])
        ['mean', 'sensitivity', 'std']
    """
    if not batches:
        raise ValueError(f"`batches` must be at least one, got {len(batches)}.")
    each = [[values[0] for values in top_eigenvalues(model, batch, 1, iterations, seed)] for batch in batches]
    return [
        {"mean": mean(values), "std": pstdev(values), "sensitivity": abs(mean(values)) + pstdev(values)}
        for values in map(list, zip(*each, strict=True))
    ]


def mixed_precision(
    model: nn.Module, sensitivities: Sequence[Mapping[str, float]], bits: Sequence[int] = (2, 3), share: float = 0.5
) -> dict[str, int]:
    """Bits of each layer's weights: more for the layers that suffer more.

    Args:
        model: the model of the sensitivities.
        sensitivities: as `hessian_sensitivity` gives them.
        bits: fewer and more (paper: 2 and 3, or 2 and 4).
        share: share of the layers, the most sensitive ones, that have more.

    Returns:
        Regular expression of a layer's modules -> bits, for `prepare_fake_quant(bits=...)`.

    Raises:
        ValueError: other than one sensitivity a layer, or a share that is none.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> mixed_precision(BertModel(tiny), [{"sensitivity": 3.0}, {"sensitivity": 1.0}])
        {'^encoder\\\\.layer\\\\.0\\\\.': 3, '^encoder\\\\.layer\\\\.1\\\\.': 2}
    """

    layers = encoder_layers(model)
    if len(layers) != len(sensitivities):
        raise ValueError(f"`sensitivities` must be {len(layers)}, one a layer, got {len(sensitivities)}.")
    if len(bits) != 2:
        raise ValueError(f"`bits` must be two numbers, fewer and more, got {list(bits)}.")
    if not 0 <= share <= 1:
        raise ValueError(f"`share` must be in [0, 1], got {share}.")
    ranked = sorted(range(len(layers)), key=lambda layer: -sensitivities[layer]["sensitivity"])
    more = set(ranked[: round(share * len(layers))])
    fewer, many = bits
    return {
        f"^{re.escape(prefix)}": many if layer in more else fewer
        for layer, prefixes in enumerate(layers)
        for prefix in prefixes
    }
