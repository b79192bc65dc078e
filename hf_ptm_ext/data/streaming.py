"""A stream of pre-training rows that can stop anywhere and go on exactly.

    documents -> every world_size-th -> shuffle buffer -> token ids -> blocks or pairs -> sequences -> (packed) rows

Everything between the source and the row handed out last is part of the state: the buffer's documents, the random
generator, the block and the rows that wait for more, the rows that wait to be handed out. So rows before a stop and
rows after it together are the rows of a run without stop, each once, however often it stops. `datasets` alone loses
what is in its shuffle buffer (https://github.com/huggingface/datasets/issues/7901).
"""

import copy
import hashlib
import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from .packing import BlockPacker, RowPacker
from .readers import Document
from .sentence_pairs import PairPacker, PairRule, SentencePair
from .sources import as_document_source, beginning_of
from .tokenization import encode_batch, special_tokens_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

STATE_VERSION = 1
# What a state belongs to, beside the tokenizer.
_SETTINGS = (
    *("max_seq_length", "packed", "row_length", "max_sequences", "open_rows", "block_mode", "long_sentences"),
    *("short_seq_prob", "shuffle_buffer_size", "seed", "rank", "world_size"),
)
SENTENCES_PER_CALL = 512  # of the tokenizer: enough to hide its overhead, few enough to keep the state small


class PretrainingStream(IterableDataset):
    """Rows of token ids for pre-training, from documents, with an exact `state_dict()`.

    Use it in a `DataLoader` with `num_workers=0` and save `state_dict()` after a step: the state is that of the last
    row taken, so nothing may read ahead of training. Give the state to `load_state_dict()` of a stream built in the
    same way and iterate again. A new iteration without a loaded state starts from the beginning.

    Args:
        documents: See `as_document_source`.
        tokenizer: Fast or slow.
        max_seq_length: Longest sequence, special tokens included.
        packed: Put several sequences into each row, see `pack_row`.
        row_length: Length of packed rows; None for `max_seq_length`.
        max_sequences: Most sequences of a packed row.
        open_rows: See `RowPacker`.
        block_mode: `"doc_sentences"` or `"full_sentences"`, see `BlockPacker`.
        long_sentences: `"split"` or `"drop"`, see `BlockPacker`.
        short_seq_prob: See `BlockPacker`.
        pairs: Make pairs of two segments instead of blocks; `block_mode`, `long_sentences` and `short_seq_prob` are
            then not read. Its buffer is part of the state too.
        pair_label: Column of the pairs' labels.
        shuffle_buffer_size: Number of documents among which the next one is drawn; 0 or 1 keeps the order. The buffer
            is part of the state: about its text in bytes.
        seed: Each epoch and rank draws from (seed, epoch, rank).
        num_epochs: Passes over the documents; None goes on without end. Rows do not cross epochs.
        rank: Of `world_size` processes this one keeps the documents i with `i % world_size == rank`. Ranks get
            different numbers of rows: train by steps on an endless stream.
        world_size: Number of processes.

    Returns:
        Iterating yields lists of ints: not packed `input_ids` and `token_type_ids`, each of the sequence's own length;
        packed `input_ids`, `token_type_ids`, `sequence_ids` and `position_ids`, each (row_length,).

    Examples:
        >>> from hf_ptm_ext.data import train_wordpiece
        >>> documents = [["one two", "three"], ["two"], ["three three"], ["one"]]
        >>> tokenizer = train_wordpiece(documents, 40)
        >>> stream, resumed = (PretrainingStream(documents, tokenizer, max_seq_length=16) for _ in range(2))
        >>> first = next(iter(stream))
        >>> resumed.load_state_dict(stream.state_dict())
        >>> [first, *resumed] == list(PretrainingStream(documents, tokenizer, max_seq_length=16))
        True
    """

    _iterator: Iterator[Document] | None  # over the source; None before the first document of an epoch or resume
    _source_state: dict[str, Any]  # where `_iterator` will start
    _buffer: list[Document]
    _encoded: deque[list[list[int]]]  # tokenised documents that wait to be packed
    _open: RowPacker | None
    _ready: deque[dict[str, list[int]]]

    def __init__(
        self,
        documents: Any,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_seq_length: int = 512,
        packed: bool = False,
        row_length: int | None = None,
        max_sequences: int = 16,
        open_rows: int = 16,
        block_mode: str = "doc_sentences",
        long_sentences: str = "split",
        short_seq_prob: float = 0.0,
        pairs: PairRule | None = None,
        pair_label: str = "next_sentence_label",
        shuffle_buffer_size: int = 1000,
        seed: int = 0,
        num_epochs: int | None = 1,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.source = as_document_source(documents)
        self._source_begin = beginning_of(self.source)
        self.tokenizer = tokenizer
        self.special_tokens = special_tokens_of(tokenizer)
        if max_seq_length <= self.special_tokens.single_count:
            raise ValueError(
                f"`max_seq_length` must exceed the tokenizer's {self.special_tokens.single_count} special tokens, got "
                f"{max_seq_length}."
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"`rank` must be at least 0 and below `world_size` = {world_size}, got {rank}.")
        if shuffle_buffer_size < 0 or seed < 0:
            raise ValueError(
                f"`shuffle_buffer_size` and `seed` must not be negative, got {shuffle_buffer_size} and {seed}."
            )
        if num_epochs is not None and num_epochs < 1:
            raise ValueError(f"`num_epochs` must be at least 1, or None for no end, got {num_epochs}.")
        if row_length is not None and row_length < max_seq_length:
            raise ValueError(f"`row_length` must be at least `max_seq_length` = {max_seq_length}, got {row_length}.")
        if packed and tokenizer.pad_token_id is None:
            raise ValueError(
                f"`tokenizer` must have a padding token for `packed` rows, got {type(tokenizer).__name__} without. "
                "Set `tokenizer.pad_token`."
            )
        self.max_seq_length = max_seq_length
        self.packed = packed
        self.row_length = row_length
        self.max_sequences = max_sequences
        self.open_rows = open_rows
        self.block_mode = block_mode
        self.long_sentences = long_sentences
        self.short_seq_prob = short_seq_prob
        self.pairs = pairs
        self.pair_label = pair_label
        self.shuffle_buffer_size = shuffle_buffer_size
        self.seed = seed
        self.num_epochs = num_epochs
        self.rank = rank
        self.world_size = world_size
        self._resumed = False
        self._begin_epoch(0)

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        """Yield rows, from the loaded state if there is one."""
        if not self._resumed:
            self._begin_epoch(0)
        self._resumed = False
        return self._rows()

    def state_dict(self) -> dict[str, Any]:
        """Return all that lies between the source and the last row: ints, floats, strings, lists and dicts (JSON)."""
        return {
            "version": STATE_VERSION,
            "settings": self._settings(),
            "epoch": self._epoch,
            "epoch_rows": self._epoch_rows,
            "documents_read": self._documents_read,
            "source": self.source.state_dict() if self._iterator is not None else copy.deepcopy(self._source_state),
            "exhausted": self._exhausted,
            "generator": copy.deepcopy(self._generator.bit_generator.state),
            "buffer": [list(document) for document in self._buffer],
            "encoded": [[list(sentence) for sentence in document] for document in self._encoded],
            "block_packer": self._blocks.state_dict(),
            "row_packer": self._open.state_dict() if self._open is not None else None,
            "ready": copy.deepcopy(list(self._ready)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on behind the last row of a state; only `num_epochs` may differ in settings."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"`version` of the stream's state must be {STATE_VERSION}, got {state.get('version')}.")
        now = self._settings()
        different = [name for name in now if state["settings"].get(name) != now[name]]
        if different:
            changes = ", ".join(
                f"`{name}` was {state['settings'].get(name)!r}, is {now[name]!r}" for name in different
            )
            raise ValueError(
                f"The stream's state belongs to other settings: {changes}. Use the settings of the saved run, or "
                "start without the state."
            )
        self.source.load_state_dict(state["source"])  # so that other files or documents are noticed here
        self._begin_epoch(state["epoch"])
        self._epoch_rows = state["epoch_rows"]
        self._documents_read = state["documents_read"]
        self._source_state = copy.deepcopy(state["source"])
        self._exhausted = state["exhausted"]
        self._generator.bit_generator.state = copy.deepcopy(state["generator"])
        self._buffer = [list(document) for document in state["buffer"]]
        self._encoded = deque(copy.deepcopy(state["encoded"]))
        self._blocks.load_state_dict(state["block_packer"])
        if self._open is not None:
            self._open.load_state_dict(state["row_packer"])
        self._ready = deque(copy.deepcopy(state["ready"]))
        self._resumed = True

    def resume_problems(self, num_workers: int = 0) -> list[str]:
        """Say why a run with these settings could not resume exactly; empty if it can."""
        if num_workers == 0:
            return []
        return [
            f"`dataloader_num_workers` is {num_workers}: worker processes read ahead of training and keep their place "
            "to themselves, so a resumed run starts the data from the beginning. Set it to 0 to resume exactly."
        ]

    def _rows(self) -> Iterator[dict[str, list[int]]]:
        while self._ready or self._fill():
            self._epoch_rows += 1
            yield self._ready.popleft()

    def _fill(self) -> bool:
        """Work until a row is ready; False at the end of the last epoch."""
        while self.num_epochs is None or self._epoch < self.num_epochs:
            while self._encoded or self._encode():
                self._pack(self._blocks.add(self._encoded.popleft()))
                if self._ready:
                    return True
            # The end of the epoch is worked off once: afterwards the packers are empty.
            self._pack(self._blocks.flush())
            self._ready += self._open.flush() if self._open is not None else []
            if self._ready:
                return True
            if not self._epoch_rows:
                raise ValueError(
                    f"`documents` give rank {self.rank} of {self.world_size} no row: {self._documents_read} documents "
                    "were read. Give at least one document with text for each process."
                )
            self._begin_epoch(self._epoch + 1)
        return False

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._epoch_rows = 0
        self._documents_read = 0
        self._iterator = None
        self._source_state = self._source_begin
        self._exhausted = False
        self._generator = np.random.default_rng([self.seed, epoch, self.rank])
        self._buffer = []
        self._encoded = deque()
        self._blocks = self._new_packer()
        self._open = None
        if self.packed:
            self._open = RowPacker(
                self.row_length or self.max_seq_length,
                self.tokenizer.pad_token_id,
                max_sequences=self.max_sequences,
                open_rows=self.open_rows,
            )
        self._ready = deque()

    def _new_packer(self) -> BlockPacker | PairPacker:
        """What makes the sequences of documents."""
        if self.pairs is not None:
            longest = self.max_seq_length - self.special_tokens.pair_count
            return PairPacker(self.pairs, longest, self._generator)
        return BlockPacker(
            self.max_seq_length - self.special_tokens.single_count,
            mode=self.block_mode,
            long_sentences=self.long_sentences,
            short_seq_prob=self.short_seq_prob,
            separator_id=separator_of(self.tokenizer),
            generator=self._generator,
        )

    def _pack(self, blocks: Sequence[Any]) -> None:
        for block in blocks:
            if isinstance(block, SentencePair):
                sequence = block.features(self.special_tokens, self.pair_label)
            else:
                sequence = self.special_tokens.single(block)
            self._ready += [sequence] if self._open is None else self._open.add(sequence)

    def _encode(self) -> bool:
        """Tokenise the next documents in one call; False if there are none."""
        batch: list[Document] = []
        sentences = 0
        while sentences < SENTENCES_PER_CALL and (document := self._draw()) is not None:
            batch.append(document)
            sentences += len(document)
        self._encoded += encode_batch(batch, self.tokenizer)
        return bool(batch)

    def _draw(self) -> Document | None:
        """The next document out of the shuffle buffer, None at the end of the epoch."""
        while (document := self._read()) is not None:
            if len(self._buffer) < max(self.shuffle_buffer_size, 1):
                self._buffer.append(document)
                continue
            place = int(self._generator.integers(len(self._buffer)))
            drawn, self._buffer[place] = self._buffer[place], document
            return drawn
        if not self._buffer:
            return None
        place = int(self._generator.integers(len(self._buffer)))
        self._buffer[place], self._buffer[-1] = self._buffer[-1], self._buffer[place]
        return self._buffer.pop()

    def _read(self) -> Document | None:
        """The next document of this process, None at the end of the source."""
        if self._exhausted:
            return None
        if self._iterator is None:
            self.source.load_state_dict(self._source_state)
            self._iterator = iter(self.source)
        share, shares = self._share()
        for document in self._iterator:
            self._documents_read += 1
            if (self._documents_read - 1) % shares == share:
                return document
        self._exhausted = True
        return None

    def _share(self) -> tuple[int, int]:
        """This process's share of the documents; worker processes of a `DataLoader` divide it further."""
        worker = get_worker_info()
        if worker is None or getattr(self.source, "divided_among_workers", False):
            return self.rank, self.world_size
        return self.rank * worker.num_workers + worker.id, self.world_size * worker.num_workers

    def _settings(self) -> dict[str, Any]:
        vocabulary = json.dumps(sorted(self.tokenizer.get_vocab().items())).encode("utf-8")
        digest = hashlib.blake2b(vocabulary, digest_size=8).hexdigest()
        pairs = {} if self.pairs is None else {"pairs": asdict(self.pairs), "pair_label": self.pair_label}
        return {"tokenizer": digest, **{name: getattr(self, name) for name in _SETTINGS}, **pairs}


def separator_of(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """What stands between two documents of a block: the separator, or of tokenizers without one what ends a text."""
    return tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id


class _StreamWrapper(IterableDataset):
    """A stream seen through a function of its rows; its state is the stream's own."""

    def __init__(self, stream: PretrainingStream, function: Callable[[dict[str, list[int]]], Any]) -> None:
        self.stream = stream
        self.function = function

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the stream."""
        return self.stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the stream go on behind the last row of a saved state."""
        self.stream.load_state_dict(state)


class MappedStream(_StreamWrapper):
    """A stream whose rows go through a function."""

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        """Yield the mapped rows, from the loaded state if there is one."""
        return map(self.function, iter(self.stream))


class FilteredStream(_StreamWrapper):
    """The rows of a stream that a function keeps."""

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        """Yield the kept rows, from the loaded state if there is one."""
        return filter(self.function, iter(self.stream))


class WeightedStream(IterableDataset):
    """Rows of several streams, each row's stream drawn by its weight; ends where a drawn stream ends.

    The draws are part of the state, so a resumed run takes the same rows from the same streams.
    """

    def __init__(self, streams: Sequence[Any], weights: Sequence[float], seed: int = 0, rank: int = 0) -> None:
        self.streams = list(streams)
        self.weights = [weight / sum(weights) for weight in weights]
        self.seed = seed
        self.rank = rank
        self._state: dict[str, Any] | None = None
        self._generator = np.random.default_rng([seed, rank, 0])

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        """Yield rows, from the loaded state if there is one."""
        worker = get_worker_info()
        self._generator = np.random.default_rng([self.seed, self.rank, 0 if worker is None else worker.id])
        if self._state is not None:
            self._generator.bit_generator.state, self._state = self._state, None
        iterators = [iter(stream) for stream in self.streams]
        while True:
            row = next(iterators[int(self._generator.choice(len(iterators), p=self.weights))], None)
            if row is None:
                return
            yield row

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws and of every stream."""
        generator = self._generator.bit_generator.state if self._state is None else self._state
        streams = [stream.state_dict() for stream in self.streams]
        return {"weights": list(self.weights), "generator": copy.deepcopy(generator), "streams": streams}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on behind the last row of a saved state."""
        if state.get("weights") != self.weights:
            raise ValueError(
                f"The state belongs to streams of the weights {state.get('weights')}, these have {self.weights}. Use "
                "the settings of the saved run, or start without the state."
            )
        for stream, kept in zip(self.streams, state["streams"], strict=True):
            stream.load_state_dict(kept)
        self._state = copy.deepcopy(state["generator"])


def pretraining_dataset(
    documents: Any,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    cache_dir: str | PathLike[str] | None = None,
    **options: Any,
) -> "Dataset":
    """Tokenise and pack all documents into the rows of a `datasets.Dataset`, for corpora prepared before training.

    Only tokenising and packing happen here. Masks belong into the collator: made here they would be frozen.

    Args:
        documents: See `as_document_source`.
        tokenizer: Fast or slow.
        cache_dir: Folder for the rows, which are then memory-mapped (default: in memory, nothing stays on disk).
        **options: Those of `PretrainingStream`, such as `max_seq_length` and `packed`. The order is kept
            (`shuffle_buffer_size=1`) unless asked otherwise.

    Examples:
        >>> from hf_ptm_ext.data import train_wordpiece
        >>> documents = [["one two", "one"], ["two"]]
        >>> len(pretraining_dataset(documents, train_wordpiece(documents, 40), max_seq_length=16))
        2
    """
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    stream = PretrainingStream(documents, tokenizer, **{"shuffle_buffer_size": 1, **options})
    if stream.num_epochs is None:
        raise ValueError("`num_epochs` must be a number to prepare all rows, got None. Iterate a PretrainingStream.")

    faults: list[Exception] = []

    def rows() -> Iterator[dict[str, list[int]]]:
        try:
            yield from stream
        except (ValueError, TypeError, OSError) as error:
            faults.append(error)
            raise

    with tempfile.TemporaryDirectory() as folder:
        try:
            return Dataset.from_generator(rows, cache_dir=str(cache_dir or folder), keep_in_memory=cache_dir is None)
        except DatasetGenerationError as error:
            # The readers' own errors name the file; the wrapper hides them.
            raise (faults[0] if faults else error) from None
