"""From decoding arguments to keyword arguments of `generate`, and the scores of what it writes."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from ..data.segmentation import is_unspaced
from ..metrics import Rouge, SacreBleu, rouge, sacre_bleu
from ..models.beam_search_unilm import FORBIDDEN, repeated_ngrams, unilm_beam_search
from .seq2seq_arguments import DecodingArguments
from .seq2seq_data import Split

logger = logging.getLogger(__name__)


class RepeatedNgramProcessor(LogitsProcessor):
    """Forbid n-grams that the generated text has already; the prompt has no say, so phrases can be copied from it.

    As in UniLM's reference a forbidden word costs 10000 and stays possible, and some words are exempt.
    """

    def __init__(self, prompt_length: int, ngram_size: int, exempt: Sequence[int]):
        self.prompt_length = prompt_length
        self.ngram_size = ngram_size
        self.exempt = list(exempt)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        generated = input_ids[:, self.prompt_length :]
        exempt = torch.tensor(self.exempt, dtype=torch.long, device=input_ids.device)
        return scores + FORBIDDEN * repeated_ngrams(generated, self.ngram_size, scores.shape[1], exempt)


def build_decoding(
    arguments: DecodingArguments, tokenizer: Any, max_target_length: int
) -> Callable[[int], dict[str, Any]]:
    """What `PtmSeq2SeqTrainer` takes as `decoding`."""
    limit = arguments.max_new_tokens or max_target_length
    exempt = word_ids(tokenizer, arguments.forbid_ignore_set)
    forbidden = word_ids(tokenizer, arguments.not_predict)
    common = {"max_new_tokens": limit, "do_sample": False, "num_beams": 1}
    if arguments.search == "unilm":
        options = {**common, "custom_generate": unilm_beam_search, "search_beam_size": arguments.num_beams}
        options["not_predict"] = forbidden
        if arguments.num_beams > 1:
            options |= {
                "length_penalty": arguments.length_penalty or 0.0,
                "min_len": arguments.min_new_tokens,
                "forbid_duplicate_ngrams": arguments.no_repeat_ngram_size > 0,
                "ngram_size": arguments.no_repeat_ngram_size or 3,
                "forbid_ignore_set": exempt,
            }
        return lambda prompt: dict(options)
    options = {**common, **stock_options(arguments, limit, forbidden)}
    if arguments.search != "stock":
        options["search_beam_size"] = options.pop("num_beams")
        if arguments.length_penalty is not None:
            options["length_penalty"] = arguments.length_penalty
    if arguments.no_repeat_ngram_size and exempt:
        options.pop("no_repeat_ngram_size")

        def decoding(prompt: int) -> dict[str, Any]:
            processor = RepeatedNgramProcessor(prompt, arguments.no_repeat_ngram_size, exempt)
            return {**options, "logits_processor": LogitsProcessorList([processor])}

        return decoding
    return lambda prompt: dict(options)


def stock_options(arguments: DecodingArguments, limit: int, forbidden: list[int]) -> dict[str, Any]:
    """Options of transformers' own search, those at their defaults left out."""
    options: dict[str, Any] = {"max_new_tokens": limit}
    if arguments.num_beams > 1:
        options |= {"num_beams": arguments.num_beams, "early_stopping": arguments.early_stopping}
        if arguments.length_penalty is not None:
            options["length_penalty"] = arguments.length_penalty
    if arguments.min_new_tokens:
        options["min_new_tokens"] = arguments.min_new_tokens
    if arguments.no_repeat_ngram_size:
        options["no_repeat_ngram_size"] = arguments.no_repeat_ngram_size
    if forbidden:
        options["suppress_tokens"] = forbidden
    return options


def word_ids(tokenizer: Any, words: Sequence[str] | None) -> list[int]:
    """Ids of single-token words; those that the vocabulary lacks cannot be generated and are left out."""
    vocab = tokenizer.get_vocab()
    known = [word for word in words or () if word in vocab]
    absent = [word for word in words or () if word not in vocab]
    if absent:
        logger.info("The vocabulary lacks %s of the decoding options: never generated anyway.", ", ".join(absent))
    return sorted(vocab[word] for word in known)


# ---- scores ----


class GenerationMetrics:
    """`compute_metrics` of a Trainer: decoded predictions against the texts of the split, not against token ids.

    References are the raw texts, all of them where an example has several: neither the tokenizer's normalisation nor
    the limit of target tokens makes them easier.
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
        """Scores of texts against the references."""
        result = self.metric.compute(predictions=list(texts), references=self.references, **self.options)
        return {"bleu": result["score"]} if "score" in result else result

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Texts of token ids, without special tokens."""
        return [clean_text(text) for text in self.tokenizer.batch_decode(rows, skip_special_tokens=True)]

    def decode_padded(self, predictions: np.ndarray) -> list[str]:
        """Texts of a Trainer's padded predictions."""
        return self.decode(without_padding(predictions, self.tokenizer))

    def copied_beginnings(self, split: Split, length: int) -> list[str]:
        """The first tokens of each source."""
        special = set(self.tokenizer.all_special_ids)
        rows = [[token for token in row if token not in special][:length] for row in split.rows["input_ids"]]
        return self.decode(rows)


def mean_target_length(split: Split, tokenizer: Any) -> int:
    """Mean number of target tokens, special ones aside, of a training set."""
    special = set(tokenizer.all_special_ids)
    lengths = [sum(token not in special for token in row) for row in split.rows["labels"]]
    return max(round(sum(lengths) / len(lengths)), 1)


def without_padding(predictions: np.ndarray, tokenizer: Any) -> list[list[int]]:
    """Generated ids up to their end: padding of the loop (-100) and of the tokenizer left out."""
    padding = {-100, tokenizer.pad_token_id}
    return [[int(token) for token in row if int(token) not in padding] for row in np.asarray(predictions)]


def clean_text(text: str) -> str:
    """A decoded text without the blanks that word pieces leave between characters of scripts without spaces."""
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
