"""TinyBERT's word-level augmentation.

Jiao et al. 2020, https://arxiv.org/abs/1909.10351, algorithm 1; its script data_augmentation.py:
for each word that is all letters (A to Z in Latin script) and no stopword, candidates are what a masked language model
puts there, if the word is one piece, and its nearest neighbours in word vectors, if it is several; a variant replaces
each such word by a random candidate with probability 0.4.
"""

import random
from collections.abc import Sequence
from typing import Any

from ..word_vectors import WordVectors
from .proposer import MaskedWordProposer
from .words import STOPWORDS, Segmenter, WordSplitter, digest_of, is_replaceable, join_words

# Variants drawn per text in the released scripts, by GLUE's names.
TASK_VARIANTS = {
    "cola": 30, "mnli": 10, "mrpc": 30, "sst-2": 20, "sts-b": 30, "qqp": 10, "qnli": 20, "rte": 30,
}  # fmt: skip


class TinyBertAugmentation:
    """Variants of texts by exchanging words.

    The text itself is always the first variant; the others are new ones, so fewer than `variants` where draws repeat.
    One that replaces nothing is the text as it was split.
    A word without candidates stays. Variants are split at punctuation, and in lower case if the model's tokenizer
    knows no capitals, as in the reference; Chinese is written without spaces.

    Args:
        model: The proposer, any masked language model.
        tokenizer: Its fast tokenizer.
        vectors: For words of several pieces: `WordVectors`, gensim's `KeyedVectors`, or `None` (such words then stay).
        variants: Draws per text, or a task of GLUE by name (`TASK_VARIANTS`).
        candidates: Per word (M of the paper).
        replace_probability: Of a word in a variant (p of the paper).
        stopwords: Words that stay, in lower case (default: English and Chinese function words).
        segmenter: Cuts unspaced text into words, such as `hf_ptm_ext.data.jieba_segmenter()`; by default each Chinese
            character is one, which a character model can fill.
        tokens_per_batch: Padded tokens of one forward pass of the proposer.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        vectors: Any = None,
        *,
        variants: int | str = 20,
        candidates: int = 15,
        replace_probability: float = 0.4,
        stopwords: frozenset[str] = STOPWORDS,
        segmenter: Segmenter | None = None,
        tokens_per_batch: int = 8192,
    ):
        if isinstance(variants, str):
            if variants.lower() not in TASK_VARIANTS:
                raise ValueError(
                    f"`variants` must be a number or one of {', '.join(TASK_VARIANTS)}, got {variants!r}."
                )
            variants = TASK_VARIANTS[variants.lower()]
        if variants < 1:
            raise ValueError(f"`variants` must be at least 1, got {variants}.")
        if not 0 <= replace_probability <= 1:
            raise ValueError(f"`replace_probability` must be in [0, 1], got {replace_probability}.")
        self.proposer = MaskedWordProposer(model, tokenizer, candidates, tokens_per_batch)
        self.split = WordSplitter(self.proposer.lowercase, segmenter)
        self.vectors = None if vectors is None else WordVectors.of(vectors)
        self.variants = variants
        self.candidates = candidates
        self.replace_probability = replace_probability
        self.stopwords = stopwords

    def candidates_of(self, texts: Sequence[str]) -> list[tuple[list[str], dict[int, list[str]]]]:
        """Look for candidates."""
        split = [self.split(text) for text in texts]
        wanted = [[n for n, word in enumerate(words) if is_replaceable(word, self.stopwords)] for words in split]
        found = self.proposer(list(zip(split, wanted, strict=True)))
        return [
            (words, {number: self._or_neighbours(words[number], each) for number, each in proposals.items()})
            for words, proposals in zip(split, found, strict=True)
        ]

    def _or_neighbours(self, word: str, proposals: list[str] | None) -> list[str]:
        if proposals is None and self.vectors is not None:
            proposals = self.vectors.nearest(word, self.candidates)
        return proposals or [word]

    def __call__(self, texts: Sequence[str], generators: Sequence[random.Random]) -> list[list[str]]:
        """Make variants."""
        results = []
        for text, (words, candidates), generator in zip(texts, self.candidates_of(texts), generators, strict=True):
            made: dict[str, None] = {text: None}
            for _ in range(self.variants if candidates else 0):
                variant = list(words)
                for place, choices in candidates.items():
                    choice = generator.choice(choices)
                    if generator.random() < self.replace_probability:
                        variant[place] = choice
                made.setdefault(join_words(variant))
            results.append(list(made))
        return results

    def fingerprint(self) -> str:
        """A digest of what variants depend on, draws aside."""
        vectors = None if self.vectors is None else self.vectors.fingerprint()
        options = (self.variants, self.candidates, self.replace_probability, sorted(self.stopwords), vectors)
        return digest_of(self.proposer.fingerprint(), options, self.split.state())

    def rows(
        self, batch: Sequence[tuple[str, ...]], generators: Sequence[random.Random]
    ) -> list[list[tuple[str, ...]]]:
        """Make variants of rows, column by column: those of the second text stand beside the LAST of the first.

        As in the reference the row itself comes first, and where a column begins the row before comes again.
        """
        made: list[list[tuple[str, ...]]] = [[] for _ in batch]
        current = [list(row) for row in batch]
        for column in range(len(batch[0]) if batch else 0):
            variants = self([row[column] for row in current], generators)
            for number, texts in enumerate(variants):
                for text in texts:
                    current[number][column] = text
                    made[number].append(tuple(current[number]))
        return made
