"""Lexicons: what tables say about words. Polarity and part of speech (SentiLARE), WordNet's supersenses (SenseBERT).

Each is a function from the words of a text to integer columns with an entry a word, such as
`collators.LexiconColumns` lays on the pieces of a tokenizer; `unknown` is what those columns hold elsewhere.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..files import write_whole
from .lines import iter_lines

# SentiLARE's numbers (Ke et al., EMNLP 2020); the last of each says that nothing is known.
POS_TAGS = {"v": 0, "a": 1, "r": 2, "n": 3, "u": 4}
NEGATIVE, POSITIVE, NEUTRAL = 0, 1, 2
UNKNOWN_POS = POS_TAGS["u"]

# Of Penn Treebank's, universal and WordNet's tags; what is missing is "u".
_PENN = {"VB": "v", "JJ": "a", "RB": "r", "NN": "n"}
_WHOLE = {"VERB": "v", "AUX": "v", "ADJ": "a", "S": "a", "ADV": "r", "NOUN": "n", "PROPN": "n"}

# WordNet's lexicographer files in the order of their numbers (lexnames(5WN)).
_LEXNAMES = """
    adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
    noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive
    noun.object noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation
    noun.shape noun.state noun.substance noun.time verb.body verb.change verb.cognition verb.communication
    verb.competition verb.consumption verb.contact verb.creation verb.emotion verb.motion verb.perception
    verb.possession verb.social verb.stative verb.weather adj.ppl
"""
SUPERSENSES = tuple(_LEXNAMES.split())
MOST_SUPERSENSES = 63  # bits of an integer column

# Of WordNet's morphy(7WN): endings that are taken off, and what comes in their place.
DETACHMENT = {
    "noun": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "verb": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "adj": "er: est: er:e est:e",
    "adv": "",
}
_ENDINGS = {pos: [tuple(rule.split(":")) for rule in rules.split()] for pos, rules in DETACHMENT.items()}
_WORDNET_POS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}

# English words of more than three letters that carry no sense of their own; shorter ones never have senses.
_FUNCTION_WORDS = """
    about above after again against also because been before being below between both cannot could does doing
    down during each else ever every from further have having here hers herself himself into itself just many
    more most much myself once only onto other ours ourselves over same shall should some such than that their
    theirs them themselves then there these they this those though through under until unto upon very were what
    whatever when where whether which while whom whose will with within without would your yours yourself
    yourselves
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())


def base_forms(word: str, pos: str) -> list[str]:
    """Forms that a word may be an inflection of, itself first, by WordNet's endings.

    Args:
        word: In lower case.
        pos: "noun", "verb", "adj" or "adv".

    Examples:
        >>> base_forms("boxes", "noun")
        ['boxes', 'boxe', 'box']
    """
    return [word, *(word[: len(word) - len(end)] + new for end, new in _ENDINGS[pos] if word.endswith(end))]


def pos_tag_id(tag: str) -> int:
    """SentiLARE's number of a part of speech: verb 0, adjective 1, adverb 2, noun 3, any other 4.

    Args:
        tag: Of Penn Treebank ("NNS"), universal ("NOUN"), or WordNet's letter ("n").

    Examples:
        >>> [pos_tag_id(tag) for tag in ("VBD", "ADJ", "r", "NNP", "DT")]
        [0, 1, 2, 3, 4]
    """
    letter = _WHOLE.get(tag.upper()) or _PENN.get(tag[:2].upper()) or tag.lower()
    return POS_TAGS.get(letter, UNKNOWN_POS)


def nltk_tagger() -> Callable[[Sequence[str]], list[str]]:
    """Return nltk's tagger of English words (the extra `lexicons`), a picklable function from words to their tags.

    Raises:
        ImportError: there is no nltk, or it has no data of the tagger.
    """
    try:
        import nltk

        nltk.pos_tag(["word"])
    except ImportError as error:
        raise ImportError(
            f"Tagging words needs the package `nltk` ({error}). Run `pip install hf-ptm-ext[lexicons]`, or pass any "
            "other function from a list of words to the list of their tags."
        ) from error
    except LookupError as error:
        raise ImportError(
            f"nltk has no data of its tagger (version {nltk.__version__}). Run `python -m nltk.downloader "
            "averaged_perceptron_tagger_eng`, or set NLTK_DATA to the folder that has it."
        ) from error
    return nltk_tags


def nltk_tags(words: Sequence[str]) -> list[str]:
    """Penn Treebank's tags of words."""
    import nltk

    return [tag for _, tag in nltk.pos_tag(list(words))]


def read_opinion_lexicon(positive: str | Path, negative: str | Path, *, encoding: str = "utf-8") -> dict[str, int]:
    """Read an opinion lexicon: two files with a word a line; `;` and `#` begin a comment.

    As Hu and Liu's (https://www.cs.uic.edu/~liub/FBS/sentiment-analysis.html, CC BY 4.0) comes; gzip too.

    Args:
        positive: File of positive words.
        negative: File of negative words. A word of both files is left out.
        encoding: Of both; the original files are latin-1.

    Returns:
        Word in lower case -> 1 for positive, 0 for negative.

    Raises:
        ValueError: a file has no word.
    """
    words = []
    for path in (positive, negative):
        lines = (line.text.strip() for line in iter_lines(Path(path), encoding))
        words.append({line.lower() for line in lines if line and line[0] not in ";#"})
        if not words[-1]:
            raise ValueError(f"{path} must have a word a line, got none.")
    both = words[0] & words[1]
    if both == words[0] | words[1]:
        raise ValueError(f"{positive} and {negative} must have different words, got the same {len(both)} in both.")
    return {word: polarity for polarity in (NEGATIVE, POSITIVE) for word in words[1 - polarity] - both}


@dataclass(frozen=True)
class SentiWordNet:
    """Polarity of a word of a text by SentiWordNet, senses weighted by rank and by how their glosses fit (SentiLARE).

        a_k = softmax_k( (cos(text, gloss_k) + 1) / (2 k) )     score = sum_k a_k (positive_k - negative_k)

    Args:
        senses: (lemma, WordNet's letter) -> its senses `(rank from 1, positive - negative, gloss)`.
        similarity: Text, glosses -> cosine of each with the text (SentiLARE: by Sentence-BERT). None takes 0 for all:
            the rank alone.

    Examples:
        >>> lexicon = SentiWordNet({("good", "a"): [(1, 0.75, "desirable"), (2, -0.1, "thorough")]})
        >>> lexicon("good", POS_TAGS["a"], "a good film"), lexicon("good", POS_TAGS["v"], ""), lexicon("film", 3, "")
        (1, 2, 2)
    """

    senses: Mapping[tuple[str, str], Sequence[tuple[int, float, str]]]
    similarity: Callable[[str, Sequence[str]], Sequence[float]] | None = None

    @classmethod
    def read(cls, path: str | Path, similarity: Any = None) -> "SentiWordNet":
        """Read `SentiWordNet_3.0.0.txt`: letter, number, positive, negative, `lemma#rank ...`, gloss between tabs."""
        senses: dict[tuple[str, str], list[tuple[int, float, str]]] = defaultdict(list)
        for line in iter_lines(Path(path)):
            if not line.text.strip() or line.text.startswith("#"):
                continue
            try:
                letter, _, positive, negative, terms, gloss = line.text.split("\t")[:6]
                score = float(positive) - float(negative)
                for term in terms.split():
                    lemma, rank = term.rsplit("#", 1)
                    known = senses[lemma.lower(), "a" if letter == "s" else letter]
                    known.append((_at_least(1, int(rank)), _at_least(-1, score), gloss.strip()))
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {line.number}: must have a letter, a number, two scores, terms such as `good#1` "
                    f"and a gloss between tabs, got {line.text[:60]!r}."
                ) from error
        if not senses:
            raise ValueError(f"{path} must have a sense a line, got none.")
        return cls(dict(senses), similarity)

    def __call__(self, word: str, pos_tag: int, text: str) -> int:
        """The polarity of one word: 0 negative, 1 positive, 2 neither or unknown."""
        letter = "varnu"[pos_tag]
        forms = base_forms(word.lower(), _WORDNET_POS[letter]) if letter in _WORDNET_POS else ()
        found = next((self.senses[form, letter] for form in forms if (form, letter) in self.senses), ())
        if not found:
            return NEUTRAL
        near = [0.0] * len(found) if self.similarity is None else self.similarity(text, [gloss for *_, gloss in found])
        weights = [math.exp((float(cosine) + 1) / (2 * rank)) for cosine, (rank, *_) in zip(near, found, strict=True)]
        score = sum(weight * value for weight, (_, value, _) in zip(weights, found, strict=True))
        return NEUTRAL if abs(score) < 1e-9 else POSITIVE if score > 0 else NEGATIVE


@dataclass
class SentimentWords:
    """Part of speech and polarity of words, SentiLARE's linguistic knowledge.

    Args:
        lexicon: Word in lower case -> polarity (`read_opinion_lexicon`), or a function `(word, pos_tag_id, text)`
            (`SentiWordNet`).
        tagger: Words -> a tag each (`nltk_tagger()`; see `pos_tag_id`). None leaves all unknown: with a mapping the
            polarity is then the only knowledge, and `SentiWordNet` knows nothing.

    Examples:
        >>> words = SentimentWords({"good": 1, "bad": 0}, tagger=lambda words: ["DT", "JJ"])
        >>> words(["A", "Good"])
        {'pos_tag_ids': [4, 1], 'word_polarity_ids': [2, 1]}
    """

    lexicon: Mapping[str, int] | Callable[[str, int, str], int]
    tagger: Callable[[Sequence[str]], Sequence[str]] | None = None

    unknown: ClassVar[dict[str, int]] = {"pos_tag_ids": UNKNOWN_POS, "word_polarity_ids": NEUTRAL}

    def __post_init__(self) -> None:
        if not isinstance(self.lexicon, Mapping) and not callable(self.lexicon):
            raise TypeError(f"`lexicon` must be a mapping or a function, got {type(self.lexicon).__name__}.")
        if isinstance(self.lexicon, SentiWordNet) and self.tagger is None:
            raise ValueError(
                f"`tagger` must tag words for SentiWordNet, which knows a word by its part of speech, got "
                f"{self.tagger}. Pass `nltk_tagger()` or another."
            )

    def __call__(self, words: Sequence[str]) -> dict[str, list[int]]:
        """The columns of a text's words."""
        tags = [UNKNOWN_POS] * len(words)
        if self.tagger is not None:
            tags = [pos_tag_id(tag) for tag in self.tagger(words)]
            if len(tags) != len(words):
                raise ValueError(f"`tagger` must give a tag for each of {len(words)} words, got {len(tags)}.")
        if isinstance(self.lexicon, Mapping):
            polarity = [self.lexicon.get(word.lower(), NEUTRAL) for word in words]
        else:
            text = " ".join(words)
            polarity = [self.lexicon(word, tag, text) for word, tag in zip(words, tags, strict=True)]
        return {"pos_tag_ids": tags, "word_polarity_ids": polarity}


@dataclass
class SupersenseTable:
    """The supersenses that each word may have (SenseBERT): bit k of an integer is `names[k]`.

    A word has the senses of all lemmas that it may be a form of, of every part of speech; words of three letters at
    most and stop words have none.

    Args:
        lemmas: Lemma in lower case -> bits.
        names: The supersenses, in the order of the model's classes (default: WordNet's 45).
        stop_words: Words without senses.

    Raises:
        ValueError: there are more names than bits.

    Examples:
        >>> table = SupersenseTable.of({"bass": ["noun.food", "noun.animal"], "swim": ["verb.motion"]})
        >>> table.senses("Basses"), table.senses("swims"), table.senses("this")
        (['noun.animal', 'noun.food'], ['verb.motion'], [])
        >>> table(["a", "swim"]) == {"supersenses": [0, 2 ** SUPERSENSES.index("verb.motion")]}
        True
    """

    lemmas: Mapping[str, int] = field(repr=False)
    names: Sequence[str] = SUPERSENSES
    stop_words: Collection[str] = field(default=STOP_WORDS, repr=False)
    _known: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    unknown: ClassVar[dict[str, int]] = {"supersenses": 0}

    def __post_init__(self) -> None:
        self.names = tuple(self.names)
        if not 0 < len(self.names) <= MOST_SUPERSENSES or len(set(self.names)) < len(self.names):
            raise ValueError(
                f"`names` must be 1 to {MOST_SUPERSENSES} different ones, got {len(self.names)}: {self.names[:5]}."
            )
        self._parts = {
            pos: sum(1 << number for number, name in enumerate(self.names) if name.startswith(f"{pos}."))
            for pos in _ENDINGS
        }

    @classmethod
    def of(
        cls, senses: Mapping[str, Iterable[str]], names: Sequence[str] = SUPERSENSES, **more: Any
    ) -> "SupersenseTable":
        """Make a table of lemmas and the names of their senses."""
        number = {name: bit for bit, name in enumerate(names)}
        lemmas: dict[str, int] = {}
        for lemma, of_lemma in senses.items():
            unknown = sorted(set(of_lemma) - number.keys())
            if unknown:
                raise ValueError(f"`senses` of {lemma!r} must be among {list(names)[:3]}..., got {unknown}.")
            bits = sum(1 << number[name] for name in set(of_lemma))
            lemmas[lemma.lower()] = lemmas.get(lemma.lower(), 0) | bits
        return cls(lemmas, names, **more)

    @classmethod
    def read(cls, path: str | Path, names: Sequence[str] = SUPERSENSES, **more: Any) -> "SupersenseTable":
        """Read WordNet's own folder (`data.noun`, ...; nltk's `corpora/wordnet` too), or a file that `save` wrote.

        Args:
            path: The folder, or a file with a word, a tab and its supersenses with blanks between them on each line.
            names: The supersenses in the order of the classes (`read_supersense_vocab`).
            more: Further arguments of the table.
        """
        if Path(path).is_dir():
            return cls.of(_wordnet(Path(path)), names, **more)
        senses: dict[str, set[str]] = defaultdict(set)
        for line in iter_lines(Path(path)):
            word, tab, found = line.text.partition("\t")
            if not tab or not word or not found.strip():
                raise ValueError(
                    f"{path}, line {line.number}: must have a word, a tab and supersenses, got {line.text[:60]!r}."
                )
            if not set(found.split()) <= set(names):
                raise ValueError(
                    f"{path}, line {line.number}: supersenses must be among {list(names)[:3]}..., got "
                    f"{found.strip()!r}."
                )
            senses[word].update(found.split())
        if not senses:
            raise ValueError(f"{path} must have a word, a tab and supersenses a line, got none.")
        return cls.of(senses, names, **more)

    def save(self, path: str | Path) -> None:
        """Write the lemmas with their senses as text."""
        lines = (f"{lemma}\t{' '.join(self._names(bits))}\n" for lemma, bits in sorted(self.lemmas.items()))
        write_whole(path, "".join(lines))

    def bits(self, word: str) -> int:
        """The supersenses of a word as bits."""
        if word not in self._known:
            self._known[word] = self._search(word.lower())
        return self._known[word]

    def senses(self, word: str) -> list[str]:
        """Their names."""
        return self._names(self.bits(word))

    def __call__(self, words: Sequence[str]) -> dict[str, list[int]]:
        """The column of a text's words."""
        return {"supersenses": [self.bits(word) for word in words]}

    def _names(self, bits: int) -> list[str]:
        return [name for number, name in enumerate(self.names) if bits >> number & 1]

    def _search(self, word: str) -> int:
        if len(word) <= 3 or word in self.stop_words:
            return 0
        bits = self.lemmas.get(word, 0)
        for pos, part in self._parts.items():
            for form in base_forms(word, pos)[1:]:
                bits |= self.lemmas.get(form, 0) & part
        return bits


def _at_least(least: int, value: Any) -> Any:
    if not value >= least:
        raise ValueError(f"{value} is below {least}")
    return value


def read_supersense_vocab(path: str | Path) -> tuple[str, ...]:
    """Read SenseBERT's `supersense_vocab.txt`: a supersense a line, in the order of the classes."""
    names = tuple(line.text.strip() for line in iter_lines(Path(path)) if line.text.strip())
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{path} must have different supersenses, one a line, got {list(names[:5])}.")
    return names


def _wordnet(folder: Path) -> dict[str, set[str]]:
    """Lemmas of one word and their lexicographer files; irregular forms as lemmas."""
    senses: dict[str, set[str]] = defaultdict(set)
    for pos in _ENDINGS:
        own: dict[str, set[str]] = defaultdict(set)
        for line in iter_lines(folder / f"data.{pos}"):
            if line.text.startswith("  "):  # the licence
                continue
            try:
                cells = line.text.split(" ", 4)
                words = cells[4].split(" ")[: 2 * int(cells[3], 16) : 2]
                name = SUPERSENSES[int(cells[1])]
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{folder / f'data.{pos}'}, line {line.number}: must be a synset of WordNet, got "
                    f"{line.text[:60]!r}."
                ) from error
            for word in words:
                own[re.sub(r"\(.*\)$", "", word).lower()].add(name)
        exceptions = folder / f"{pos}.exc"
        for line in iter_lines(exceptions) if exceptions.is_file() else ():
            form, *bases = line.text.split() or ("",)
            own[form] |= {name for base in bases for name in own.get(base, ())}
        for word, found in own.items():
            if found and "_" not in word:
                senses[word] |= found
    return dict(senses)
