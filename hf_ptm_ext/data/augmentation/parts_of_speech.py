"""Words by part of speech: a rough tagger that needs nothing, and draws of words of the same kind."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from ..unspaced_scripts import is_unspaced
from .words import STOPWORDS

# From the words of a text to their tags.
Tagger = Callable[[Sequence[str]], Sequence[str]]

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
        words: English or Chinese words. Chinese ones outside the closed classes are told apart by length alone; pass
            a real tagger for more.

    Returns:
        A tag for each.

    Example:
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
        tagger: from the words of a text to their tags, such as a function around spaCy, NLTK's `pos_tag` or
            `jieba.posseg` (default: `rough_tags`).

    Example:
        >>> classes = WordClasses().add([["a", "good", "movie"], ["the", "movie"]])
        >>> classes.draw("DET", random.Random(0)) in ("a", "the")
        True
    """

    def __init__(self, tagger: Tagger = rough_tags):
        self.tagger = tagger
        self._counts: dict[str, Counter[str]] = {}
        self._tables: dict[str, tuple[list[str], list[int]]] = {}

    def tags(self, words: Sequence[str]) -> list[str]:
        """Tag the words of a text.

        Args:
            words: the words.

        Raises:
            ValueError: the tagger gave another number of tags.
        """
        tags = list(self.tagger(words))
        if len(tags) != len(words):
            raise ValueError(f"`tagger` must give a tag for each word, got {len(tags)} for {len(words)} words.")
        return tags

    def add(self, texts: Iterable[Sequence[str]]) -> "WordClasses":
        """Count the words of texts.

        Args:
            texts: words of each.

        Returns:
            Itself.
        """
        for words in texts:
            for word, tag in zip(words, self.tags(words), strict=True):
                self._counts.setdefault(tag, Counter())[word] += 1
        self._tables = {
            tag: (sorted(counts), list(accumulate(counts[word] for word in sorted(counts))))
            for tag, counts in self._counts.items()
        }
        return self

    def draw(self, tag: str, generator: random.Random) -> str | None:
        """Draw a word of a tag, by frequency.

        Args:
            tag: the tag.
            generator: where the draw comes from.

        Returns:
            The word, `None` if the corpus had none.
        """
        words, sums = self._tables.get(tag, ([], []))
        return generator.choices(words, cum_weights=sums)[0] if words else None

    def state(self) -> Any:
        """What the draws depend on, to tell one table from another."""
        return sorted((tag, sorted(counts.items())) for tag, counts in self._counts.items())


__all__ = ["Tagger", "WordClasses", "rough_tags"]
