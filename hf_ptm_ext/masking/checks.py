"""Argument checks shared by the masking functions and the collators."""

import numpy as np


def check_probability(name: str, value: float) -> float:
    """Return a number as a float, or raise an error that quotes its name if it is no probability.

    Examples:
        >>> check_probability("mlm_probability", 0.15)
        0.15
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"`{name}` must be a number in [0, 1], got {value!r}. Pass a probability such as 0.15.")
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be in [0, 1], got {value}. Pass a probability such as 0.15.")
    return float(value)


def check_shares(advice: str, **shares: float) -> None:
    """Raise unless shares are probabilities and leave one, from 0 on, for the rest."""
    for name, value in shares.items():
        check_probability(name, value)
    if sum(shares.values()) > 1 + 1e-9:
        names = " + ".join(f"`{name}`" for name in shares)
        raise ValueError(f"{names} must not exceed 1, got {' + '.join(map(str, shares.values()))}. {advice}")


def check_choice(name: str, value: object, choices: tuple, advice: str = "Choose one of these.") -> None:
    """Raise unless an option is one of its choices."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}, got {value!r}. {advice}")


def check_same_shape(name: str, array: np.ndarray, reference_name: str, reference: np.ndarray) -> None:
    """Raise unless two per-token arrays have one shape `(batch, seq_len)`."""
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
    """Raise unless a budget has one entry for each sequence."""
    if len(budget) != num_groups:
        raise ValueError(
            f"`budget` must have one entry per sequence, {num_groups}, got {len(budget)}. Use the groups that it was "
            "computed for."
        )
