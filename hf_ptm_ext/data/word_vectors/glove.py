"""GloVe (Pennington et al., EMNLP 2014; github.com/stanfordnlp/GloVe): vectors whose products are log co-occurrences.

    J = sum over records of 0.5 min(1, (x / x_max)^alpha) (w . c + b + b' - log x)^2

by AdaGrad with accumulators that start at 1. As in the released program the steps of vectors are scaled by `eta` and
those of biases are not. It updates after each record (`batch_size=1`, exact); of many records at once all read the old
values, as its threads do by chance.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .table import WordVectors

_CLIP = 100.0
_PAIRS_AT_ONCE = 1 << 22
_RAREST = 100


class Cooccurrences(NamedTuple):
    """Which words stand near which, how much: `i` and `j` are places in `words`; `counts` those of the words."""

    words: list[str]
    counts: np.ndarray
    i: np.ndarray
    j: np.ndarray
    values: np.ndarray


def glove_cooccurrences(
    texts: Iterable[str | Sequence[str]],
    *,
    window: int = 15,
    min_count: int = 5,
    max_vocab: int | None = None,
    symmetric: bool = True,
    distance_weighting: bool = True,
) -> Cooccurrences:
    """Count co-occurrences as GloVe's `vocab_count` and `cooccur` do.

    Args:
        texts: Lines split at blanks, or lists of words; no window crosses a line. Gone through twice.
        window: Words to the left that count, unknown ones left out before.
        min_count: Fewest occurrences of a word (the tool: 1; its demo: 5).
        max_vocab: Most words, the most frequent ones; equal counts in the order of the alphabet.
        symmetric: Whether the right side counts too; a word beside itself then counts twice.
        distance_weighting: Whether a word at distance d counts 1/d.

    Examples:
        >>> found = glove_cooccurrences(["a b a"], min_count=1)
        >>> found.words, list(zip(found.i.tolist(), found.j.tolist(), found.values.tolist()))
        (['a', 'b'], [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0)])
    """
    if window < 1:
        raise ValueError(f"`window` must be at least 1, got {window}.")
    if iter(texts) is texts:
        raise TypeError(
            f"`texts` is gone through twice: give a list or a Dataset's column, got {type(texts).__name__}."
        )

    def lines() -> Iterable[Sequence[str]]:
        return (text.split() if isinstance(text, str) else text for text in texts)

    counted = sorted(Counter(word for line in lines() for word in line).items(), key=lambda pair: (-pair[1], pair[0]))
    kept = [(word, count) for word, count in counted if count >= min_count][:max_vocab]
    if not kept:
        raise ValueError(f"`texts` have no word {min_count} times (`min_count`), of {len(counted)} words.")
    index = {word: place for place, (word, _) in enumerate(kept)}
    size = len(kept)
    keys, values = np.zeros(0, np.int64), np.zeros(0)
    rows, waiting = list[np.ndarray](), 0

    def count() -> tuple[np.ndarray, np.ndarray]:
        places = np.concatenate([*rows, np.array([-1])])
        line = np.repeat(np.arange(len(rows) + 1), [*map(len, rows), 1])
        new, weights = [keys], [values]
        for distance in range(1, window + 1):
            left, right = places[:-distance], places[distance:]
            same = line[:-distance] == line[distance:]
            pairs = [right[same] * size + left[same]] + ([left[same] * size + right[same]] if symmetric else [])
            new += pairs
            weights += [np.full(len(pair), 1 / distance if distance_weighting else 1.0) for pair in pairs]
        merged, inverse = np.unique(np.concatenate(new), return_inverse=True)
        return merged, np.bincount(inverse, np.concatenate(weights), len(merged))

    for line in lines():
        rows.append(np.array([index[word] for word in line if word in index], dtype=np.int64))
        waiting += len(rows[-1]) * window
        if waiting > _PAIRS_AT_ONCE:
            keys, values = count()
            rows, waiting = [], 0
    if rows:
        keys, values = count()
    return Cooccurrences([word for word, _ in kept], np.array([n for _, n in kept]), *divmod(keys, size), values)


@dataclass
class GloVe:
    """Trains GloVe vectors.

    Args:
        dim: Numbers of a vector (the tool: 50).
        eta: Step of the vectors (0.05).
        alpha: Exponent of the weights (0.75).
        x_max: Co-occurrence from which the weight is 1 (100; for small corpora 10, as the tool's demo).
        iterations: Passes over the records (25).
        batch_size: Records whose updates are made at once; 1 is the tool's own order of one thread.
        seed: Of the start, uniform(-0.5, 0.5) / dim, and of the order of records where `batch_size` is not 1.

    Examples:
        >>> glove = GloVe(dim=3, iterations=2, batch_size=1)
        >>> vectors = glove.fit(glove_cooccurrences(["the cat sat", "the dog sat"], min_count=1))
        >>> vectors.words[:2], len(glove.costs), glove.costs[1] < glove.costs[0]
        (['sat', 'the'], 2, True)
    """

    dim: int = 50
    eta: float = 0.05
    alpha: float = 0.75
    x_max: float = 100.0
    iterations: int = 25
    batch_size: int = 4096
    seed: int = 0
    parameters: np.ndarray = field(init=False, repr=False)
    """`(2 * words, dim + 1)`: words, then contexts; the last column is the bias."""
    costs: list[float] = field(default_factory=list, init=False)
    """Mean of J over the records of each pass."""

    def __post_init__(self) -> None:
        for name in ("dim", "iterations", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if not self.x_max > 0:
            raise ValueError(f"`x_max` must be greater than 0, got {self.x_max}.")

    def fit(self, found: Cooccurrences, start: np.ndarray | None = None, unknown: bool = False) -> WordVectors:
        """Train on co-occurrences.

        Args:
            found: Of `glove_cooccurrences`.
            start: Parameters to start from, `(2 * words, dim + 1)`.
            unknown: Whether the mean of the 100 rarest words is added as `<unk>`, as the tool does.

        Returns:
            The sum of both vectors of each word.
        """
        if not len(found.values):
            raise ValueError(f"No two of the {len(found.words)} words are beside each other, {found.words[:3]}.")
        size, generator = len(found.words), np.random.default_rng(self.seed)
        shape = (2 * size, self.dim + 1)
        drawn = (generator.random(shape) - 0.5) / self.dim if start is None else np.array(start, dtype=np.float64)
        if drawn.shape != shape:
            raise ValueError(f"`start` must be {shape} for {size} words of {self.dim} numbers, got {drawn.shape}.")
        self.parameters, self.costs = drawn, []
        squares = np.ones(shape)
        weights, logs = np.minimum(1.0, (found.values / self.x_max) ** self.alpha), np.log(found.values)
        for _ in range(self.iterations):
            order = np.arange(len(logs)) if self.batch_size == 1 else generator.permutation(len(logs))
            cost = 0.0
            for first in range(0, len(order), self.batch_size):
                part = order[first : first + self.batch_size]
                places = np.stack([found.i[part], found.j[part] + size])
                cost += self._update(places, weights[part], logs[part], squares)
            self.costs.append(cost / len(order))
        table = self.parameters[:size, :-1] + self.parameters[size:, :-1]
        words = list(found.words)
        if unknown:
            words, table = [*words, "<unk>"], np.vstack([table, table[-_RAREST:].mean(axis=0)])
        return WordVectors(words, table)

    def _update(self, places: np.ndarray, weights: np.ndarray, logs: np.ndarray, squares: np.ndarray) -> float:
        """Make the updates of some records; returns their cost."""
        own, other = self.parameters[places[0]], self.parameters[places[1]]
        error = (own[:, :-1] * other[:, :-1]).sum(axis=1) + own[:, -1] + other[:, -1] - logs
        weighted = weights * error
        steps = np.empty((2, len(logs), self.dim + 1))
        steps[0, :, :-1] = other[:, :-1]
        steps[1, :, :-1] = own[:, :-1]
        steps[:, :, :-1] = np.clip(steps[:, :, :-1] * weighted[:, None], -_CLIP, _CLIP) * self.eta
        steps[:, :, -1] = weighted
        flat, changes = places.ravel(), steps.reshape(-1, self.dim + 1)
        np.subtract.at(self.parameters, flat, changes / np.sqrt(squares[flat]))
        np.add.at(squares, flat, changes**2)
        return float(0.5 * (weighted * error).sum())
