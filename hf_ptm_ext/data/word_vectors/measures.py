"""How good word vectors are: analogies by 3CosAdd, and the rank correlation of cosines with people's judgements."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import iter_lines

_AT_ONCE = 256
CASES = ("lower", "exact")


@dataclass
class AnalogyScores:
    """Right answers and questions of each section; questions with an unknown word are `skipped`, as gensim does."""

    sections: dict[str, tuple[int, int]] = field(default_factory=dict)
    skipped: int = 0

    @property
    def accuracy(self) -> float:
        """The share of right answers, NaN without questions."""
        right, asked = (sum(each) for each in zip(*self.sections.values(), strict=True)) if self.sections else (0, 0)
        return right / asked if asked else float("nan")


@dataclass
class SimilarityScore:
    """Spearman's correlation over pairs of known words."""

    spearman: float
    pairs: int
    skipped: int


def _folded(words: Sequence[str], case: str) -> dict[str, int]:
    """Word -> place, the first of those that are equal."""
    if case not in CASES:
        raise ValueError(f"`case` must be one of {', '.join(CASES)}, got {case!r}.")
    places = list(enumerate(words))
    return {(word.upper() if case == "lower" else word): place for place, word in reversed(places)}


def analogy_scores(
    words: Sequence[str], unit: np.ndarray, path: Path, restrict_vocab: int | None, case: str
) -> AnalogyScores:
    """The scores of `WordVectors.evaluate_analogies`."""
    index = _folded(words[:restrict_vocab], case)
    answers = np.array(sorted(index.values()))
    scores, section, waiting = AnalogyScores(), "", list[tuple[str, list[int]]]()
    for line in iter_lines(path):
        cells = line.text.split()
        if line.text.startswith(":"):
            section = line.text[1:].strip()
        elif len(cells) == 4:
            found = [index.get(cell.upper() if case == "lower" else cell, -1) for cell in cells]
            scores.sections.setdefault(section, (0, 0))
            if min(found) < 0:
                scores.skipped += 1
            else:
                waiting.append((section, found))
        elif cells:
            raise ValueError(f"{path}, line {line.number}: four words or `: section` expected, got {line.text!r}.")
    for start in range(0, len(waiting), _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        a, b, c, d = np.array([places for _, places in part]).T
        cosines = (unit[b] - unit[a] + unit[c]) @ unit[answers].T
        for given in (a, b, c):
            cosines[np.arange(len(part)), np.searchsorted(answers, given)] = -np.inf
        for (name, _), right in zip(part, answers[cosines.argmax(axis=1)] == d, strict=True):
            scores.sections[name] = (scores.sections[name][0] + int(right), scores.sections[name][1] + 1)
    return scores


def similarity_score(vectors: Any, path: Path, case: str) -> SimilarityScore:
    """The score of `WordVectors.evaluate_similarity`."""
    index, scores, cosines, skipped = _folded(vectors.words, case), [], [], 0
    for line in iter_lines(path):
        if not line.text.strip() or line.text.startswith("#"):
            continue
        cells = re.split(r"[\t,]| +", line.text.strip())
        try:
            first, second, score = cells[0], cells[1], float(cells[2])
            if not np.isfinite(score):
                raise ValueError(f"the score is {score}")
        except (ValueError, IndexError) as error:
            if line.number == 1:  # names of columns
                continue
            raise ValueError(
                f"{path}, line {line.number}: two words and a number expected, got {line.text!r}."
            ) from error
        places = [index.get(word.upper() if case == "lower" else word) for word in (first, second)]
        if None in places:
            skipped += 1
            continue
        scores.append(score)
        cosines.append(float(vectors.unit_table[places[0]] @ vectors.unit_table[places[1]]))
    if not scores and not skipped:
        raise ValueError(f"{path} must have lines of two words and a number, got none.")
    if min(len(set(scores)), len(set(cosines))) < 2:
        return SimilarityScore(float("nan"), len(scores), skipped)
    return SimilarityScore(float(np.corrcoef(_ranks(scores), _ranks(cosines))[0, 1]), len(scores), skipped)


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks, equal values at the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
