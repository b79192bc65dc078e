"""Token ids of documents with any tokenizer of transformers, and the special tokens around finished sequences."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class SpecialTokens(NamedTuple):
    """What a tokenizer puts before, between and behind the token ids of one or two segments.

    transformers 5 has no public call that adds special tokens to ids, so the tokenizer is asked once with and without
    them (`special_tokens_of`), and the difference is kept.

    Example:

    >>> SpecialTokens([2], [3], [2], [3], [3]).pair([7], [8, 9])
    {'input_ids': [2, 7, 3, 8, 9, 3], 'token_type_ids': [0, 0, 0, 1, 1, 1]}
    """

    prefix: list[int]
    suffix: list[int]
    pair_prefix: list[int]
    pair_middle: list[int]
    pair_suffix: list[int]

    @property
    def single_count(self) -> int:
        """Number of special tokens of a sequence with one segment: 2 for BERT."""
        return len(self.prefix) + len(self.suffix)

    @property
    def pair_count(self) -> int:
        """Number of special tokens of a sequence with two segments: 3 for BERT."""
        return len(self.pair_prefix) + len(self.pair_middle) + len(self.pair_suffix)

    def single(self, block: Sequence[int]) -> dict[str, list[int]]:
        """Return `input_ids` and `token_type_ids` (all 0) of one segment, such as [CLS] block [SEP].

        Args:
            block (`Sequence[int]`): Token ids without special tokens.

        Returns:
            `dict[str, list[int]]`: one sequence.
        """
        ids = [*self.prefix, *block, *self.suffix]
        return {"input_ids": ids, "token_type_ids": [0] * len(ids)}

    def pair(self, first: Sequence[int], second: Sequence[int]) -> dict[str, list[int]]:
        """Return `input_ids` and `token_type_ids` of two segments, such as [CLS] first [SEP] second [SEP].

        Args:
            first (`Sequence[int]`): Token ids of segment 0; it includes what stands before and between.
            second (`Sequence[int]`): Token ids of segment 1; it includes what stands behind.

        Returns:
            `dict[str, list[int]]`: one sequence.
        """
        head = [*self.pair_prefix, *first, *self.pair_middle]
        tail = [*second, *self.pair_suffix]
        return {"input_ids": head + tail, "token_type_ids": [0] * len(head) + [1] * len(tail)}


def special_tokens_of(tokenizer: "PreTrainedTokenizerBase") -> SpecialTokens:
    """Find out which special tokens a tokenizer puts around one and two segments.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Fast or slow.

    Returns:
        `SpecialTokens`: for BERT prefix [CLS], middle [SEP], suffix [SEP].

    Raises:
        ValueError: If the tokenizer changes the ids of a text when special tokens are added.

    Example:

    >>> from transformers import BertTokenizer
    >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}
    >>> special_tokens_of(BertTokenizer(vocab=vocab)).pair([5, 5], [5])
    {'input_ids': [2, 5, 5, 3, 5, 3], 'token_type_ids': [0, 0, 0, 0, 1, 1]}
    """
    probe = "a"
    content = list(tokenizer(probe, add_special_tokens=False)["input_ids"])
    single = list(tokenizer(probe)["input_ids"])
    pair = list(tokenizer(probe, probe)["input_ids"])
    before = _find(content, single, 0)
    first = _find(content, pair, 0)
    second = _find(content, pair, first + len(content)) if first >= 0 else -1
    if not content or min(before, first, second) < 0:
        raise ValueError(
            f"`tokenizer`: cannot tell special tokens from text: {probe!r} gives {content} without and {single} with "
            f"special tokens, as a pair {pair}. Use a tokenizer that only adds tokens around the text."
        )
    size = len(content)
    return SpecialTokens(
        prefix=single[:before],
        suffix=single[before + size :],
        pair_prefix=pair[:first],
        pair_middle=pair[first + size : second],
        pair_suffix=pair[second + size :],
    )


def encode_documents(
    documents: Iterable[Sequence[str]], tokenizer: "PreTrainedTokenizerBase", batch_size: int = 64
) -> Iterator[list[list[int]]]:
    """Turn documents of sentences into documents of token ids, without special tokens.

    Args:
        documents (`Iterable[Sequence[str]]`): Documents of sentences.
        tokenizer (`PreTrainedTokenizerBase`): Fast or slow.
        batch_size (`int`, *optional*, defaults to 64): Number of documents that are tokenised in one call.

    Returns:
        `Iterator[list[list[int]]]`: one document for each document, without the sentences that give no token. No
        sentence is truncated.

    Raises:
        ValueError: If `batch_size` is below 1.

    Example:

    >>> from transformers import BertTokenizer
    >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
    >>> list(encode_documents([["ab a", "a"], ["b"]], BertTokenizer(vocab=vocab)))
    [[[5, 6, 5], [5]], [[1]]]
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
    iterator = iter(documents)
    while batch := list(islice(iterator, batch_size)):
        yield from encode_batch(batch, tokenizer)


def encode_batch(documents: Sequence[Sequence[str]], tokenizer: "PreTrainedTokenizerBase") -> list[list[list[int]]]:
    """Turn a list of documents into token ids in one call of the tokenizer; see `encode_documents`.

    Args:
        documents (`Sequence[Sequence[str]]`): Documents of sentences.
        tokenizer (`PreTrainedTokenizerBase`): Fast or slow.

    Returns:
        `list[list[list[int]]]`: one document for each document.

    Example:

    >>> from transformers import BertTokenizer
    >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
    >>> encode_batch([["a b", "b"], ["a"]], BertTokenizer(vocab=vocab))
    [[[5, 6], [6]], [[5]]]
    """
    sentences = [sentence for document in documents for sentence in document]
    if not sentences:
        return [[] for _ in documents]
    encoded = iter(
        tokenizer(
            sentences,
            add_special_tokens=False,
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
    )
    return [[ids for ids in islice(encoded, len(document)) if ids] for document in documents]


def _find(part: list[int], whole: list[int], start: int) -> int:
    """Index of the first place from `start` on where `part` stands in `whole`, or -1."""
    ends = range(start, len(whole) - len(part) + 1)
    return next((at for at in ends if whole[at : at + len(part)] == part), -1)
