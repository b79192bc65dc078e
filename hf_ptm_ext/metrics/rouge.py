"""ROUGE (Lin 2004) through Google's `rouge_score`, offline and for text of every script.

`rouge_score` keeps ASCII letters and digits only: of Chinese, Russian or Arabic text nothing is left, and two Chinese
headlines that share "iPhone" would be equal. Which tokens are counted is therefore named: `tokenizer="word"` is
`rouge_score`'s own rule and refuses such references, `tokenizer="character"` counts each character of a script without
spaces and whole words of all others.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

from datasets import Features
from datasets import Sequence as SequenceFeature
from transformers.utils import logging

from ..data.segmentation import is_unspaced
from .offline import TEXT, OfflineMetric, pairs_of

logger = logging.get_logger(__name__)

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
TOKENIZERS = ("word", "character")
# Share of letters that a fitting tokenizer may lose: those of foreign names.
FOREIGN = 0.01


def characters(text: str) -> list[str]:
    """Tokens of any text: single characters of scripts without spaces, lower-cased words of the others."""
    tokens, word = [], ""
    for character in unicodedata.normalize("NFC", text.lower()) + " ":
        counts = character.isalnum() or unicodedata.category(character).startswith("M")
        if counts and not is_unspaced(character):
            word += character
            continue
        tokens += [word] * bool(word) + [character] * counts
        word = ""
    return tokens


def lost_letters(texts: Iterable[str]) -> tuple[int, int]:
    """How many letters of texts `rouge_score`'s own tokenizer drops, and how many there are."""
    letters = [character for text in texts for character in text if character.isalpha()]
    return sum(not character.isascii() for character in letters), len(letters)


def tokenizer_for(references: Sequence[str]) -> str:
    """The tokenizer that reads these texts: "word", unless it would drop more than a foreign name here and there."""
    lost, letters = lost_letters(references)
    return "character" if lost > FOREIGN * letters else "word"


class _Tokens:
    """What `rouge_score` takes as a tokenizer: an object with `tokenize`."""

    def __init__(self, tokenize: Callable[[str], list[str]]):
        self.tokenize = tokenize


class Rouge(OfflineMetric):
    """ROUGE-1, -2, -L and -Lsum: F1, the best of several references, averaged over the texts.

    | input | value |
    | --- | --- |
    | `predictions` | texts |
    | `references` | a text each, or a list of texts each |

    Relations: equal to `rouge_score.rouge_scorer.RougeScorer(...).score_multi` averaged over the texts; the names of
    `evaluate.load("rouge")`, which needs a network. Needs the extra `metrics`.

    Examples:
        >>> rouge = Rouge()
        >>> scores = rouge.compute(predictions=["the cat sat"], references=["the cat lay down"])
        >>> round(scores["rouge1"], 3)  # 2 of 3 and 2 of 4 words
        0.571
        >>> rouge.compute(predictions=["今天很好"], references=["今天好"], tokenizer="character")["rouge2"]
        0.4
    """

    paper = "Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries"
    columns = [Features({"predictions": TEXT, "references": SequenceFeature(TEXT)}), pairs_of(TEXT)]
    pages = ("https://github.com/google-research/google-research/tree/master/rouge",)
    package = "rouge_score.rouge_scorer"

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        rouge_types: Sequence[str] = ROUGE_TYPES,
        tokenizer: str | Callable[[str], list[str]] = "word",
        use_stemmer: bool = False,
        use_aggregator: bool = True,
    ) -> dict[str, Any]:
        lists = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
        scorer = _scorer(rouge_types, tokenizer, use_stemmer)
        if tokenizer == "word":
            check_seen_by_words([text for texts in lists for text in texts])
        rows = []
        for prediction, texts in zip(predictions, lists, strict=True):
            scores = scorer.score_multi(texts, prediction)
            rows.append({name: scores[name].fmeasure for name in rouge_types})
        columns = {name: [row[name] for row in rows] for name in rouge_types}
        if not use_aggregator:
            return columns
        return {name: sum(values) / len(values) for name, values in columns.items()}


def _scorer(rouge_types: Sequence[str], tokenizer: str | Callable[[str], list[str]], use_stemmer: bool) -> Any:
    unknown = [name for name in rouge_types if not re.fullmatch(r"rouge([1-9]|L|Lsum)", name)]
    if unknown or not rouge_types:
        raise ValueError(
            f"`rouge_types` must be names such as {', '.join(ROUGE_TYPES)}, got {unknown or list(rouge_types)}."
        )
    if isinstance(tokenizer, str) and tokenizer not in TOKENIZERS:
        raise ValueError(f"`tokenizer` must be one of {', '.join(TOKENIZERS)} or a function, got {tokenizer!r}.")
    if use_stemmer and tokenizer != "word":
        raise ValueError("`use_stemmer` strips English endings and goes with tokenizer='word' only. Leave it out.")
    function = characters if tokenizer == "character" else tokenizer
    own = None if isinstance(function, str) else _Tokens(function)
    return Rouge.library().RougeScorer(list(rouge_types), use_stemmer=use_stemmer, tokenizer=own)


def check_seen_by_words(texts: Sequence[str]) -> None:
    """Refuse texts of which `rouge_score`'s own tokenizer drops a script; count what else it drops."""
    lost, letters = lost_letters(texts)
    foreign = [character for text in texts for character in text if character.isalpha() and not _latin(character)]
    if len(foreign) > FOREIGN * letters:
        raise ValueError(
            f"`tokenizer` = 'word' keeps ASCII letters and digits only and drops {lost} of the references' {letters} "
            f"letters ({''.join(foreign[:8])}...): scores would be wrong. Use tokenizer='character', which reads "
            "every script, or a function of your own."
        )
    if lost:
        logger.warning(
            "ROUGE's tokenizer 'word' drops %d of the references' %d letters, those with accents.", lost, letters
        )


def _latin(character: str) -> bool:
    return character < "\u0250" or "\u1e00" <= character < "\u1f00"


def signature(tokenizer: str, use_stemmer: bool) -> str:
    """What a score depends on, in the form of sacrebleu's signatures."""
    stem = "yes" if use_stemmer else "no"
    return f"rouge_score|version:{version('rouge_score')}|tok:{tokenizer}|stem:{stem}|refs:best|F1"
