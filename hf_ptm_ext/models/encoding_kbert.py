"""What the tokenizer gives: encodings of rows with knowledge, columns of a batch, and the way back to the text.

Injected tokens come from nowhere in the text: no word, no sequence, offset (0, 0), and special to whoever drops those.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from transformers import BatchEncoding

from .injection_kbert import Rows
from .lexicon_kbert import Characters, Row, Span, WordPieces, join_words

NO_LABEL = -100
_PARTS = (
    "ids",
    "tokens",
    "type_ids",
    "attention_mask",
    "special_tokens_mask",
    "injected",
    "offsets",
    "word_ids",
    "sequence_ids",
)


class KBertEncoding:
    """One row; everything is worked out when asked for."""

    def __init__(
        self,
        rows: Rows,
        row: int,
        source: WordPieces | Characters,
        tokenizer: Any,
        texts: Row,
        sample: int,
        padding: tuple[int, int] = (0, 0),
    ):
        self._rows, self._source, self._tokenizer = rows, source, tokenizer
        self._slice = slice(int(rows.bounds[row]), int(rows.bounds[row + 1]))
        self._padding = padding
        self.texts, self.sample = texts, sample
        self.n_sequences = 1 if texts.second is None else 2
        self.overflowing: list[Any] = []

    def __len__(self) -> int:
        return self._slice.stop - self._slice.start + sum(self._padding)

    def __getstate__(self) -> dict[str, Any]:
        """All parts, without the batch, the tokenizer and its graph."""
        parts = {name: getattr(self, name) for name in _PARTS}
        return {**self.__dict__, **parts, "_described": [], "_rows": None, "_source": None, "_tokenizer": None}

    def _padded(self, values: list[Any], filler: Any) -> list[Any]:
        before, behind = self._padding
        return [filler] * before + values + [filler] * behind

    @cached_property
    def ids(self) -> list[int]:
        """The tokens."""
        return self._padded(self._rows.ids[self._slice].tolist(), self._tokenizer.pad_token_id)

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens' texts."""
        return self._tokenizer.convert_ids_to_tokens(self.ids)

    @cached_property
    def type_ids(self) -> list[int]:
        """Their types."""
        return self._padded(self._rows.token_types[self._slice].tolist(), self._tokenizer.pad_token_type_id)

    @cached_property
    def attention_mask(self) -> list[int]:
        """1, and 0 for padding."""
        return self._padded([1] * (self._slice.stop - self._slice.start), 0)

    @cached_property
    def special_tokens_mask(self) -> list[int]:
        """1 for special, injected and padding tokens."""
        return self._padded((self._rows.source[self._slice] < 0).astype(int).tolist(), 1)

    @cached_property
    def injected(self) -> list[bool]:
        """Which tokens are knowledge."""
        return self._padded((self._rows.branches[self._slice] > 0).tolist(), False)

    @cached_property
    def _described(self) -> list[tuple[Span, int | None, int | None]]:
        numbers = self._rows.source[self._slice]
        found = iter(self._source.describe(numbers[numbers >= 0]))
        nothing = ((0, 0), None, None)
        return self._padded([next(found) if number >= 0 else nothing for number in numbers.tolist()], nothing)

    @cached_property
    def offsets(self) -> list[Span]:
        """Begin and end in the text, or in the word if the text came as words."""
        return [span for span, _, _ in self._described]

    @cached_property
    def word_ids(self) -> list[int | None]:
        """Number of the word."""
        return [word for _, word, _ in self._described]

    @property
    def words(self) -> list[int | None]:
        """The same, by its older name."""
        return self.word_ids

    @cached_property
    def sequence_ids(self) -> list[int | None]:
        """0 or 1, the text of a pair."""
        return [sequence for _, _, sequence in self._described]

    # ---- one token, word or character ----

    def token_to_sequence(self, token_index: int) -> int | None:
        """The text that a token is of."""
        return self.sequence_ids[token_index]

    def token_to_word(self, token_index: int) -> int | None:
        """The word that a token is of."""
        return self.word_ids[token_index]

    def token_to_chars(self, token_index: int) -> Span | None:
        """Where a token stands in its text."""
        return None if self.sequence_ids[token_index] is None else self.offsets[token_index]

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> Span | None:
        """First token of a word, and the one behind its last; branches between its pieces count in."""
        found = [
            token
            for token, (word, sequence) in enumerate(zip(self.word_ids, self.sequence_ids, strict=True))
            if word == word_index and sequence == sequence_index
        ]
        return (found[0], found[-1] + 1) if found else None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> Span | None:
        """Where a word stands in its text."""
        tokens = self.word_to_tokens(word_index, sequence_index)
        return None if tokens is None else (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1])

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The token that a character is in."""
        for token, ((begin, end), sequence) in enumerate(zip(self.offsets, self.sequence_ids, strict=True)):
            if sequence == sequence_index and begin <= char_pos < end:
                return token
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The word that a character is in."""
        token = self.char_to_token(char_pos, sequence_index)
        return None if token is None else self.word_ids[token]

    # ---- the original text ----

    def num_words(self, sequence: int) -> int | None:
        """How many words a text came as; `None` for a string."""
        text = self.texts[sequence]
        return None if isinstance(text, str) or text is None else len(text)

    def excerpt(self, sequence: int, begin: int, end: int) -> str:
        """A part of a text, in characters, or in words if it came as words."""
        part = self.texts[sequence][begin:end]
        return part if isinstance(part, str) else join_words(part)[0]


# ---- columns of a batch ----


def width_of(sizes: np.ndarray, padding: str, max_length: int | None, multiple: int | None) -> int | None:
    """How wide rows are padded."""
    if padding == "do_not_pad":
        return None
    longest = int(sizes.max()) if len(sizes) else 0
    width = max_length or longest if padding == "max_length" else longest
    return -(-width // multiple) * multiple if multiple else width


def margins(size: int, width: int | None, left: bool) -> tuple[int, int]:
    """How much padding stands before and behind a row."""
    missing = max((width or 0) - size, 0)  # longer rows stay as they are, as upstream
    return (missing, 0) if left else (0, missing)


def padded_column(flat: np.ndarray, bounds: np.ndarray, width: int | None, filler: int, left: bool) -> Any:
    """A column as rows: lists if they may differ in length, else an array."""
    sizes = np.diff(bounds)[:, None]
    if width is None or (sizes > width).any():
        values = flat.tolist()
        rows = [values[begin:end] for begin, end in pairwise(bounds.tolist())]
        if width is None:
            return rows
        more = [[filler] * (width - len(row)) for row in rows]
        return [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, more, strict=True)]
    places = np.arange(width)[None]
    column = np.full((len(bounds) - 1, width), filler, dtype=np.int64)
    column[places >= width - sizes if left else places < sizes] = flat
    return column


def source_index(encoding: KBertEncoding, split: bool) -> list[int]:
    """The word, or else the character, that each token of a row comes from; -1 for none."""
    if split:
        return [-1 if word is None else word for word in encoding.word_ids]
    return [
        -1 if sequence is None else begin
        for (begin, _), sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True)
    ]


def labels_of(
    encodings: Sequence[KBertEncoding],
    rows: Sequence[Row],
    word_labels: Sequence[Any],
    first_only: bool,
    knowledge_label: int,
    padding_label: int,
) -> list[list[int]]:
    """Labels of tokens from labels of words."""
    if len(word_labels) != len(rows):
        raise ValueError(f"`word_labels` must have a list for each of {len(rows)} texts, got {len(word_labels)}.")
    for number, (labels, row) in enumerate(zip(word_labels, rows, strict=True)):
        if isinstance(row.first, str) or row.second is not None:
            raise ValueError(
                "`word_labels` must come with single texts and is_split_into_words=True, got "
                f"{row.first!r:.60}. Split texts into words."
            )
        if len(labels) != len(row.first):
            raise ValueError(
                f"`word_labels` must have a label for each word, got {len(labels)} for the {len(row.first)} words "
                f"of text {number}."
            )
    columns = []
    for encoding in encodings:
        given, column, seen = word_labels[encoding.sample], [], None
        for word, (begin, _), injected, real in zip(
            encoding.word_ids, encoding.offsets, encoding.injected, encoding.attention_mask, strict=True
        ):
            if word is None:
                column.append(knowledge_label if injected else NO_LABEL if real else padding_label)
                continue
            # At the begin of a window a word may go on that began in the window before.
            goes_on = word == seen or (seen is None and begin > 0)
            column.append(NO_LABEL if goes_on and first_only else given[word])
            seen = word
        columns.append(column)
    return columns


# ---- the sentence tree, line by line ----

Group = tuple[list[int], dict[int, list[int]]]


def words_of(words: Sequence[int], branches: Sequence[int]) -> list[Group]:
    """Group the tokens of a row by word: those on the trunk, and those of each branch."""
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
    """Draw the sentence tree: a line for each word with knowledge and for the text between, branches below."""
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


# ---- from predictions back to the text ----


class RestoredToken(NamedTuple):
    """A prediction on a place in a text: its first character, the one behind its last, and what was predicted."""

    start: int
    end: int
    prediction: Any


class RestoredEntity(NamedTuple):
    """An entity in the original text: its characters, its type, and its place in characters or in words."""

    text: str
    type: str
    start: int
    end: int


def tag_spans(tags: Sequence[str | None]) -> list[tuple[str, int, int]]:
    """Entities from tags: B- begins one, I- of its type goes on, as the CoNLL scorer counts; S- and E- as usual."""
    spans: list[tuple[str, int, int]] = []
    kind, begin, closed = "", 0, True
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = (tag or "O").partition("-")
        goes_on = not closed and prefix in ("I", "E", "M") and name == kind
        if not goes_on:
            if not closed:
                spans.append((kind, begin, place))
            kind, begin, closed = name, place, not name
        if not closed and prefix in ("E", "S"):
            spans.append((kind, begin, place + 1))
            closed = True
    return spans


def _rows_of(predictions: Any, encodings: Sequence[Any], batched: bool) -> list[list[Any]]:
    """Predictions as a list of rows."""
    if hasattr(predictions, "detach"):
        predictions = predictions.detach().cpu().numpy()
    if isinstance(predictions, np.ndarray):
        if predictions.ndim == 2 + batched:
            predictions = predictions.argmax(-1)
        predictions = predictions.tolist()
    if batched and any(isinstance(row, str) or not hasattr(row, "__iter__") for row in predictions):
        raise ValueError(
            f"`predictions` must have a row for each text of the batch, got a single row for a batch of "
            f"{len(encodings)} (`return_tensors` makes a batch of one text too). Pass a list of rows: [predictions]."
        )
    rows = [list(row) for row in predictions] if batched else [list(predictions)]
    for number, (row, encoding) in enumerate(zip(rows, encodings, strict=False)):
        if len(row) != len(encoding):
            raise ValueError(
                f"`predictions` must have one for each token, padding included, got {len(row)} for the "
                f"{len(encoding)} tokens of row {number}. Pass those of the very batch that `encoding` is."
            )
    if len(rows) != len(encodings):
        raise ValueError(
            f"`predictions` must have a row for each of the encoding, got {len(rows)} for {len(encodings)}."
        )
    return rows


def _restored_row(predictions: Sequence[Any], encoding: Any, missing: Any, sequence: int) -> list[Any]:
    """Predictions on the words, or on the places, of a text."""
    own = [place for place, value in enumerate(encoding.sequence_ids) if value == sequence]
    num_words = encoding.num_words(sequence)
    if num_words is None:
        spans = [encoding.offsets[place] for place in own]
        return [RestoredToken(begin, end, predictions[place]) for place, (begin, end) in zip(own, spans, strict=True)]
    restored = [missing] * num_words
    for place in reversed(own):
        restored[encoding.word_ids[place]] = predictions[place]
    return restored


def _tag_of(prediction: Any, id2label: Mapping[Any, str] | None) -> str | None:
    if prediction is None or isinstance(prediction, str):
        return prediction
    if id2label is None or prediction not in id2label:
        raise ValueError(
            f"`id2label` must name the class {prediction!r}, got {dict(id2label) if id2label else None}. Pass "
            "`model.config.id2label`."
        )
    return id2label[prediction]


def _encodings_of(encoding: Any) -> tuple[list[KBertEncoding], bool]:
    """The encodings of what the tokenizer returned, and whether that is a batch."""
    encodings = getattr(encoding, "encodings", None)
    if not encodings or not hasattr(encodings[0], "sample"):
        raise ValueError("`encoding` must be what this tokenizer returned, got no record of where tokens come from.")
    first = encoding["input_ids"]
    batched = not (isinstance(first, list) and first and isinstance(first[0], int))
    return list(encodings), batched


class KBertRestoring:
    """The way back, as methods of a tokenizer."""

    def restore(self, predictions: Any, encoding: BatchEncoding, missing: Any = None, sequence: int = 0) -> list[Any]:
        """Bring predictions on tokens back to the original text; injected and special tokens have no say."""
        encodings, batched = _encodings_of(encoding)
        rows = zip(_rows_of(predictions, encodings, batched), encodings, strict=True)
        restored = [_restored_row(row, one, missing, sequence) for row, one in rows]
        return restored if batched else restored[0]

    def restore_entities(
        self, predictions: Any, encoding: BatchEncoding, id2label: Mapping[Any, str] | None = None, sequence: int = 0
    ) -> list[Any]:
        """Read entities off predicted tags."""
        encodings, batched = _encodings_of(encoding)
        restored = self.restore(predictions, encoding, sequence=sequence)
        found = []
        for row, one in zip(restored if batched else [restored], encodings, strict=True):
            places = [value for value in row if isinstance(value, RestoredToken)]
            tags = [_tag_of(value.prediction if places else value, id2label) for value in row]
            entities = []
            for kind, begin, end in tag_spans(tags):
                if places:
                    begin, end = places[begin].start, places[end - 1].end
                entities.append(RestoredEntity(one.excerpt(sequence, begin, end), kind, begin, end))
            found.append(entities)
        return found if batched else found[0]
