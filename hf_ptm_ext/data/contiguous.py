"""Contiguous streams: text cut so that each row of a batch goes on where it ended in the batch before."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# Merity et al. 2018: most segments are about `bptt` tokens long, some half of it, none shorter than this.
FULL_LENGTH_PROB, LENGTH_DEVIATION, SHORTEST = 0.95, 5, 5


class ContiguousStreams:
    """Rows for truncated backpropagation through time: token `t` of row `i` goes on in row `i` of the next batch.

    The documents are laid end to end and cut into `batch_size` streams of one length, the streams into segments. Row
    `n` is segment `n // batch_size` of stream `n % batch_size`: rows in their order, `batch_size` at a time, are
    batches. Every token but the first of all is a target exactly once: that of a segment's last token is the first of
    the next. What the last streams lack is filled with id 0 and labels -100.

    Args:
        documents: token ids of each document, their special tokens included (`xxbos`, end of text ...).
        batch_size: number of streams: rows of a batch times the number of processes.
        bptt: tokens of a segment (default 70: Merity et al. 2018; fastai 72, Transformer-XL 150).
        variable: draw each length from N(`bptt`, 5), of one in twenty from N(`bptt` / 2, 5), at least 5, as the
            AWD-LSTM's code does. The lengths of later epochs are those of the first in another order.
        shuffle: draw the order of the documents anew in each epoch (default False).
        seed: of lengths and order.

    Raises:
        ValueError: a size is not positive, or there are fewer tokens than streams.

    Examples:
        >>> streams = ContiguousStreams([[1, 2, 3, 4], [5, 6, 7, 8, 9]], batch_size=2, bptt=3)
        >>> [(row["input_ids"].tolist(), row["labels"].tolist()) for row in (streams[0], streams[2])]
        [([1, 2, 3], [2, 3, 4]), ([4], [5])]
    """

    def __init__(
        self,
        documents: Iterable[Sequence[int]],
        batch_size: int,
        bptt: int = 70,
        *,
        variable: bool = False,
        shuffle: bool = False,
        seed: int = 0,
    ):
        for name, value in (("batch_size", batch_size), ("bptt", bptt)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        parts = [np.asarray(document, dtype=np.int64) for document in documents if len(document)]
        self._tokens = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        self._ends = np.cumsum([len(part) for part in parts])
        if len(self._tokens) <= batch_size:
            raise ValueError(
                f"`batch_size` = {batch_size} streams need a target each, so more than {batch_size} tokens, got "
                f"{len(self._tokens)}. Take more text or a smaller batch."
            )
        self.batch_size, self.bptt, self.variable, self.shuffle, self.seed = batch_size, bptt, variable, shuffle, seed
        self.stream_length = -(-(len(self._tokens) - 1) // batch_size)
        self._lengths = self._draw_lengths()
        self.set_epoch(0)

    def _draw_lengths(self) -> np.ndarray:
        """Segment lengths of the first epoch, whose sum is the stream's."""
        generator, left, lengths = np.random.default_rng(self.seed), self.stream_length, []
        while left:
            length = self.bptt
            if self.variable:
                mean = self.bptt if generator.random() < FULL_LENGTH_PROB else self.bptt / 2
                length = max(SHORTEST, int(generator.normal(mean, LENGTH_DEVIATION)))
            lengths.append(min(length, left))
            left -= lengths[-1]
        return np.array(lengths)

    def set_epoch(self, epoch: int) -> None:
        """Cut the text as it is read in an epoch; the Trainer calls this."""
        generator, lengths, tokens = np.random.default_rng([self.seed, epoch]), self._lengths, self._tokens
        if self.variable and epoch:
            lengths = generator.permutation(lengths)
        if self.shuffle:
            documents = np.split(tokens, self._ends[:-1])
            tokens = np.concatenate([documents[number] for number in generator.permutation(len(documents))])
        self._segment_ends = np.cumsum(lengths)
        self._segment_lengths = lengths
        missing = self.stream_length * self.batch_size + 1 - len(tokens)
        self._text = np.concatenate([tokens, np.full(missing, -100)])

    def __len__(self) -> int:
        return len(self._lengths) * self.batch_size

    def __getitem__(self, row: int) -> dict[str, Any]:
        if not 0 <= row < len(self):
            raise IndexError(f"`row` must be in 0 .. {len(self) - 1}, got {row}.")
        segment, stream = divmod(row, self.batch_size)
        stop = stream * self.stream_length + self._segment_ends[segment]
        start = stop - self._segment_lengths[segment]
        input_ids = self._text[start:stop]
        return {
            "input_ids": np.maximum(input_ids, 0),
            "labels": self._text[start + 1 : stop + 1],
            "segment": segment,
            "stream": stream,
        }

    def rows_digest(self) -> str:
        """A fingerprint of the text and of how it is cut, the same in every epoch."""
        digest = hashlib.blake2b(self._tokens.tobytes() + self._ends.tobytes(), digest_size=16)
        digest.update(repr((self.batch_size, self.bptt, self.variable, self.shuffle, self.seed)).encode())
        return digest.hexdigest()
