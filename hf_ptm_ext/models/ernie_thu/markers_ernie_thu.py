"""Markers around mentions, and rows put together from tokens that have been given markers.

    relation   ... # head # ... $ tail $ ...      typing   ... 。 mention 。 ...      (section 3.4; the code)

The markers are ordinary symbols of the vocabulary, whose embeddings are pre-trained. They are put between tokens, so
that the text's own tokens stay what they are; the reference puts them into the text, which `mark_text` does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .annotations_ernie_thu import Span

TASKS = ("relation", "typing")
TRUNCATIONS = ("longest_first", "only_first", "only_second")


@dataclass
class Segment:
    """The tokens of one text.

    Args:
        ids: token ids.
        offsets: characters of each token; (n, n) for a marker before character n.
        entities: entity id of each token, 0 = none.
        tokens: number of each token in the text; -1 for a marker.
    """

    ids: list[int] = field(default_factory=list)
    offsets: list[Span] = field(default_factory=list)
    entities: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, begin: int, end: int) -> "Segment":
        """Cut out some tokens.

        Args:
            begin: the first one.
            end: behind the last one.

        Returns:
            A segment of them.
        """
        return Segment(*(values[begin:end] for values in (self.ids, self.offsets, self.entities, self.tokens)))

    def with_markers(self, mentions: Iterable[tuple[range, int]]) -> "Segment":
        """Put a marker before and behind mentions.

        Args:
            mentions: tokens of each mention, none shared, and the id of its marker.

        Returns:
            A longer segment.
        """
        before: dict[int, int] = {}
        behind: dict[int, int] = {}
        for tokens, marker in mentions:
            before[tokens.start], behind[tokens.stop] = marker, marker
        result = Segment()
        for index in range(len(self) + 1):
            place = self.offsets[index][0] if index < len(self) else self.offsets[-1][1]
            if index in behind:
                end = self.offsets[index - 1][1]
                result._append(behind[index], (end, end))
            if index in before:
                result._append(before[index], (place, place))
            if index < len(self):
                result._append(self.ids[index], self.offsets[index], self.entities[index], self.tokens[index])
        return result

    def _append(self, token_id: int, offset: Span, entity: int = 0, token: int = -1) -> None:
        self.ids.append(token_id)
        self.offsets.append(offset)
        self.entities.append(entity)
        self.tokens.append(token)


@dataclass(frozen=True)
class Frame:
    """The special tokens around the texts of a row.

    Args:
        pieces: special tokens before the first text, behind each text: (ids, types) each.
        types: token type of each text.
    """

    pieces: tuple[tuple[list[int], list[int]], ...]
    types: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(len(ids) for ids, _ in self.pieces)

    @classmethod
    def of(cls, tokenizer: Any, texts: int, special: bool) -> "Frame":
        """Ask a tokenizer what it puts around one or two texts.

        Args:
            tokenizer: a fast one.
            texts: 1 or 2.
            special: whether special tokens are wanted.

        Returns:
            The frame.
        """
        probe = tokenizer(*["a"] * texts, add_special_tokens=special, truncation=False).encodings[0]
        pieces: list[tuple[list[int], list[int]]] = [([], []) for _ in range(texts + 1)]
        types = [0] * texts
        behind = 0
        for token, kind, owner in zip(probe.ids, probe.type_ids, probe.sequence_ids, strict=True):
            if owner is None:
                pieces[behind][0].append(token)
                pieces[behind][1].append(kind)
            else:
                behind, types[owner] = owner + 1, kind
        return cls(tuple(pieces), tuple(types))

    def row(self, segments: Sequence[Segment]) -> dict[str, list[Any]]:
        """Put a row together.

        Args:
            segments: one per text.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, `special_tokens_mask`, `offset_mapping`, `entity_ids`.
        """
        row: dict[str, list[Any]] = {
            name: [] for name in ("input_ids", "token_type_ids", "special_tokens_mask", "offset_mapping", "entity_ids")
        }

        def add(ids: list[int], types: list[int], special: int, offsets: list[Span], entities: list[int]) -> None:
            row["input_ids"] += ids
            row["token_type_ids"] += types
            row["special_tokens_mask"] += [special] * len(ids)
            row["offset_mapping"] += offsets
            row["entity_ids"] += entities

        for number, (ids, types) in enumerate(self.pieces):
            if number:
                one = segments[number - 1]
                add(one.ids, [self.types[number - 1]] * len(one), 0, one.offsets, one.entities)
            add(ids, types, 1, [(0, 0)] * len(ids), [0] * len(ids))
        row["attention_mask"] = [1] * len(row["input_ids"])
        return row


def mark_text(text: str, mentions: Sequence[tuple[Span, str]]) -> str:
    """Put markers into a text as the reference does: with Python's slices, and a space towards each mention.

    Args:
        text: the text.
        mentions: characters of each mention, wherever they are, and its marker.

    Returns:
        The longer text.

    Example:
        >>> mark_text("Bob Dylan sang.", [((0, 9), "#")])
        '# Bob Dylan # sang.'
    """
    pieces, done = [], 0
    for (start, end), marker in _in_order(mentions):
        pieces += [text[done:start], f"{marker} {text[start:end]} {marker}"]
        done = end
    return "".join([*pieces, text[done:]])


def shifted_spans(spans: Sequence[Span], mentions: Sequence[tuple[Span, str]]) -> list[Span]:
    """Move annotations to their places in the marked text, by the rules of the reference's scripts.

    Args:
        spans: in the original text. If they are head and tail themselves (FewRel), the one in front stands behind one
            marker and the other behind three; else each is moved on by the markers that it has passed.
        mentions: of head and tail, or the typed one, and their markers.

    Returns:
        In the marked text: a marker passed has its length and a space.
    """
    sizes = [len(marker) + 1 for _, marker in mentions]
    if len(mentions) == 2 and list(spans) == [span for span, _ in mentions]:
        head, tail = spans
        shifts = [sizes[0], sizes[1] + 2 * sizes[0]] if head[0] < tail[0] else [sizes[0] + 2 * sizes[1], sizes[1]]
    elif len(mentions) == 2:
        shifts = [
            sum(
                size * ((start >= begin) + (start > end))
                for ((begin, end), _), size in zip(mentions, sizes, strict=True)
            )
            for start, _ in spans
        ]
    else:
        ((begin, end), _), (size,) = mentions[0], sizes
        shifts = [2 * size if start > end else size * (start >= begin) for start, _ in spans]
    return [(start + shift, end + shift) for (start, end), shift in zip(spans, shifts, strict=True)]


def _in_order(mentions: Sequence[tuple[Span, str]]) -> list[tuple[Span, str]]:
    """By their begins; of head and tail with the same one the tail comes first, as in the reference."""
    order = sorted(range(len(mentions)), key=lambda number: (mentions[number][0][0], -number))
    return [mentions[number] for number in order]


def kept_lengths(first: int, second: int, room: int, strategy: str, reference: bool) -> tuple[int, int]:
    """Say how many tokens of a pair stay.

    Args:
        first: tokens of the first text.
        second: tokens of the second text.
        room: how many fit.
        strategy: "longest_first", "only_first" or "only_second".
        reference: whether "longest_first" drops single tokens from the longer text, on ties from the second, as the
            reference does; the tokenizers library gives the longer text the odd token instead.

    Returns:
        Tokens that stay of each.

    Raises:
        ValueError: the text that may be cut is too short for it.
    """
    excess = first + second - room
    if excess <= 0:
        return first, second
    if strategy != "longest_first":
        cut = first if strategy == "only_first" else second
        if excess >= cut:
            raise ValueError(
                f"`truncation='{strategy}'` must leave a token of the text it cuts, got {cut} tokens, {excess} of "
                "them too many. Raise `max_length` or use 'longest_first'."
            )
        return (first - excess, second) if strategy == "only_first" else (first, second - excess)
    if reference:
        while first + second > room:
            if first > second:
                first -= 1
            else:
                second -= 1
        return first, second
    short, long = sorted((first, second))
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short, long = room // 2, room // 2 + room % 2
    return (long, short) if first > second else (short, long)


def windows(length: int, size: int, stride: int, left: bool) -> list[range]:
    """Cut a text into windows that overlap.

    Args:
        length: tokens of the text.
        size: tokens of a window.
        stride: tokens that neighbours share.
        left: whether the first window is the end of the text.

    Returns:
        The tokens of each.

    Raises:
        ValueError: windows do not move on.
    """
    if length <= size:
        return [range(length)]
    if stride >= size:
        raise ValueError(f"`stride` must be below the {size} tokens of a window, got {stride}. Lower it.")
    result = []
    for begin in range(0, length, size - stride):
        end = min(begin + size, length)
        result.append(range(length - end, length - begin) if left else range(begin, end))
        if end == length:
            break
    return result
