"""AWD-LSTM's tokenizer: fastai's rules around a tokenizer of words, and a vocabulary of words by their counts."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from .rules_awd_lstm import (
    BOS,
    EOS,
    FAKE,
    FLD,
    MAJ,
    PAD,
    REP,
    SPECIALS,
    UNK,
    UP,
    WREP,
    apply_rules,
    tokens_of_version_1,
)

VOCABULARY = "vocab.json"
WORD_TOKENIZERS = ("regex", "spacy", "blank")
# Words with inner apostrophes, hyphens, points and digits; contractions' ends; runs of blanks with line breaks; signs.
_WORDS = re.compile(
    r"n['’]t\b|['’](?:s|m|d|re|ve|ll)\b|\n+|\d+(?:[.,:]\d+)*|\.{2,}|"
    r"(?:[^\W\d_]\.){2,}|\w(?:\w(?!n['’]t\b))*\w?|[^\w\s]",
    re.IGNORECASE,
)


def regex_words(text: str) -> list[str]:
    """Words and signs as English tokenizers part them, without spaCy's lists of exceptions."""
    return _WORDS.findall(text)


def blank_words(text: str) -> list[str]:
    """What stands between blanks."""
    return [word for word in text.split(" ") if word]


def spacy_words() -> Any:
    """spaCy's English tokenizer, to which the marks are words."""
    try:
        import spacy
    except ImportError as error:
        raise ImportError(
            f"`word_tokenizer` = 'spacy' needs spaCy ({error}): pip install spacy; 'regex' comes near it without."
        ) from error
    tokenizer = spacy.blank("en", disable=["parser", "tagger", "ner"]).tokenizer
    for mark in (*SPECIALS[2], FAKE):
        tokenizer.add_special_case(mark, [{"ORTH": mark}])
    return lambda text: [token.text for token in tokenizer(text)]


def ids_of(itos: Sequence[str]) -> dict[str, int]:
    """Words and their ids; copies of the filler, which no text has, get numbers."""
    vocab: dict[str, int] = {}
    for number, word in enumerate(itos):
        name = f"{word}{number}" if word == FAKE and word in vocab else word
        if name in vocab:
            raise ValueError(f"The vocabulary has {name!r} twice, as {vocab[name]} and {number}.")
        vocab[name] = number
    return vocab


class AwdLstmTokenizer(PreTrainedTokenizer):
    """fastai's tokenizer of texts.

    Args:
        vocab: words by their ids (fastai's `itos`), or words -> ids; from_pretrained reads them from `vocab.json`.
        vocab_file: that file.
        rules: 2 or 1, whose rules (default 2; vocabularies of fastai 0.7, with `_unk_` and `_pad_`, take 1).
        word_tokenizer: "regex" (default), which comes near spaCy's English; "spacy" for fastai's own, which needs
            spaCy; "blank" for texts whose words stand between blanks, as WikiText's do.
        kwargs: as in `PreTrainedTokenizer`.

    Examples:
        >>> tokenizer = AwdLstmTokenizer.train(["This movie was GREAT!"] * 3)
        >>> tokenizer.tokenize("This movie was GREAT!")
        ['xxmaj', 'this', 'movie', 'was', 'xxup', 'great', '!']
        >>> tokenizer.decode(tokenizer("This movie was GREAT!")["input_ids"], skip_special_tokens=True)
        'This movie was GREAT !'
    """

    vocab_files_names = {"vocab_file": VOCABULARY}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(
        self,
        vocab: Sequence[str] | dict[str, int] | None = None,
        vocab_file: str | None = None,
        rules: int = 2,
        word_tokenizer: str = "regex",
        **kwargs: Any,
    ):
        if rules not in SPECIALS or word_tokenizer not in WORD_TOKENIZERS:
            raise ValueError(
                f"`rules` must be 2 or 1 and `word_tokenizer` one of {', '.join(WORD_TOKENIZERS)}, got {rules} and "
                f"{word_tokenizer!r}."
            )
        if vocab_file is not None:
            vocab = json.loads(Path(vocab_file).read_text(encoding="utf-8"))
            if not isinstance(vocab, list) or not all(isinstance(word, str) for word in vocab):
                raise ValueError(f"{vocab_file} must be a JSON list of words, got {str(vocab)[:80]}.")
        words = sorted(vocab, key=vocab.__getitem__) if isinstance(vocab, dict) else list(vocab or SPECIALS[rules])
        self.ids, self.rules, self.word_tokenizer = ids_of(words), rules, word_tokenizer
        self.words = list(self.ids)
        unknown, padding = ("_unk_", "_pad_") if "_unk_" in self.ids else (UNK, PAD)
        found = {"unk_token": unknown, "pad_token": padding, "bos_token": BOS, "eos_token": EOS}
        found = {name: token for name, token in found.items() if token in self.ids}
        self._split = {"regex": regex_words, "blank": blank_words}.get(word_tokenizer)
        super().__init__(rules=rules, word_tokenizer=word_tokenizer, **{**found, **kwargs})

    @classmethod
    def train(
        cls, texts: Iterable[str], max_vocab: int = 60000, min_freq: int = 3, rules: int = 2, **kwargs: Any
    ) -> "AwdLstmTokenizer":
        """A tokenizer with the vocabulary of texts: words by their counts behind the marks, filled to a multiple of 8.

        Args:
            texts: the texts.
            max_vocab: most words, marks included (default 60000).
            min_freq: least count of a word (default 3).
            rules: 2 or 1.
            kwargs: as for the tokenizer.
        """
        start = cls(rules=rules, **kwargs)
        counts = Counter(token for text in texts for token in start.tokenize(text))
        words = [word for word, count in counts.most_common(max_vocab) if count >= min_freq]
        itos = [*SPECIALS[rules], *(word for word in words if word not in SPECIALS[rules])][:max_vocab]
        if rules == 2:
            itos += [FAKE] * (8 - len(itos) % 8)
        elif len(itos) < max_vocab:
            itos += [FAKE] * (-len(itos) % 8)
        return cls(itos, rules=rules, **kwargs)

    @property
    def vocab_size(self) -> int:
        """Number of words."""
        return len(self.words)

    def get_vocab(self) -> dict[str, int]:
        """Words and their ids."""
        return {**self.ids, **self.added_tokens_encoder}

    def tokenize(self, text: str, **kwargs: Any) -> list[str]:  # type: ignore[override]
        """The tokens of a text, marks included, without `xxbos`."""
        if self._split is None:
            self._split = spacy_words()
        if self.rules == 1:
            return tokens_of_version_1(text, self._split)
        tokens = self._split(apply_rules(text).removeprefix(BOS).lstrip(" "))
        return [token.replace(" ", "▁") for token in tokens]

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return self.tokenize(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.ids.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str:
        return self.words[index]

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """`xxbos` and the text; of a pair `xxbos xxfld 1` and the first, `xxfld 2` and the second."""
        start = [self.ids[BOS]] if BOS in self.ids else []
        if token_ids_1 is None:
            return [*start, *token_ids_0]
        fields = [[self._convert_token_to_id(token) for token in (FLD, number)] for number in ("1", "2")]
        return [*start, *fields[0], *token_ids_0, *fields[1], *token_ids_1]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """How many tokens join a text or a pair."""
        return len(self.build_inputs_with_special_tokens([], [] if pair else None))

    def get_special_tokens_mask(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """1 for tokens that are no text."""
        special = set(self.all_special_ids)
        if already_has_special_tokens:
            return [int(number in special) for number in token_ids_0]
        joined = self.build_inputs_with_special_tokens(
            [-1] * len(token_ids_0), None if token_ids_1 is None else [-1] * len(token_ids_1)
        )
        return [int(number >= 0) for number in joined]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Words between blanks, with the capitals and repetitions that the marks say."""
        words: list[str] = []
        rest = iter(tokens)
        for token in rest:
            if token in (MAJ, UP):
                word = next(rest, "")
                words.append(word.upper() if token == UP else word[:1].upper() + word[1:])
            elif token in (REP, WREP):
                number, word = next(rest, "1"), next(rest, "")
                times = min(int(number), 1000) if number.isdigit() else 1
                words += [word * times] if token == REP else [word] * times
            else:
                words.append(token.replace("▁", " "))
        return " ".join(words)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        """Write `vocab.json`, the list of words."""
        path = Path(save_directory, f"{filename_prefix}-{VOCABULARY}" if filename_prefix else VOCABULARY)
        path.write_text(json.dumps(self.words, ensure_ascii=False) + "\n", encoding="utf-8")
        return (str(path),)
