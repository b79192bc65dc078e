"""Random texts with knowledge, and what the reference says of them token by token, with no formula of ours."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

# A word: how many tokens it has on the trunk, and how many each of its branches has.
words = st.tuples(st.integers(1, 3), st.lists(st.integers(1, 3), max_size=3))
trees = st.lists(words, min_size=1, max_size=5)


@dataclass(frozen=True)
class Text:
    """A text written out.

    Args:
        word_index: word of each token.
        branch_id: branch of each token, 0 on the trunk.
        positions: soft position of each token.
        matrix: who sees whom.
    """

    word_index: list[int]
    branch_id: list[int]
    positions: list[int]
    matrix: list[list[bool]]


def write_out(tree, restart=False, length=None):
    """The reference's way: grow the tree, remember which tokens each token is connected to.

    Args:
        tree: words as `words` draws them.
        restart: whether branches are numbered from 1 in every word, or through the text.
        length: cut there, in the middle of a branch if need be.
    """
    tokens, trunk, position, branch = [], [], -1, 0
    connected = []
    for word, (size, branches) in enumerate(tree):
        branch = 0 if restart else branch
        own = list(range(len(tokens), len(tokens) + size))
        for _ in own:
            position += 1
            tokens.append((word, 0, position))
        trunk += own
        for length_of_branch in branches:
            branch += 1
            grown = list(range(len(tokens), len(tokens) + length_of_branch))
            for number, _ in enumerate(grown):
                tokens.append((word, branch, position + 1 + number))
            connected.append(grown + own)
            connected.append(grown)
    size = len(tokens)
    matrix = torch.zeros(size, size, dtype=torch.bool)
    for i in trunk:
        matrix[i, trunk] = True
    for grown, joined in zip(connected[1::2], connected[::2], strict=True):
        for i in grown:
            matrix[i, joined] = True
            matrix[joined, i] = True
    cut = size if length is None else min(length, size)
    columns = [list(column)[:cut] for column in zip(*tokens, strict=True)]
    return Text(*columns, matrix[:cut, :cut].tolist())


def as_batch(texts, width=None, left=False):
    """`word_index`, `branch_id`, soft positions, the padding mask and the matrix of several texts, padded."""
    width = width or max(len(text.word_index) for text in texts)
    rows = {"word_index": [], "branch_id": [], "position_ids": [], "attention_mask": []}
    matrix = torch.zeros(len(texts), width, width, dtype=torch.bool)
    for number, text in enumerate(texts):
        size = len(text.word_index)
        start = width - size if left else 0
        inside = slice(start, start + size)
        columns = (text.word_index, text.branch_id, text.positions, [1] * size)
        for (name, row), column in zip(rows.items(), columns, strict=True):
            full = torch.full((width,), -1 if name in ("word_index", "branch_id") else 0)
            full[inside] = torch.tensor(column)
            row.append(full)
        matrix[number, inside, inside] = torch.tensor(text.matrix)
    return {**{name: torch.stack(row) for name, row in rows.items()}, "matrix": matrix}
