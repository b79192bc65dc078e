"""ROUGE (Lin 2004) through Google's `rouge_score`, offline and also for text without spaces.

`rouge_score` keeps ASCII letters and digits only, so Chinese text has no tokens at all and scores 0. Which tokens are
counted is therefore named: `tokenizer="word"` is `rouge_score`'s own rule, `tokenizer="character"` counts each
character of a script without spaces and whole words of the others.
"""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as SequenceFeature

from .checks import CheckedInput

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
TOKENIZERS = ("word", "character")
# Thai, Lao, Burmese, Khmer, Han, Kana, Bopomofo: a character is a token. Any other run of letters or digits is one.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3035\u3040-\u312f"
_UNSPACED += "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_UNSPACED += "\U0001b000-\U0001b16f\U00020000-\U000323af"
_CHARACTERS = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def characters(text: str) -> list[str]:
    """Tokens of mixed text: single characters of scripts without spaces, lower-cased words of the others.

    Args:
        text: any text; punctuation is dropped, as `rouge_score` does.

    Returns:
        The tokens.

    Example:
        >>> characters("BERT 模型，2019 年")
        ['bert', '模', '型', '2019', '年']
    """
    return _CHARACTERS.findall(text.lower())


class _Tokens:
    """What `rouge_score` takes as a tokenizer: an object with `tokenize`."""

    def __init__(self, tokenize: Callable[[str], list[str]]):
        self.tokenize = tokenize


class Rouge(CheckedInput, evaluate.Metric):
    """ROUGE-1, -2, -L and -Lsum: F1, the best of several references, averaged over the texts.

    | input | value |
    | --- | --- |
    | `predictions` | texts |
    | `references` | a text each, or a list of texts each |

    Relations: equal to `rouge_score.rouge_scorer.RougeScorer(...).score_multi` averaged over the texts; the names of
    `evaluate.load("rouge")`, which needs a network. Needs the extra `metrics`.

    Example:
        >>> rouge = Rouge()
        >>> scores = rouge.compute(predictions=["the cat sat"], references=["the cat lay down"])
        >>> round(scores["rouge1"], 3)  # 2 of 3 and 2 of 4 words
        0.571
        >>> rouge.compute(predictions=["今天很好"], references=["今天好"], tokenizer="character")["rouge2"]
        0.4
    """

    def _info(self) -> evaluate.MetricInfo:
        _library()
        text = Value("string")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries",
            inputs_description=type(self).__doc__ or "",
            features=[
                Features({"predictions": text, "references": SequenceFeature(text)}),
                Features({"predictions": text, "references": text}),
            ],
            reference_urls=["https://github.com/google-research/google-research/tree/master/rouge"],
        )

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        rouge_types: Sequence[str] = ROUGE_TYPES,
        tokenizer: str | Callable[[str], list[str]] = "word",
        use_stemmer: bool = False,
        use_aggregator: bool = True,
    ) -> dict[str, Any]:
        """Score.

        Args:
            predictions: texts.
            references: a text or several for each.
            rouge_types: which scores (default all four). rougeLsum takes the lines of a text for its sentences.
            tokenizer: "word" (default; `rouge_score`'s own: ASCII letters and digits), "character", or a function from
                a text to its tokens.
            use_stemmer: strip English endings, "word" only (default False; the papers' tools do).
            use_aggregator: average over the texts (default); otherwise a list of scores each.

        Returns:
            Score name -> F1 between 0 and 1.

        Raises:
            ValueError: an option out of range, or a reference with letters of which the tokenizer keeps none.
        """
        scorer = _scorer(rouge_types, tokenizer, use_stemmer)
        rows = []
        for prediction, reference in zip(predictions, references, strict=True):
            texts = [reference] if isinstance(reference, str) else list(reference)
            if tokenizer == "word":
                _check_seen_by_words(texts)
            scores = scorer.score_multi(texts, prediction)
            rows.append({name: scores[name].fmeasure for name in rouge_types})
        columns = {name: [row[name] for row in rows] for name in rouge_types}
        if not use_aggregator:
            return columns
        return {name: sum(values) / len(values) for name, values in columns.items()}


def _library() -> Any:
    try:
        return importlib.import_module("rouge_score.rouge_scorer")
    except ImportError as error:
        raise ImportError("`Rouge` needs rouge_score: pip install hf-ptm-ext[metrics]") from error


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
    return _library().RougeScorer(list(rouge_types), use_stemmer=use_stemmer, tokenizer=own)


def _check_seen_by_words(texts: Sequence[str]) -> None:
    for text in texts:
        if any(character.isalpha() for character in text) and not re.search("[a-zA-Z0-9]", text):
            raise ValueError(
                f"`tokenizer` = 'word' keeps ASCII letters and digits only, and the reference {text[:40]!r} has none: "
                "it would score 0. Use tokenizer='character' for text without spaces, or a function of your own."
            )


__all__ = ["ROUGE_TYPES", "Rouge", "characters"]
