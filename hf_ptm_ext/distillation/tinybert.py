"""A detail of TinyBERT's released classifier that no configuration of BERT expresses."""

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


def rectify_classifier_input(model: nn.Module) -> RemovableHandle:
    """Let a BERT classifier read relu(pooled output), as TinyBERT's released `forward` does.

    Only classifiers that the released code has trained need it; students trained here read the pooled output as BERT
    does, and their checkpoints mean the same everywhere.

    Args:
        model: a BERT model for sequence classification.

    Returns:
        A handle: `remove()` takes it back. Nothing of it is saved with the model.

    Raises:
        ValueError: the model has no `classifier`.
    """
    classifier = getattr(model, "classifier", None)
    if not isinstance(classifier, nn.Module):
        raise ValueError(f"`model` must have a `classifier`, {type(model).__name__} has none.")

    def rectified(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (torch.relu(arguments[0]), *arguments[1:])

    return classifier.register_forward_pre_hook(rectified)


__all__ = ["rectify_classifier_input"]
