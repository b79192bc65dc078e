"""Argument checks shared by the masking functions."""

from __future__ import annotations

import numpy as np


def check_probability(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is no probability.

    Args:
        name: Name of the argument, quoted in the message.
        value: The value to check, in [0, 1].

    Returns:
        `value` as a Python float.

    Raises:
        TypeError: If `value` is not a number.
        ValueError: If `value` is outside [0, 1].

    Example:
        >>> check_probability("mlm_probability", 0.15)
        0.15
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"`{name}` must be a number in [0, 1], got {value!r}. Pass a probability such as 0.15.")
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be in [0, 1], got {value}. Pass a probability such as 0.15.")
    return float(value)


def check_same_shape(name: str, array: np.ndarray, reference_name: str, reference: np.ndarray) -> None:
    """Raise unless two per-token arrays have one shape `(batch, seq_len)`.

    Args:
        name: Name of the checked argument.
        array: The checked array.
        reference_name: Name of the argument it must agree with.
        reference: The array it must agree with, two-dimensional.

    Raises:
        ValueError: If `reference` is not two-dimensional or the shapes differ.

    Example:
        >>> check_same_shape("word_starts", np.zeros((2, 3)), "candidates", np.zeros((2, 3)))
    """
    if reference.ndim != 2:
        raise ValueError(
            f"`{reference_name}` must have shape (batch, seq_len), got {reference.shape}. Stack the rows first."
        )
    if array.shape != reference.shape:
        raise ValueError(
            f"`{name}` must have the shape of `{reference_name}`, {reference.shape}, got {array.shape}. "
            "Pad both to one width."
        )


def check_budget(budget: np.ndarray, num_groups: int) -> None:
    """Raise unless a budget has one entry for each sequence.

    Args:
        budget: Tokens to select in each sequence, `(num_groups,)`.
        num_groups: Number of sequences.

    Raises:
        ValueError: If the numbers differ.

    Example:
        >>> check_budget(np.array([3, 1]), 2)
    """
    if len(budget) != num_groups:
        raise ValueError(
            f"`budget` must have one entry per sequence, {num_groups}, got {len(budget)}. Use the groups that it was "
            "computed for."
        )
