"""Injection on arrays: rows of tokens, with the branches of their words spliced in behind them.

For every token of the result: its position in the tree, the word that it belongs to and the branch that it is on (see
`visibility_kbert`). Everything runs over the whole batch at once; nothing here knows texts.

    trunk     我 在 北 京                   positions 0 1 2 3
    result    我 在 北 京 首 都 古 城 吗     positions 0 1 2 3 4 5 4 5 4
                        ^^^^^ ^^^^^ branches 1 and 2 of the word 北京
"""

from dataclasses import dataclass

import numpy as np

from .lexicon_kbert import BranchStore


@dataclass(frozen=True)
class Tokens:
    """The tokens of many texts, one text after another, and the words with knowledge among them.

    Args:
        ids: `(num_tokens,)`.
        bounds: text `t` is tokens `bounds[t]` to `bounds[t + 1]`.
        first: first token of each word with knowledge, ascending.
        last: its last token.
        rows: its row in the branch store.
    """

    ids: np.ndarray
    bounds: np.ndarray
    first: np.ndarray
    last: np.ndarray
    rows: np.ndarray

    def branch_tokens(self, store: BranchStore) -> np.ndarray:
        """How many tokens hang behind each token, `(num_tokens,)`."""
        words = store.branch_bounds[store.word_bounds]
        sizes = words[self.rows + 1] - words[self.rows]
        return np.bincount(self.last, weights=sizes, minlength=len(self.ids)).astype(np.int64)


@dataclass(frozen=True)
class Pieces:
    """What the rows are put together from, in order: stretches of tokens, and special tokens.

    Args:
        row: the row that a piece belongs to, ascending.
        begin: its first token; special tokens are numbered behind the tokens.
        length: how many tokens it has.
        token_type: their type.
    """

    row: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    token_type: np.ndarray


@dataclass
class Rows:
    """The result, all rows one after another.

    Args:
        bounds: row `r` is `bounds[r]` to `bounds[r + 1]` of each array.
        ids: tokens.
        token_types: their types; of a branch, that of its word.
        positions: in the tree.
        words: number of the word, within the row.
        branches: 0 on the trunk, else the number of the branch, within the row.
        source: number of the token among the given ones; -1 for injected and -2 for special ones.
        dropped: how many branches of each row did not fit.
    """

    bounds: np.ndarray
    ids: np.ndarray
    token_types: np.ndarray
    positions: np.ndarray
    words: np.ndarray
    branches: np.ndarray
    source: np.ndarray
    dropped: np.ndarray

    def cut(self, length: int) -> None:
        """Cut every row behind a number of tokens, wherever that is (as the original project does).

        Args:
            length: tokens to keep.
        """
        sizes = np.diff(self.bounds)
        keep = np.arange(len(self.ids)) - np.repeat(self.bounds[:-1], sizes) < length
        for name in ("ids", "token_types", "positions", "words", "branches", "source"):
            setattr(self, name, getattr(self, name)[keep])
        self.bounds = bounds_of(np.minimum(sizes, length))


def bounds_of(sizes: np.ndarray) -> np.ndarray:
    """Where stretches of these sizes begin, and the last one ends.

    Args:
        sizes: `(n,)`.

    Returns:
        `(n + 1,)`.
    """
    bounds = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def stretches(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers begin, begin + 1, ... of each stretch, one stretch after another.

    Args:
        begins: `(n,)`.
        sizes: `(n,)`.

    Returns:
        `(sum of sizes,)`.

    Example:
        >>> stretches(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    bounds = bounds_of(sizes)
    return np.arange(bounds[-1]) + np.repeat(begins - bounds[:-1], sizes)


def inject(
    tokens: Tokens,
    special_ids: np.ndarray,
    pieces: Pieces,
    num_rows: int,
    store: BranchStore | None,
    max_length: int | None,
) -> Rows:
    """Put rows together and splice branches in.

    Args:
        tokens: of all texts.
        special_ids: the special tokens that pieces name, numbered behind the tokens.
        pieces: of all rows.
        num_rows: how many rows there are.
        store: has the branches; `None` for no knowledge.
        max_length: branches that would make a row longer are dropped whole, the last ones first; `None` keeps all.

    Returns:
        The rows.
    """
    size = len(tokens.ids)
    piece_bounds = bounds_of(pieces.length)
    source = stretches(pieces.begin, pieces.length)
    trunk_ids = np.concatenate([tokens.ids, special_ids])[source]
    source[source >= size] = -2
    trunk_sizes = np.bincount(pieces.row, weights=pieces.length, minlength=num_rows).astype(np.int64)
    trunk_bounds = bounds_of(trunk_sizes)
    positions = np.arange(len(trunk_ids)) - np.repeat(trunk_bounds[:-1], trunk_sizes)
    types = np.repeat(pieces.token_type, pieces.length)
    dropped = np.zeros(num_rows, dtype=np.int64)
    if store is None or not len(tokens.first):
        nothing = np.zeros(len(trunk_ids), dtype=np.int64)
        return Rows(trunk_bounds, trunk_ids, types, positions, positions, nothing, source, dropped)

    # Words that lie in a piece as a whole, and where they stand in the trunk.
    low = np.searchsorted(tokens.first, pieces.begin)
    high = np.searchsorted(tokens.last, pieces.begin + pieces.length)
    counts = np.maximum(high - low, 0)
    words = stretches(low, counts)
    shift = np.repeat(piece_bounds[:-1] - pieces.begin, counts)
    first, last = tokens.first[words] + shift, tokens.last[words] + shift
    row_of_word = np.repeat(pieces.row, counts)

    # Their branches; `owner` is the word of each.
    store_rows = tokens.rows[words]
    begins = store.word_bounds[store_rows]
    counts = store.word_bounds[store_rows + 1] - begins
    branch = stretches(begins, counts)
    owner = np.repeat(np.arange(len(words)), counts)
    sizes = store.branch_bounds[branch + 1] - store.branch_bounds[branch]
    row = row_of_word[owner]
    if max_length is not None and len(branch):
        before = bounds_of(sizes)
        spent = before[1:] - before[np.searchsorted(row, row)]
        keep = spent <= max_length - trunk_sizes[row]
        if not keep.all():
            dropped = np.bincount(row[~keep], minlength=num_rows)
            branch, owner, sizes, row = branch[keep], owner[keep], sizes[keep], row[keep]

    # Where everything goes.
    behind = np.bincount(last[owner], weights=sizes, minlength=len(trunk_ids)).astype(np.int64)
    place = np.arange(len(trunk_ids)) + np.cumsum(behind) - behind
    before = np.cumsum(sizes) - sizes
    goes_to = place[last[owner]] + 1 + before - before[np.searchsorted(owner, owner)]
    branch_place = stretches(goes_to, sizes)

    one_word = np.zeros(len(trunk_ids), dtype=bool)
    one_word[stretches(first + 1, last - first)] = True
    word = np.cumsum(~one_word) - 1
    filled = np.minimum(trunk_bounds[:-1], max(len(word) - 1, 0))
    word = word - np.repeat(word[filled], trunk_sizes) if len(word) else word
    number = np.arange(len(branch)) - np.searchsorted(row, row) + 1

    def merged(trunk: np.ndarray, branches: np.ndarray) -> np.ndarray:
        values = np.empty(len(place) + len(branch_place), dtype=np.int64)
        values[place] = trunk
        values[branch_place] = branches
        return values

    def spread(per_branch: np.ndarray) -> np.ndarray:
        return np.repeat(per_branch, sizes)

    at = last[owner]
    return Rows(
        bounds_of(trunk_sizes + np.bincount(row, weights=sizes, minlength=num_rows).astype(np.int64)),
        merged(trunk_ids, store.ids[stretches(store.branch_bounds[branch], sizes)]),
        merged(types, spread(types[at])),
        merged(positions, stretches(positions[at] + 1, sizes)),
        merged(word, spread(word[at])),
        merged(np.zeros(len(trunk_ids), dtype=np.int64), spread(number)),
        merged(source, np.full(len(branch_place), -1)),
        dropped,
    )


__all__ = ["Pieces", "Rows", "Tokens", "bounds_of", "inject", "stretches"]
