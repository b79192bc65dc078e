"""Words as BERT's basic tokenizer splits a text, which may be replaced, words of the same kind, and texts of words."""

import hashlib
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from ..segmentation import is_unspaced

# What BERT's basic tokenizer puts spaces around, as (first, last) code points.
CHINESE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip
ASCII_PUNCTUATION = ".,;:!?%)"

Segmenter = Callable[[str], Sequence[str]]
# From the words of a text to their tags.
Tagger = Callable[[Sequence[str]], Sequence[str]]

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
        segmenter: Cuts text into words first, such as `jieba_segmenter()` (default: into characters, of unspaced
            scripts).

    Examples:
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
        """Split a text."""
        parts = [text] if self.segmenter is None else self.segmenter(text)
        return [
            word
            for part in parts
            for word, _ in self._split.pre_tokenize_str(self._normalizer.normalize_str(part))
            if word.strip()
        ]


def digest_of(*values: object) -> str:
    """A digest of what values look like."""
    return hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()


def join_words(words: Sequence[str]) -> str:
    """The text of words: spaces between them, but none inside Chinese.

    Examples:
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

    Examples:
        >>> [is_replaceable(word) for word in ("film", "The", "3d", "café", "好", "的")]
        [True, False, False, False, True, False]
    """
    accented = any(not letter.isascii() and unicodedata.name(letter, "").startswith("LATIN") for letter in word)
    return word.isalpha() and not accented and word.lower() not in stopwords


_CLOSED = {
    "DET": "a an the this that these those each every some any no all both 这 那 哪 每 各 这个 那个",
    "PRON": "i you he she it we they me him her us them who whom what which myself yourself himself herself itself "
    "我 你 您 他 她 它 我们 你们 他们 她们 它们 谁 什么",
    "ADP": "of at by for with about against between into through during before after above below to from up down in "
    "out on off over under as 在 从 到 向 于 以 对 把 被 为",
    "CONJ": "and but if or because until while nor so than though although 和 与 或 及 而 但 但是 因为 所以 如果 虽然",
    "AUX": "am is are was were be been being have has had do does did can could will would shall should may might "
    "must 是 有 会 能 要 可以",
    "FUNCTION": "when where why how",
    "PART": "not n't 不 没 没有 的 了 着 过 地 得 吗 呢 吧 啊",
}
_CLOSED_TAGS = {word: tag for tag, words in _CLOSED.items() for word in words.split()}
_SUFFIXES = (
    ("ADV", ("ly",)),
    ("NOUN", ("tion", "sion", "ness", "ment", "ity", "ism", "ist", "ship", "hood", "ance", "ence")),
    ("ADJ", ("ous", "ful", "less", "able", "ible", "ive", "ical", "ish", "est")),
    ("VERB-ING", ("ing",)),
    ("VERB-ED", ("ed",)),
    ("PLURAL", ("s",)),
)


def rough_tags(words: Sequence[str]) -> list[str]:
    """Tag words by closed classes, suffixes and script: enough to put like in place of like, no tagger for analysis.

    Args:
        words: English or Chinese words, of which those outside the closed classes are told apart by length alone.

    Examples:
        >>> rough_tags(["the", "quickly", "running", "movies", "3", ",", "好看"])
        ['DET', 'ADV', 'VERB-ING', 'PLURAL', 'NUM', 'PUNCT', 'HAN-2']
    """
    return [_rough_tag(word) for word in words]


def _rough_tag(word: str) -> str:
    lowered = word.lower()
    if lowered in _CLOSED_TAGS:
        return _CLOSED_TAGS[lowered]
    if lowered in STOPWORDS:
        return "FUNCTION"
    if any(character.isdigit() for character in word):
        return "NUM"
    if not any(character.isalpha() for character in word):
        return "PUNCT"
    if is_unspaced(word[0]):
        return f"HAN-{len(word)}"
    for tag, endings in _SUFFIXES:
        if len(lowered) > 4 and lowered.endswith(endings) and not lowered.endswith("ss"):
            return tag
    return "WORD"


class WordClasses:
    """Words of a corpus by tag and frequency.

    Args:
        tagger: From the words of a text to their tags, such as a function around spaCy, NLTK's `pos_tag` or
            `jieba.posseg` (default: `rough_tags`).

    Examples:
        >>> classes = WordClasses().add([["a", "good", "movie"], ["the", "movie"]])
        >>> classes.draw("DET", random.Random(0)) in ("a", "the")
        True
    """

    def __init__(self, tagger: Tagger = rough_tags):
        self.tagger = tagger
        self._counts: dict[str, Counter[str]] = {}
        self._tables: dict[str, tuple[list[str], list[int]]] = {}

    def tags(self, words: Sequence[str]) -> list[str]:
        """Tag the words of a text."""
        tags = list(self.tagger(words))
        if len(tags) != len(words):
            raise ValueError(f"`tagger` must give a tag for each word, got {len(tags)} for {len(words)} words.")
        return tags

    def add(self, texts: Iterable[Sequence[str]]) -> "WordClasses":
        """Count the words of texts."""
        for words in texts:
            for word, tag in zip(words, self.tags(words), strict=True):
                self._counts.setdefault(tag, Counter())[word] += 1
        self._tables = {
            tag: (sorted(counts), list(accumulate(counts[word] for word in sorted(counts))))
            for tag, counts in self._counts.items()
        }
        return self

    def draw(self, tag: str, generator: random.Random) -> str | None:
        """Draw a word of a tag, by frequency."""
        words, sums = self._tables.get(tag, ([], []))
        return generator.choices(words, cum_weights=sums)[0] if words else None

    def state(self) -> Any:
        """What the draws depend on, to tell one table from another."""
        return sorted((tag, sorted(counts.items())) for tag, counts in self._counts.items())
