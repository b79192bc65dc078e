"""UniLM's own beam search (reference code microsoft/unilm, unilm-v1, `BertForSeq2SeqDecoder.beam_search`).

It differs from upstream's (`num_beams`) where outputs differ:

- an ended hypothesis takes one of the K places of its step and is gone in the next, so fewer than K beams may live;
- there is no early stop: every step is made, unless all K words of a step are [SEP];
- the winner has the best score / ((5 + len) / 6) ** length_penalty, where len counts [SEP]; among equals the earlier
  step, then the lower beam;
- forbidden words (a repeated n-gram, [SEP] before `min_len`, `not_predict`) cost 10000 and stay possible;
- repeated n-grams are looked for in the generated text only, never in the source, and some words may be exempt.

    model.generate(**source, max_new_tokens=32, search_beam_size=5, length_penalty=0.6)

This file stands alone: a checkpoint carries it as `custom_generate/generate.py`, where transformers looks for the
function `generate`. It uses the model's `prepare_inputs_for_generation` and `_update_model_kwargs_for_generation`.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList, StopStringCriteria
from transformers.generation import PrefixConstrainedLogitsProcessor
from transformers.utils import ModelOutput, logging

logger = logging.get_logger(__name__)

FORBIDDEN = -10000.0
CUSTOM_GENERATE = "custom_generate"  # the folder in which transformers looks for `generate.py`
OPTIONS = (
    "search_beam_size",
    "min_len",
    "forbid_duplicate_ngrams",
    "ngram_size",
    "forbid_ignore_set",
    "not_predict",
)


@dataclass
class UniLMBeamSearchOutput(ModelOutput):
    """Output of `unilm_beam_search` with `return_dict_in_generate=True`.

    The traces are what the reference stores for ranking again with another length penalty.

    Args:
        sequences: `(batch, length)` prompts and best continuations, padded on the right.
        sequences_scores: `(batch,)` score of each, length penalty applied; `None` for one beam.
        step_scores: `(batch, steps, beams)` summed log-probabilities; `None` for one beam.
        step_tokens: `(batch, steps, beams)` words of each step.
        step_back_pointers: `(batch, steps, beams)` the beam of the step before that each word continues.
    """

    sequences: torch.Tensor | None = None
    sequences_scores: torch.Tensor | None = None
    step_scores: torch.Tensor | None = None
    step_tokens: torch.Tensor | None = None
    step_back_pointers: torch.Tensor | None = None


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
        length_penalty: exponent alpha of ((5 + len) / 6); 0 compares plain sums. Upstream's own length penalty, of
            another formula, is not read from `generation_config`.
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

    Example:
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
    prompts, prompt_length = input_ids, input_ids.shape[1]
    _check_options(model, generation_config, search_beam_size, length_penalty, min_len, ngram_size)
    steps = generation_config.max_length - prompt_length
    device = input_ids.device
    ends = _end_tokens(model, generation_config, device)
    forbidden = _token_ids(model, "not_predict", not_predict, device)
    exempt = _token_ids(model, "forbid_ignore_set", forbid_ignore_set, device)
    if search_beam_size == 1 and (length_penalty or min_len or forbid_duplicate_ngrams):
        logger.warning_once(
            "`search_beam_size=1` is the reference's greedy loop: it does not read `length_penalty`, `min_len` and "
            "`forbid_duplicate_ngrams`. Use 2 or more beams for them."
        )
    if model_kwargs.get("attention_mask") is None:  # `generate` drops a mask of ones
        model_kwargs["attention_mask"] = torch.ones_like(input_ids)

    batch, beams = len(input_ids), search_beam_size
    scores, words, pointers, ended = [], [], [], []
    others = [
        one for one in stopping_criteria or () if not (hasattr(one, "eos_token_id") or hasattr(one, "max_length"))
    ]
    for processor in logits_processor or ():
        if isinstance(processor, PrefixConstrainedLogitsProcessor):
            processor._num_beams = beams  # upstream's call counts one
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    first_row = torch.arange(batch, device=device)[:, None]
    for step in range(steps):
        inputs = model.prepare_inputs_for_generation(
            input_ids,
            next_sequence_length=1 if step and model_kwargs.get("cache") is not None else None,
            is_first_iteration=step == 0,
            **model_kwargs,
        )
        outputs = model(**inputs, return_dict=True)
        model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
        logits = outputs.logits[:, -1].to(dtype=torch.float32, device=device)
        log_probs = logits.log_softmax(dim=-1) if beams > 1 else logits
        if logits_processor:
            copies = beams if step == 0 else 1  # upstream's processors count on K rows for each text
            ids, rows = (values.repeat_interleave(copies, dim=0) for values in (input_ids, log_probs))
            log_probs = logits_processor(ids, rows)[::copies]
        if beams > 1 and forbid_duplicate_ngrams:
            log_probs = log_probs + FORBIDDEN * repeated_ngrams(
                input_ids[:, prompt_length:], ngram_size, log_probs.shape[1], exempt
            )
        if beams > 1 and step < min_len:
            log_probs = log_probs.index_fill(1, ends, FORBIDDEN)
        if len(forbidden):
            log_probs = log_probs.index_fill(1, forbidden, FORBIDDEN)

        best, chosen = log_probs.topk(beams, dim=-1)
        if step == 0:
            pointer = torch.zeros_like(chosen)
        else:
            if beams > 1:
                over = ended[-1].to(best.dtype) * FORBIDDEN + scores[-1]
                best = (best.view(batch, beams, beams) + over[..., None]).flatten(1)
            best, place = best.topk(beams, dim=-1)
            pointer, chosen = place // beams, chosen.view(batch, -1).gather(1, place)
        scores.append(best)
        words.append(chosen)
        pointers.append(pointer)

        # Rows of the step before: one for each sequence at first, then one for each beam.
        parents = (pointer + first_row * (1 if step == 0 else beams)).flatten()
        input_ids = torch.cat([input_ids[parents], chosen.view(-1, 1)], dim=1)
        ended.append(torch.isin(chosen, ends))
        for criterion in others:
            ended[-1] |= criterion(input_ids, None).view(batch, beams)
        finished |= ended[-1].all(dim=1)
        # No step can matter any more. Where several processes decode together, none leaves the others alone.
        if finished.all() and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            break
        if beams > 1:
            model_kwargs = _follow_beams(model_kwargs, parents)

    traces = [torch.stack(values, dim=1) for values in (scores, words, pointers)]
    texts, totals = _best_hypotheses(
        *traces, torch.stack(ended, dim=1), length_penalty if beams > 1 else 0.0, greedy=beams == 1
    )
    sequences = _with_prompts(prompts, texts, _pad_token(model, generation_config, ends))
    if not generation_config.return_dict_in_generate:
        return sequences
    return UniLMBeamSearchOutput(
        sequences=sequences,
        sequences_scores=torch.tensor(totals, device=device) if beams > 1 else None,
        step_scores=traces[0] if beams > 1 else None,
        step_tokens=traces[1],
        step_back_pointers=traces[2],
    )


def with_chosen_search(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `generate` with `unilm_beam_search` as `custom_generate`, if they ask for it.

    `search_beam_size` asks for it, or the name `custom_generate="unilm_beam_search"`.

    Args:
        kwargs: arguments of `generate`.

    Returns:
        The same without the search's options that are `None`.

    Raises:
        ValueError: another option of the search came without the search.

    Example:
        >>> with_chosen_search({"search_beam_size": 5})["custom_generate"] is unilm_beam_search
        True
        >>> with_chosen_search({"num_beams": 5, "min_len": None})
        {'num_beams': 5}
    """
    kwargs = {name: value for name, value in kwargs.items() if name not in OPTIONS or value is not None}
    asked = kwargs.get("custom_generate")
    given = [name for name in OPTIONS if name in kwargs]
    if asked == unilm_beam_search.__name__ or (asked is None and "search_beam_size" in given):
        asked = kwargs["custom_generate"] = unilm_beam_search
    if callable(asked) and kwargs.get("tokenizer") is not None and kwargs.get("stop_strings") is not None:
        # Upstream hands such a function no tokenizer.
        stop = StopStringCriteria(kwargs.pop("tokenizer"), kwargs.pop("stop_strings"))
        kwargs["stopping_criteria"] = StoppingCriteriaList([*(kwargs.get("stopping_criteria") or ()), stop])
    if asked is None and given:
        raise ValueError(
            f"`{given[0]}` belongs to UniLM's own beam search, which needs `search_beam_size`, got none. Pass it, or "
            "use upstream's options with `num_beams`."
        )
    return kwargs


def generate(*args: Any, model: Any, **kwargs: Any) -> Any:
    """What transformers puts in the place of `model.generate` when it finds this file in a checkpoint.

    Args:
        args: as in the model's `generate`.
        model: the model.
        kwargs: as in the model's `generate`, the options of `unilm_beam_search` among them.

    Returns:
        As the model's `generate`.

    Raises:
        ValueError: as `with_chosen_search`.
    """
    if torch.is_tensor(kwargs.get("lm_mode")):  # `custom_generate=<folder>` comes from inside the model's `generate`
        kwargs["lm_mode"] = int(kwargs["lm_mode"][0])
        kwargs.pop("source_lengths", None)
    return type(model).generate(model, *args, **with_chosen_search(kwargs))


def write_custom_generate(folder: str | os.PathLike) -> None:
    """Write this file as a checkpoint's `custom_generate/generate.py`.

    Args:
        folder: the checkpoint.
    """
    target = Path(folder) / CUSTOM_GENERATE / "generate.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(Path(__file__).read_bytes())


def repeated_ngrams(generated: torch.Tensor, ngram_size: int, vocab_size: int, exempt: torch.Tensor) -> torch.Tensor:
    """Which words would repeat an n-gram of the generated text.

    Args:
        generated: `(rows, length)` tokens generated so far.
        ngram_size: n.
        vocab_size: width of the result.
        exempt: token ids that are never blocked, and that lift the block while among the last n - 1 tokens.

    Returns:
        `(rows, vocab_size)` of 1.0 at blocked words and 0.0 elsewhere.

    Example:
        >>> none_exempt = torch.tensor([], dtype=torch.long)
        >>> repeated_ngrams(torch.tensor([[5, 6, 7, 5, 6]]), 3, 9, none_exempt).nonzero().tolist()
        [[0, 7]]
    """
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
    if generation_config is None:
        raise ValueError(
            "`generation_config` must be given. Call `model.generate(..., search_beam_size=5)`, which prepares it."
        )
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
    if generation_config.do_sample:
        raise ValueError("`do_sample` must be False: UniLM's beam search does not sample.")


def _token_ids(model: Any, name: str, values: Iterable[int] | None, device: torch.device) -> torch.Tensor:
    """An option that is a set of token ids, as a tensor."""
    ids = sorted({int(value) for value in values}) if values is not None else []
    if ids and not 0 <= ids[0] <= ids[-1] < model.config.vocab_size:
        raise ValueError(
            f"`{name}` must hold token ids below {model.config.vocab_size}, got {ids[0]} to {ids[-1]}. Convert words "
            "with the tokenizer of this model."
        )
    return torch.tensor(ids, dtype=torch.long, device=device)


def _end_tokens(model: Any, generation_config: GenerationConfig, device: torch.device) -> torch.Tensor:
    """The ids that end a hypothesis."""
    ends = generation_config.eos_token_id
    ends = model.config.eos_token_id if ends is None else ends
    if ends is None:
        raise ValueError("`eos_token_id` must be the tokenizer's [SEP]: it ends a hypothesis. Set it in the config.")
    return torch.atleast_1d(torch.as_tensor(ends, dtype=torch.long, device=device))


def _pad_token(model: Any, generation_config: GenerationConfig, ends: torch.Tensor) -> int:
    """What fills rows that end earlier than others."""
    for value in (generation_config.pad_token_id, model.config.pad_token_id):
        if value is not None:
            return int(value)
    return int(ends[0])


def _follow_beams(model_kwargs: dict[str, Any], parents: torch.Tensor) -> dict[str, Any]:
    """Give each beam the cache and the tensors of the beam that it continues."""
    if model_kwargs.get("cache") is not None:
        model_kwargs["cache"].reorder_cache(parents)
    rows = len(model_kwargs["attention_mask"])
    followed = dict(model_kwargs)
    for name, value in model_kwargs.items():
        if torch.is_tensor(value) and value.dim() and len(value) == rows:
            followed[name] = value[parents.to(value.device)]
    return followed


def _best_hypotheses(
    scores: torch.Tensor,
    words: torch.Tensor,
    pointers: torch.Tensor,
    ended: torch.Tensor,
    length_penalty: float,
    greedy: bool,
) -> tuple[list[list[int]], list[float]]:
    """The reference's last word on each sequence.

    Args:
        scores: `(batch, steps, beams)`.
        words: `(batch, steps, beams)`.
        pointers: `(batch, steps, beams)`.
        ended: `(batch, steps, beams)`, true where a hypothesis ended.
        length_penalty: exponent.
        greedy: take the text up to the first end, whatever its score.

    Returns:
        Tokens and score of each sequence's best hypothesis.
    """
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


def _with_prompts(prompts: torch.Tensor, texts: list[list[int]], pad: int) -> torch.Tensor:
    """Prompts and texts side by side, the latter padded on the right."""
    width = max(len(text) for text in texts)
    padded = torch.tensor([text + [pad] * (width - len(text)) for text in texts], dtype=prompts.dtype)
    return torch.cat([prompts, padded.to(prompts.device)], dim=1)


__all__ = ["UniLMBeamSearchOutput", "generate", "unilm_beam_search", "with_chosen_search", "write_custom_generate"]
