"""Learning rates that fall from the top of a model to its bottom.

ULMFiT (Howard and Ruder, ACL 2018, section 3.1) calls it discriminative fine-tuning, lr[l-1] = lr[l] / 2.6; with a
factor near 1 (rates times 0.8 to 0.95 a layer) it is known as layer-wise learning-rate decay.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

ULMFIT_FACTOR = 2.6


def discriminative_learning_rates(layers: int, learning_rate: float, factor: float = ULMFIT_FACTOR) -> list[float]:
    """Learning rate of each layer, from the bottom to the top.

    Args:
        layers: number of layers (or groups of layers).
        learning_rate: rate of the topmost one.
        factor: rate of a layer over the rate of the one below (paper: 2.6).

    Returns:
        `layers` rates.

    Raises:
        ValueError: `factor` or `layers` is not positive.

    Examples:
        >>> [round(rate, 6) for rate in discriminative_learning_rates(3, 0.01)]
        [0.001479, 0.003846, 0.01]
    """
    if factor <= 0 or layers < 1:
        raise ValueError(f"`factor` and `layers` must be positive, got {factor} and {layers}.")
    return [learning_rate / factor ** (layers - 1 - layer) for layer in range(layers)]


def encoder_layers(model: nn.Module) -> list[tuple[str, ...]]:
    """Prefixes of the parameters of each layer, from the bottom to the top.

    Layers are the entries of an `nn.ModuleList`; lists of equal length in one module are parts of the same layers
    (XLM keeps attentions and feed-forward blocks apart). Of an encoder-decoder the decoder's layers follow the
    encoder's.

    Args:
        model: any model of upstream's or ours.

    Returns:
        For each layer the prefixes of its parameters' names.

    Raises:
        ValueError: the model has no list of layers.

    Examples:
        >>> from transformers import DistilBertConfig, DistilBertModel
        >>> encoder_layers(DistilBertModel(DistilBertConfig(dim=8, n_layers=2, n_heads=2, hidden_dim=8)))
        [('transformer.layer.0.',), ('transformer.layer.1.',)]
    """
    stacks: dict[tuple[str, int], list[tuple[str, nn.ModuleList]]] = {}
    inside: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) and not name.startswith(tuple(inside)):
            stacks.setdefault((name.rpartition(".")[0], len(module)), []).append((name, module))
            inside.append(f"{name}.")
    layers = [
        tuple(f"{name}.{number}." for name, _ in lists)
        for (_, length), lists in stacks.items()
        if any(_holds_layers(module) for _, module in lists)
        for number in range(length)
    ]
    if not layers:
        raise ValueError(
            f"`model` must have its layers in an `nn.ModuleList`; {type(model).__name__} has none. Give the groups "
            "to the optimizer yourself."
        )
    return layers


def _holds_layers(module: nn.ModuleList) -> bool:
    """Whether the entries are alike and hold more than one projection: layers, not parts of one."""
    return (
        len({type(entry) for entry in module}) == 1
        and sum(parameter.dim() > 1 for parameter in module[0].parameters()) > 1
    )


def parameter_depths(model: nn.Module) -> dict[str, int]:
    """How high in the model each parameter stands.

    Args:
        model: any model of upstream's or ours.

    Returns:
        Parameter name -> 0 for embeddings and what else comes before the layers, 1 .. L for the layers, L + 1 for
        pooler and heads.

    Raises:
        ValueError: as `encoder_layers`.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
        >>> depths = parameter_depths(BertForSequenceClassification(config))
        >>> depths["bert.embeddings.word_embeddings.weight"], depths["classifier.weight"]
        (0, 3)
    """
    layers = encoder_layers(model)
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    embeddings = {id(parameter) for table in tables for parameter in table.parameters(recurse=False)}
    depths: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        inside = [number for number, prefixes in enumerate(layers, start=1) if name.startswith(prefixes)]
        below = id(parameter) in embeddings or "embed" in name
        depths[name] = inside[-1] if inside else 0 if below else len(layers) + 1
    return depths


def layerwise_parameter_groups(
    model: nn.Module,
    learning_rate: float,
    *,
    factor: float = ULMFIT_FACTOR,
    weight_decay: float = 0.0,
    no_decay: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Optimizer groups whose learning rate falls by `factor` from each layer to the one below.

    Heads and pooler have `learning_rate`, the topmost layer `learning_rate / factor`, embeddings the lowest rate.

    Args:
        model: any model of upstream's or ours; parameters that need no gradient are left out.
        learning_rate: rate of the head.
        factor: rate of a layer over the rate of the one below (ULMFiT: 2.6). A decay of 0.9 a layer is 1 / 0.9.
        weight_decay: of matrices; biases and normalisations, which are vectors, have none, as in upstream's Trainer.
        no_decay: further ends of parameter names without weight decay.

    Returns:
        Groups for a torch optimizer, from the embeddings to the head.

    Raises:
        ValueError: as `encoder_layers` and `discriminative_learning_rates`.

    Examples:
        >>> import torch
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
        >>> groups = layerwise_parameter_groups(BertForSequenceClassification(config), 1e-3, factor=2)
        >>> optimizer = torch.optim.AdamW(groups)  # Trainer(..., optimizers=(optimizer, None))
        >>> sorted({group["lr"] for group in groups})
        [0.000125, 0.00025, 0.0005, 0.001]
    """
    depths = parameter_depths(model)
    highest = len(encoder_layers(model)) + 1
    rates = discriminative_learning_rates(highest + 1, learning_rate, factor)
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            plain = parameter.dim() < 2 or name.endswith(tuple(no_decay))
            groups.setdefault((depths[name], plain), []).append(parameter)
    return [
        {"params": parameters, "lr": rates[depth], "weight_decay": 0.0 if plain else weight_decay}
        for (depth, plain), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]
