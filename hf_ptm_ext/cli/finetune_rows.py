"""Examples of `hf-ptm-ext finetune` as model inputs."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Rows:
    """Examples as model inputs.

    Args:
        inputs: one dictionary a row, with `labels` if all of them are known.
        places: tagging: for each row the token that stands for each word, `None` where a word was cut off.
        windows: question answering: for each row which example it is of, and where its tokens stand in the passage.
    """

    inputs: list[dict[str, Any]]
    places: list[list[int | None]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)


def rows_of(encoded: Any) -> list[dict[str, Any]]:
    """A tokenizer's columns as rows.

    Args:
        encoded: name -> one list a row.

    Example:
        >>> rows_of({"input_ids": [[1], [2, 3]]})
        [{'input_ids': [1]}, {'input_ids': [2, 3]}]
    """
    return [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]


__all__ = ["Rows", "rows_of"]
