"""A text with knowledge as people can read it: the sentence tree, line by line."""

from collections.abc import Sequence
from itertools import groupby

Group = tuple[list[int], dict[int, list[int]]]


def words_of(words: Sequence[int], branches: Sequence[int]) -> list[Group]:
    """Group the tokens of a row by word.

    Args:
        words: `word_index` of each token.
        branches: `branch_id` of each token.

    Returns:
        For each word the places of its own tokens, and those of each of its branches; padding is left out.

    Example:
        >>> words_of([0, 1, 1, 1, -1], [0, 0, 1, 1, -1])
        [([0], {}), ([1], {1: [2, 3]})]
    """
    grouped: dict[int, Group] = {}
    for place, (word, branch) in enumerate(zip(words, branches, strict=True)):
        if branch < 0:
            continue
        trunk, hanging = grouped.setdefault(word, ([], {}))
        (trunk if branch == 0 else hanging.setdefault(branch, [])).append(place)
    return list(grouped.values())


def sentence_tree(
    tokens: Sequence[str], positions: Sequence[int], words: Sequence[int], branches: Sequence[int]
) -> str:
    """Draw the sentence tree: a line for each word with knowledge and for the text between, branches below.

    Args:
        tokens: their texts.
        positions: `position_ids`.
        words: `word_index`.
        branches: `branch_id`.

    Returns:
        Lines of position or positions, and tokens.

    Example:
        >>> print(sentence_tree(["[CLS]", "北", "京", "首", "都", "好"], [0, 1, 2, 3, 4, 3], [0, 1, 1, 1, 1, 2],
        ...                     [0, 0, 0, 1, 1, 0]))
          0    [CLS]
        1-2    北 京
        3-4    └── 首 都
          3    好
    """
    lines: list[tuple[str, str]] = []

    def write(places: Sequence[int], before: str = "") -> None:
        first, last = positions[places[0]], positions[places[-1]]
        span = str(first) if first == last else f"{first}-{last}"
        lines.append((span, before + " ".join(tokens[place] for place in places)))

    for has_branches, group in groupby(words_of(words, branches), key=lambda word: bool(word[1])):
        if not has_branches:
            write([place for trunk, _ in group for place in trunk])
            continue
        for trunk, hanging in group:
            write(trunk)
            for branch in hanging:
                write(hanging[branch], "└── " if branch == max(hanging) else "├── ")
    width = max((len(span) for span, _ in lines), default=0)
    return "\n".join(f"{span:>{width}}    {text}" for span, text in lines)


__all__ = ["sentence_tree", "words_of"]
