"""One call of the tokenizer: texts to tokens, tokens to rows with knowledge, rows to the columns of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from transformers import BatchEncoding

from .encoding_kbert import KBertEncoding
from .injection_kbert import Pieces, Rows, Tokens, inject
from .lexicon_kbert import BranchStore, Lexicon
from .matcher_kbert import Match
from .options_kbert import NO_LABEL, CallOptions
from .sources_kbert import Characters, CharacterTable, Source, WordPieces, join_words
from .truncation_kbert import cut_text, kept_sizes, windows

# How each column is padded; positions and token types of padding depend on the style.
FILLERS: dict[str, Any] = {"word_index": -1, "branch_id": -1, "knowledge_mask": 0, "source_index": -1}


class TextRow(NamedTuple):
    """One text, or two, as strings or lists of words."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Limits:
    """How long rows may be.

    Args:
        max_length: tokens of a row, or `None`.
        strategy: which text of a pair is cut.
        side: the end that is cut.
        policy: see `truncation_kbert`.
        windows: whether what is cut makes further rows.
        stride: tokens of the text that neighbouring windows share.
    """

    max_length: int | None
    strategy: str
    side: str
    policy: str
    windows: bool
    stride: int


def read_rows(text: Any, text_pair: Any, split: bool, empty_pairs: bool = False) -> tuple[list[TextRow], bool]:
    """Bring the forms in which a tokenizer takes texts into one.

    Args:
        text: as in the tokenizer's call.
        text_pair: as in the tokenizer's call.
        split: whether texts are lists of words.
        empty_pairs: whether a single text with an empty second one is a pair, as it always is in a batch; upstream
            (default False) takes it for a single text.

    Returns:
        The rows, and whether they were a batch.

    Raises:
        TypeError: something is no text.
        ValueError: there are not as many second texts as first ones.
    """
    # As upstream: of words, an empty list is one text without any.
    batched = isinstance(text, list | tuple) and (not split or (len(text) > 0 and isinstance(text[0], list | tuple)))
    if not batched:
        rows = [TextRow(text, text_pair if empty_pairs else text_pair or None)]
    elif text_pair is not None:
        if isinstance(text_pair, str) or len(text_pair) != len(text):
            size = f"{len(text_pair)} texts" if not isinstance(text_pair, str) else "one text"
            raise ValueError(f"`text_pair` must have a text for each of the {len(text)} of `text`, got {size}.")
        rows = [TextRow(*pair) for pair in zip(text, text_pair, strict=True)]
    else:
        inner: Any = list | tuple
        depth = 1 if split else 0
        rows = [
            TextRow(*one)
            if isinstance(one, inner) and len(one) == 2 and (not depth or isinstance(one[0], inner))
            else TextRow(one, None)
            for one in text
        ]
    for row in rows:
        for place, one in enumerate(row):
            if not (place == 1 and one is None) and not _is_text(one, split):
                form = "a list of words" if split else "a text"
                raise TypeError(f"`text` must be {form}, or a list of such, got {one!r}.")
    return rows, batched


def _is_text(value: Any, split: bool) -> bool:
    if not split:
        return isinstance(value, str)
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


class Batch:
    """Tokens of a call, and the rows that they are to make.

    Args:
        source: the tokens.
        tokens: the tokens and the words with knowledge.
        rows: which two texts, by number in the source, make a row; -1 for no second text.
        store: branches, or `None`.
    """

    def __init__(
        self,
        source: Source,
        tokens: Tokens,
        rows: Sequence[tuple[int, int]],
        store: BranchStore | None,
    ):
        self.source, self.tokens, self.store = source, tokens, store
        pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
        bounds = tokens.bounds
        self.has_second = pairs[:, 1] >= 0
        second = np.where(self.has_second, pairs[:, 1], len(bounds) - 1)
        # (begin, end) of both texts of each row; of no text, an empty stretch at the end.
        begins, ends = bounds[pairs[:, 0]], bounds[pairs[:, 0] + 1]
        self.parts = np.stack([begins, ends, bounds[second], bounds[second + self.has_second]], 1)
        self.samples = np.arange(len(pairs))

    def limit(self, limits: Limits, num_special: tuple[int, int]) -> None:
        """Cut texts that are too long, or make windows of them.

        Args:
            limits: how long rows may be.
            num_special: special tokens of a row of one text, and of two.

        Raises:
            ValueError: there is no room for a text, or one is too long that must not be cut.
        """
        if limits.max_length is None:
            return
        special = np.where(self.has_second, num_special[1], num_special[0])
        if (special >= limits.max_length).any():
            raise ValueError(
                f"`max_length` must leave room for text beside {int(special.max())} special tokens, got "
                f"{limits.max_length}."
            )
        cost = np.ones(len(self.tokens.ids), dtype=np.int64)
        if limits.policy == "keep_knowledge" and self.store is not None:
            cost += self.tokens.branch_tokens(self.store)
        spent = np.concatenate([[0], np.cumsum(cost)])
        first = spent[self.parts[:, 1]] - spent[self.parts[:, 0]]
        second = spent[self.parts[:, 3]] - spent[self.parts[:, 2]]
        long = first + second + special > limits.max_length
        if not long.any():
            return
        if limits.policy == "only_knowledge":
            row = int(np.flatnonzero(long)[0])
            raise ValueError(
                f"`max_length` must be at least the number of tokens of a text without knowledge, got "
                f"{limits.max_length} and text {row} with {int((first + second + special)[row])}. Raise it, or let "
                "the text be cut: knowledge_truncation='keep_text'."
            )
        parts, samples = [], []
        for row, (begin, end, begin_2, end_2) in enumerate(self.parts.tolist()):
            cuts = [(begin, end, begin_2, end_2)]
            if long[row]:
                cuts = self._cut(cost, row, limits, int(limits.max_length - special[row]))
            parts += cuts
            samples += [row] * len(cuts)
        self.parts, self.samples = np.array(parts, dtype=np.int64), np.array(samples)
        self.has_second = self.has_second[self.samples]

    def _cut(self, cost: np.ndarray, row: int, limits: Limits, room: int) -> list[tuple[int, int, int, int]]:
        begin, end, begin_2, end_2 = self.parts[row].tolist()
        costs = cost[begin:end], cost[begin_2:end_2]
        sizes = kept_sizes(int(costs[0].sum()), int(costs[1].sum()), room, limits.strategy)
        if not limits.windows:
            low, high = cut_text(costs[0], sizes[0], limits.side)
            low_2, high_2 = cut_text(costs[1], sizes[1], limits.side)
            return [(begin + low, begin + high, begin_2 + low_2, begin_2 + high_2)]
        if limits.strategy == "only_second":
            cuts = windows(costs[1], sizes[1], limits.stride, limits.side)
            return [(begin, end, begin_2 + low, begin_2 + high) for low, high in cuts]
        if self.has_second[row] and limits.strategy == "longest_first":
            raise ValueError(
                "`return_overflowing_tokens` must know which text of a pair to make windows of, got "
                "truncation='longest_first'. Pass truncation='only_second' or 'only_first'."
            )
        cuts = windows(costs[0], sizes[0], limits.stride, limits.side)
        return [(begin + low, begin + high, begin_2, end_2) for low, high in cuts]

    def inject(self, special_ids: Sequence[int], max_length: int | None) -> Rows:
        """Put the rows together.

        Args:
            special_ids: of [CLS] and [SEP]; none for rows of the texts' own tokens alone.
            max_length: branches do not make a row longer.

        Returns:
            The rows.
        """
        num_rows, size = len(self.parts), len(self.tokens.ids)
        begin, end, begin_2, end_2 = self.parts.T
        # [CLS] first [SEP] second [SEP]: begin, length and type of each
        ones, pair = np.ones(num_rows, dtype=np.int64), self.has_second.astype(np.int64)
        columns = [(begin, end - begin, 0 * ones), (begin_2, end_2 - begin_2, ones)]
        if len(special_ids):
            cls, sep = size * ones, (size + 1) * ones
            columns = [(cls, ones, 0 * ones), columns[0], (sep, ones, 0 * ones), columns[1], (sep, pair, ones)]
        begins, lengths, types = (np.stack(values, 1).reshape(-1) for values in zip(*columns, strict=True))
        row = np.repeat(np.arange(num_rows), len(columns))
        pieces = Pieces(row, begins, lengths, types)
        return inject(self.tokens, np.array(special_ids, dtype=np.int64), pieces, num_rows, self.store, max_length)


def place_words(source: Source, matches: Sequence[Sequence[Match]], store: BranchStore | None) -> Tokens:
    """Put words with knowledge on the tokens of a source.

    Args:
        source: the tokens.
        matches: words found in each text.
        store: their branches.

    Returns:
        The tokens, and those of the words that have branches.
    """
    none = np.zeros(0, dtype=np.int64)
    if store is None:
        return Tokens(source.ids, source.bounds, none, none, none)
    first, last, numbers = source.place(matches)
    rows = store.rows(numbers)
    some = store.word_bounds[rows + 1] > store.word_bounds[rows] if len(rows) else np.zeros(0, dtype=bool)
    return Tokens(source.ids, source.bounds, first[some], last[some], rows[some])


def split_texts(rows: Sequence[TextRow]) -> tuple[list[Any], list[bool], list[tuple[int, int]]]:
    """Lay the texts of rows out in one list.

    Args:
        rows: the texts.

    Returns:
        First texts, then second ones; which of them are second ones; the numbers of each row.
    """
    texts = [row.first for row in rows]
    numbers = []
    for row_number, row in enumerate(rows):
        numbers.append((row_number, -1 if row.second is None else len(texts)))
        if row.second is not None:
            texts.append(row.second)
    second = [False] * len(rows) + [True] * (len(texts) - len(rows))
    return texts, second, numbers


def searched_texts(texts: Sequence[Any], split: bool) -> tuple[list[str], list[list[int]] | None]:
    """The texts as strings, and where words begin in them.

    Args:
        texts: strings, or lists of words.
        split: which of the two.

    Returns:
        Strings, and begins of words or `None`.
    """
    if not split:
        return list(texts), None
    joined = [join_words(words) for words in texts]
    return [text for text, _ in joined], [begins for _, begins in joined]


def make_batch(
    rows: Sequence[TextRow],
    split: bool,
    lexicon: Lexicon | None,
    store: BranchStore | None,
    encode: Any,
    table: CharacterTable | None,
    tag_ids: Sequence[int],
) -> Batch:
    """Tokens of rows in the standard style.

    Args:
        rows: the texts.
        split: whether they are lists of words.
        lexicon: finds words and tags; `None` for neither.
        store: branches; `None` for no knowledge.
        encode: the fast tokenizer's, of a list of texts (for word pieces).
        table: ids of characters (for characters), or `None`.
        tag_ids: ids of the lexicon's tags.

    Returns:
        The batch.
    """
    texts, second, numbers = split_texts(rows)
    searched, word_begins = searched_texts(texts, split)
    matches = lexicon.find(searched) if lexicon is not None else [[] for _ in searched]
    source: Source
    if table is None:
        source = WordPieces(encode(texts), second, word_begins)
    else:
        num_tags = len(tag_ids)
        tags = [[(begin, end, tag_ids[n]) for begin, end, n in found if n < num_tags] for found in matches]
        matches = [[match for match in found if match[2] >= num_tags] for found in matches]
        source = Characters(searched, table, tags, second, word_begins)
    return Batch(source, place_words(source, matches, store), numbers, store)


def make_reference_batch(
    rows: Sequence[TextRow],
    split: bool,
    lexicon: Lexicon,
    store: BranchStore | None,
    table: CharacterTable,
    tag_ids: Sequence[int],
    frame: tuple[str, str],
) -> tuple[Batch, np.ndarray]:
    """Tokens of rows as the original project reads them: tags written into the text, two texts in one.

    Args:
        rows: the texts.
        split: whether they are lists of words.
        lexicon: finds words and tags.
        store: branches; `None` for no knowledge.
        table: ids of characters.
        tag_ids: ids of the lexicon's tags.
        frame: the tag before the first text, and the one behind each text of a pair; empty for none.

    Returns:
        The batch, and which of its tokens are tags of the frame.

    Raises:
        ValueError: pairs come as words.
    """
    searched, parts, word_begins = [], [], []
    for row in rows:
        first, begins = join_words(row.first, blanks=False) if split else (row.first, [])
        text = frame[0] + first
        part = (len(frame[0]), len(text), 0, 0)
        if row.second is not None:
            if split:
                raise ValueError("`is_split_into_words` must come with single texts in a reference style, got pairs.")
            text += frame[1]
            part = (*part[:2], len(text), len(text) + len(row.second))
            text += row.second + frame[1]
        searched.append(text)
        parts.append(part)
        word_begins.append([begin + len(frame[0]) for begin in begins])
    matches = lexicon.find(searched)
    tags = [[(begin, end, tag_ids[n]) for begin, end, n in found if n < len(tag_ids)] for found in matches]
    source = Characters(searched, table, tags, [False] * len(rows), word_begins if split else None, parts)
    numbers = [(number, -1) for number in range(len(rows))]
    return Batch(source, place_words(source, matches, store), numbers, store), source.is_outside()


def reference_types(rows: Rows, sep_id: int, counts: np.ndarray) -> np.ndarray:
    """Segment ids of the original project: 1, and 2 behind the first [SEP] on the trunk of a pair.

    Args:
        rows: the rows.
        sep_id: id of [SEP].
        counts: which rows count segments, `(num_rows,)`; the others have 1 everywhere.

    Returns:
        Array like `rows.ids`.
    """
    is_sep = ((rows.ids == sep_id) & (rows.branches == 0)).astype(np.int64)
    before = np.cumsum(is_sep) - is_sep
    starts = before[np.minimum(rows.bounds[:-1], max(len(before) - 1, 0))] if len(before) else before
    sizes = np.diff(rows.bounds)
    return 1 + np.minimum(before - np.repeat(starts, sizes), np.repeat(counts, sizes))


def padded(flat: np.ndarray, bounds: np.ndarray, width: int | None, filler: int, left: bool) -> Any:
    """A column as rows.

    Args:
        flat: all rows one after another.
        bounds: where rows begin and end.
        width: to pad to, or `None`.
        filler: what to pad with.
        left: whether padding stands before a row.

    Returns:
        A list of lists, or an array `(batch, width)` if no row is longer than that.
    """
    sizes = np.diff(bounds)[:, None]
    if width is None or (sizes > width).any():
        values, ends = flat.tolist(), bounds.tolist()
        rows = [values[begin:end] for begin, end in pairwise(ends)]
        if width is None:
            return rows
        more = [[filler] * (width - len(row)) for row in rows]
        return [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, more, strict=True)]
    places = np.arange(width)[None]
    column = np.full((len(bounds) - 1, width), filler, dtype=np.int64)
    column[places >= width - sizes if left else places < sizes] = flat
    return column


def width_of(sizes: np.ndarray, padding: str, max_length: int | None, multiple: int | None) -> int | None:
    """How wide rows are padded.

    Args:
        sizes: tokens of each row.
        padding: "do_not_pad", "longest" or "max_length".
        max_length: the width under "max_length".
        multiple: what the width is a multiple of.

    Returns:
        The width, or `None`.
    """
    if padding == "do_not_pad":
        return None
    longest = int(sizes.max()) if len(sizes) else 0
    width = max_length or longest if padding == "max_length" else longest
    return -(-width // multiple) * multiple if multiple else width


def margins(size: int, width: int | None, left: bool) -> tuple[int, int]:
    """How much padding stands before and behind a row.

    Args:
        size: its tokens.
        width: to pad to, or `None`.
        left: whether padding stands before.

    Returns:
        The two numbers.
    """
    if width is None:
        return 0, 0
    missing = max(width - size, 0)  # longer rows stay as they are, as upstream
    return (missing, 0) if left else (0, missing)


def source_index(encoding: KBertEncoding, split: bool) -> list[int]:
    """Where each token of a row comes from.

    Args:
        encoding: of the row.
        split: whether texts came as words.

    Returns:
        Numbers of words, or of the characters at which tokens begin; -1 for injected and special tokens.
    """
    if split:
        return [-1 if word is None else word for word in encoding.word_ids]
    return [
        -1 if sequence is None else begin
        for (begin, _), sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True)
    ]


def labels_of(
    encodings: Sequence[KBertEncoding], rows: Sequence[TextRow], options: CallOptions, batched: bool, first_only: bool
) -> list[list[int]]:
    """Labels of tokens from labels of words.

    Args:
        encodings: of all rows.
        rows: their texts.
        options: with the words' labels.
        batched: whether there is a list of labels for each text.
        first_only: whether only the first piece of a word has its label.

    Returns:
        A label for each token; -100 for special tokens.

    Raises:
        ValueError: labels do not fit words.
    """
    given = options.word_labels if batched else [options.word_labels]
    if len(given) != len(rows):
        raise ValueError(f"`word_labels` must have a list for each of {len(rows)} texts, got {len(given)}.")
    for number, (labels, row) in enumerate(zip(given, rows, strict=True)):
        if isinstance(row.first, str) or row.second is not None:
            raise ValueError(
                "`word_labels` must come with single texts and is_split_into_words=True. Split texts into words."
            )
        if len(labels) != len(row.first):
            raise ValueError(
                f"`word_labels` must have a label for each word, got {len(labels)} for the {len(row.first)} words "
                f"of text {number}."
            )
    return [_labels_of_row(encoding, given[encoding.sample], first_only, options) for encoding in encodings]


def _labels_of_row(
    encoding: KBertEncoding, word_labels: Sequence[int], first_only: bool, options: CallOptions
) -> list[int]:
    labels: list[int] = []
    seen = None
    for word, (begin, _), injected, real in zip(
        encoding.word_ids, encoding.offsets, encoding.injected, encoding.attention_mask, strict=True
    ):
        if word is None:
            labels.append(options.knowledge_label if injected else NO_LABEL if real else options.padding_label)
            continue
        # At the begin of a window a word may go on that began in the window before.
        goes_on = word == seen or (seen is None and begin > 0)
        labels.append(NO_LABEL if goes_on and first_only else word_labels[word])
        seen = word
    return labels


def to_batch_encoding(
    columns: dict[str, Any], encodings: list[Any], nested: bool, return_tensors: Any
) -> BatchEncoding:
    """The columns as a tokenizer returns them.

    Args:
        columns: lists of rows, or arrays.
        encodings: of the rows.
        nested: whether a single row stays in a list.
        return_tensors: kind of tensors, or `None`.

    Returns:
        The batch.
    """
    if return_tensors is None:
        columns = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in columns.items()}
        if not nested:
            columns = {name: value[0] for name, value in columns.items()}
    return BatchEncoding(columns, encodings, tensor_type=return_tensors)


__all__ = ["Batch", "Limits", "make_batch", "make_reference_batch", "read_rows"]
