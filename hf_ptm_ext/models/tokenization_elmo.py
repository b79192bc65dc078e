"""ELMo's tokenizer: words, and the ids of their characters (the bytes of UTF-8; allenai/bilm-tf, allenai/allennlp).

Its vocabulary of words, `vocab.txt`, is that of the softmax: any word is read, whether it is in it or not.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import BatchEncoding
from transformers.tokenization_python import PreTrainedTokenizer
from transformers.utils import to_py_obj

from .characters_elmo import BEGIN_SENTENCE, BEGIN_WORD, BEHIND_WORD, END_SENTENCE, END_WORD
from .texts_core import text_lines
from .tokenizer_core import check_choice

VOCAB_FILE = "vocab.txt"
SPECIAL_WORDS = ("<PAD>", "<S>", "</S>", "<UNK>")
SPLITS = ("punctuation", "whitespace")
# Words with their apostrophes and hyphens inside, numbers with points and commas, and single other characters.
WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:[-'’]\w+)*|[^\w\s]")


def read_words(path: str | Path) -> list[str]:
    """The words of a vocabulary, one a line, with `<PAD>` in front and the other special words behind it."""
    words = [line for line in text_lines(path, "vocabulary") if line]
    special = {*SPECIAL_WORDS}
    twice = next((word for word, number in Counter(words).items() if number > 1), None)
    if twice is not None:
        raise ValueError(f"{path} must have each word once, got {twice!r} more than once.")
    return [*SPECIAL_WORDS, *(word for word in words if word not in special)]


class ElmoTokenizer(PreTrainedTokenizer):
    """Splits texts into words, and words into characters.

    Args:
        vocab: the words of the softmax, from the most frequent on, or the file `vocab.txt` of them (default: none,
            which reads every text; only pre-training needs them).
        vocab_file: the same; `from_pretrained` fills it in.
        split: how a text is split: "punctuation" takes marks from words (default), "whitespace" splits tokenised text.
            Lists of words, with `is_split_into_words=True`, are taken as they are.
        do_lower_case: whether words become lower case (default False: ELMo knows capitals).
        max_characters_per_token: ids of a word, with those that begin and end it (default 50).
        kwargs: as in `PreTrainedTokenizer`.

    Raises:
        ValueError: an option is none of its values, the file has a word twice, or a pair of texts is given.

    Examples:
        >>> from hf_ptm_ext import ElmoTokenizer
        >>> ids = ElmoTokenizer()("The cat sat.")["input_ids"]
        >>> len(ids), ids[1][:7]
        (4, [259, 100, 98, 117, 260, 261, 261])
    """

    vocab_files_names = {"vocab_file": VOCAB_FILE}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(
        self,
        vocab: Sequence[str] | str | Path | None = None,
        *,
        vocab_file: str | Path | None = None,
        split: str = "punctuation",
        do_lower_case: bool = False,
        max_characters_per_token: int = 50,
        **kwargs: Any,
    ):
        check_choice("split", split, SPLITS)
        if max_characters_per_token < 3:
            raise ValueError(f"`max_characters_per_token` must be at least 3, got {max_characters_per_token}.")
        source = vocab_file if vocab is None else vocab
        if isinstance(source, str | Path):
            words = read_words(source)
        else:
            words = list(dict.fromkeys([*SPECIAL_WORDS, *(source or ())]))
        self.vocab = {word: number for number, word in enumerate(words)}
        self.words, self.split, self.do_lower_case = words, split, do_lower_case
        self.max_characters_per_token = max_characters_per_token
        special = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL_WORDS, strict=True))
        options = {"split": split, "do_lower_case": do_lower_case}
        options["max_characters_per_token"] = max_characters_per_token
        super().__init__(**{**kwargs, **special, **options})

    @classmethod
    def train(cls, documents: Iterable[Iterable[str]], vocab_size: int, **options: Any) -> "ElmoTokenizer":
        """A tokenizer whose vocabulary are the most frequent words of documents, which are lists of sentences."""
        tokenizer = cls(**options)
        counts = Counter(word for document in documents for text in document for word in tokenizer.words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(
            [word for word in ranked if word not in SPECIAL_WORDS][: vocab_size - len(SPECIAL_WORDS)], **options
        )

    # ---- words ----

    @property
    def vocab_size(self) -> int:
        """Words of the vocabulary, special ones included."""
        return len(self.words)

    def get_vocab(self) -> dict[str, int]:
        """Words and their ids."""
        return {**self.vocab, **self.added_tokens_encoder}

    def words_of(self, text: str) -> list[str]:
        """The words of a text."""
        text = text.lower() if self.do_lower_case else text
        return WORD.findall(text) if self.split == "punctuation" else text.split()

    def tokenize(self, text: str, *args: Any, **kwargs: Any) -> list[str]:
        """The words of a text."""
        return self.words_of(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.vocab.get(token, self.vocab[SPECIAL_WORDS[3]])

    def _convert_id_to_token(self, index: int) -> str:
        return self.words[index] if index < len(self.words) else SPECIAL_WORDS[3]

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write the vocabulary, one word a line."""
        path = Path(save_directory, (f"{filename_prefix}-" if filename_prefix else "") + VOCAB_FILE)
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")
        return (str(path),)

    # ---- characters ----

    def characters_of(self, word: str) -> list[int]:
        """The ids of a word's characters: bytes + 1, between marks, and padding behind it that is no 0."""
        size = self.max_characters_per_token
        if word in SPECIAL_WORDS[1:3]:
            inside = [BEGIN_SENTENCE if word == SPECIAL_WORDS[1] else END_SENTENCE]
        else:
            inside = [byte + 1 for byte in word.encode("utf-8", "ignore")[: size - 2]]
        return [BEGIN_WORD, *inside, END_WORD, *[BEHIND_WORD] * (size - 2 - len(inside))]

    def word_of(self, characters: Sequence[int]) -> str:
        """The word that characters spell."""
        special = {BEGIN_SENTENCE: SPECIAL_WORDS[1], END_SENTENCE: SPECIAL_WORDS[2]}
        found = [special[number] for number in characters if number in special]
        inside = bytes(number - 1 for number in characters if 0 < number < BEGIN_SENTENCE)
        return found[0] if found else inside.decode("utf-8", "replace")

    # ---- texts to inputs ----

    def _encode_plus(self, text: Any, text_pair: Any = None, **kwargs: Any) -> BatchEncoding:  # type: ignore[override]
        if text_pair is not None:
            raise ValueError(f"`text_pair` must be left out, got {text_pair!r:.60}: ELMo reads one sentence a row.")
        inner = text[0] if isinstance(text, list | tuple) and text else ""
        nested = (
            isinstance(inner, list | tuple) if kwargs.get("is_split_into_words") else isinstance(text, list | tuple)
        )
        texts = text if nested else [text]
        rows = [self.words_of(one) if isinstance(one, str) else list(one) for one in texts]
        if str(getattr(kwargs.get("truncation_strategy"), "value", "")) != "do_not_truncate":
            rows = [row[: kwargs.get("max_length")] for row in rows]
        found: dict[str, Any] = {"input_ids": [[self.characters_of(word) for word in row] for row in rows]}
        found["attention_mask"] = [[1] * len(row) for row in rows]
        if kwargs.get("return_length"):
            found["length"] = [len(row) for row in rows]
        strategy = getattr(kwargs.get("padding_strategy"), "value", "do_not_pad")
        options: Any = {name: kwargs.get(name) for name in ("max_length", "pad_to_multiple_of", "padding_side")}
        padded = self.pad(found, strategy, **options) if strategy != "do_not_pad" else BatchEncoding(found)
        if kwargs.get("return_attention_mask") is False:
            padded.pop("attention_mask")
        if kwargs.get("return_tensors") is not None:
            return BatchEncoding(dict(padded), tensor_type=kwargs["return_tensors"])
        return padded if nested else BatchEncoding({name: values[0] for name, values in padded.items()})

    def pad(
        self,
        encoded_inputs: Any,
        padding: Any = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """As upstream, of rows of words that are rows of characters; lists of other columns are padded with 0."""
        single = isinstance(encoded_inputs, Mapping | BatchEncoding)
        columns = (
            dict(encoded_inputs)
            if single
            else {name: [row[name] for row in encoded_inputs] for name in encoded_inputs[0]}
        )
        columns = {name: to_py_obj(values) for name, values in columns.items()}
        ids = columns["input_ids"]
        alone = bool(ids) and bool(ids[0]) and not isinstance(ids[0][0], list)  # words of one row
        if alone:
            columns = {name: [values] for name, values in columns.items()}
        lengths = [len(row) for row in columns["input_ids"]]
        columns.setdefault("attention_mask", [[1] * length for length in lengths])
        if padding not in (False, "do_not_pad"):
            longest = max(lengths, default=0)
            width = max_length if str(getattr(padding, "value", padding)) == "max_length" and max_length else longest
            width = -(-width // pad_to_multiple_of) * pad_to_multiple_of if pad_to_multiple_of else width
            nothing = {"input_ids": [0] * self.max_characters_per_token}
            left = (padding_side or self.padding_side) == "left"
            for name in ("input_ids", "attention_mask"):
                for number, length in enumerate(lengths):
                    more = [nothing.get(name, 0)] * (width - length)
                    row = columns[name][number]
                    columns[name][number] = more + row if left else row + more
        if alone:
            columns = {name: values[0] for name, values in columns.items()}
        return BatchEncoding(columns, tensor_type=return_tensors)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """The text of a row of words' characters, or of ids of the vocabulary; a list of texts for several rows."""
        rows = to_py_obj(token_ids)
        rows = rows if isinstance(rows, list) else [rows]
        several = bool(rows) and isinstance(rows[0], list)
        if several and (not rows[0] or isinstance(rows[0][0], list) or len(rows[0]) != self.max_characters_per_token):
            return [self.decode(row, skip_special_tokens) for row in rows]
        words = [self.word_of(row) for row in rows if any(row)] if several else map(self._convert_id_to_token, rows)
        return " ".join(word for word in words if not (skip_special_tokens and word in SPECIAL_WORDS))
