"""The logits in a model's output, whatever its head calls them."""

from collections.abc import Mapping
from typing import Any

import torch

# Columns that hold what is to be predicted: the student's own loss reads them, a teacher never sees them.
LABEL_COLUMNS = ("labels", "start_positions", "end_positions", "next_sentence_label", "sentence_order_label")
_SINGLE = ("logits", "prediction_logits")
_SPAN = ("start_logits", "end_logits")


def logits_fields(output: Any) -> dict[str, torch.Tensor]:
    """The logits that metrics should see.

    Args:
        output: what a model returned.

    Returns:
        Field -> logits: one under its own name, or `start_logits` and `end_logits`; nothing if the model has no head.

    Example:
        >>> sorted(logits_fields({"loss": None, "logits": torch.zeros(2, 3), "hidden_states": ()}))
        ['logits']
    """
    if not isinstance(output, Mapping):
        return {}
    for names in ((_SINGLE[0],), (_SINGLE[1],), _SPAN):
        if all(output.get(name) is not None for name in names):
            return {name: output[name] for name in names}
    return {}


def joint_logits(fields: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The logits as one tensor: start and end of a span as two rows, so that a mean over rows is the mean of both.

    Args:
        fields: as `logits_fields` gives them.

    Returns:
        `(batch, classes)`, `(batch, seq_len, classes)` or `(batch, 2, seq_len)`; `None` without any.
    """
    if not fields:
        return None
    return next(iter(fields.values())) if len(fields) == 1 else torch.stack(list(fields.values()), dim=1)


__all__ = ["LABEL_COLUMNS", "joint_logits", "logits_fields"]
