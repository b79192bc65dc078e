"""From start and end logits to answer spans, in numpy, for whole batches of windows.

A span's score is the sum of its two logits. Its probability is

    exp(start[w, i] + end[w, j]) / sum over windows v of (sum_i exp(start[v, i])) * (sum_j exp(end[v, j]))

over all windows of one question together, so that spans of different windows can be compared and added. The pipeline
that transformers removed took a softmax in each window for itself; `reference_spans` is that one's choice, kept for
comparison.
"""

import re
import unicodedata
from typing import NamedTuple

import numpy as np

MASKED = -10000.0
NO_NULL_SCORE = 1000000.0  # what the removed pipeline gives where nothing is asked about unanswerable questions
_CHUNK = 64  # windows whose spans are scored at once
# Of Indian scripts, Burmese, Khmer, Lanna, Balinese, Sundanese and Javanese, and the consonants that join behind them.
_VIRAMAS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2\u1a60\u1b44\u1bab\ua9c0"
_JOINED = "\u0915-\u0d3a\u1000-\u103f\u1780-\u17b3\u1a20-\u1a54\u1b05-\u1b4c\u1b83-\u1baf\ua984-\ua9b2"
# Beside marks: joiners, half-width sound marks, vowels of Thai and Lao that stand alone, tags and skin tones; behind a
# joiner emoji, behind a virama consonants, and letters of a Hangul syllable behind one another.
_GOES_ON = re.compile(
    "[\u200c\u200d\uff9e\uff9f\u0e33\u0eb3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
    "|(?<=\u200d)[\u2190-\u2bff\U0001f000-\U0001faff]"
    f"|(?<=[{_VIRAMAS}])[{_JOINED}]|(?<=[{_VIRAMAS}]\u200d)[{_JOINED}]"
    "|(?<=[\u1100-\u115f\ua960-\ua97c])[\u1100-\u11a7\ua960-\ua97c\uac00-\ud7c6]"
    "|(?<=[\u1160-\u11a7\uac00-\ud7c6])[\u1160-\u11ff\ud7b0-\ud7fb]"
    "|(?<=[\u11a8-\u11ff\ud7cb-\ud7fb])[\u11a8-\u11ff\ud7cb-\ud7fb]"
)
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]*$")


class Spans(NamedTuple):
    """The best spans of each window, best first, `(windows, n)`."""

    starts: np.ndarray  # first token
    ends: np.ndarray  # last token
    scores: np.ndarray  # sum of both logits, -inf where a window has fewer spans


def best_spans(
    start_logits: np.ndarray, end_logits: np.ndarray, answerable: np.ndarray, n: int, max_answer_len: int
) -> Spans:
    """The n best spans of each window, if there are as many: both ends answerable, at most `max_answer_len` tokens.

    Args:
        start_logits: `(windows, seq_len)`.
        end_logits: `(windows, seq_len)`.
        answerable: `(windows, seq_len)` bool, tokens at which an answer may start or end.
        n: how many.
        max_answer_len: most tokens of an answer.

    Examples:
        >>> start, end = np.array([[9.0, 1.0, 2.0, 0.5]]), np.array([[9.0, 0.0, 1.0, 3.0]])
        >>> found = best_spans(start, end, np.array([[False, True, True, True]]), n=2, max_answer_len=2)
        >>> found.starts.tolist(), found.ends.tolist(), found.scores.tolist()
        ([[2, 3]], [[3, 3]], [[5.0, 3.5]])
    """
    for name, value in (("n", n), ("max_answer_len", max_answer_len)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    if not start_logits.shape == end_logits.shape == answerable.shape or start_logits.ndim != 2:
        raise ValueError(
            "`start_logits`, `end_logits` and `answerable` must have the same shape (windows, seq_len), got "
            f"{start_logits.shape}, {end_logits.shape} and {answerable.shape}."
        )
    windows, length = start_logits.shape
    width = min(max_answer_len, length)
    n = min(n, length * width)
    found = [np.empty((windows, n), np.int64), np.empty((windows, n), np.int64), np.empty((windows, n), np.float64)]
    for first in range(0, windows, _CHUNK):
        part = slice(first, first + _CHUNK)
        allowed = answerable[part]
        start = np.where(allowed, start_logits[part], -np.inf).astype(np.float64)
        end = np.pad(
            np.where(allowed, end_logits[part], -np.inf).astype(np.float64),
            ((0, 0), (0, width - 1)),
            constant_values=-np.inf,
        )
        # (windows, seq_len, width): entry d of token i is the span from i to i + d.
        scores = start[:, :, None] + np.lib.stride_tricks.sliding_window_view(end, width, axis=1)
        flat = scores.reshape(len(scores), -1)
        places = np.argpartition(-flat, n - 1, axis=1)[:, :n]
        kept = np.take_along_axis(flat, places, axis=1)
        # Among equals the first in the text, so that the order does not depend on how the partition went.
        order = np.lexsort((places, -kept), axis=1)
        places, kept = np.take_along_axis(places, order, axis=1), np.take_along_axis(kept, order, axis=1)
        found[0][part], found[2][part] = places // width, kept
        found[1][part] = places // width + places % width
    return Spans(*found)


def whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a span so that it cuts nothing that readers see as one character, whatever tokens covered."""
    stripped = text[start:end].strip()
    if stripped:
        start += text[start:end].index(stripped)
        end = start + len(stripped)
    if stripped and not text.isascii():
        while _goes_on(text, start):
            start -= 1
        while _goes_on(text, end):
            end += 1
    return start, end


def _goes_on(text: str, at: int) -> bool:
    """Whether a place lies inside of what is seen as one character."""
    if not 0 < at < len(text) or text[at].isascii() or text[at - 1].isspace():
        return False
    if unicodedata.category(text[at])[0] == "M" or _GOES_ON.match(text, at):
        return True
    flags = _FLAGS.search(text, max(at - 64, 0), at + 1)
    return flags is not None and len(flags[0]) > 1 and len(flags[0]) % 2 == 0


def log_partition(start_logits: np.ndarray, end_logits: np.ndarray, counted: np.ndarray) -> float:
    """Logarithm of what all spans of all windows of one question have together."""
    return float(np.logaddexp.reduce(_log_sum(start_logits, counted) + _log_sum(end_logits, counted)))


def _log_sum(logits: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(np.where(counted, logits, -np.inf).astype(np.float64), axis=1)


def reference_spans(
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    p_mask: np.ndarray,
    attention_mask: np.ndarray | None = None,
    *,
    top_k: int = 1,
    max_answer_len: int = 15,
    handle_impossible_answer: bool = False,
    min_null_score: float = NO_NULL_SCORE,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The spans that the removed pipeline chose from one window, with what it got wrong.

    The softmax is over the window, so that scores of different windows cannot be compared; the best `top_k` pairs are
    taken first and masked ones left out then, so that fewer may remain; pairs that begin at the first token count
    with score 0.

    Args:
        start_logits: `(seq_len,)`.
        end_logits: `(seq_len,)`.
        p_mask: `(seq_len,)`, 1 for tokens that cannot be in an answer.
        attention_mask: `(seq_len,)`, 0 for padding; default: no padding.
        top_k: how many pairs are looked at.
        max_answer_len: most tokens of an answer.
        handle_impossible_answer: whether the score of "no answer" is taken.
        min_null_score: the least score of "no answer" in the windows before.

    Returns:
        Starts, ends, scores, and the least score of "no answer" so far.

    Examples:
        >>> start, end = np.array([0.0, 5.0, 1.0, 2.0]), np.array([0.0, 5.0, 3.0, 1.0])
        >>> starts, ends, scores, _ = reference_spans(start, end, np.array([0, 1, 0, 0]))
        >>> starts.tolist(), ends.tolist(), round(scores.item(), 4)
        ([2], [2], 0.2065)
    """
    candidate = np.asarray(p_mask) == 0
    if attention_mask is not None:
        candidate &= np.asarray(attention_mask) != 0
    start, end = (_window_softmax(np.asarray(logits), candidate) for logits in (start_logits, end_logits))
    if handle_impossible_answer:
        min_null_score = min(min_null_score, float(start[0] * end[0]))
    start[0] = end[0] = 0.0
    scores = np.tril(np.triu(np.outer(start, end)), max_answer_len - 1)
    flat = scores.ravel()
    if top_k == 1:
        places = np.array([flat.argmax()])
    elif flat.size < top_k:
        places = np.argsort(-flat)
    else:
        # Always a partition, never more than asked for: which of equal pairs are taken depends on it.
        places = np.argpartition(-flat, min(top_k, flat.size - 1))[:top_k]
        places = places[np.argsort(-flat[places])]
    starts, ends = np.divmod(places, len(start))
    kept = candidate[starts] & candidate[ends]
    starts, ends = starts[kept], ends[kept]
    return starts, ends, scores[starts, ends], min_null_score


def _window_softmax(logits: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    masked = np.where(candidate, logits, np.asarray(MASKED, dtype=logits.dtype))
    powers = np.exp(masked - masked.max())
    return powers / powers.sum()
