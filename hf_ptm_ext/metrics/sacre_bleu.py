"""BLEU (Papineni et al. 2002) as `sacrebleu` (Post 2018) computes it, offline."""

import importlib
from collections.abc import Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as SequenceFeature

from .checks import CheckedInput
from .rouge import FOREIGN, is_unspaced


def tokenizer_for(references: Sequence[str]) -> str:
    """sacrebleu's tokenizer for these texts: "13a", "zh" for Chinese, "char" for other scripts without spaces.

    Args:
        references: the texts.

    Example:
        >>> tokenizer_for(["un homme"]), tokenizer_for(["一个人 OK"]), tokenizer_for(["これは本です"])
        ('13a', 'zh', 'char')
    """
    letters = [character for text in references for character in text if character.isalpha()]
    unspaced = [character for character in letters if is_unspaced(character)]
    if len(unspaced) <= FOREIGN * len(letters):
        return "13a"
    han = sum("\u3400" <= character <= "\u9fff" or character >= "\uf900" for character in unspaced)
    return "zh" if han > (1 - FOREIGN) * len(unspaced) else "char"


class SacreBleu(CheckedInput, evaluate.Metric):
    """Corpus BLEU of untokenised text, between 0 and 100, with its signature.

    | input | value |
    | --- | --- |
    | `predictions` | texts |
    | `references` | a text each, or a list of texts each (their number may differ) |

    Relations: equal to `sacrebleu.BLEU(...).corpus_score`; the names of `evaluate.load("sacrebleu")`, which needs a
    network. Needs the extra `metrics`.

    Example:
        >>> bleu = SacreBleu()
        >>> text = "a man in an orange hat"
        >>> round(bleu.compute(predictions=[text], references=[[text, "someone in a hat"]])["score"])
        100
        >>> chinese = bleu.compute(predictions=["一个戴帽子的男人"], references=["一个戴帽子的人"])
        >>> round(chinese["score"], 1)
        70.7
    """

    def _info(self) -> evaluate.MetricInfo:
        _library()
        text = Value("string")
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="Post 2018, A Call for Clarity in Reporting BLEU Scores",
            inputs_description=type(self).__doc__ or "",
            features=[
                Features({"predictions": text, "references": SequenceFeature(text)}),
                Features({"predictions": text, "references": text}),
            ],
            reference_urls=["https://github.com/mjpost/sacrebleu"],
        )

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        tokenize: str | None = None,
        lowercase: bool = False,
        smooth_method: str = "exp",
        smooth_value: float | None = None,
        use_effective_order: bool = False,
    ) -> dict[str, Any]:
        """Score.

        Args:
            predictions: texts.
            references: a text or several for each.
            tokenize: sacrebleu's tokenizer: "13a", "zh", "char", "intl", "none"... Default: 13a, for references in
                Chinese zh, in another script without spaces char.
            lowercase: compare without case (default False).
            smooth_method: "exp" (default), "floor", "add-k" or "none".
            smooth_value: of "floor" and "add-k" (default: sacrebleu's).
            use_effective_order: leave out n-gram orders without a match; for single sentences (default False).

        Returns:
            `score`, `counts`, `totals`, `precisions`, `bp`, `sys_len`, `ref_len`, `signature`.

        Raises:
            ValueError: a text without a reference, or an option that sacrebleu does not know.
        """
        rows = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
        empty = [number for number, row in enumerate(rows) if not row]
        if empty:
            raise ValueError(f"`references` must have a text for every prediction, and number {empty[0]} has none.")
        # One stream per reference; where a text has fewer, sacrebleu takes None for none.
        width = max(len(row) for row in rows)
        streams = [[row[index] if index < len(row) else None for row in rows] for index in range(width)]
        every = [text for row in rows for text in row]
        metric = _metric(
            tokenize=tokenizer_for(every) if tokenize is None else tokenize,
            lowercase=lowercase,
            smooth_method=smooth_method,
            smooth_value=smooth_value,
            effective_order=use_effective_order,
        )
        result = metric.corpus_score(list(predictions), streams)
        return {
            "score": result.score,
            "counts": result.counts,
            "totals": result.totals,
            "precisions": result.precisions,
            "bp": result.bp,
            "sys_len": result.sys_len,
            "ref_len": result.ref_len,
            "signature": str(metric.get_signature()),
        }


def _library() -> Any:
    try:
        return importlib.import_module("sacrebleu")
    except ImportError as error:
        raise ImportError("`SacreBleu` needs sacrebleu: pip install hf-ptm-ext[metrics]") from error


def _metric(tokenize: str, smooth_method: str, **options: Any) -> Any:
    library = _library()
    known = sorted(name for name in library.BLEU.TOKENIZERS if name)
    if tokenize not in known:
        raise ValueError(f"`tokenize` must be one of {', '.join(known)}, got {tokenize!r}.")
    methods = sorted(library.BLEU.SMOOTH_DEFAULTS)
    if smooth_method not in methods:
        raise ValueError(f"`smooth_method` must be one of {', '.join(methods)}, got {smooth_method!r}.")
    return library.BLEU(tokenize=tokenize, smooth_method=smooth_method, **options)


__all__ = ["SacreBleu", "tokenizer_for"]
