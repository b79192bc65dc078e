"""T5's span corruption: the target names what stood in place of each sentinel (Raffel et al. 2020,
https://arxiv.org/abs/1910.10683).

    text     thank you for inviting me to your party last week
    input    thank you <extra_id_0> me to your party <extra_id_1> week </s>
    target   <extra_id_0> for inviting <extra_id_1> last </s>

The decoder begins with the padding token. No token is replaced by a random one, and every target token counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..masking import (
    Segments,
    append_to_rows,
    check_span_corruption,
    row_offsets,
    sample_span_corruption,
    sentinel_sequences,
)
from .denoising import DenoisingCollator, FlatRows, end_token_id

SENTINEL = "<extra_id_{}>"


@dataclass
class DataCollatorForSpanCorruption(DenoisingCollator):
    """Replace spans by sentinels, and make the target of sentinels and spans.

    | column | shape | value |
    | --- | --- | --- |
    | `input_ids`, `attention_mask` | (batch, seq_len) | clean spans and sentinels, then eos |
    | `decoder_input_ids` | (batch, T) | the target behind a start token |
    | `labels` | (batch, T) | sentinels and noise spans, then eos; -100 on padding |

    Lengths are a function of the number of tokens alone (`masking.noise_tokens_and_spans`), so rows of one length make
    batches of one shape: 568 tokens of text give 512 and 114. `masking.span_corruption_lengths(512)` says so. Special
    tokens at the ends of a row (eos, [CLS], padding) do not count as text and are taken off; eos is put behind both
    sides. Rows need two tokens of text.

    Relations: feeds `T5ForConditionalGeneration` and its relatives as they are.

    Args:
        noise_density: Share of noise tokens (T5: 0.15).
        mean_noise_span_length: Mean tokens of a noise span (T5: 3).
        sentinel_tokens: Sentinels in order. None: "<extra_id_0>", "<extra_id_1>" ... as far as the vocabulary has
            them (T5 and mT5: 100, from the highest id downwards).
        decoder_start_token_id: First decoder input. None: the padding token, as in T5.

    The other arguments are those of `DenoisingCollator`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, "<extra_id_0>": 7}
        >>> batch = DataCollatorForSpanCorruption(BertTokenizerFast(vocab=vocab), seed=0)([[5, 5, 5, 6]])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist(), batch["decoder_input_ids"].tolist()
        ([[5, 5, 5, 7, 3]], [[7, 6, 3]], [[0, 7, 6]])
    """

    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0
    sentinel_tokens: Sequence[str] | None = None
    decoder_start_token_id: int | None = None

    def __post_init__(self) -> None:
        check_span_corruption(self.noise_density, self.mean_noise_span_length)
        super().__post_init__()

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        self._end_id = end_token_id(self.tokenizer)
        self._sentinel_ids = np.array(self._find_sentinels(), dtype=np.int64)

    def _find_sentinels(self) -> list[int]:
        """Ids of the sentinels in order."""
        vocabulary = self.tokenizer.get_vocab()
        if self.sentinel_tokens is not None:
            unknown = [token for token in self.sentinel_tokens if token not in vocabulary]
            if unknown or not self.sentinel_tokens:
                raise ValueError(
                    f"`sentinel_tokens` must be tokens of the vocabulary, at least one, got {unknown[:3]}. Add them: "
                    "`tokenizer.add_tokens(sentinels, special_tokens=True)`."
                )
            return [vocabulary[token] for token in self.sentinel_tokens]
        ids: list[int] = []
        while (token := SENTINEL.format(len(ids))) in vocabulary:
            ids.append(vocabulary[token])
        if not ids:
            raise ValueError(
                f"`tokenizer` must have sentinel tokens, got {type(self.tokenizer).__name__} without <extra_id_0>. "
                'Add them, `tokenizer.add_tokens([f"<extra_id_{i}>" for i in range(100)], special_tokens=True)`, and '
                "resize the model's embeddings, or name others in `sentinel_tokens`."
            )
        return ids

    def _corrupt(self, rows: FlatRows, rng: np.random.Generator) -> dict[str, np.ndarray]:
        body = rows.body(self._tables.never_masked)
        lengths = body.lengths
        if (lengths < 2).any():
            short = int((lengths < 2).argmax())
            raise ValueError(
                f"`input_ids` must have at least 2 tokens of text, got {lengths[short]} in row {short}: one stays and "
                "one is predicted. Drop shorter rows."
            )
        noise = sample_span_corruption(
            lengths,
            rng,
            noise_density=self.noise_density,
            mean_noise_span_length=self.mean_noise_span_length,
        )
        # The end token is one more clean token of each row.
        noise = Segments(noise.row, noise.start + noise.row, noise.stop + noise.row)
        (inputs, input_lengths), (targets, target_lengths) = sentinel_sequences(
            self._ended(rows, body), lengths + 1, noise, self._sentinel_ids
        )
        batch = self._encoder_side(rows, inputs, input_lengths)
        start = self._pad_id if self.decoder_start_token_id is None else self.decoder_start_token_id
        targets = append_to_rows(targets, target_lengths, self._end_id)
        return batch | self._decoder_side(targets, target_lengths + 1, start)

    def _ended(self, rows: FlatRows, body: Segments) -> np.ndarray:
        """Flat texts of all rows, the end token behind each."""
        row_stop = row_offsets(rows.lengths) + rows.lengths
        if (body.stop == row_stop).any():
            return append_to_rows(rows.tokens[rows.inside(body)], body.lengths, self._end_id)
        # Usual rows end with a special token, whose place the end token takes.
        tokens = rows.tokens[rows.inside(Segments(body.row, body.start, body.stop + 1))]
        tokens[np.cumsum(body.lengths + 1) - 1] = self._end_id
        return tokens
