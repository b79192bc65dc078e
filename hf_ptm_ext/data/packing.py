"""Packing: sentences of token ids into blocks, and finished sequences into rows of one length.

Blocks (SpanBERT's `BlockDataset`, break mode "doc"; RoBERTa's DOC-SENTENCES): within a document sentences are added
while the total is at most `max_tokens`; the sentence that overflows starts the next block; no block crosses
documents. The reference loses the pending block of a document whose last sentence is too long; here it is kept.
RoBERTa's FULL-SENTENCES go on in the next document, behind a separator, so that all blocks but the last are full.

Rows: several finished sequences ([CLS] block [SEP]) share one row, so that no computation is spent on padding.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

TokenIds = list[int]
"""The token ids of a sentence, a block or a sequence."""

BLOCK_MODES = DOC_SENTENCES, FULL_SENTENCES = "doc_sentences", "full_sentences"
LONG_SENTENCES = ("split", "drop")


class BlockPacker:
    """Joins sentences to blocks of at most `max_tokens` tokens.

    Args:
        max_tokens: Most tokens of a block, special tokens not counted: 512 - 2 in SpanBERT.
        mode: `"doc_sentences"`: no block crosses documents (SpanBERT, RoBERTa section 4.2). `"full_sentences"`: blocks
            go on in the next document, behind `separator_id`.
        long_sentences: A sentence of more than `max_tokens` tokens is cut into blocks of `max_tokens`, whose rest is
            joined by the next sentence (`"split"`), or left out as in the reference (`"drop"`).
        short_seq_prob: Probability that a block aims at a length drawn uniformly from 2 to `max_tokens` (BERT: 0.1;
            SpanBERT and RoBERTa: 0). A longer sentence is not cut for it, it makes a block of its own.
        separator_id: Token between documents, needed in mode `"full_sentences"`: the tokenizer's `sep_token_id`.
        generator: Draws short lengths; needed if `short_seq_prob` is not 0.

    Examples:
        >>> packer = BlockPacker(max_tokens=5)
        >>> packer.add([[1, 2], [3, 4], [5, 6, 7]])
        [[1, 2, 3, 4], [5, 6, 7]]
        >>> packer.add([[8], [1, 2, 3, 4, 5, 6, 7]])
        [[8], [1, 2, 3, 4, 5], [6, 7]]
    """

    def __init__(
        self,
        max_tokens: int,
        *,
        mode: str = "doc_sentences",
        long_sentences: str = "split",
        short_seq_prob: float = 0.0,
        separator_id: int | None = None,
        generator: np.random.Generator | None = None,
    ) -> None:
        if max_tokens < 1:
            raise ValueError(f"`max_tokens` must be at least 1, got {max_tokens}.")
        if mode not in BLOCK_MODES:
            raise ValueError(f"`mode` must be one of {BLOCK_MODES}, got {mode!r}.")
        if long_sentences not in LONG_SENTENCES:
            raise ValueError(f"`long_sentences` must be one of {LONG_SENTENCES}, got {long_sentences!r}.")
        if not 0 <= short_seq_prob <= 1:
            raise ValueError(f"`short_seq_prob` must be in [0, 1], got {short_seq_prob}.")
        if mode == "full_sentences" and separator_id is None:
            raise ValueError('`separator_id` must be given in mode "full_sentences". Use `tokenizer.sep_token_id`.')
        if short_seq_prob and generator is None:
            raise ValueError(
                f"`generator` must be given if `short_seq_prob` is not 0, got {short_seq_prob}. Use "
                "numpy.random.default_rng(0)."
            )
        self.max_tokens = max_tokens
        self.mode = mode
        self.long_sentences = long_sentences
        self.short_seq_prob = short_seq_prob
        self.separator_id = separator_id
        self.generator = generator
        self._pending: TokenIds = []
        self._behind_document = False
        self._target = self._next_target()

    def add(self, document: Iterable[Sequence[int]]) -> list[TokenIds]:
        """Add a document and return the blocks that it finished."""
        blocks: list[TokenIds] = []
        for sentence in document:
            if not sentence:
                continue
            if len(sentence) <= self.max_tokens:
                self._extend(sentence, blocks)
            elif self.long_sentences == "split":
                self._split(sentence, blocks)
        if self.mode == "doc_sentences":
            blocks += self.flush()
        self._behind_document = True
        return blocks

    def flush(self) -> list[TokenIds]:
        """Return the block that waits for more sentences, if there is one."""
        blocks: list[TokenIds] = []
        self._close(blocks)
        return blocks

    def state_dict(self) -> dict[str, Any]:
        """Return what is carried over to the next document: plain ints and lists."""
        return {
            "pending": list(self._pending),
            "target": self._target,
            "behind_document": self._behind_document,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set what is carried over, from `state_dict()` of a packer with the same options."""
        self._pending, self._target = list(state["pending"]), int(state["target"])
        self._behind_document = bool(state["behind_document"])

    def _extend(self, sentence: Sequence[int], blocks: list[TokenIds]) -> None:
        separator = [self.separator_id] if self._behind_document and self.separator_id is not None else []
        self._behind_document = False
        if len(self._pending) + len(separator) + len(sentence) > self._target:
            self._close(blocks)
        if self._pending:
            self._pending += separator
        self._pending += sentence

    def _split(self, sentence: Sequence[int], blocks: list[TokenIds]) -> None:
        self._close(blocks)
        self._behind_document = False
        whole = len(sentence) // self.max_tokens * self.max_tokens
        blocks += [list(sentence[at : at + self.max_tokens]) for at in range(0, whole, self.max_tokens)]
        self._pending = list(sentence[whole:])

    def _close(self, blocks: list[TokenIds]) -> None:
        if self._pending:
            blocks.append(self._pending)
            self._pending = []
            self._target = self._next_target()

    def _next_target(self) -> int:
        if self.generator is None or not self.short_seq_prob or self.generator.random() >= self.short_seq_prob:
            return self.max_tokens
        return int(self.generator.integers(min(2, self.max_tokens), self.max_tokens, endpoint=True))


def pack_documents(
    documents: Iterable[Iterable[Sequence[int]]], max_tokens: int, **options: Any
) -> Iterator[TokenIds]:
    """Yield the blocks of documents of token ids; the options are those of `BlockPacker`.

    Examples:
        >>> list(pack_documents([[[1, 2], [3]], [[4]]], max_tokens=4))
        [[1, 2, 3], [4]]
    """
    packer = BlockPacker(max_tokens, **options)
    for document in documents:
        yield from packer.add(document)
    yield from packer.flush()


def pack_row(
    sequences: Sequence[Mapping[str, Any]], row_length: int, max_sequences: int, pad_token_id: int
) -> dict[str, list[int]]:
    """Put finished sequences side by side into one row.

    Args:
        sequences: Each with `input_ids`, special tokens included, optionally `token_type_ids` of the same length (0 if
            absent), and optionally further lists of that length, such as `entity_ids`, or integers, such as
            `next_sentence_label`.
        row_length: Length of the row.
        max_sequences: Most sequences of a row; the length of the lists that hold one integer per sequence.
        pad_token_id: Fills the end.

    Returns:
        `input_ids`, `token_type_ids`, `sequence_ids` (1, 2, ...; 0 on padding) and `position_ids` (from 0 in each
        sequence; 0 on padding) and the further lists (0 on padding), each (row_length,); every integer of the
        sequences as (max_sequences,), -100 where there is no sequence.

    Examples:
        >>> row = pack_row([{"input_ids": [2, 7, 3]}, {"input_ids": [2, 8, 9, 3]}], 8, 4, pad_token_id=0)
        >>> row["sequence_ids"], row["position_ids"]
        ([1, 1, 1, 2, 2, 2, 2, 0], [0, 1, 2, 0, 1, 2, 3, 0])
    """
    total = sum(len(sequence["input_ids"]) for sequence in sequences)
    if total > row_length or len(sequences) > max_sequences:
        raise ValueError(
            f"`sequences` must fit into {row_length} tokens and {max_sequences} sequences, got {total} tokens in "
            f"{len(sequences)} sequences. Pack fewer."
        )
    row: dict[str, list[int]] = {"input_ids": [], "token_type_ids": [], "sequence_ids": [], "position_ids": []}
    for number, sequence in enumerate(sequences, start=1):
        length = len(sequence["input_ids"])
        row["input_ids"] += sequence["input_ids"]
        row["token_type_ids"] += sequence.get("token_type_ids") or [0] * length
        row["sequence_ids"] += [number] * length
        row["position_ids"] += range(length)
    integers = []
    for name, value in sequences[0].items() if sequences else ():
        if isinstance(value, list) and name not in row:
            row[name] = [one for sequence in sequences for one in sequence[name]]
        elif name not in row:
            integers.append(name)
    for name, values in row.items():
        values += [pad_token_id if name == "input_ids" else 0] * (row_length - total)
    for name in integers:
        row[name] = [int(sequence[name]) for sequence in sequences] + [-100] * (max_sequences - len(sequences))
    return row


class RowPacker:
    """Gathers finished sequences into rows of one length: first fit among a few open rows.

    A sequence goes into the oldest open row that has room. If none has, a new row is opened, and if there are then
    more than `open_rows`, the fullest is handed out. A row that cannot take another sequence is handed out at once.

    Args:
        row_length: Length of the rows, at least that of every sequence.
        pad_token_id: Fills the ends of rows.
        max_sequences: Most sequences of a row.
        open_rows: More rows leave less padding and mix sequences over a longer stretch. Measured on 20,000 log-normal
            lengths (median 200) in rows of 512, share of real tokens: 0.84 with 1, 0.93 with 4, 0.967 with 16, 0.975
            with 64.

    Examples:
        >>> packer = RowPacker(row_length=6, pad_token_id=0, open_rows=2)
        >>> rows = [row for length in (4, 3, 2) for row in packer.add({"input_ids": [7] * length})]
        >>> rows[0]["sequence_ids"], [row["sequence_ids"] for row in packer.flush()]
        ([1, 1, 1, 1, 2, 2], [[1, 1, 1, 0, 0, 0]])
    """

    def __init__(self, row_length: int, pad_token_id: int, *, max_sequences: int = 16, open_rows: int = 16) -> None:
        for name, value in (("row_length", row_length), ("max_sequences", max_sequences), ("open_rows", open_rows)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        self.row_length = row_length
        self.pad_token_id = pad_token_id
        self.max_sequences = max_sequences
        self.open_rows = open_rows
        self._rows: list[list[dict[str, Any]]] = []
        self._used: list[int] = []

    def add(self, sequence: Mapping[str, Any]) -> list[dict[str, list[int]]]:
        """Add a sequence and return the rows that are finished."""
        length = len(sequence["input_ids"])
        if length > self.row_length:
            raise ValueError(
                f"`sequence` must have at most `row_length` = {self.row_length} tokens, got {length}. Pack blocks "
                "of fewer tokens."
            )
        place = next((at for at, used in enumerate(self._used) if used + length <= self.row_length), None)
        if place is None:
            place = len(self._rows)
            self._rows.append([])
            self._used.append(0)
        self._rows[place].append(dict(sequence))
        self._used[place] += length
        if self._used[place] == self.row_length or len(self._rows[place]) == self.max_sequences:
            return [self._take(place)]
        if len(self._rows) > self.open_rows:
            return [self._take(max(range(len(self._used)), key=self._used.__getitem__))]
        return []

    def flush(self) -> list[dict[str, list[int]]]:
        """Return the open rows, oldest first."""
        return [self._take(0) for _ in range(len(self._rows))]

    def state_dict(self) -> dict[str, Any]:
        """Return the open rows: plain ints, lists and dicts."""
        return {"rows": [[dict(sequence) for sequence in row] for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the open rows, from `state_dict()` of a packer with the same options."""
        self._rows = [[dict(sequence) for sequence in row] for row in state["rows"]]
        self._used = [sum(len(sequence["input_ids"]) for sequence in row) for row in self._rows]

    def _take(self, place: int) -> dict[str, list[int]]:
        self._used.pop(place)
        return pack_row(self._rows.pop(place), self.row_length, self.max_sequences, self.pad_token_id)
