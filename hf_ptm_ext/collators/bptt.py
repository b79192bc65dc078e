"""Batches for truncated backpropagation through time, whose state goes on in the next batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import BatchEncoding


@dataclass
class DataCollatorForBackpropagationThroughTime:
    """Stacks the rows of `ContiguousStreams`, one segment of every stream, for `BpttTrainer`.

    | inputs | labels | mean over |
    | --- | --- | --- |
    | the segment's tokens | `shift_labels`: the token behind each, -100 past the end | all targets |

    Relations: as language models are trained with a state (Merity et al. 2018, https://arxiv.org/abs/1708.02182, and
    Transformer-XL). `labels` are the segment's own tokens, as upstream's causal models take them, which shift them
    themselves unless there are `shift_labels`.

    Args:
        return_tensors: "pt" or "np".

    Raises:
        ValueError: rows are not of one segment and of neighbouring streams.

    Examples:
        >>> from hf_ptm_ext.data.contiguous import ContiguousStreams
        >>> streams = ContiguousStreams([[1, 2, 3, 4, 5, 6, 7]], batch_size=2, bptt=2)
        >>> batch = DataCollatorForBackpropagationThroughTime()([streams[2], streams[3]])
        >>> batch["input_ids"].tolist(), batch["shift_labels"].tolist(), batch["segment"]
        ([[3], [6]], [[4], [7]], 1)
    """

    return_tensors: str = "pt"

    # Columns that no model's forward names; `PtmTrainer` keeps them.
    input_columns: ClassVar[tuple[str, ...]] = ("labels", "segment", "stream")

    def __post_init__(self) -> None:
        if self.return_tensors not in ("pt", "np"):
            raise ValueError(f"`return_tensors` must be 'pt' or 'np', got {self.return_tensors!r}.")

    def __call__(self, features: Sequence[dict[str, Any]], return_tensors: str | None = None) -> BatchEncoding:
        """`input_ids`, `labels`, `shift_labels` (batch, tokens), and `segment`, its number in the epoch."""
        if "segment" not in features[0] or "stream" not in features[0]:
            raise ValueError(
                f"Rows must be those of `ContiguousStreams`, with `segment` and `stream`, got {sorted(features[0])}."
            )
        places = [(row["segment"], row["stream"]) for row in features]
        segment, first = places[0]
        if places != [(segment, first + number) for number in range(len(places))]:
            raise ValueError(
                f"Rows of a batch must be one segment of neighbouring streams, got (segment, stream) {places[:4]}...: "
                "use `BpttTrainer`, and as many streams as rows in a batch."
            )
        input_ids = np.stack([row["input_ids"] for row in features])
        targets = np.stack([row["labels"] for row in features])
        batch: dict[str, Any] = {"input_ids": input_ids, "labels": input_ids.copy(), "shift_labels": targets}
        if (return_tensors or self.return_tensors) == "pt":
            batch = {name: torch.from_numpy(values) for name, values in batch.items()}
        return BatchEncoding({**batch, "segment": segment})
