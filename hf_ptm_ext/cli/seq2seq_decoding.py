"""From decoding arguments to keyword arguments of `generate`."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from ..models.unilm.beam_search_unilm import FORBIDDEN, repeated_ngrams, unilm_beam_search
from .seq2seq_arguments import DecodingArguments

logger = logging.getLogger(__name__)


class RepeatedNgramProcessor(LogitsProcessor):
    """Forbid n-grams that the generated text has already; the prompt has no say, so phrases can be copied from it.

    As in UniLM's reference a forbidden word costs 10000 and stays possible, and some words are exempt.

    Args:
        prompt_length: columns of the prompt, 0 for an encoder-decoder.
        ngram_size: n.
        exempt: token ids that may complete a repeated n-gram, and after which nothing is forbidden.

    Example:
        >>> processor = RepeatedNgramProcessor(prompt_length=3, ngram_size=2, exempt=[])
        >>> scores = processor(torch.tensor([[5, 6, 7, 5, 8, 5]]), torch.zeros(1, 10))
        >>> scores.nonzero().tolist()  # 5 8 was generated, 5 6 was read
        [[0, 8]]
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
    """What `PtmSeq2SeqTrainer` takes as `decoding`.

    Args:
        arguments: as parsed.
        tokenizer: turns words into ids.
        max_target_length: the limit if the arguments have none.

    Returns:
        A function from the columns of the prompt to keyword arguments of `generate`.

    """
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
