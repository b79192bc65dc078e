"""Injection: rows of tokens, with what a graph knows of their words spliced in behind these as branches.

trunk     我 在 北 京                   positions 0 1 2 3
result    我 在 北 京 首 都 古 城 吗     positions 0 1 2 3 4 5 4 5 4
                    ^^^^^ ^^^^^ branches 1 and 2 of the word 北京
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .lexicon_kbert import BranchStore, Characters, Span, WordPieces, bounds_of
from .matcher_core import Match
from .tokenizer_core import kept_sizes

# What gives way when text and knowledge do not both fit:
#   keep_text       branches are dropped whole, the last ones first, and the text is cut only where it is too long
#                   without any (default)
#   keep_knowledge  a word stays with its branches: the text is cut where it and its knowledge no longer fit
#   only_knowledge  as keep_text, but a text that is too long by itself is an error
KNOWLEDGE_TRUNCATIONS = ("keep_text", "keep_knowledge", "only_knowledge")


def stretches(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers begin, begin + 1, ... of each stretch, one stretch after another."""
    bounds = bounds_of(sizes)
    return np.arange(bounds[-1]) + np.repeat(begins - bounds[:-1], sizes)


# ---- what is kept of a text ----


@dataclass(frozen=True)
class Limits:
    """How long rows may be, and what gives way."""

    max_length: int  # tokens of a row
    strategy: str  # which text of a pair is cut
    side: str  # the end that is cut
    policy: str  # one of `KNOWLEDGE_TRUNCATIONS`
    windows: bool  # whether what is cut makes further rows
    stride: int  # tokens of the text that neighbouring windows share


def cut_text(cost: np.ndarray, size: int, side: str) -> Span:
    """The part of a text that fits; a token costs itself and the branches behind it."""
    length = len(cost)
    if side == "left":
        spent = np.cumsum(cost[::-1])
        return length - int(np.searchsorted(spent, size, side="right")), length
    spent = np.cumsum(cost) - cost + 1
    return 0, int(np.searchsorted(spent, size, side="right"))


def windows(cost: np.ndarray, size: int, stride: int, side: str) -> list[Span]:
    """Parts of a text, in turn, that cover it."""
    begin, end = 0, len(cost)
    parts: list[Span] = []
    while True:
        low, high = cut_text(cost[begin:end], size, side)
        parts.append((begin + low, begin + high))
        if (high == end - begin) if side == "right" else low == 0:
            return parts
        if high - low <= stride:
            raise ValueError(
                f"`stride` must be below the number of tokens of a window, got {stride} and a window of {high - low} "
                "tokens. Raise `max_length` or lower `stride`."
            )
        if side == "right":
            begin += high - stride
        else:
            end = begin + low + stride


# ---- rows with knowledge ----


@dataclass
class Rows:
    """The result, all rows one after another: row `r` is `bounds[r]` to `bounds[r + 1]` of each array."""

    bounds: np.ndarray
    ids: np.ndarray
    token_types: np.ndarray  # of a branch, that of its word
    positions: np.ndarray  # in the tree
    words: np.ndarray  # number of the word, within the row
    branches: np.ndarray  # 0 on the trunk, else the number of the branch, within the row
    source: np.ndarray  # number of the token among those of the texts; -1 for injected and -2 for special ones

    def cut(self, length: int) -> None:
        """Cut every row behind a number of tokens, wherever that is (as the original project does)."""
        sizes = np.diff(self.bounds)
        keep = np.arange(len(self.ids)) - np.repeat(self.bounds[:-1], sizes) < length
        for name in ("ids", "token_types", "positions", "words", "branches", "source"):
            setattr(self, name, getattr(self, name)[keep])
        self.bounds = bounds_of(np.minimum(sizes, length))

    def number_segments(self, sep_id: int, has_second: np.ndarray) -> None:
        """The original project's types: 1, and 2 behind the first [SEP] on the trunk if there is a second segment."""
        is_sep = ((self.ids == sep_id) & (self.branches == 0)).astype(np.int64)
        before = np.cumsum(is_sep) - is_sep
        starts = before[np.minimum(self.bounds[:-1], max(len(before) - 1, 0))] if len(before) else before
        sizes = np.diff(self.bounds)
        self.token_types = 1 + np.minimum(before - np.repeat(starts, sizes), np.repeat(has_second, sizes))


class Batch:
    """Tokens of many texts, the words with knowledge among them, and the rows that they are to make."""

    def __init__(
        self,
        source: WordPieces | Characters,
        matches: Sequence[Sequence[Match]],
        of_row: Sequence[tuple[int, int]],
        store: BranchStore | None,
    ):
        self.source, self.store = source, store
        # First and last token of each word with knowledge, ascending, and its row in the branch store.
        self.first = self.last = self.store_rows = np.zeros(0, dtype=np.int64)
        if store is not None:
            first, last, numbers = source.place(matches)
            rows = store.rows(numbers)
            some = store.word_bounds[rows + 1] > store.word_bounds[rows]
            self.first, self.last, self.store_rows = first[some], last[some], rows[some]
        # (begin, end) of both texts of each row, in tokens; of no text, an empty stretch at the end.
        pairs = np.array(of_row, dtype=np.int64).reshape(-1, 2)
        bounds = source.bounds
        self.has_second = pairs[:, 1] >= 0
        second = np.where(self.has_second, pairs[:, 1], len(bounds) - 1)
        begins, ends = bounds[pairs[:, 0]], bounds[pairs[:, 0] + 1]
        self.parts = np.stack([begins, ends, bounds[second], bounds[second + self.has_second]], 1)
        self.samples = np.arange(len(pairs))

    def _costs(self, policy: str) -> np.ndarray:
        """Of each token, in tokens of a row, `(num_tokens,)`."""
        costs = np.ones(len(self.source.ids), dtype=np.int64)
        if policy != "keep_knowledge" or self.store is None:
            return costs
        words = self.store.branch_bounds[self.store.word_bounds]
        sizes = words[self.store_rows + 1] - words[self.store_rows]
        return costs + np.bincount(self.last, weights=sizes, minlength=len(costs)).astype(np.int64)

    def limit(self, limits: Limits, num_special: tuple[int, int]) -> None:
        """Cut texts that are too long, or make windows of them; `num_special` is of a single text and of a pair."""
        special = np.where(self.has_second, num_special[1], num_special[0])
        if (special >= limits.max_length).any():
            raise ValueError(
                f"`max_length` must leave room for text beside {int(special.max())} special tokens, got "
                f"{limits.max_length}."
            )
        costs = self._costs(limits.policy)
        spent = bounds_of(costs)
        sizes = spent[self.parts[:, 1::2]] - spent[self.parts[:, ::2]]
        needed = sizes.sum(1) + special
        long = needed > limits.max_length
        if not long.any():
            return
        if limits.policy == "only_knowledge":
            row = int(np.flatnonzero(long)[0])
            raise ValueError(
                f"`max_length` must be at least the number of tokens of a text without knowledge, got "
                f"{limits.max_length} and text {row} with {int(needed[row])}. Raise it, or let the text be cut: "
                "knowledge_truncation='keep_text'."
            )
        parts: list[Any] = []
        samples: list[int] = []
        for row, part in enumerate(self.parts.tolist()):
            cuts = self._cut(costs, row, limits, int(limits.max_length - special[row])) if long[row] else [part]
            parts += cuts
            samples += [row] * len(cuts)
        self.parts, self.samples = np.array(parts, dtype=np.int64), np.array(samples)
        self.has_second = self.has_second[self.samples]

    def _cut(self, costs: np.ndarray, row: int, limits: Limits, room: int) -> list[tuple[int, int, int, int]]:
        begin, end, begin_2, end_2 = self.parts[row].tolist()
        first, second = costs[begin:end], costs[begin_2:end_2]
        size, size_2 = kept_sizes(int(first.sum()), int(second.sum()), room, limits.strategy)
        if not limits.windows:
            low, high = cut_text(first, size, limits.side)
            low_2, high_2 = cut_text(second, size_2, limits.side)
            return [(begin + low, begin + high, begin_2 + low_2, begin_2 + high_2)]
        if limits.strategy == "only_second":
            cuts = windows(second, size_2, limits.stride, limits.side)
            return [(begin, end, begin_2 + low, begin_2 + high) for low, high in cuts]
        if self.has_second[row] and limits.strategy == "longest_first":
            raise ValueError(
                "`return_overflowing_tokens` must know which text of a pair to make windows of, got "
                "truncation='longest_first'. Pass truncation='only_second' or 'only_first'."
            )
        cuts = windows(first, size, limits.stride, limits.side)
        return [(begin + low, begin + high, begin_2, end_2) for low, high in cuts]

    def inject(self, special_ids: Sequence[int], max_length: int | None) -> Rows:
        """Put rows together, [CLS] first [SEP] second [SEP] if these ids are given, and splice branches in."""
        num_rows, size = len(self.parts), len(self.source.ids)
        begin, end, begin_2, end_2 = self.parts.T
        # The begin, length and type of each piece of a row; special tokens are numbered behind the others.
        ones, pair = np.ones(num_rows, dtype=np.int64), self.has_second.astype(np.int64)
        columns = [(begin, end - begin, 0 * ones), (begin_2, end_2 - begin_2, ones)]
        if special_ids:
            cls, sep = size * ones, (size + 1) * ones
            columns = [(cls, ones, 0 * ones), columns[0], (sep, ones, 0 * ones), columns[1], (sep, pair, ones)]
        begins, lengths, types = (np.stack(values, 1).reshape(-1) for values in zip(*columns, strict=True))
        row_of_piece = np.repeat(np.arange(num_rows), len(columns))

        source = stretches(begins, lengths)
        ids = np.concatenate([self.source.ids, np.array(special_ids, dtype=np.int64)])[source]
        source[source >= size] = -2
        bounds = bounds_of(lengths.reshape(num_rows, len(columns)).sum(1))
        positions = np.arange(len(ids)) - np.repeat(bounds[:-1], np.diff(bounds))
        trunk = Rows(bounds, ids, np.repeat(types, lengths), positions, positions, 0 * positions, source)
        if self.store is None:
            return trunk
        # Words that lie in a piece as a whole, and where they stand in the trunk.
        low = np.searchsorted(self.first, begins)
        counts = np.maximum(np.searchsorted(self.last, begins + lengths) - low, 0)
        words = stretches(low, counts)
        if not len(words):
            return trunk
        shift = np.repeat(bounds_of(lengths)[:-1] - begins, counts)
        first, last = self.first[words] + shift, self.last[words] + shift
        return _spliced(
            trunk, first, last, self.store_rows[words], np.repeat(row_of_piece, counts), self.store, max_length
        )


def _spliced(
    trunk: Rows,
    first: np.ndarray,
    last: np.ndarray,
    store_rows: np.ndarray,
    rows: np.ndarray,
    store: BranchStore,
    max_length: int | None,
) -> Rows:
    """Rows with the branches of words behind them: words by their first and last token, store row and row."""
    size, num_rows = len(trunk.ids), len(trunk.bounds) - 1
    begins = store.word_bounds[store_rows]
    counts = store.word_bounds[store_rows + 1] - begins
    # Branches: their number in the store; the last token of their word; their row; how many tokens they have.
    branch, owner, row = stretches(begins, counts), np.repeat(last, counts), np.repeat(rows, counts)
    sizes = store.branch_bounds[branch + 1] - store.branch_bounds[branch]
    if max_length is not None and len(branch):
        before = bounds_of(sizes)
        spent = before[1:] - before[np.searchsorted(row, row)]
        keep = spent <= max_length - np.diff(trunk.bounds)[row]
        branch, owner, row, sizes = branch[keep], owner[keep], row[keep], sizes[keep]

    # Where everything goes.
    behind = np.bincount(owner, weights=sizes, minlength=size).astype(np.int64)
    place = np.arange(size) + np.cumsum(behind) - behind
    before = np.cumsum(sizes) - sizes
    branch_place = stretches(place[owner] + 1 + before - before[np.searchsorted(owner, owner)], sizes)

    inside_word = np.zeros(size, dtype=bool)
    inside_word[stretches(first + 1, last - first)] = True
    words = np.cumsum(~inside_word) - 1
    starts = np.minimum(trunk.bounds[:-1], size - 1)
    words -= np.repeat(words[starts], np.diff(trunk.bounds))
    number = np.arange(len(branch)) - np.searchsorted(row, row) + 1

    def merged(of_trunk: np.ndarray, of_branches: np.ndarray) -> np.ndarray:
        values = np.empty(len(place) + len(branch_place), dtype=np.int64)
        values[place] = of_trunk
        values[branch_place] = of_branches
        return values

    injected = np.bincount(row, weights=sizes, minlength=num_rows).astype(np.int64)
    return Rows(
        bounds_of(np.diff(trunk.bounds) + injected),
        merged(trunk.ids, store.ids[stretches(store.branch_bounds[branch], sizes)]),
        merged(trunk.token_types, np.repeat(trunk.token_types[owner], sizes)),
        merged(trunk.positions, stretches(trunk.positions[owner] + 1, sizes)),
        merged(words, np.repeat(words[owner], sizes)),
        merged(trunk.branches, np.repeat(number, sizes)),
        merged(trunk.source, np.full(len(branch_place), -1)),
    )
