"""Train a WordPiece tokenizer from documents, the same pieces with the same ids each time.

The merges come from the `tokenizers` library. Its trainer numbers single characters in the order of a hash map, which
changes from run to run, and lets a large alphabet (Chinese) exceed the asked size. So the alphabet is counted here
first, cut to what fits, sorted, and given to the trainer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import BertTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train_wordpiece(
    documents: Iterable[Sequence[str]],
    vocab_size: int = 8000,
    *,
    lowercase: bool = True,
    min_frequency: int = 2,
    model_max_length: int = 512,
) -> "BertTokenizer":
    """Train a WordPiece tokenizer of BERT's kind.

    Text is cleaned, Chinese characters become words of their own, and accents are stripped if `lowercase`, as in
    BERT. `save_pretrained` of the result writes the standard files, which `AutoTokenizer` loads.

    Args:
        documents (`Iterable[Sequence[str]]`): Documents of sentences. They are read twice: a list, a
            `FileDocuments`, but no iterator. About half a second per MB; some 100 MB are enough for any size.
        vocab_size (`int`, *optional*, defaults to 8000): Number of pieces, the 5 special tokens included. Less if the
            text has no more pairs that occur `min_frequency` times. Characters come first, the most frequent ones
            if not all fit; the others become [UNK].
        lowercase (`bool`, *optional*, defaults to `True`): Lower-case the text, as `bert-base-uncased`.
        min_frequency (`int`, *optional*, defaults to 2): How often a pair must occur to be joined.
        model_max_length (`int`, *optional*, defaults to 512): Written to the tokenizer's configuration.

    Returns:
        `BertTokenizer`: ids 0 to 4 are [PAD], [UNK], [CLS], [SEP], [MASK], then the characters, then the pieces
        in the order in which they were joined.

    Raises:
        ValueError: If `vocab_size` has no room for a character, or the documents have no text.
        TypeError: If `documents` can be read only once.

    Example:

    >>> tokenizer = train_wordpiece([["low lower lowest", "中文 中国"]] * 2, vocab_size=40)
    >>> tokenizer.tokenize("Lower 中国")
    ['lower', '中', '国']
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import BertTokenizer

    if vocab_size <= len(SPECIAL_TOKENS):
        raise ValueError(f"`vocab_size` must exceed the {len(SPECIAL_TOKENS)} special tokens, got {vocab_size}.")
    if iter(documents) is documents:
        raise TypeError("`documents` are read twice, got an iterator. Give a list or a FileDocuments object.")
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
