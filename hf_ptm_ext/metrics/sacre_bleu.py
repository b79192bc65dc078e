"""BLEU (Papineni et al. 2002) as `sacrebleu` (Post 2018) computes it, offline."""

from collections.abc import Sequence
from typing import Any

from datasets import Features
from datasets import Sequence as SequenceFeature

from ..data.segmentation import is_unspaced
from .offline import TEXT, OfflineMetric, pairs_of
from .rouge import FOREIGN


def tokenizer_for(references: Sequence[str]) -> str:
    """sacrebleu's tokenizer for these texts: "13a", "zh" for Chinese, "char" for other scripts without spaces."""
    letters = [character for text in references for character in text if character.isalpha()]
    unspaced = [character for character in letters if is_unspaced(character)]
    if len(unspaced) <= FOREIGN * len(letters):
        return "13a"
    han = sum("\u3400" <= character <= "\u9fff" or character >= "\uf900" for character in unspaced)
    return "zh" if han > (1 - FOREIGN) * len(unspaced) else "char"


class SacreBleu(OfflineMetric):
    """Corpus BLEU of untokenised text, between 0 and 100, with its signature.

    | input | value |
    | --- | --- |
    | `predictions` | texts |
    | `references` | a text each, or a list of texts each (their number may differ) |

    Relations: equal to `sacrebleu.BLEU(...).corpus_score`; the names of `evaluate.load("sacrebleu")`, which needs a
    network. Needs the extra `metrics`.

    Examples:
        >>> bleu = SacreBleu()
        >>> text = "a man in an orange hat"
        >>> round(bleu.compute(predictions=[text], references=[[text, "someone in a hat"]])["score"])
        100
        >>> chinese = bleu.compute(predictions=["一个戴帽子的男人"], references=["一个戴帽子的人"])
        >>> round(chinese["score"], 1)
        70.7
    """

    paper = "Post 2018, A Call for Clarity in Reporting BLEU Scores"
    columns = [Features({"predictions": TEXT, "references": SequenceFeature(TEXT)}), pairs_of(TEXT)]
    pages = ("https://github.com/mjpost/sacrebleu",)
    package = "sacrebleu"

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


def _metric(tokenize: str, smooth_method: str, **options: Any) -> Any:
    library = SacreBleu.library()
    known = sorted(name for name in library.BLEU.TOKENIZERS if name)
    if tokenize not in known:
        raise ValueError(f"`tokenize` must be one of {', '.join(known)}, got {tokenize!r}.")
    methods = sorted(library.BLEU.SMOOTH_DEFAULTS)
    if smooth_method not in methods:
        raise ValueError(f"`smooth_method` must be one of {', '.join(methods)}, got {smooth_method!r}.")
    return library.BLEU(tokenize=tokenize, smooth_method=smooth_method, **options)
