"""Which tokens carry an entity: annotations in characters or words, placed on the tokens of an unchanged text.

    first       the first token of the mention (Zhang et al. 2019, section 3.3; the fine-tuning code)
    all         every token of the mention
    alternate   every token of the mention whose left neighbour does not carry the same entity: tokens 0, 2, 4, ...
                (the released pre-training data, where the code compares with the already thinned neighbour)
    reference   the original tokenizer's rule: the first token of a word between spaces that starts exactly at `start`;
                of annotations with one start the last one counts, even if its id is unknown. No end is read, a start
                outside the text is that of no word, and marked mentions are cut out as Python slices

A mention that starts inside a token belongs to that token ("mark|eting" with a span on "keting": to "mark" first).
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

from .annotations_ernie_thu import Span

ALIGNMENTS = ("first", "all", "alternate", "reference")
Placed = list[tuple[int, int]]
"""(token, entity id) of the tokens that carry an entity."""


class TextTokens:
    """The tokens of one text of an encoding, asked by characters.

    Args:
        encoding: of a fast tokenizer.
        text: the original text.
        sequence: 0, or 1 for the second text of a pair.
    """

    def __init__(self, encoding: Any, text: str, sequence: int = 0):
        self.encoding, self.text, self.sequence = encoding, text, sequence

    def first(self, span: Span) -> int | None:
        """Find the token of a mention's first visible character.

        Args:
            span: characters of the mention.

        Returns:
            The token; `None` if it was cut off, or nothing of the mention became a token.
        """
        start, end = span
        token = self.encoding.char_to_token(start, self.sequence)
        if token is not None:
            return token
        for place in range(start, end):
            if not _is_invisible(self.text[place]):
                return self.encoding.char_to_token(place, self.sequence)
        return None

    def tokens(self, span: Span) -> range:
        """Find all tokens of a mention.

        Args:
            span: characters of the mention.

        Returns:
            Its tokens; empty if the first one is not there.
        """
        first = self.first(span)
        if first is None:
            return range(0)
        behind, count = first + 1, len(self.encoding)
        while behind < count:
            characters = self.encoding.token_to_chars(behind)
            if characters is None or self.encoding.token_to_sequence(behind) != self.sequence:
                break
            if characters[0] >= span[1]:
                break
            behind += 1
        return range(first, behind)

    def starts_inside(self, token: int, span: Span) -> bool:
        """Say whether a mention starts inside its first token.

        Args:
            token: what `first` gave.
            span: characters of the mention.

        Returns:
            Whether the token starts earlier.
        """
        start = span[0]
        if not start or self.text[start - 1].isspace():
            return False
        characters = self.encoding.token_to_chars(token)
        return characters is not None and characters[0] < start


class WordTokens:
    """The tokens of one text of an encoding that came split into words, asked by words.

    Args:
        encoding: of a fast tokenizer.
        sequence: 0, or 1 for the second text of a pair.
    """

    def __init__(self, encoding: Any, sequence: int = 0):
        self.encoding, self.sequence = encoding, sequence

    def first(self, span: Span) -> int | None:
        """Find the first token of a mention.

        Args:
            span: words of the mention.

        Returns:
            The token; `None` if there is none.
        """
        for word in range(*span):
            tokens = self.encoding.word_to_tokens(word, self.sequence)
            if tokens is not None:
                return tokens[0]
        return None

    def tokens(self, span: Span) -> range:
        """Find all tokens of a mention.

        Args:
            span: words of the mention.

        Returns:
            Its tokens.
        """
        found = [tokens for word in range(*span) if (tokens := self.encoding.word_to_tokens(word, self.sequence))]
        return range(found[0][0], found[-1][1]) if found else range(0)

    def starts_inside(self, token: int, span: Span) -> bool:
        """A word never starts inside a token.

        Args:
            token: unused.
            span: unused.

        Returns:
            False.
        """
        return False


def place(tokens: TextTokens | WordTokens, span: Span, entity: int, alignment: str) -> Placed:
    """Place one entity.

    Args:
        tokens: the text's tokens.
        span: the mention.
        entity: entity id.
        alignment: "first", "all" or "alternate", which is thinned by `thin` afterwards.

    Returns:
        The tokens that carry it; empty if there is none.
    """
    if alignment == "first":
        token = tokens.first(span)
        return [] if token is None else [(token, entity)]
    return [(token, entity) for token in tokens.tokens(span)]


def thin(entities: list[int]) -> list[int]:
    """Drop each entity that equals its left neighbour, going from left to right over what is left.

    Args:
        entities: entity id of every token, 0 = none.

    Returns:
        The thinned list.

    Example:
        >>> thin([7, 7, 7, 0, 8, 7])
        [7, 0, 7, 0, 8, 7]
    """
    result: list[int] = []
    for entity in entities:
        result.append(0 if result and entity == result[-1] else entity)
    return result


def reference_start(text: str, start: int) -> int | None:
    """Find the word between spaces that starts at a place, as the original tokenizer sees it.

    It deletes control characters and U+FFFD and moves offsets along, so a place before deleted characters is the place
    behind them.

    Args:
        text: the original text.
        start: place of an annotation.

    Returns:
        Place of the word's first character; `None` if no word starts there.
    """
    if not 0 <= start < len(text):
        return None
    while start < len(text) and _is_deleted(text[start]):
        start += 1
    before = start - 1
    while before >= 0 and _is_deleted(text[before]):
        before -= 1
    if start == len(text) or _is_space(text[start]) or (before >= 0 and not _is_space(text[before])):
        return None
    return start


def word_end(text: str, start: int) -> int:
    """Find the end of a word between spaces.

    Args:
        text: the original text.
        start: its first character.

    Returns:
        Place behind its last character.
    """
    end = start
    while end < len(text) and not _is_space(text[end]):
        end += 1
    return end


def slice_window(window: Any, full: Sequence[tuple[int | None, Span]], sequence: int) -> tuple[int, range] | None:
    """Find a window's tokens among all tokens of its text.

    Args:
        window: encoding of the window.
        full: (word, characters) of every token of the text.
        sequence: 0, or 1 for the second text of a pair.

    Returns:
        The first of its tokens of this text in the window, and the range of all of them in the text; `None` if the
        window has none.
    """
    own = [index for index, owner in enumerate(window.sequence_ids) if owner == sequence]
    if not own:
        return None
    words, offsets = window.word_ids, window.offsets
    keys = [(words[index], offsets[index]) for index in own]
    for begin in range(len(full) - len(keys) + 1):
        if full[begin] == keys[0] and list(full[begin : begin + len(keys)]) == keys:
            return own[0], range(begin, begin + len(keys))
    return None


def _is_invisible(char: str) -> bool:
    """Spaces and what tokenizers delete: a mention that begins with it begins behind it."""
    return char.isspace() or _is_deleted(char) or unicodedata.category(char) == "Mn"


def _is_space(char: str) -> bool:
    """BERT's rule, which does not count line and paragraph separators."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_deleted(char: str) -> bool:
    """BERT's rule: control characters (not tab and line ends) and the replacement character."""
    if char in "\t\n\r":
        return False
    return char == "\ufffd" or unicodedata.category(char).startswith("C")
