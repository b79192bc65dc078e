"""The baselines that a masked language model must leave behind: the majority token and the unigram distribution."""

from collections.abc import Iterable

import numpy as np


class UnigramBaseline:
    """Token frequencies of the training text, as a predictor that ignores its input.

    Args:
        counts: `(vocab_size,)` occurrences of each token in the training text.

    Examples:
        >>> import numpy as np
        >>> baseline = UnigramBaseline(np.array([6, 2, 0]))
        >>> baseline.accuracy(np.array([0, 0, 1, 2])), baseline.majority_token
        (0.5, 0)
    """

    def __init__(self, counts: np.ndarray):
        self.counts = np.asarray(counts, dtype=np.int64)
        if self.counts.ndim != 1 or not self.counts.sum():
            raise ValueError(f"`counts` must be one count per token, not all zero, got shape {self.counts.shape}.")

    @classmethod
    def from_rows(
        cls, rows: Iterable[Iterable[int]], vocab_size: int, excluded_ids: Iterable[int] = ()
    ) -> "UnigramBaseline":
        """Count rows of token ids."""
        counts = np.zeros(vocab_size, dtype=np.int64)
        for row in rows:
            counts += np.bincount(np.asarray(row, dtype=np.int64), minlength=vocab_size)[:vocab_size]
        counts[list(excluded_ids)] = 0
        return cls(counts)

    @property
    def majority_token(self) -> int:
        """Id of the most frequent token."""
        return int(self.counts.argmax())

    def accuracy(self, targets: np.ndarray) -> float:
        """Share of `(targets,)` that the majority token gets right."""
        return float((_some(targets) == self.majority_token).mean())

    def cross_entropy(self, targets: np.ndarray) -> float:
        """Mean of -log p over `(targets,)` in nats, with one added to every count."""
        smoothed = self.counts + 1
        return float(-np.log(smoothed[_some(targets)] / smoothed.sum()).mean())


def _some(targets: np.ndarray) -> np.ndarray:
    found = np.asarray(targets)
    if not found.size:
        raise ValueError("`targets` must have at least one token, got none.")
    return found
