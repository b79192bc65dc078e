"""The classes of the encoder inside, where its code is in this folder; saving writes this file for each checkpoint."""

from typing import Any


def config_class(model_type: str) -> Any:
    """The configuration's class of an encoder; none of one that transformers' Auto classes know."""
    return None


def model_class(model_type: str) -> Any:
    """The model's class of an encoder; none of one that transformers' Auto classes know."""
    return None
