"""What `BatchEncoding` asks of the encoding of a row, for rows with knowledge.

The methods and their answers are those of `tokenizers.Encoding`. Injected tokens come from nowhere in the text: no
word, no sequence, offset (0, 0), and a special token to those who drop special tokens.
"""

from collections.abc import Callable
from typing import Any

from .injection_kbert import Rows
from .sources_kbert import Source, join_words


class KBertEncoding:
    """One row; everything is worked out when asked for.

    Args:
        rows: the batch.
        row: number of the row in it.
        source: knows where tokens come from.
        tokenizer: knows what tokens are called.
        texts: the text, and the second one of a pair or `None`; strings or lists of words.
        sample: number of the text in the call.
        padding: how many [PAD] are put before and behind.
    """

    _PARTS = (
        "ids",
        "tokens",
        "type_ids",
        "attention_mask",
        "special_tokens_mask",
        "offsets",
        "word_ids",
        "sequence_ids",
    )

    def __init__(
        self,
        rows: Rows,
        row: int,
        source: Source,
        tokenizer: Any,
        texts: tuple[Any, Any],
        sample: int,
        padding: tuple[int, int] = (0, 0),
    ):
        self._rows, self._source, self._tokenizer = rows, source, tokenizer
        self._slice = slice(int(rows.bounds[row]), int(rows.bounds[row + 1]))
        self._padding = padding
        self._known: dict[str, list[Any]] = {}
        self.texts, self.sample = texts, sample
        self.n_sequences = 1 if texts[1] is None else 2
        self.overflowing: list[Any] = []

    def __len__(self) -> int:
        return self._slice.stop - self._slice.start + sum(self._padding)

    def __getstate__(self) -> dict[str, Any]:
        """All parts, without the batch, the tokenizer and its graph."""
        known = {name: getattr(self, name) for name in (*self._PARTS, "injected")}
        return {**self.__dict__, "_known": known, "_rows": None, "_source": None, "_tokenizer": None}

    def _part(self, name: str, make: Callable[[], list[Any]], filler: Any) -> list[Any]:
        if name not in self._known:
            before, behind = self._padding
            self._known[name] = [filler] * before + make() + [filler] * behind
        return self._known[name]

    def _from_text(self, method: str, filler: Any) -> list[Any]:
        """What the source says of the tokens of the text, with a filler for all others."""
        numbers = self._rows.source[self._slice]
        found = iter(getattr(self._source, method)(numbers[numbers >= 0]))
        return [next(found) if number >= 0 else filler for number in numbers.tolist()]

    @property
    def ids(self) -> list[int]:
        """The tokens."""
        pad = self._tokenizer.pad_token_id if self._tokenizer is not None else None
        return self._part("ids", lambda: self._rows.ids[self._slice].tolist(), pad)

    @property
    def tokens(self) -> list[str]:
        """The tokens' texts."""
        if "tokens" not in self._known:
            self._known["tokens"] = self._tokenizer.convert_ids_to_tokens(self.ids)
        return self._known["tokens"]

    @property
    def type_ids(self) -> list[int]:
        """Their types."""
        pad = self._tokenizer.pad_token_type_id if self._tokenizer is not None else None
        return self._part("type_ids", lambda: self._rows.token_types[self._slice].tolist(), pad)

    @property
    def attention_mask(self) -> list[int]:
        """1, and 0 for padding."""
        return self._part("attention_mask", lambda: [1] * (self._slice.stop - self._slice.start), 0)

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for special, injected and padding tokens."""
        return self._part("special_tokens_mask", lambda: (self._rows.source[self._slice] < 0).astype(int).tolist(), 1)

    @property
    def injected(self) -> list[bool]:
        """Which tokens are knowledge."""
        return self._part("injected", lambda: (self._rows.branches[self._slice] > 0).tolist(), False)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Begin and end in the text, or in the word if the text came as words."""
        return self._part("offsets", lambda: self._from_text("spans", (0, 0)), (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        """Number of the word."""
        return self._part("word_ids", lambda: self._from_text("words", None), None)

    @property
    def words(self) -> list[int | None]:
        """The same, by its older name."""
        return self.word_ids

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 or 1, the text of a pair."""
        return self._part("sequence_ids", lambda: self._from_text("sequences", None), None)

    # ---- one token, word or character ----

    def token_to_sequence(self, token_index: int) -> int | None:
        """The text that a token is of."""
        return self.sequence_ids[token_index]

    def token_to_word(self, token_index: int) -> int | None:
        """The word that a token is of."""
        return self.word_ids[token_index]

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Where a token stands in its text."""
        return None if self.sequence_ids[token_index] is None else self.offsets[token_index]

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """First token of a word, and the one behind its last; branches between its pieces count in."""
        found = [
            token
            for token, (word, sequence) in enumerate(zip(self.word_ids, self.sequence_ids, strict=True))
            if word == word_index and sequence == sequence_index
        ]
        return (found[0], found[-1] + 1) if found else None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
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


__all__ = ["KBertEncoding"]
