"""UniLM's own beam search (reference code microsoft/unilm, unilm-v1, `BertForSeq2SeqDecoder.beam_search`).

It differs from upstream's (`num_beams`) where outputs differ:

- an ended hypothesis takes one of the K places of its step and is gone in the next, so fewer than K beams may live;
- there is no early stop: every step is made, unless all K words of a step are [SEP];
- the winner has the best score / ((5 + len) / 6) ** length_penalty, where len counts [SEP]; among equals the earlier
  step, then the lower beam;
- forbidden words (a repeated n-gram of the generated text, [SEP] before `min_len`, `not_predict`) cost 10000.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import PrefixConstrainedLogitsProcessor
from transformers.utils import ModelOutput, logging

from .search_core import Search, end_tokens, given_config, own_search

logger = logging.get_logger(__name__)

FORBIDDEN = -10000.0
OPTIONS = ("search_beam_size", "min_len", "forbid_duplicate_ngrams", "ngram_size", "forbid_ignore_set", "not_predict")


@dataclass
class UniLMBeamSearchOutput(ModelOutput):
    """Output of `unilm_beam_search` with `return_dict_in_generate=True`; all but the sequences `None` for one beam.

    Args:
        sequences: `(batch, length)` prompts and best continuations, padded on the right.
        sequences_scores: `(batch,)` score of each, length penalty applied.
        step_scores: `(batch, steps, beams)` summed log-probabilities, for ranking again with another length penalty.
        step_tokens: `(batch, steps, beams)` words of each step.
        step_back_pointers: `(batch, steps, beams)` the beam of the step before that each word continues.
    """

    sequences: torch.Tensor | None = None
    sequences_scores: torch.Tensor | None = None
    step_scores: torch.Tensor | None = None
    step_tokens: torch.Tensor | None = None
    step_back_pointers: torch.Tensor | None = None


@dataclass
class Penalties:
    """What costs a word 10000: [SEP] among the first `min_len` tokens, a second n-gram of a size, forbidden ids.

    `exempt` ids may complete a repeated n-gram, and nothing is blocked after them.
    """

    min_len: int
    ngram_size: int
    exempt: torch.Tensor
    forbidden: torch.Tensor


class UniLMSearch(Search):
    """The steps of the reference's search, of which everything is kept: the winner is found at the end."""

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        processors: Any,
        criteria: StoppingCriteriaList | None,
        beams: int,
        penalties: Penalties,
        generation_config: GenerationConfig | None,
        model_kwargs: dict[str, Any],
    ):
        super().__init__(model, input_ids, criteria, model_kwargs)
        if self.model_kwargs.get("attention_mask") is None:  # `generate` drops a mask of ones
            self.model_kwargs["attention_mask"] = torch.ones_like(input_ids)
        self.settings: Any = given_config(generation_config)
        self.ends = torch.tensor(end_tokens(model, self.settings), device=input_ids.device)
        self.prompts = input_ids
        self.batch, self.prompt_length = input_ids.shape
        self.beams, self.penalties, self.processors = beams, penalties, processors
        for processor in processors or ():
            if isinstance(processor, PrefixConstrainedLogitsProcessor):
                processor._num_beams = beams  # upstream's call counts one
        # Of each step: sums of log-probabilities, words, the beams that they continue, whether they end a hypothesis.
        self.scores: list[torch.Tensor] = []
        self.words: list[torch.Tensor] = []
        self.pointers: list[torch.Tensor] = []
        self.ended: list[torch.Tensor] = []

    def run(self, length_penalty: float) -> torch.Tensor | UniLMBeamSearchOutput:
        """Make all steps that matter, and give the best texts."""
        first_row = torch.arange(self.batch, device=self.texts.device)[:, None]
        finished = torch.zeros(self.batch, dtype=torch.bool, device=self.texts.device)
        for step in range(self.settings.max_length - self.prompt_length):
            pointer, chosen = self.choose(self.next_scores(step))
            # Rows of the step before: one for each sequence at first, then one for each beam.
            parents = (pointer + first_row * (1 if step == 0 else self.beams)).flatten()
            self.extend(parents, chosen.flatten())
            ended, stopped = torch.isin(chosen, self.ends), self.stopped()
            self.ended.append(ended if stopped is None else ended | stopped.view(self.batch, self.beams))
            finished |= self.ended[-1].all(dim=1)
            # No step can matter any more. Where several processes decode together, none leaves the others alone.
            if finished.all() and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
                break
            if self.beams > 1:
                self.follow_beams(parents)
        return self.result(length_penalty)

    def next_scores(self, step: int) -> torch.Tensor:
        """`(rows, vocab_size)` log-probabilities, for one beam logits, less what costs 10000."""
        logits, penalties = self.next_logits(), self.penalties
        scores = logits.log_softmax(dim=-1) if self.beams > 1 else logits
        if self.processors:
            copies = self.beams if step == 0 else 1  # upstream's processors count on K rows for each text
            ids, rows = (values.repeat_interleave(copies, dim=0) for values in (self.texts, scores))
            scores = self.processors(ids, rows)[::copies]
        if penalties.ngram_size:
            written = self.texts[:, self.prompt_length :]
            scores = scores + FORBIDDEN * repeated_ngrams(
                written, penalties.ngram_size, scores.shape[1], penalties.exempt
            )
        if step < penalties.min_len:
            scores = scores.index_fill(1, self.ends, FORBIDDEN)
        if penalties.forbidden.numel():
            scores = scores.index_fill(1, penalties.forbidden, FORBIDDEN)
        return scores

    def choose(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The K best continuations of each sequence: `(batch, beams)` beams of the step before, and words."""
        best, chosen = scores.topk(self.beams, dim=-1)
        if not self.scores:
            pointer = torch.zeros_like(chosen)
        else:
            if self.beams > 1:
                over = self.ended[-1].to(best.dtype) * FORBIDDEN + self.scores[-1]
                best = (best.view(self.batch, self.beams, self.beams) + over[..., None]).flatten(1)
            best, place = best.topk(self.beams, dim=-1)
            pointer, chosen = place // self.beams, chosen.view(self.batch, -1).gather(1, place)
        self.scores.append(best)
        self.words.append(chosen)
        self.pointers.append(pointer)
        return pointer, chosen

    def follow_beams(self, parents: torch.Tensor) -> None:
        """Give each beam the cache and the tensors of the beam that it continues."""
        self.follow_cache(parents)
        rows = self.model_kwargs["attention_mask"].shape[0]
        for name, value in self.model_kwargs.items():
            if torch.is_tensor(value) and value.dim() and value.shape[0] == rows:
                self.model_kwargs[name] = value[parents.to(value.device)]

    def result(self, length_penalty: float) -> torch.Tensor | UniLMBeamSearchOutput:
        """Prompts and best texts side by side, the latter padded on the right."""
        scores, words, pointers = (torch.stack(values, dim=1) for values in (self.scores, self.words, self.pointers))
        is_greedy = self.beams == 1
        texts, totals = _best_hypotheses(
            scores, words, pointers, torch.stack(self.ended, dim=1), length_penalty, is_greedy
        )
        pads = (self.settings.pad_token_id, self.model.config.pad_token_id, int(self.ends[0]))
        pad, width = next(int(value) for value in pads if value is not None), max(len(text) for text in texts)
        padded = torch.tensor([text + [pad] * (width - len(text)) for text in texts], dtype=self.prompts.dtype)
        sequences = torch.cat([self.prompts, padded.to(self.prompts.device)], dim=1)
        if not self.settings.return_dict_in_generate:
            return sequences
        return UniLMBeamSearchOutput(
            sequences=sequences,
            sequences_scores=None if is_greedy else torch.tensor(totals, device=self.prompts.device),
            step_scores=None if is_greedy else scores,
            step_tokens=words,
            step_back_pointers=pointers,
        )


def unilm_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    search_beam_size: int = 1,
    length_penalty: float = 0.0,
    min_len: int = 0,
    forbid_duplicate_ngrams: bool = False,
    ngram_size: int = 3,
    forbid_ignore_set: Iterable[int] | None = None,
    not_predict: Iterable[int] | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | UniLMBeamSearchOutput:
    """Decode as the reference does: what `generate` runs when it is given `search_beam_size`.

    Names and defaults of the options are the reference's; they are arguments of `generate`. It may also be passed as
    `custom_generate`, by its name or itself.

    Args:
        model: the model; this and the next four come from `generate`.
        input_ids: `(batch, seq_len)` prompts.
        logits_processor: upstream's processors, applied to the log-probabilities before the rules below.
        stopping_criteria: upstream's; those of length and [SEP] have no say, a beam for which another holds ends.
        generation_config: gives the length (`max_new_tokens`), [SEP] (`eos_token_id`) and [PAD].
        search_beam_size: number of beams K. 1 is the reference's greedy loop, which reads `not_predict` alone.
        length_penalty: exponent alpha of ((5 + len) / 6), not upstream's; 0 compares plain sums.
        min_len: no [SEP] among the first so many tokens.
        forbid_duplicate_ngrams: whether an n-gram should not be generated twice.
        ngram_size: n of these n-grams.
        forbid_ignore_set: token ids that may complete a repeated n-gram, and after which (among the last n - 1 tokens)
            nothing is blocked; "." in the recipes, and "[X_SEP]" for CNN/DM.
        not_predict: token ids that should not be generated.
        model_kwargs: what the model's two hooks read.

    Returns:
        `(batch, length)` prompts and continuations up to and including [SEP], padded on the right with [PAD]; with
        `return_dict_in_generate` an output that has the traces of the search.

    Raises:
        ValueError: an option out of range, several beams or sequences asked for upstream's way, sampling, or no [SEP].

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration
        >>> config = UniLMConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     mask_token_id=4, eos_token_id=3,
        ... )
        >>> model = UniLMForConditionalGeneration(config).eval()
        >>> output = model.generate(
        ...     torch.tensor([[2, 7, 8, 3]]), max_new_tokens=5, search_beam_size=3, length_penalty=0.6,
        ...     forbid_duplicate_ngrams=True, min_len=5,
        ... )
        >>> output.shape
        torch.Size([1, 9])
    """
    _check_options(model, generation_config, search_beam_size, length_penalty, min_len, ngram_size)
    is_greedy, device = search_beam_size == 1, input_ids.device
    if is_greedy and (length_penalty or min_len or forbid_duplicate_ngrams):
        logger.warning_once(
            "`search_beam_size=1` is the reference's greedy loop: it does not read `length_penalty`, `min_len` and "
            "`forbid_duplicate_ngrams`. Use 2 or more beams for them."
        )
        length_penalty, min_len, forbid_duplicate_ngrams = 0.0, 0, False
    exempt = _token_ids(model, "forbid_ignore_set", forbid_ignore_set, device)
    forbidden = _token_ids(model, "not_predict", not_predict, device)
    penalties = Penalties(min_len, ngram_size if forbid_duplicate_ngrams else 0, exempt, forbidden)
    processors, criteria = logits_processor, stopping_criteria
    search = UniLMSearch(
        model, input_ids, processors, criteria, search_beam_size, penalties, generation_config, model_kwargs
    )
    return search.run(length_penalty)


def with_chosen_search(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `generate` with `unilm_beam_search` if `search_beam_size` or `custom_generate` asks for it."""
    kwargs = {name: value for name, value in kwargs.items() if name not in OPTIONS or value is not None}
    asked = kwargs.get("custom_generate")
    given = [name for name in OPTIONS if name in kwargs]
    if asked == unilm_beam_search.__name__ or (asked is None and "search_beam_size" in given):
        asked = unilm_beam_search
    if asked is None and given:
        raise ValueError(
            f"`{given[0]}` belongs to UniLM's own beam search, which needs `search_beam_size`, got none. Pass it, or "
            "use upstream's options with `num_beams`."
        )
    return own_search(asked, kwargs) if callable(asked) else kwargs


def repeated_ngrams(generated: torch.Tensor, ngram_size: int, vocab_size: int, exempt: torch.Tensor) -> torch.Tensor:
    """Which words would repeat an n-gram of the generated text."""
    rows, length = generated.shape
    blocked = torch.zeros(rows, vocab_size, device=generated.device)
    if length < ngram_size:
        return blocked
    windows = generated.unfold(1, ngram_size, 1)
    tail = generated[:, length - (ngram_size - 1) :]
    last = windows[..., -1]
    matches = (windows[..., :-1] == tail[:, None]).all(dim=-1) & ~torch.isin(last, exempt)
    matches &= ~torch.isin(tail, exempt).any(dim=-1, keepdim=True)
    return blocked.scatter_reduce(1, last, matches.to(blocked.dtype), "amax")


def _check_options(
    model: Any,
    generation_config: GenerationConfig | None,
    search_beam_size: int,
    length_penalty: float,
    min_len: int,
    ngram_size: int,
) -> None:
    """Refuse options that are out of range or belong to upstream's search."""
    if not 1 <= search_beam_size <= model.config.vocab_size:
        raise ValueError(
            f"`search_beam_size` must be between 1 and the vocabulary's {model.config.vocab_size} words, got "
            f"{search_beam_size}."
        )
    if length_penalty < 0 or min_len < 0:
        raise ValueError(f"`length_penalty` and `min_len` must not be negative, got {length_penalty} and {min_len}.")
    if ngram_size < 1:
        raise ValueError(f"`ngram_size` must be at least 1, got {ngram_size}.")
    for name in ("num_beams", "num_return_sequences"):
        if (getattr(generation_config, name, None) or 1) != 1:
            raise ValueError(
                f"`{name}` must be 1, got {getattr(generation_config, name)}: UniLM's beam search has "
                "`search_beam_size` beams and returns the best. Leave it out, or leave out `custom_generate` and "
                "`search_beam_size` for upstream's search."
            )


def _token_ids(model: Any, name: str, values: Iterable[int] | None, device: torch.device) -> torch.Tensor:
    """An option that is a set of token ids, as a tensor."""
    ids = sorted({int(value) for value in values}) if values is not None else []
    if ids and not 0 <= ids[0] <= ids[-1] < model.config.vocab_size:
        raise ValueError(
            f"`{name}` must hold token ids below {model.config.vocab_size}, got {ids[0]} to {ids[-1]}. Convert words "
            "with the tokenizer of this model."
        )
    return torch.tensor(ids, dtype=torch.long, device=device)


def _best_hypotheses(
    scores: torch.Tensor,
    words: torch.Tensor,
    pointers: torch.Tensor,
    ended: torch.Tensor,
    length_penalty: float,
    greedy: bool,
) -> tuple[list[list[int]], list[float]]:
    """The reference's last word on each sequence; `greedy` takes the text up to its first end."""
    texts, totals = [], []
    for row_scores, row_words, row_ended, row_pointers in zip(
        scores.tolist(), words.tolist(), ended.tolist(), pointers.tolist(), strict=True
    ):
        # Steps behind the first in which every beam ended are of no account.
        last = next((step for step, flags in enumerate(row_ended) if all(flags)), len(row_words) - 1)
        best, frame, beam = -math.inf, last, 0
        for step in range(last if greedy else 0, last + 1):
            for place, score in enumerate(row_scores[step]):
                if not (row_ended[step][place] or step == last):
                    continue
                if length_penalty > 0:
                    score = score / math.pow((5 + step + 1) / 6.0, length_penalty)
                if score > best:
                    best, frame, beam = score, step, place
        text = []
        for step in range(frame, -1, -1):
            text.append(row_words[step][beam])
            beam = row_pointers[step][beam]
        texts.append(text[::-1])
        totals.append(best)
    return texts, totals
