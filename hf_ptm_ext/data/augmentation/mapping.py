"""Augmentation of a data set, in memory or as a stream."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .words import digest_of

SAMPLE_ID = "sample_id"


class Augmentation(Protocol):
    """What `augment` runs: rows of texts in, for each the row itself and its variants out."""

    def rows(
        self, batch: Sequence[tuple[str, ...]], generators: Sequence[random.Random]
    ) -> list[list[tuple[str, ...]]]:
        """Make variants."""
        ...


class _AugmentBatch:
    """The function that `map` runs."""

    def __init__(self, augmentation: Augmentation, columns: tuple[str, ...], seed: int):
        self.augmentation = augmentation
        self.columns = columns
        self.seed = seed
        self.seen: set[bytes] = set()

    def __call__(self, batch: Mapping[str, list[Any]], indices: Sequence[int]) -> dict[str, list[Any]]:
        rows = list(zip(*(batch[name] for name in self.columns), strict=True))
        for number, row in zip(indices, rows, strict=True):
            if not all(isinstance(text, str) for text in row):
                raise ValueError(f"Row {number}: the columns {', '.join(self.columns)} must hold text, got {row!r}.")
        # By a row's number: the same whatever the batch size, and however many rows are read.
        variants = self.augmentation.rows(rows, [random.Random(f"{self.seed} {number}") for number in indices])
        if getattr(self.augmentation, "unique", False):
            if indices[0] == 0:  # a pass over the data begins
                self.seen.clear()
            variants = [[made[0], *filter(self._is_new, made[1:])] for made in variants]
        result: dict[str, list[Any]] = {}
        for name, values in batch.items():
            if name in self.columns:
                place = self.columns.index(name)
                result[name] = [texts[place] for made in variants for texts in made]
            else:
                result[name] = [value for value, made in zip(values, variants, strict=True) for _ in made]
        return result

    def _is_new(self, texts: tuple[str, ...]) -> bool:
        before = len(self.seen)
        self.seen.add(hashlib.blake2b(repr(texts).encode(), digest_size=8).digest())
        return len(self.seen) > before


def augment(
    dataset: Any,
    augmentation: Augmentation,
    columns: str | Sequence[str],
    *,
    seed: int = 0,
    batch_size: int = 64,
) -> Any:
    """Put variants of each row of a data set behind it.

    Args:
        dataset: A `datasets.Dataset` or `IterableDataset`; of the latter rows are made as they are read.
        augmentation: `TinyBertAugmentation`, `DistilledBiLstmAugmentation`, or an object with such a method `rows`; if
            it has a true `unique`, variants that an earlier row had are left out.
        columns: The column of text, or the two of a pair. All others, labels too, are the row's own in every variant.
        seed: Of the draws, which depend on it and on the row's number alone.
        batch_size: Rows that are worked on together.

    Examples:
        >>> from datasets import Dataset
        >>> from hf_ptm_ext.data.augmentation import DistilledBiLstmAugmentation
        >>> rows = Dataset.from_dict({"text": ["a good film", "the long story"], "label": [1, 0]})
        >>> augmentation = DistilledBiLstmAugmentation(variants=4).fit(rows["text"])
        >>> more = augment(rows, augmentation, "text", seed=1)
        >>> more[0], len(more) > len(rows)
        ({'text': 'a good film', 'label': 1}, True)
    """
    columns = (columns,) if isinstance(columns, str) else tuple(columns)
    known = dataset.column_names
    missing = [name for name in columns if known is not None and name not in known]
    if missing or not columns:
        raise ValueError(f"`columns` must be columns of the data set ({known}), got {columns}.")
    if known is not None and SAMPLE_ID in known:
        raise ValueError(f"The data set has a column `{SAMPLE_ID}`, which would name several rows: add it afterwards.")
    options: dict[str, Any] = {"with_indices": True, "batched": True, "batch_size": batch_size}
    if dataset.features is not None:
        options["features"] = dataset.features
    if hasattr(dataset, "_fingerprint") and hasattr(augmentation, "fingerprint"):
        # By itself `map` would pickle a whole model to know its own cache again.
        options["new_fingerprint"] = digest_of(dataset._fingerprint, columns, seed, augmentation.fingerprint())
    return dataset.map(_AugmentBatch(augmentation, columns, seed), **options)
