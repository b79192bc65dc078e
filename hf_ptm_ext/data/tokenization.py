"""Token ids of documents with any tokenizer of transformers, the special tokens around them, and training a tokenizer.

The merges of a trained WordPiece tokenizer come from the `tokenizers` library. Its trainer numbers single characters
in the order of a hash map, which changes from run to run, and lets a large alphabet (Chinese) exceed the asked size.
So the alphabet is counted here first, cut to what fits, sorted, and given to the trainer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import BertTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class SpecialTokens(NamedTuple):
    """What a tokenizer puts before, between and behind the token ids of one or two segments.

    transformers 5 has no public call that adds special tokens to ids, so the tokenizer is asked once with and without
    them (`special_tokens_of`), and the difference is kept.

    Examples:
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
        """Return `input_ids` and `token_type_ids` (all 0) of one segment, such as [CLS] block [SEP]."""
        ids = [*self.prefix, *block, *self.suffix]
        return {"input_ids": ids, "token_type_ids": [0] * len(ids)}

    def pair(self, first: Sequence[int], second: Sequence[int]) -> dict[str, list[int]]:
        """Return `input_ids` and `token_type_ids` of two segments, such as [CLS] first [SEP] second [SEP]."""
        head = [*self.pair_prefix, *first, *self.pair_middle]
        tail = [*second, *self.pair_suffix]
        return {"input_ids": head + tail, "token_type_ids": [0] * len(head) + [1] * len(tail)}


def special_tokens_of(tokenizer: "PreTrainedTokenizerBase") -> SpecialTokens:
    """Find out which special tokens a fast or slow tokenizer puts around one and two segments.

    Examples:
        >>> tokenizer = train_wordpiece([["a a"]], 8)
        >>> special_tokens_of(tokenizer).pair([5, 5], [5])["input_ids"]
        [2, 5, 5, 3, 5, 3]
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
        documents: Documents of sentences.
        tokenizer: Fast or slow.
        batch_size: Number of documents that are tokenised in one call.

    Returns:
        One document for each document, without the sentences that give no token. No sentence is truncated.

    Examples:
        >>> list(encode_documents([["a a", "a"], ["b"]], train_wordpiece([["a a"]], 8)))
        [[[5, 5], [5]], [[1]]]
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
    iterator = iter(documents)
    while batch := list(islice(iterator, batch_size)):
        yield from encode_batch(batch, tokenizer)


def encode_batch(documents: Sequence[Sequence[str]], tokenizer: "PreTrainedTokenizerBase") -> list[list[list[int]]]:
    """Turn documents into token ids in one call of the tokenizer; see `encode_documents`.

    Examples:
        >>> encode_batch([["a a", "a"], []], train_wordpiece([["a a"]], 8))
        [[[5, 5], [5]], []]
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


def train_wordpiece(
    documents: Iterable[Sequence[str]],
    vocab_size: int = 8000,
    *,
    lowercase: bool = True,
    min_frequency: int = 2,
    model_max_length: int = 512,
) -> "BertTokenizer":
    """Train a WordPiece tokenizer of BERT's kind, the same pieces with the same ids each time.

    Text is cleaned, Chinese characters become words of their own, and accents are stripped if `lowercase`, as in BERT.
    `save_pretrained` of the result writes the standard files, which `AutoTokenizer` loads.

    Args:
        documents: Documents of sentences. They are read twice: a list, a `FileDocuments`, but no iterator. About half
            a second per MB; some 100 MB are enough for any size.
        vocab_size: Number of pieces, the 5 special tokens included. Less if the text has no more pairs that occur
            `min_frequency` times. Characters come first, the most frequent ones if not all fit; the others become
            [UNK].
        lowercase: Lower-case the text, as `bert-base-uncased`.
        min_frequency: How often a pair must occur to be joined.
        model_max_length: Written to the tokenizer's configuration.

    Returns:
        Ids 0 to 4 are [PAD], [UNK], [CLS], [SEP], [MASK], then the characters, then the pieces as they were joined.

    Examples:
        >>> train_wordpiece([["low lower lowest", "中文 中国"]] * 2, vocab_size=40).tokenize("Lower 中国")
        ['lower', '中', '国']
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import BertTokenizer

    if vocab_size <= len(SPECIAL_TOKENS):
        raise ValueError(f"`vocab_size` must exceed the {len(SPECIAL_TOKENS)} special tokens, got {vocab_size}.")
    if iter(documents) is documents:
        raise TypeError(
            f"`documents` are read twice, got an iterator, {documents!r:.60}. Give a list or a FileDocuments object."
        )
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces = _alphabet(_words(backend, documents), vocab_size - len(SPECIAL_TOKENS))
    characters = sorted({piece[-1] for piece in pieces})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        # Given as special tokens they keep this order; the finished tokenizer below does not treat them as special.
        special_tokens=[*SPECIAL_TOKENS, *pieces],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    backend.train_from_iterator((sentence for document in documents for sentence in document), trainer)
    vocab = dict(sorted(backend.get_vocab().items(), key=lambda item: item[1]))
    return BertTokenizer(vocab=vocab, do_lower_case=lowercase, model_max_length=model_max_length)


def word_tokenizer(
    words: Iterable[str],
    *,
    lower_case: bool = False,
    split: str = "punctuation",
    pad_token: str | None = "[PAD]",
    unk_token: str | None = "[UNK]",
    mask_token: str | None = None,
) -> "PreTrainedTokenizerFast":
    """A tokenizer of whole words, such as those of word vectors; `AutoTokenizer` loads what it saves.

    Args:
        words: By their ids; special tokens that are not among them stand in front. Of a word that is there twice,
            the first counts.
        lower_case: Whether text is lower-cased.
        split: "punctuation" (default) splits at blanks and makes punctuation and Chinese characters words of their
            own, as BERT; "blanks" splits at blanks alone, for text that is cut into words already.
        pad_token: The padding word; `None` for none.
        unk_token: The word in the place of unknown ones; `None` for none, which are left out then.
        mask_token: A word for gaps; `None` (default) for none.

    Raises:
        ValueError: `split` is neither.

    Examples:
        >>> tokenizer = word_tokenizer(["a", "film", "."])
        >>> tokenizer("a good film.")["input_ids"]
        [2, 1, 3, 4]
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ways = {"punctuation": pre_tokenizers.BertPreTokenizer, "blanks": pre_tokenizers.WhitespaceSplit}
    if split not in ways:
        raise ValueError(f"`split` must be one of {', '.join(ways)}, got {split!r}.")
    known = dict.fromkeys(words)
    special = [token for token in (pad_token, unk_token, mask_token) if token is not None]
    vocab = dict.fromkeys([*(token for token in special if token not in known), *known])
    numbers = {word: number for number, word in enumerate(vocab)}
    backend = Tokenizer(models.WordLevel(numbers, **({} if unk_token is None else {"unk_token": unk_token})))
    backend.normalizer = normalizers.Lowercase() if lower_case else None
    backend.pre_tokenizer = ways[split]()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad_token,
        unk_token=unk_token,
        mask_token=mask_token,
        model_input_names=["input_ids", "attention_mask"],
    )


def _words(backend: object, documents: Iterable[Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Each distinct word of the documents with its count, as the trainer will see them."""
    counts: Counter[str] = Counter()
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer  # type: ignore[attr-defined]
    for document in documents:
        text = normalizer.normalize_str("\n".join(document))
        counts.update(word for word, _ in pre_tokenizer.pre_tokenize_str(text))
    return iter(counts.items())


def _alphabet(words: Iterable[tuple[str, int]], room: int) -> list[str]:
    """The pieces of the most frequent characters, sorted: "c" where words start with it, "##c" where they hold it."""
    counts: Counter[str] = Counter()
    pieces: dict[str, set[str]] = {}
    for word, count in words:
        for index, character in enumerate(word):
            counts[character] += count
            pieces.setdefault(character, set()).add(character if index == 0 else f"##{character}")
    if not counts:
        raise ValueError("`documents` have no text to train a tokenizer on.")
    kept: list[str] = []
    for character, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if len(kept) + len(pieces[character]) > room:
            break
        kept += pieces[character]
    if not kept:
        raise ValueError(f"`vocab_size` must have room for characters, got {room} besides the special tokens.")
    return sorted(kept, key=lambda piece: (len(piece), piece))
