"""The augmentation of Distilled-BiLSTM: masking, words of the same part of speech, n-grams.

Tang et al. 2019, https://arxiv.org/abs/1903.12136, section 3.2, and their code, castorini/d-bert. For each word
X ~ U[0, 1]: below p_mask it is masked, below p_mask + p_pos a word of the same part of speech takes its place; then
with p_ng (paper: 0.25; code: 0) only a random n-gram stays, n uniform in 1..5. As in the code a text of which no word
stayed as it was is dropped, and so is one that the corpus or an earlier row's variants have. Pairs change in turn, as
in the paper (the code draws which text). What comes out need not be a sentence: the labels are the teacher's.
"""

import random
from collections.abc import Iterable, Sequence

from .words import Segmenter, Tagger, WordClasses, WordSplitter, digest_of, join_words, rough_tags


class DistilledBiLstmAugmentation:
    """Variants of texts for a teacher to label.

    Args:
        mask_token: What stands for a masked word (default: BERT's; give the student's).
        variants: Draws per row (default: the paper's 20 for one text and 10 for a pair).
        mask_probability: p_mask.
        pos_probability: p_pos.
        ngram_probability: p_ng (the code's default: 0; paper: 0.25).
        max_ngram: Longest n-gram.
        tagger: Parts of speech, see `WordClasses` (default: `rough_tags`, which needs no package).
        lowercase: lower-case and strip accents first.
        segmenter: Cuts unspaced text into words (default: into characters).

    Examples:
        >>> augmentation = DistilledBiLstmAugmentation(variants=3).fit(["a good film", "the long story"])
        >>> rows = augmentation.rows([("a good film",)], [random.Random(0)])[0]
        >>> rows[0], len(rows) <= 4
        (('a good film',), True)
    """

    # What `augment` reads: no variant twice in a data set.
    unique = True

    def __init__(
        self,
        mask_token: str = "[MASK]",
        *,
        variants: int | None = None,
        mask_probability: float = 0.1,
        pos_probability: float = 0.1,
        ngram_probability: float = 0.0,
        max_ngram: int = 5,
        tagger: Tagger = rough_tags,
        lowercase: bool = False,
        segmenter: Segmenter | None = None,
    ):
        self.mask_probability = mask_probability
        self.pos_probability = pos_probability
        self.ngram_probability = ngram_probability
        for name in ("mask_probability", "pos_probability", "ngram_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be in [0, 1], got {getattr(self, name)}.")
        if mask_probability + pos_probability > 1:
            raise ValueError(
                "`mask_probability` + `pos_probability` must be at most 1, got "
                f"{mask_probability} + {pos_probability}."
            )
        if (variants is not None and variants < 1) or max_ngram < 1:
            raise ValueError(f"`variants` and `max_ngram` must be at least 1, got {variants} and {max_ngram}.")
        self.mask_token = mask_token
        self.variants = variants
        self.max_ngram = max_ngram
        self.split = WordSplitter(lowercase, segmenter)
        self.classes = WordClasses(tagger)
        self.corpus: set[str] = set()

    def fit(self, texts: Iterable[str]) -> "DistilledBiLstmAugmentation":
        """Count the words that may take another's place, and remember the texts, which are no variants."""
        split = [self.split(text) for text in texts]
        self.classes.add(split)
        self.corpus.update(join_words(words) for words in split)
        return self

    def change(self, words: Sequence[str], tags: Sequence[str], generator: random.Random) -> str:
        """Make one variant of a text."""
        return self._changed(words, tags, generator)[0]

    def _changed(self, words: Sequence[str], tags: Sequence[str], generator: random.Random) -> tuple[str, bool]:
        """A variant, and whether a word was left as it stood."""
        changed, stayed = [], False
        for word, tag in zip(words, tags, strict=True):
            draw = generator.random()
            if draw < self.mask_probability:
                word = self.mask_token
            elif draw < self.mask_probability + self.pos_probability:
                word = self.classes.draw(tag, generator) or word
            else:
                stayed = True
            changed.append(word)
        if generator.random() < self.ngram_probability:
            length = min(generator.randint(1, self.max_ngram), len(changed))
            start = generator.randint(0, len(changed) - length)
            changed = changed[start : start + length]
        return join_words(changed), stayed

    def fingerprint(self) -> str:
        """A digest of what variants depend on, draws aside."""
        tagger = getattr(self.classes.tagger, "__qualname__", repr(type(self.classes.tagger)))
        chances = (self.mask_probability, self.pos_probability, self.ngram_probability)
        options = (self.mask_token, self.variants, chances, self.max_ngram, tagger)
        return digest_of(options, self.split.state(), self.classes.state(), sorted(self.corpus))

    def rows(
        self, batch: Sequence[tuple[str, ...]], generators: Sequence[random.Random]
    ) -> list[list[tuple[str, ...]]]:
        """Make variants of rows of one text or two."""
        results = []
        for row, generator in zip(batch, generators, strict=True):
            if len(row) > 2:
                raise ValueError(f"`columns` must be one or two, got {len(row)}: a row is a text or a pair.")
            split = [self.split(text) for text in row]
            tags = [self.classes.tags(words) for words in split]
            plain = tuple(join_words(words) for words in split)
            kept = [row]
            for number in range(self.variants or (20 if len(row) == 1 else 10)):
                changed = ({0}, {1}, {0, 1})[number % 3] if len(row) == 2 else {0}
                made = [
                    self._changed(split[i], tags[i], generator) if i in changed and split[i] else (text, True)
                    for i, text in enumerate(row)
                ]
                variant = tuple(text for text, _ in made)
                same = all(new in (old, known) for new, old, known in zip(variant, row, plain, strict=True))
                known = len(row) == 1 and (not made[0][1] or variant[0] in self.corpus)
                if not same and not known and variant not in kept:
                    kept.append(variant)
            results.append(kept)
        return results
