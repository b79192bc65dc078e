"""Batches for language models of both directions over words of characters (Peters et al. 2018, ELMo)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from transformers import BatchEncoding

from .vocabulary import check_tokenizer


@dataclass
class DataCollatorForBidirectionalLanguageModeling:
    """Words to the ids of their characters, and to those of the softmax' vocabulary, for `ElmoForPreTraining`.

    | column | shape | content |
    | --- | --- | --- |
    | input_ids | (batch, seq_len, characters) | ids of each word's characters, 0 at padding |
    | attention_mask | (batch, seq_len) | 1 at words |
    | labels | (batch, seq_len) | ids of the words, `<UNK>`'s for those that the vocabulary lacks, -100 at padding |

    Relations: nothing is hidden; the model predicts each word from those before it and from those behind it.

    Args:
        tokenizer: an `ElmoTokenizer` with a vocabulary.
        max_length: most words of a row (default: all).
        pad_to_multiple_of: rows of few lengths, as compiled models and GPUs like them (default: the longest's length).
        return_tensors: "pt" or "np".

    Raises:
        ValueError: a row has neither `words` nor `text`.

    Examples:
        >>> from hf_ptm_ext import ElmoTokenizer
        >>> collator = DataCollatorForBidirectionalLanguageModeling(ElmoTokenizer(["the", "cat"]))
        >>> batch = collator([{"text": "the cat sat"}, {"words": ["the"]}])
        >>> batch["input_ids"].shape, batch["labels"].tolist()
        (torch.Size([2, 3, 50]), [[4, 5, 3], [4, -100, -100]])
    """

    tokenizer: Any
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    # Columns that no model's forward names; `PtmTrainer` keeps them.
    input_columns: ClassVar[tuple[str, ...]] = ("words", "text")

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)

    def __call__(self, features: Sequence[dict[str, Any]], return_tensors: str | None = None) -> BatchEncoding:
        """`input_ids`, `attention_mask` and `labels`."""
        rows = [row["words"] if "words" in row else self.tokenizer.words_of(row.get("text") or "") for row in features]
        rows = [row[: self.max_length] for row in rows]
        if not all(rows):
            empty = next(number for number, row in enumerate(rows) if not row)
            raise ValueError(f"Row {empty} must have `words` or a `text`, got {dict(features[empty])!r:.80}.")
        batch = self.tokenizer(
            rows, is_split_into_words=True, padding=True, pad_to_multiple_of=self.pad_to_multiple_of
        )
        width = len(batch["attention_mask"][0])
        labels = [[*self.tokenizer.convert_tokens_to_ids(row), *[-100] * (width - len(row))] for row in rows]
        return BatchEncoding({**batch, "labels": labels}, tensor_type=return_tensors or self.return_tensors)
