"""Span masking: random spans of whole words up to an exact token budget (Joshi et al. 2020, SpanBERT).

https://arxiv.org/abs/1907.10529. Per content block of n tokens:

    m = ceil(0.15 n) tokens are masked, always
    P(length = k words) = 0.2 * 0.8^(k-1) / Z,  k = 1..10
    repeat: draw a length and an anchor TOKEN; a masked anchor discards both draws;
            mask from the anchor's word to the right until k words are in the span, the block ends or m is reached
    spans that overlap or touch are one span afterwards

The budget beats the words: the last span may stop inside a word. Words that are masked already count as words of the
span, not against the budget. Spans grow only to the right, so the first positions of a block are masked less often
(0.046 instead of 0.15 at position 0). All of this follows facebookresearch/SpanBERT, PairWithSpanMaskingScheme.
"""

import numpy as np

from .checks import check_same_shape
from .segments import Segments, find_segments


def span_length_probabilities(geometric_p: float = 0.2, max_span_length: int = 10) -> np.ndarray:
    """Give the clipped and renormalised geometric law of span lengths, entry k - 1 for k words.

    Args:
        geometric_p: Parameter of the geometric law, in (0, 1] (SpanBERT: 0.2).
        max_span_length: Longest span in words (SpanBERT: 10).

    Examples:
        >>> span_length_probabilities()[:2].round(5)
        array([0.22406, 0.17925])
    """
    if not 0 < geometric_p <= 1:
        raise ValueError(f"`geometric_p` must be in (0, 1], got {geometric_p}. Use 0.2 for the SpanBERT setting.")
    if max_span_length < 1:
        raise ValueError(
            f"`max_span_length` must be at least 1 word, got {max_span_length}. Use 10 for the SpanBERT setting."
        )
    weights = geometric_p * (1 - geometric_p) ** np.arange(max_span_length)
    return weights / weights.sum()


def sample_spans(
    candidates: np.ndarray,
    block_starts: np.ndarray,
    word_starts: np.ndarray,
    budget: np.ndarray,
    length_probabilities: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Select spans of whole words in every block until its budget is used up exactly.

    Args:
        candidates: Boolean `(batch, seq_len)`.
        block_starts: Boolean `(batch, seq_len)`, first token of every block; spans never cross into another block.
        word_starts: Boolean `(batch, seq_len)`, first piece of every word.
        budget: Tokens to mask in each block, in reading order (`span_budget`), int `(num_blocks,)`.
        length_probabilities: P(span has k words) at entry k - 1 (`span_length_probabilities`).
        rng: Source of randomness.

    Returns:
        Boolean `(batch, seq_len)`. The merged spans are its runs: `find_segments(selected, block_starts)`.

    Examples:
        >>> text = np.ones((1, 20), dtype=bool)
        >>> first = np.zeros((1, 20), dtype=bool)
        >>> first[0, 0] = True
        >>> law = span_length_probabilities()
        >>> sample_spans(text, first, text, np.array([3]), law, np.random.default_rng(0)).sum()
        np.int64(3)
    """
    check_same_shape("block_starts", block_starts, "candidates", candidates)
    check_same_shape("word_starts", word_starts, "candidates", candidates)
    blocks = find_segments(candidates, block_starts)
    if len(budget) != len(blocks.row) or (budget > blocks.lengths).any():
        raise ValueError(
            f"`budget` must have one entry per block ({len(blocks.row)}) and none above the block's tokens, got "
            f"{len(budget)} entries. Use `span_budget(blocks.lengths, probability)`."
        )
    geometry = _WordGeometry(blocks, find_segments(candidates, word_starts | block_starts), candidates.shape)
    cumulative = np.cumsum(length_probabilities)
    mean_length = float(np.dot(length_probabilities, np.arange(1, len(length_probabilities) + 1)))
    # A first guess of the draws a block needs; a block that needs more gets more.
    draws = np.ceil(budget * 1.5 / mean_length).astype(np.int64) + 4
    draws[budget == 0] = 0
    if not budget.any():
        return np.zeros(candidates.shape, dtype=bool)
    masked = bytearray(candidates.size)
    pending, left = np.flatnonzero(budget), budget.tolist()
    while len(pending):
        anchors, begins, stops = geometry.draw_spans(pending, draws[pending], cumulative, rng)
        at = 0
        unfinished = []
        for block, count in zip(pending.tolist(), draws[pending].tolist(), strict=True):
            upto = slice(at, at + count)
            left[block] = _mask_block(masked, anchors[upto], begins[upto], stops[upto], left[block])
            at += count
            if left[block]:
                unfinished.append(block)
        pending = np.array(unfinished, dtype=np.int64)
    return np.frombuffer(masked, dtype=bool).reshape(candidates.shape)


class _WordGeometry:
    """Flat positions of blocks and words, and the extent of a span given its anchor and its number of words."""

    def __init__(self, blocks: Segments, words: Segments, shape: tuple[int, int]) -> None:
        width = shape[1]
        self.block_start = blocks.row * width + blocks.start
        self.block_length = blocks.lengths
        self.word_start = words.row * width + words.start
        self.word_stop = words.row * width + words.stop
        # Words lie in reading order: the last word of a block is the one before the first word of the next.
        last = np.searchsorted(self.word_start, self.block_start + self.block_length, side="left") - 1
        self.last_word = last

    def draw_spans(
        self, block: np.ndarray, draws: np.ndarray, cumulative: np.ndarray, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int]]:
        """Draw `draws[i]` spans for block `block[i]`: flat anchor, flat first token, flat stop, as lists."""
        owner = np.repeat(block, draws)
        uniform = rng.random((2, len(owner)))
        length = np.minimum(np.searchsorted(cumulative, uniform[0], side="right"), len(cumulative) - 1)  # words - 1
        anchor = self.block_start[owner] + (uniform[1] * self.block_length[owner]).astype(np.int64)
        word = np.searchsorted(self.word_start, anchor, side="right") - 1
        stop = self.word_stop[np.minimum(word + length, self.last_word[owner])]
        return anchor.tolist(), self.word_start[word].tolist(), stop.tolist()


def _mask_block(masked: bytearray, anchors: list[int], begins: list[int], stops: list[int], left: int) -> int:
    """Apply draws to one block until its budget is used up; return what is left of the budget."""
    for anchor, begin, stop in zip(anchors, begins, stops, strict=True):
        if not left:
            break
        if masked[anchor]:
            continue
        fresh = masked.count(0, begin, stop)
        if fresh > left:  # the budget ends inside this span: stop after the last token that fits
            while left:
                left -= not masked[begin]
                masked[begin] = 1
                begin += 1
            break
        masked[begin:stop] = b"\x01" * (stop - begin)
        left -= fresh
    return left
