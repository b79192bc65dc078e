"""Words of a text as BERT's basic tokenizer splits them, which may be replaced, and the text of words again."""

import hashlib
import unicodedata
from collections.abc import Callable, Sequence

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

# What BERT's basic tokenizer puts spaces around, as (first, last) code points.
CHINESE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip
ASCII_PUNCTUATION = ".,;:!?%)"

Segmenter = Callable[[str], Sequence[str]]

# The list of TinyBERT's script: NLTK's English one without its question words; words have no apostrophe here.
_ENGLISH = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves this that these those am is are was were be been being
have has had having do does did doing a an the and but if or because as until while of at by for with about against
between into through during before after above below to from up down in out on off over under again further then once
here there all any both each few more most other some such no nor not only own same so than too very
s t can will just don should now d ll m o re ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn
shan shouldn wasn weren won wouldn
"""
# Chinese function words and negations, whose exchange changes what a sentence says.
_CHINESE = """
的 了 着 过 地 得 是 在 和 与 或 及 而 但 也 都 就 还 又 很 太 最 更 不 没 没有 无 非 未 别
我 你 您 他 她 它 我们 你们 他们 她们 它们 这 那 哪 这个 那个 什么 谁 怎么 为 被 把 将 对 从 到 向 于 以 之
其 所 者 吗 呢 吧 啊 个 们 有 说 要 会 能 可 可以 因为 所以 如果 虽然 但是 不是 就是
"""
ENGLISH_STOPWORDS = frozenset(_ENGLISH.split())
CHINESE_STOPWORDS = frozenset(_CHINESE.split())
STOPWORDS = ENGLISH_STOPWORDS | CHINESE_STOPWORDS


class WordSplitter:
    """Splits at spaces, punctuation and around every Chinese character, as BERT's basic tokenizer does.

    Args:
        lowercase: lower-case and strip accents first.
        segmenter: cuts text into words first, such as `jieba_segmenter()`; by default every character of a script
            without spaces is a word.

    Example:
        >>> WordSplitter(lowercase=True)("A café, 你好")
        ['a', 'cafe', ',', '你', '好']
    """

    def __init__(self, lowercase: bool = False, segmenter: Segmenter | None = None):
        self.lowercase = lowercase
        self.segmenter = segmenter
        self._normalizer = BertNormalizer(lowercase=lowercase, handle_chinese_chars=segmenter is None)
        self._split = BertPreTokenizer()

    def state(self) -> tuple[bool, str]:
        """What tells it from another splitter."""
        return self.lowercase, getattr(self.segmenter, "__qualname__", repr(type(self.segmenter)))

    def __call__(self, text: str) -> list[str]:
        """Split a text.

        Args:
            text: the text.

        Returns:
            Its words.
        """
        parts = [text] if self.segmenter is None else self.segmenter(text)
        return [
            word
            for part in parts
            for word, _ in self._split.pre_tokenize_str(self._normalizer.normalize_str(part))
            if word.strip()
        ]


def digest_of(*values: object) -> str:
    """A digest of what values look like.

    Args:
        values: anything whose `repr` tells it from another.
    """
    return hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()


def join_words(words: Sequence[str]) -> str:
    """The text of words: spaces between them, but none inside Chinese.

    Args:
        words: the words.

    Returns:
        Their text.

    Example:
        >>> join_words(["i", "am", "here", ".", "你", "好", "!"])
        'i am here . 你好!'
    """
    text = ""
    for word in words:
        glued = not text or _is_glued(text[-1], word[:1])
        text += word if glued else f" {word}"
    return text


def _is_glued(left: str, right: str) -> bool:
    """Whether nothing stands between two characters."""
    if _is_chinese(left):
        return _is_chinese(right) or right in ASCII_PUNCTUATION
    return False


def _is_chinese(character: str) -> bool:
    """A Chinese character, or Chinese punctuation such as a full-width comma."""
    if unicodedata.category(character).startswith("P"):
        return "\u3000" <= character <= "\u303f" or "\uff00" <= character <= "\uff65" or character in "“”‘’…—"
    return any(first <= ord(character) <= last for first, last in CHINESE)


def is_replaceable(word: str, stopwords: frozenset[str] = STOPWORDS) -> bool:
    """Whether a word is all letters, in Latin script those from A to Z (TinyBERT's script), and no stopword.

    Args:
        word: the word.
        stopwords: in lower case.

    Example:
        >>> [is_replaceable(word) for word in ("film", "The", "3d", "café", "好", "的")]
        [True, False, False, False, True, False]
    """
    accented = any(not letter.isascii() and unicodedata.name(letter, "").startswith("LATIN") for letter in word)
    return word.isalpha() and not accented and word.lower() not in stopwords


__all__ = ["CHINESE_STOPWORDS", "ENGLISH_STOPWORDS", "STOPWORDS", "WordSplitter", "is_replaceable", "join_words"]
