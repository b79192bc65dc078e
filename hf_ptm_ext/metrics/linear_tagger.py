"""A linear tagger, which taggers of words are compared with."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any


def linear_tagger(sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], strength: float = 0.3) -> Any:
    """Fit a linear classifier of words in their windows, of scikit-learn: a linear support vector machine.

    It reads the words up to two places to each side, the pairs of neighbours among them, and prefixes, suffixes and
    the shape of the word itself; tags are chosen one by one.

    Args:
        sentences: Words of the training sentences; of Chinese, characters.
        tags: Their tags; of a single one it gives that.
        strength: Inverse of the L2 penalty.

    Returns:
        A fitted tagger; its `predict(sentences)` gives a list of tags for each.

    Examples:
        >>> tagger = linear_tagger([["in", "Paris"], ["in", "May"]] * 3, [["O", "B-LOC"], ["O", "O"]] * 3)
        >>> tagger.predict([["Paris", "in", "May"]])
        [['B-LOC', 'O', 'O']]
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    told = [tag for sentence in tags for tag in sentence]
    classifier = LinearSVC(C=strength) if len({*told}) > 1 else DummyClassifier()
    model = make_pipeline(FeatureHasher(2**20, input_type="string"), classifier)
    model.fit(list(_features(sentences)), told)
    return _Tagger(model)


class _Tagger:
    """A fitted pipeline over the words of sentences."""

    def __init__(self, model: Any):
        self.model = model

    def predict(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of each sentence."""
        rows = list(_features(sentences))
        found = iter(self.model.predict(rows).tolist() if rows else ())
        return [[next(found) for _ in sentence] for sentence in sentences]


def _features(sentences: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """The features of each word."""
    for sentence in sentences:
        padded = ["<", "<", *(word.lower() for word in sentence), ">", ">"]
        for place, word in enumerate(sentence):
            window = padded[place : place + 5]
            ends = [f"p={word[:size]}" for size in (1, 2, 3, 4)] + [f"s={word[-size:]}" for size in (1, 2, 3, 4)]
            shape = re.sub(r"[^\W\d_X]", "x", re.sub(r"[A-Z]", "X", re.sub(r"\d", "0", word)))
            shape = re.sub(r"(.)\1+", r"\1", shape)
            yield [
                *(f"{offset}={one}" for offset, one in enumerate(window)),
                *(f"{offset}+={one} {other}" for offset, (one, other) in enumerate(pairwise(window))),
                *ends,
                f"shape={shape}",
                "bias",
            ]
