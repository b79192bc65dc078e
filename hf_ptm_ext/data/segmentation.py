"""Word ids for text: one integer column that says which tokens form a word.

Chinese whole-word masking (Cui et al. 2019, https://arxiv.org/abs/1906.08101) needs a segmenter, which runs once.
Words are aligned to tokens through character OFFSETS, so lower casing, stripped accents, unknown tokens and truncation
do not move them. Packed rows have lost their text, but pieces that mark where words go on or begin still spell it.
Masking itself never happens here: `datasets.map` would freeze it in its cache.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Segmenter = Callable[[str], Sequence[str]]

NO_WORD = -1
SPACE = "▁"  # SentencePiece's
UNKNOWN_CHARACTER = "□"  # one character, no letter of any script: no segmenter joins it to its neighbours

# Scripts that are written without spaces between words, as (first, last) code points. Hangul has spaces.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # Han iteration and closing marks, zero
    (0x3021, 0x3035),  # Hangzhou numerals, kana repeat marks
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31BF),  # Bopomofo, extended
    (0x31F0, 0x31FF),  # Katakana, extended
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # Katakana, half width
    (0x1B000, 0x1B16F),  # Kana, supplement
    (0x20000, 0x323AF),  # Han extensions B to H
)
_FIRST = chr(UNSPACED[0][0])


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script written without spaces."""
    return character >= _FIRST and any(first <= ord(character) <= last for first, last in UNSPACED)


def is_spaced_letter(character: str) -> bool:
    """Whether a character is a letter or digit of a script that puts spaces between words."""
    return character.isalnum() and not is_unspaced(character)


def jieba_segmenter() -> Segmenter:
    """Return jieba's segmenter for Chinese text (the extra `zh`), a picklable function from a text to its words.

    Examples:
        >>> jieba_segmenter()("我来到北京清华大学")
        ['我', '来到', '北京', '清华大学']
    """
    try:
        import jieba
    except ImportError as error:
        raise ImportError(
            "Segmenting Chinese text with jieba needs the package `jieba`. Run `pip install hf-ptm-ext[zh]`, or pass "
            "any other function from a text to the list of its words."
        ) from error
    jieba.setLogLevel("WARNING")
    return jieba_words


def jieba_words(text: str) -> list[str]:
    """Cut a text into words with jieba's default mode."""
    import jieba

    return list(jieba.lcut(text))


def word_ids_from_offsets(text: str, offsets: Sequence[tuple[int, int] | None], words: Sequence[str]) -> list[int]:
    """Number the words of tokens whose character offsets are known.

    A token belongs to the word of its first visible character. A token that reaches into the next word joins the two,
    and a cut inside a run of letters or digits of a spaced script is ignored (latin pieces keep their own word), both
    as the reference does with "##" pieces.
    """
    if not text:
        return [NO_WORD] * len(offsets)
    char_word = _word_of_each_character(text, words)
    ids = []
    current, last_word = NO_WORD, NO_WORD
    for span in offsets:
        if span is None:
            ids.append(NO_WORD)
            last_word = NO_WORD
            continue
        first, last = _visible_ends(text, *span)
        opens = last_word == NO_WORD or char_word[first] != last_word
        if opens and not (last_word != NO_WORD and _inside_spaced_run(text, first)):
            current += 1
        ids.append(current)
        last_word = char_word[last]
    return ids


class WordIds:
    """Tokenise texts and add the column `word_ids`; pass it to `datasets.Dataset.map`.

    With a segmenter the words are the segmenter's, without one they are the words of a fast tokenizer's pre-tokenizer
    (`encoding.word_ids()`); either way ids are -1 on special tokens and count on through a text pair.

    Args:
        tokenizer: A fast tokenizer (offsets are needed).
        segmenter: Function from a text to its words, for languages written without spaces (`jieba_segmenter()`).
        text_column: Column with the text.
        text_pair_column: Column with the second text of a pair; None for single texts.
        tokenizer_kwargs: Further arguments of the tokenizer call, such as `truncation=True, max_length=128`.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "武": 5, "汉": 6, "是": 7}
        >>> add = WordIds(BertTokenizerFast(vocab=vocab), segmenter=lambda text: ["武汉", "是"])
        >>> add({"text": "武汉是"})["word_ids"]
        [-1, 0, 0, 1, -1]
    """

    def __init__(
        self,
        tokenizer: Any,
        segmenter: Segmenter | None = None,
        text_column: str = "text",
        text_pair_column: str | None = None,
        **tokenizer_kwargs: Any,
    ) -> None:
        if not tokenizer.is_fast:
            raise ValueError(
                f"`tokenizer` must be a fast tokenizer, because words are aligned through offsets, got "
                f"{type(tokenizer).__name__}. Load it with AutoTokenizer, or write a `word_ids` column yourself."
            )
        self.tokenizer = tokenizer
        self.segmenter = segmenter
        self.text_column = text_column
        self.text_pair_column = text_pair_column
        self.tokenizer_kwargs = tokenizer_kwargs

    def __call__(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Tokenise one example or one batch of examples."""
        columns = [self.text_column] + ([self.text_pair_column] if self.text_pair_column else [])
        for column in columns:
            if column not in example:
                raise ValueError(f"`{column}` must be a column of the data, got {sorted(example)}. Set `text_column`.")
        batched = not isinstance(example[self.text_column], str)
        texts = [list(example[column]) if batched else [example[column]] for column in columns]
        encoded = self.tokenizer(*texts, return_offsets_mapping=True, **self.tokenizer_kwargs)
        word_ids = [self._row(encoded, row, parts) for row, parts in enumerate(zip(*texts, strict=True))]
        result = {name: values for name, values in encoded.items() if name != "offset_mapping"}
        result["word_ids"] = word_ids
        return result if batched else {name: values[0] for name, values in result.items()}

    def _row(self, encoded: Any, row: int, texts: Sequence[str]) -> list[int]:
        """Word ids of one row."""
        if self.segmenter is None:
            ids = _renumber(encoded.word_ids(row), encoded.sequence_ids(row))
            if max(ids, default=NO_WORD) < 1 and sum(id >= 0 for id in ids) > 1 and len(" ".join(texts).split()) > 1:
                raise ValueError(
                    f"`tokenizer` ({type(self.tokenizer).__name__}) must cut texts into words before pieces, got "
                    f"one word for {texts[0][:40]!r}. Pass `segmenter=str.split` or another segmenter."
                )
            return ids
        offsets = encoded["offset_mapping"][row]
        ids = [NO_WORD] * len(offsets)
        following = 0
        for part, text in enumerate(texts):
            own = [i for i, sequence in enumerate(encoded.sequence_ids(row)) if sequence == part]
            found = word_ids_from_offsets(text, [tuple(offsets[i]) for i in own], self.segmenter(text))
            for position, word in zip(own, found, strict=True):
                ids[position] = word + following
            following = max(ids, default=NO_WORD) + 1
        return ids


def _renumber(word_ids: Sequence[int | None], sequence_ids: Sequence[int | None]) -> list[int]:
    """Number a fast encoding's words through a text pair, whose second text starts again at 0."""
    ids = []
    current = NO_WORD
    before: tuple[int | None, int | None] = (None, None)
    for word, sequence in zip(word_ids, sequence_ids, strict=True):
        if word is None or sequence is None:
            ids.append(NO_WORD)
        else:
            current += (sequence, word) != before
            ids.append(current)
        before = (sequence, word)
    return ids


class PieceWordIds:
    """Add a `word_ids` column to rows of token ids.

    Args:
        tokenizer: A WordPiece tokenizer ("##" marks continuations) or one of SentencePiece's form ("▁" marks spaces).
        segmenter: Function from a text to the list of its words, such as `jieba_segmenter()`.

    Examples:
        >>> from transformers import BertTokenizer
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "武": 5, "汉": 6, "是": 7, "ok": 8}
        >>> add = PieceWordIds(BertTokenizer(vocab=vocab), segmenter=lambda text: ["武汉", "是", "ok"])
        >>> add({"input_ids": [2, 5, 6, 7, 8, 3]})["word_ids"]
        [-1, 0, 0, 1, 2, -1]
    """

    def __init__(self, tokenizer: Any, segmenter: Segmenter):
        self._mark = _mark_of(tokenizer)
        self.segmenter = segmenter
        self._pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self._separators = {
            getattr(tokenizer, f"{role}_token_id") for role in ("cls", "sep", "pad", "mask", "bos", "eos")
        } - {None}
        self._unknown = tokenizer.unk_token_id

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Add the words of one row."""
        ids = list(row["input_ids"])
        word_ids: list[int] = []
        segment: list[int] = []
        for token in [*ids, None]:
            if token is not None and token not in self._separators:
                segment.append(token)
                continue
            word_ids += self._number(segment, 1 + max(word_ids, default=NO_WORD))
            segment = []
            if token is not None:
                word_ids.append(NO_WORD)
        return {**row, "word_ids": word_ids}

    def _number(self, ids: list[int], first: int) -> list[int]:
        """Word numbers of a run of ordinary tokens, counted from `first`."""
        text, offsets = self._spell(ids)
        if not text:
            return []
        return [first + word for word in word_ids_from_offsets(text, offsets, self.segmenter(text))]

    def _spell(self, ids: list[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of a run of tokens and the place of each token in it."""
        text, offsets = "", []
        for token in ids:
            piece = UNKNOWN_CHARACTER if token == self._unknown else self._pieces[token]
            if self._mark == SPACE:
                piece = piece.replace(SPACE, " ")
            elif piece.startswith("##"):
                piece = piece[2:]
            elif text and is_spaced_letter(text[-1]) and is_spaced_letter(piece[0]):
                text += " "
            offsets.append((len(text), len(text) + len(piece)))
            text += piece
        return text, offsets


def _mark_of(tokenizer: Any) -> str:
    """ "##" before continuations or "▁" for spaces; without either pieces do not spell the text, and are refused."""
    backend, pieces = getattr(tokenizer, "backend_tokenizer", None), tokenizer.get_vocab()
    if backend is not None:
        marked = getattr(backend.model, "continuing_subword_prefix", None) == "##"
    else:
        marked = hasattr(tokenizer, "wordpiece_tokenizer") or any(
            piece.startswith("##") and len(piece) > 2 for piece in pieces
        )
    if marked:
        return "##"
    if any(piece.startswith(SPACE) and len(piece) > 1 for piece in pieces):
        return SPACE
    raise ValueError(
        f"`tokenizer` must be a WordPiece tokenizer, whose pieces mark continuations with '##', or one whose pieces "
        f"mark spaces with {SPACE!r}, got {type(tokenizer).__name__}. Use `WordIds` on the text before it is packed."
    )


def _word_of_each_character(text: str, words: Sequence[str]) -> list[int]:
    """Index of the word of each character; white space outside all words belongs to the word after it."""
    char_word = [len(words)] * len(text)
    at = 0
    for index, word in enumerate(words):
        if not word:
            continue
        found = text.find(word, at)
        if found < 0 or text[at:found].strip():
            raise ValueError(
                f"`segmenter` must return the words of the text in order, leaving out nothing but white space, got "
                f"{word!r} after {text[max(at - 10, 0) : at]!r}, where the text goes on {text[at : at + 10]!r}. "
                "Return substrings of the text, unchanged."
            )
        for position in range(at, found + len(word)):
            char_word[position] = index
        at = found + len(word)
    return char_word


def _visible_ends(text: str, start: int, end: int) -> tuple[int, int]:
    """First and last character of a token without the white space that some tokenizers include."""
    first, last = start, max(end - 1, start)
    while first < last and text[first].isspace():
        first += 1
    while last > first and text[last].isspace():
        last -= 1
    return min(first, len(text) - 1), min(last, len(text) - 1)


def _inside_spaced_run(text: str, position: int) -> bool:
    """Whether a position lies inside a run of letters or digits of a script that uses spaces."""
    return position > 0 and is_spaced_letter(text[position - 1]) and is_spaced_letter(text[position])
