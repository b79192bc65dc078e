"""N-gram masking: single tokens and short n-grams up to an exact token budget (Dong et al. 2019, UniLM).

https://arxiv.org/abs/1905.03197. Per sequence of T tokens, special tokens included in T but never selected:

    m = max(1, round_half_even(0.15 T)) tokens are selected, always (`bert_budget`)
    walk through the candidate tokens in random order; one that is selected already is passed over;
    at each other one select n tokens from it to the right: n = 1 with probability 0.8, 2 and 3 with 0.1 each
    an n-gram ends where its block ends (a special token, another sequence) and where the budget is used up

N-grams may run over tokens that are selected already, these cost nothing; touching n-grams are one run afterwards. All
of this follows microsoft/unilm, the masking helper of unilm-v1's loader. Its fine-tuning loader differs in the last
step: the n-gram that exceeds the budget is taken whole, and random tokens of the whole selection are given back
(`overflow="drop"`).

N-grams of whole words, up to the same budget (Lan et al. 2020, ALBERT, https://arxiv.org/abs/1909.11942):

    walk through the words in random order; at each draw n, p(n) in proportion to 1/n for n = 1, 2, 3
    n words from it to the right, n at most what its block has left (p cut to these and scaled to 1)
    too long for what is left of the budget: n - 1 words, and so on; one is too long too: passed over
    a word among them is selected already: passed over

As in google-research/albert's create_pretraining_data.py, but for one quirk: its n-grams may run over [SEP].
"""

import numpy as np

from .checks import check_budget, check_choice, check_probability, check_same_shape
from .ragged import row_positions, shuffled_within_groups
from .segments import find_segments
from .tokens import _items, exact_tokens
from .whole_word import groups_of

OVERFLOWS = ("clip", "drop")


def ngram_size_probabilities(ngram_probability: float = 0.2, max_ngram_size: int = 3) -> np.ndarray:
    """Give UniLM's law of n-gram sizes, entry k - 1 for k tokens: 1, or with some probability 2 to the longest.

    Args:
        ngram_probability: Probability of more than one token (UniLM: 0.2, `skipgram_prb`).
        max_ngram_size: Longest n-gram in tokens (UniLM: 3, `skipgram_size`); 1 selects single tokens only.

    Examples:
        >>> ngram_size_probabilities()
        array([0.8, 0.1, 0.1])
    """
    check_probability("ngram_probability", ngram_probability)
    if max_ngram_size < 1 or (max_ngram_size == 1 and ngram_probability > 0):
        raise ValueError(
            f"`max_ngram_size` must be at least 2, or 1 with `ngram_probability` 0, got {max_ngram_size} with "
            f"{ngram_probability}. Use 3 and 0.2 for the UniLM setting."
        )
    law = np.full(max_ngram_size, ngram_probability / max(max_ngram_size - 1, 1))
    law[0] = 1 - ngram_probability
    return law


def sample_ngrams(
    candidates: np.ndarray,
    block_starts: np.ndarray,
    budget: np.ndarray,
    size_probabilities: np.ndarray,
    rng: np.random.Generator,
    groups: tuple[np.ndarray, int] | None = None,
    *,
    word_starts: np.ndarray | None = None,
    overflow: str = "clip",
) -> np.ndarray:
    """Select n-grams in every sequence until its budget is used up exactly, boolean `(batch, seq_len)`.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        block_starts: Boolean `(batch, seq_len)`, first token of every block; n-grams never cross into another block.
        budget: Tokens to select in each sequence, int `(num_groups,)`; all candidates where it exceeds their number.
        size_probabilities: P(n-gram has k tokens) at entry k - 1 (`ngram_size_probabilities`).
        rng: Source of randomness.
        groups: What counts as a sequence, from `sequence_groups`; None means the row.
        word_starts: Boolean `(batch, seq_len)`, first piece of every word: n-grams grow to whole words on both sides.
            The budget beats the words. None leaves them as drawn.
        overflow: What happens to an n-gram that exceeds the budget: "clip" shortens it (the reference's pre-training
            helper), "drop" takes it and gives back random tokens of the sequence (its fine-tuning loader).

    Examples:
        >>> text = np.ones((2, 20), dtype=bool)
        >>> first = np.zeros((2, 20), dtype=bool)
        >>> first[:, 0] = True
        >>> law = ngram_size_probabilities()
        >>> sample_ngrams(text, first, np.array([3, 5]), law, np.random.default_rng(0)).sum(axis=1)
        array([3, 5])
    """
    check_same_shape("block_starts", block_starts, "candidates", candidates)
    cumulative = _cumulative(size_probabilities)
    check_choice("overflow", overflow, OVERFLOWS)
    positions, item_groups, num_groups = _items(candidates, groups)
    check_budget(budget, num_groups)
    if not len(positions):
        return np.zeros(candidates.shape, dtype=bool)
    order = shuffled_within_groups(item_groups, num_groups, rng)
    # A start either adds a token or is one that was added: twice the budget is enough of them.
    sizes = np.bincount(item_groups, minlength=num_groups)
    order = order[row_positions(sizes) < 2 * np.repeat(budget, sizes)]
    anchor = positions[order]
    length = 1 + np.minimum(np.searchsorted(cumulative, rng.random(len(anchor)), side="right"), len(cumulative) - 1)
    begin, stop = _extents(candidates, block_starts, word_starts, anchor, length)
    selected = _walk(
        candidates.size,
        item_groups[order].tolist(),
        anchor.tolist(),
        begin.tolist(),
        stop.tolist(),
        np.asarray(budget).tolist(),
        overflow == "clip",
    ).reshape(candidates.shape)
    return exact_tokens(selected, budget, rng, groups) if overflow == "drop" else selected


def inverse_size_probabilities(max_ngram_size: int = 3, favor_shorter_ngrams: bool = True) -> np.ndarray:
    """Give ALBERT's law of n-gram sizes, entry k - 1 for k words: in proportion to 1 / k.

    Args:
        max_ngram_size: Longest n-gram in words (ALBERT: 3).
        favor_shorter_ngrams: Whether short ones are more likely (ALBERT: true); false turns the law around.

    Examples:
        >>> inverse_size_probabilities().round(3)
        array([0.545, 0.273, 0.182])
    """
    if max_ngram_size < 1:
        raise ValueError(f"`max_ngram_size` must be at least 1, got {max_ngram_size}. ALBERT has 3.")
    law = 1 / np.arange(1, max_ngram_size + 1)
    return (law if favor_shorter_ngrams else law[::-1]) / law.sum()


def sample_word_ngrams(
    candidates: np.ndarray,
    word_starts: np.ndarray,
    block_starts: np.ndarray,
    budget: np.ndarray,
    size_probabilities: np.ndarray,
    rng: np.random.Generator,
    groups: tuple[np.ndarray, int] | None = None,
) -> np.ndarray:
    """Select n-grams of whole words in every sequence as long as they fit into its budget (ALBERT's rule).

    Args:
        candidates: Boolean `(batch, seq_len)`.
        word_starts: Boolean `(batch, seq_len)`, first piece of every word.
        block_starts: Boolean `(batch, seq_len)`, first token of every block; n-grams never cross into another block.
        budget: Most tokens to select in each sequence, int `(num_groups,)` (`bert_budget`).
        size_probabilities: P(n-gram has k words) at entry k - 1 (`inverse_size_probabilities`).
        rng: Source of randomness.
        groups: What counts as a sequence, from `sequence_groups`; None means the row.

    Returns:
        Boolean `(batch, seq_len)`; the budget exactly where there are enough words of one token.

    Examples:
        >>> text = np.ones((2, 20), dtype=bool)
        >>> first = np.zeros((2, 20), dtype=bool)
        >>> first[:, 0] = True
        >>> law = inverse_size_probabilities()
        >>> sample_word_ngrams(text, text, first, np.array([3, 5]), law, np.random.default_rng(0)).sum(axis=1)
        array([3, 5])
    """
    check_same_shape("word_starts", word_starts, "candidates", candidates)
    check_same_shape("block_starts", block_starts, "candidates", candidates)
    cumulative = _cumulative(size_probabilities)
    words = find_segments(candidates, word_starts | block_starts)
    word_groups, num_groups = groups_of(words, candidates.shape, groups)
    check_budget(budget, num_groups)
    order = shuffled_within_groups(word_groups, num_groups, rng)
    width = candidates.shape[1]
    begin, stop = words.row * width + words.start, words.row * width + words.stop
    blocks = find_segments(candidates, block_starts)
    of_block = np.searchsorted(blocks.row * width + blocks.start, begin, side="right") - 1
    words_to_end = np.searchsorted(begin, (blocks.row * width + blocks.stop)[of_block], side="left") - np.arange(
        len(begin)
    )
    most = np.minimum(words_to_end[order], len(cumulative))
    size = 1 + np.searchsorted(cumulative, rng.random(len(order)) * cumulative[most - 1], side="right")
    return _walk_words(
        candidates.size,
        word_groups[order].tolist(),
        order.tolist(),
        np.minimum(size, most).tolist(),
        begin.tolist(),
        stop.tolist(),
        np.asarray(budget).tolist(),
    ).reshape(candidates.shape)


def sample_ngrams_of_rows(
    candidates: np.ndarray, block_starts: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw n-grams of given sizes from each row, every place at which one fits equally likely; they may overlap.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        block_starts: Boolean `(batch, seq_len)`; no n-gram crosses the beginning of a block.
        sizes: Tokens of each n-gram, int `(batch, ngrams)`; cut to the longest block of the row.
        rng: Source of randomness.

    Returns:
        First position and number of tokens of each, int64 `(batch, ngrams)`; both 0 in a row without candidates.

    Examples:
        >>> text = np.ones((1, 3), dtype=bool)
        >>> sample_ngrams_of_rows(text, text & False, np.array([[3, 9]]), np.random.default_rng(0))
        (array([[0, 0]]), array([[3, 3]]))
    """
    blocks = find_segments(candidates, block_starts)
    longest = np.zeros(len(candidates), dtype=np.int64)
    np.maximum.at(longest, blocks.row, blocks.lengths)
    lengths = np.minimum(sizes, longest[:, None])
    starts = np.zeros_like(lengths)
    some = longest > 0
    for column, length in enumerate(lengths.T):
        places = np.maximum(blocks.lengths - length[blocks.row] + 1, 0)
        of_row = np.bincount(blocks.row, weights=places, minlength=len(candidates)).astype(np.int64)
        drawn = np.cumsum(of_row) - of_row + (rng.random(len(of_row)) * of_row).astype(np.int64)
        ends = np.cumsum(places)
        block = np.searchsorted(ends, drawn[some], side="right")
        starts[some, column] = blocks.start[block] + drawn[some] - (ends - places)[block]
    return starts, lengths


def _walk_words(
    size: int,
    owners: list[int],
    firsts: list[int],
    numbers: list[int],
    begins: list[int],
    stops: list[int],
    left: list[int],
) -> np.ndarray:
    """Take n-grams of words in order where they fit and are free; boolean `(size,)`."""
    masked = bytearray(size)
    for owner, first, number in zip(owners, firsts, numbers, strict=True):
        room, begin = left[owner], begins[first]
        if room <= 0 or masked[begin]:
            continue
        last = first + number - 1
        while last >= first and stops[last] - begin > room:
            last -= 1
        if last < first or masked.find(1, begin, stops[last]) >= 0:
            continue
        left[owner] = room - (stops[last] - begin)
        masked[begin : stops[last]] = b"\x01" * (stops[last] - begin)
    return np.frombuffer(masked, dtype=bool)


def _cumulative(size_probabilities: np.ndarray) -> np.ndarray:
    """The cumulative law of sizes, checked."""
    law = np.asarray(size_probabilities, dtype=np.float64)
    if law.ndim != 1 or not len(law) or (law < 0).any() or not np.isclose(law.sum(), 1):
        raise ValueError(
            f"`size_probabilities` must be probabilities that sum to 1, got {size_probabilities!r}. Use "
            "`ngram_size_probabilities()`."
        )
    return np.cumsum(law)


def _extents(
    candidates: np.ndarray,
    block_starts: np.ndarray,
    word_starts: np.ndarray | None,
    anchor: np.ndarray,
    length: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """First flat position and flat stop of the n-grams that begin at `anchor`, inside their blocks."""
    width = candidates.shape[1]
    blocks = find_segments(candidates, block_starts)
    block = np.searchsorted(blocks.row * width + blocks.start, anchor, side="right") - 1
    stop = np.minimum(anchor + length, (blocks.row * width + blocks.stop)[block])
    if word_starts is None:
        return anchor, stop
    check_same_shape("word_starts", word_starts, "candidates", candidates)
    words = find_segments(candidates, word_starts | block_starts)
    word_start = words.row * width + words.start
    first = np.searchsorted(word_start, anchor, side="right") - 1
    last = np.searchsorted(word_start, stop - 1, side="right") - 1
    return word_start[first], (words.row * width + words.stop)[last]


def _walk(
    size: int,
    owners: list[int],
    anchors: list[int],
    begins: list[int],
    stops: list[int],
    left: list[int],
    clip: bool,
) -> np.ndarray:
    """Take n-grams in order as long as their sequence has budget left; boolean `(size,)`."""
    masked = bytearray(size)
    for owner, anchor, begin, stop in zip(owners, anchors, begins, stops, strict=True):
        room = left[owner]
        if room <= 0 or masked[anchor]:
            continue
        if stop - begin == 1:  # most of them
            masked[anchor] = 1
            left[owner] = room - 1
            continue
        if clip:
            while masked.count(0, begin, stop) > room:
                stop -= 1
        left[owner] = room - masked.count(0, begin, stop)
        masked[begin:stop] = b"\x01" * (stop - begin)
    return np.frombuffer(masked, dtype=bool)
