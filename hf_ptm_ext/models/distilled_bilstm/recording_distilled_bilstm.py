# Generated from models/canonical/composite_canonical.py by scripts/sync_copies.py; change that file.
"""Which hidden states a caller asks for."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def kept_states(states: Sequence[torch.Tensor], wanted: bool | int | Iterable[int] | None) -> Any:
    """The hidden states that `output_hidden_states` asks for, as upstream's models read it.

    Args:
        states: all of them.
        wanted: all or none, or numbers of some, negative ones from the end.

    Returns:
        A tuple as long as `states`, `None` in the places of the others; `None` if none is asked for.
    """
    if wanted is True or not wanted:
        return tuple(states) if wanted else None
    numbers, count = [wanted] if isinstance(wanted, int) else wanted, len(states)
    chosen = {number % count for number in numbers if -count <= number < count}
    return tuple(state if number in chosen else None for number, state in enumerate(states))
