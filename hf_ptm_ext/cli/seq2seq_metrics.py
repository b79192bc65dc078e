"""Scores of generated texts, and of the baseline that copies the beginning of the source."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.unspaced_scripts import is_unspaced
from ..metrics import Rouge, SacreBleu, rouge, sacre_bleu
from .seq2seq_arguments import DecodingArguments
from .seq2seq_data import Split


class GenerationMetrics:
    """`compute_metrics` of a Trainer: decoded predictions against the texts of the split, not against token ids.

    References are the raw texts, all of them where an example has several: neither the tokenizer's normalisation nor
    the limit of target tokens makes them easier.

    Args:
        decoding: has the metric and its options.
        tokenizer: decodes.
        texts: of the references: where no tokenizer of the metric is named, it follows their script.

    Raises:
        ImportError: the metric's library is missing.
    """

    def __init__(self, decoding: DecodingArguments, tokenizer: Any, texts: Sequence[str] = ()):
        self.tokenizer = tokenizer
        self.references: list[list[str]] = []
        self.metric: Any
        named = decoding.metric_tokenizer
        if decoding.metric == "rouge":
            self.metric, fitting = Rouge(), "word" if decoding.use_stemmer else rouge.tokenizer_for(texts)
            self.options = {"tokenizer": named or fitting, "use_stemmer": decoding.use_stemmer}
        else:
            self.metric, fitting = SacreBleu(), sacre_bleu.tokenizer_for(texts)
            self.options = {"tokenize": named or fitting, "lowercase": decoding.lowercase_metric}
        # A wrong option shows now, not after the training.
        result = self.metric.compute(predictions=["a"], references=["a"], **self.options)
        self.produced = (*(("bleu",) if "score" in result else result), "gen_len", "empty_predictions")
        self.signature = result.get("signature") or rouge.signature(named or fitting, decoding.use_stemmer)
        self.lost_letters = 0
        if (named or fitting) == "word":
            self.lost_letters = rouge.lost_letters(texts)[0]
            rouge.check_seen_by_words(texts)
        elif named == "13a" != fitting:
            raise ValueError(
                f"`metric_tokenizer` = 13a takes the references' sentences for words, their script having no spaces. "
                f"Leave it out (it is {fitting} then), or name another."
            )

    def __call__(self, evaluation: Any) -> dict[str, float]:
        """Score a Trainer's predictions of the split whose `references` are set."""
        ids = without_padding(evaluation.predictions, self.tokenizer)
        texts = self.decode(ids)
        counts = {"gen_len": float(np.mean([len(row) for row in ids])), "empty_predictions": texts.count("")}
        return {**self.scores(texts), **counts}

    def scores(self, texts: Sequence[str]) -> dict[str, float]:
        """Scores of texts against the references.

        Args:
            texts: as many as there are references.

        Returns:
            ROUGE between 0 and 1 by name, or `bleu` between 0 and 100.
        """
        result = self.metric.compute(predictions=list(texts), references=self.references, **self.options)
        return {"bleu": result["score"]} if "score" in result else result

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Texts of token ids, without special tokens."""
        return [clean_text(text) for text in self.tokenizer.batch_decode(rows, skip_special_tokens=True)]

    def decode_padded(self, predictions: np.ndarray) -> list[str]:
        """Texts of a Trainer's padded predictions."""
        return self.decode(without_padding(predictions, self.tokenizer))

    def copied_beginnings(self, split: Split, length: int) -> list[str]:
        """The first tokens of each source.

        Args:
            split: the split.
            length: how many tokens.

        Returns:
            As many texts.
        """
        special = set(self.tokenizer.all_special_ids)
        rows = [[token for token in row if token not in special][:length] for row in split.rows["input_ids"]]
        return self.decode(rows)


def mean_target_length(split: Split, tokenizer: Any) -> int:
    """Mean number of target tokens, special ones aside, of a training set.

    Args:
        split: the training set.
        tokenizer: tells the special tokens.

    Returns:
        Rounded, at least 1.
    """
    special = set(tokenizer.all_special_ids)
    lengths = [sum(token not in special for token in row) for row in split.rows["labels"]]
    return max(round(sum(lengths) / len(lengths)), 1)


def without_padding(predictions: np.ndarray, tokenizer: Any) -> list[list[int]]:
    """Generated ids up to their end: padding of the loop (-100) and of the tokenizer left out."""
    padding = {-100, tokenizer.pad_token_id}
    return [[int(token) for token in row if int(token) not in padding] for row in np.asarray(predictions)]


def clean_text(text: str) -> str:
    """A decoded text without the blanks that word pieces leave between characters of scripts without spaces.

    Args:
        text: as the tokenizer decodes it.

    Returns:
        The text.

    Example:
        >>> clean_text("今 天 用 bert 模 型 。 ")
        '今天用 bert 模型。'
    """
    words = text.split()
    parts: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before and not (_closed(before[-1]) and _closed(word[0])):
            parts.append(" ")
        parts.append(word)
    return "".join(parts)


def _closed(character: str) -> bool:
    """Whether the character stands beside others of its script without a blank."""
    return is_unspaced(character) or character in "，。、；：？！“”‘’（）《》〈〉【】「」『』…—·"
