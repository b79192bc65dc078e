"""Markers around mentions, and rows put together from tokens that have been given markers.

relation   ... # head # ... $ tail $ ...      typing   ... 。 mention 。 ...      (section 3.4; the code)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformers.utils import logging

from .annotations_ernie_thu import Span, TextTokens, WordTokens, check_span, read_span
from .tokenizer_core import kept_sizes

logger = logging.get_logger(__name__)

# Task -> names of the spans that get markers, and which of the processor's markers these are.
TASKS = {"relation": (("head", "tail"), slice(0, 2)), "typing": (("span",), slice(2, 3))}
TRUNCATIONS = ("longest_first", "only_first", "only_second")
Marked = list[tuple[Span, str]]
"""Spans of one text with their markers."""


Tokens = dict[str, list[Any]]
"""Tokens of a text or row, a list for each column, and `number`: place among the tokens of the text, -1 for others."""


def read_marked(
    task: str, spans: Mapping[str, Any], markers: Sequence[str], lengths: Sequence[int], batched: bool, unit: str
) -> list[Marked]:
    """Check `head` and `tail`, or `span`, of texts of these lengths; without a `unit` spans may lie outside."""
    names, places = TASKS[task]
    for name, value in spans.items():
        if (value is None) == (name in names):
            raise ValueError(
                f"`task='{task}'` must come with {' and '.join(f'`{one}`' for one in names)} and nothing else of the "
                f"kind, got `{name}={value!r}`."
            )
    per_text = [spans[name] if batched else [spans[name]] for name in names]
    for name, values in zip(names, per_text, strict=True):
        if not isinstance(values, list | tuple) or len(values) != len(lengths):
            raise ValueError(f"`{name}` must have one span per text, got {values!r}.")
    result = []
    for length, *values in zip(lengths, *per_text, strict=True):
        read = [read_span(name, value) for name, value in zip(names, values, strict=True)]
        if unit:
            for name, span in zip(names, read, strict=True):
                check_span(name, span, length, unit)
            if len(read) == 2 and min(read)[1] > max(read)[0]:
                raise ValueError(
                    f"`head` and `tail` must not overlap, got {read[0]} and {read[1]}: their markers would cross."
                )
        elif len(read) == 1 and read[0][0] == read[0][1]:
            raise ValueError(f"`span` must not be empty, got {read[0]}: the reference leaves such records out.")
        result.append(list(zip(read, markers[places], strict=True)))
    return result


def marker_id(tokenizer: Any, marker: str) -> int:
    """The token of a marker; a ValueError if the vocabulary lacks it."""
    token = tokenizer.convert_tokens_to_ids(marker)
    if token is None or token == tokenizer.unk_token_id:
        raise ValueError(
            f"`markers` must be in the vocabulary, got {marker!r}. Choose other `markers`, or give it "
            "to vocabulary and model by `processor.add_markers(model)`."
        )
    return int(token)


def add_markers(symbols: Sequence[str], tokenizer: Any, model: Any = None) -> list[str]:
    """Give a vocabulary the markers that it lacks, which would all be one unknown token, and the model a row each."""
    unknown = tokenizer.unk_token_id
    missing = [one for one in symbols if unknown in tokenizer(one, add_special_tokens=False)["input_ids"]]
    if missing:
        tokenizer.add_tokens(missing)
        logger.warning(
            f"The vocabulary lacks the marker {' and '.join(missing)}: it was added, with an embedding that has not "
            "been pre-trained."
        )
    if model is not None and len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return missing


# ---- between tokens ----


def tokens_of(
    ids: list[int], kind: int, offsets: list[Span], entities: list[int], numbers: list[int], special: int = 0
) -> Tokens:
    """Tokens of one type."""
    return {
        "input_ids": ids,
        "token_type_ids": [kind] * len(ids),
        "special_tokens_mask": [special] * len(ids),
        "attention_mask": [1] * len(ids),
        "offset_mapping": offsets,
        "entity_ids": entities,
        "number": numbers,
    }


def joined(parts: Iterable[Tokens]) -> Tokens:
    """Tokens one behind the other."""
    result = tokens_of([], 0, [], [], [])
    for part in parts:
        for name, values in part.items():
            result[name] += values
    return result


def frame_of(tokenizer: Any, texts: int, special: bool) -> tuple[list[Tokens], list[int]]:
    """Special tokens before the first text and behind each one, and the token type of each text."""
    probe = tokenizer(*["a"] * texts, add_special_tokens=special, truncation=False).encodings[0]
    pieces: list[list[Tokens]] = [[] for _ in range(texts + 1)]
    kinds = [0] * texts
    behind = 0
    for token, kind, owner in zip(probe.ids, probe.type_ids, probe.sequence_ids, strict=True):
        if owner is None:
            pieces[behind].append(tokens_of([token], kind, [(0, 0)], [0], [-1], special=1))
        else:
            behind, kinds[owner] = owner + 1, kind
    return [joined(piece) for piece in pieces], kinds


def with_markers(text: Tokens, asked: TextTokens | WordTokens, marked: Marked, tokenizer: Any) -> Tokens:
    """The tokens of a text with a marker before and behind each of its marked spans."""
    places = []
    for span, marker in marked:
        found = asked.tokens(span)
        if not found:
            raise ValueError(f"A marked mention must have a token, got none in [{span[0]}, {span[1]}).")
        places.append((found.start, found.stop, marker_id(tokenizer, marker)))
    places.sort()
    if len(places) == 2 and places[1][0] < places[0][1]:
        raise ValueError(
            f"`head` and `tail` must not share a token, got a border inside one, of {marked[0][0]} and "
            f"{marked[1][0]}. Move the border."
        )
    result = {name: list(values) for name, values in text.items()}
    for begin, end, token in reversed(places):
        kind, offsets = result["token_type_ids"][begin], result["offset_mapping"]
        for index, place in ((end, offsets[end - 1][1]), (begin, offsets[begin][0])):
            for name, values in tokens_of([token], kind, [(place, place)], [0], [-1]).items():
                result[name][index:index] = values
    return result


def cut(
    texts: list[Tokens], room: int, truncation: str | None, stride: int, *, overflow: bool, left: bool, reference: bool
) -> list[list[Tokens]]:
    """The parts of one or two texts that make rows, as the tokenizers library cuts, or as the reference cuts pairs."""
    lengths = [len(text["number"]) for text in texts]
    if truncation is None or sum(lengths) <= room:
        return [texts]
    if room < 0:
        raise ValueError(f"`max_length` must leave room for special tokens, got {-room} tokens too few.")
    if len(texts) == 1 and truncation == "only_second":
        raise ValueError(f"`truncation='{truncation}'` must come with `text_pair`, got none.")
    if not overflow:
        kept = [room] if len(texts) == 1 else _kept_lengths(lengths, room, truncation, reference)
        ends = [(length - size, length) if left else (0, size) for length, size in zip(lengths, kept, strict=True)]
        return [[_part(text, *places) for text, places in zip(texts, ends, strict=True)]]
    if len(texts) == 2 and truncation == "longest_first":
        raise ValueError(
            "`return_overflowing_tokens` of pairs must come with `truncation` 'only_first' or 'only_second', got "
            f"'{truncation}', under which there are no windows of one text."
        )
    number = 1 if truncation == "only_second" else 0
    size = room - sum(lengths) + lengths[number]
    if size < 1:
        raise ValueError(f"`truncation='{truncation}'` must leave room for the text it cuts, got {size} tokens.")
    parts = _windows(lengths[number], size, stride, left)
    return [[*texts[:number], _part(texts[number], one.start, one.stop), *texts[number + 1 :]] for one in parts]


def _part(text: Tokens, begin: int, end: int) -> Tokens:
    return {name: values[begin:end] for name, values in text.items()}


def _kept_lengths(lengths: list[int], room: int, truncation: str, reference: bool) -> list[int]:
    """How many tokens of a pair stay; the reference cuts the longer text, token by token."""
    first, second = lengths
    while reference and truncation == "longest_first" and first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return list(kept_sizes(first, second, room, truncation))


def _windows(length: int, size: int, stride: int, left: bool) -> list[range]:
    """Cut a text into windows that overlap."""
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


# ---- in the text, as the reference ----


def mark_text(text: str, mentions: Marked) -> str:
    """Put markers into a text as the reference does: with Python's slices, and a space towards each mention."""
    # By their begins; of head and tail with the same one the tail comes first.
    order = sorted(range(len(mentions)), key=lambda number: (mentions[number][0][0], -number))
    pieces, done = [], 0
    for (start, end), marker in (mentions[number] for number in order):
        pieces += [text[done:start], f"{marker} {text[start:end]} {marker}"]
        done = end
    return "".join([*pieces, text[done:]])


def shifted_spans(spans: Sequence[Span], mentions: Marked) -> list[Span]:
    """Move annotations to their places in the marked text, by the rules of the reference's scripts."""
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
