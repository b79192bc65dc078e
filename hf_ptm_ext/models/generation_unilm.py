"""How UniLM generates: a [MASK] is fed behind the text, its prediction is the next token, its states are dropped.

Keys and values of the [MASK] leave the cache at once, before a beam search reorders it. A prompt is a source, no text
already written: whatever of upstream's reads the text so far (its processors, stop strings,
`prefix_allowed_tokens_fn`) sees the output alone, and `min_length` counts it alone; a caller's own processors and
criteria see all.
"""

import copy
import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import (
    ForcedBOSTokenLogitsProcessor,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)

from .beam_search_unilm import with_chosen_search
from .configuration_unilm import UniLMConfig
from .custom_generate_unilm import CUSTOM_GENERATE, write_custom_generate
from .modes_unilm import LEFT_TO_RIGHT, SEQ2SEQ
from .search_core import GenerationSettings

# The classes behind the mixin in the order of bases, whose types upstream does not give.
Behind: Any = object

REFUSED = {
    "assistant_model": "assisted decoding checks several tokens at once, and UniLM feeds a [MASK] for each",
    "prompt_lookup_num_tokens": "prompt lookup checks several tokens at once, and UniLM feeds a [MASK] for each",
    "assistant_early_exit": "assisted decoding checks several tokens at once, and UniLM feeds a [MASK] for each",
    "use_mtp": "assisted decoding checks several tokens at once, and UniLM feeds a [MASK] for each",
    "prefill_chunk_size": "a source is read at once, since its tokens see each other",
    "guidance_scale": "its second prompt would be fed without a [MASK]",
    "inputs_embeds": "a prompt is given by its `input_ids`",
    "sequence_ids": "packed rows cannot be continued; pad the prompts to one a row",
}

# What upstream's loop tells the hook alone, and positions, which are counted.
NOT_HANDED_ON = ("next_sequence_length", "is_first_iteration", "position_ids", "inputs_embeds", "labels")


def check_generation(
    config: UniLMConfig,
    prompt_length: int,
    lm_mode: int,
    options: Mapping[str, Any],
    defaults: GenerationConfig | None = None,
) -> None:
    """Refuse what this way of generating cannot do, before the first step."""
    if lm_mode not in (SEQ2SEQ, LEFT_TO_RIGHT):
        raise ValueError(f"`lm_mode` must be 3 (seq2seq) or 1 (left-to-right) in generation, got {lm_mode}.")
    if config.mask_token_id is None or not 0 <= config.mask_token_id < config.vocab_size:
        raise ValueError(
            f"`config.mask_token_id` must be the tokenizer's [MASK], below `vocab_size` = {config.vocab_size}, got "
            f"{config.mask_token_id}: generation feeds it. Set it to `tokenizer.mask_token_id`."
        )
    types = (config.source_type_id, config.target_type_id) if lm_mode == SEQ2SEQ else (2,)
    if max(types) >= config.type_vocab_size:
        raise ValueError(
            f"`type_vocab_size` must be above the token types of `lm_mode` {lm_mode}, {types}, got "
            f"{config.type_vocab_size}. Convert the checkpoint (`hf-ptm-ext convert unilm` extends a BERT table to 6 "
            "rows), or set `source_type_id` and `target_type_id`."
        )

    settings = GenerationSettings(options, defaults)
    for name, reason in REFUSED.items():
        value = settings[name]
        if value is not None and value is not False and not (name == "guidance_scale" and value == 1):
            raise ValueError(f"`{name}` cannot be used: {reason}. Leave it out.")
    if settings["cache_implementation"] not in (None, "dynamic"):
        raise ValueError(
            f"`cache_implementation` must be 'dynamic', got {settings['cache_implementation']!r}: the [MASK] leaves "
            "the cache after every step."
        )
    for name in ("cache", "past_key_values"):  # upstream warns about the old name and takes it
        _check_cache(options.get(name), lm_mode)
    new, total = settings["max_new_tokens"], settings["max_length"]
    if new is not None:
        total = prompt_length + new
    total = max(total or 0, prompt_length + 1)
    if total > config.max_position_embeddings:
        raise ValueError(
            f"Source and target need {total} positions and `max_position_embeddings` is "
            f"{config.max_position_embeddings}: truncate the source or lower `max_new_tokens`."
        )


def _check_cache(cache: Cache | None, lm_mode: int) -> None:
    """A cache of the caller's must let go of the [MASK], and in seq2seq mode hold nothing yet."""
    if cache is None:
        return
    if not isinstance(cache, DynamicCache):
        raise ValueError(
            f"`cache` must be a `DynamicCache`, got {type(cache).__name__}: the [MASK] leaves it after every step."
        )
    if lm_mode == SEQ2SEQ and cache.get_seq_length():
        raise ValueError(
            f"`cache` must be empty in seq2seq mode, got one of {cache.get_seq_length()} tokens: all of the prompt is "
            "the source, whose tokens see each other. Leave it out, or continue left-to-right text (`lm_mode=1`)."
        )


def common_mode(lm_mode: int | torch.Tensor) -> int:
    """The mode of all rows."""
    if not torch.is_tensor(lm_mode):
        return lm_mode
    modes = sorted(set(lm_mode.flatten().tolist()))
    if len(modes) != 1:
        raise ValueError(f"`lm_mode` must be the same for all rows in generation, got {modes}. Split the batch.")
    return modes[0]


def check_source_lengths(source_lengths: torch.Tensor | None, attention_mask: torch.Tensor, lm_mode: int) -> None:
    """Refuse prompts that are more than a source: their other tokens would be taken for source tokens."""
    if source_lengths is None or lm_mode != SEQ2SEQ:
        return
    lengths = attention_mask.to(torch.bool).sum(dim=1)
    if source_lengths.shape != lengths.shape or not torch.equal(source_lengths.to(lengths), lengths):
        raise ValueError(
            "`source_lengths` must be the lengths of the prompts in generation, which are all source: "
            f"{lengths.tolist()}; got {source_lengths.tolist()}. Cut the prompts behind their source, or leave it out."
        )


def check_positions(position_ids: torch.Tensor | None, attention_mask: torch.Tensor) -> None:
    """Refuse positions other than those that generation counts."""
    if position_ids is None:
        return
    real = attention_mask.to(torch.bool)
    counted = real.long().cumsum(dim=1) - 1
    if position_ids.shape[-1] != real.shape[1] or not ((position_ids == counted.to(position_ids)) | ~real).all():
        raise ValueError(
            "`position_ids` must count the real tokens of `attention_mask` from 0 in generation, got "
            f"{position_ids.tolist()}. Leave it out."
        )


def prompt_token_types(config: UniLMConfig, attention_mask: torch.Tensor, lm_mode: int) -> torch.Tensor:
    """Token types of a prompt: the source's, or those of left-to-right text; 0 on padding."""
    token_type = config.source_type_id if lm_mode == SEQ2SEQ else 2
    return torch.where(attention_mask.to(torch.bool), token_type, 0)


def step_inputs(
    config: UniLMConfig,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    token_type_ids: torch.Tensor,
    prompt_length: int,
    cached: int,
    dtype: torch.dtype,
    lm_mode: int,
) -> dict[str, torch.Tensor]:
    """What one step feeds: the tokens that the cache of `cached` tokens lacks and a [MASK].

    `input_ids` are the prompt's and the generated columns so far, which `attention_mask` and `token_type_ids` cover.
    """
    batch, length = input_ids.shape
    device = input_ids.device

    def extended(values: torch.Tensor, last: Any) -> torch.Tensor:
        return torch.cat([values, torch.full((batch, 1), last, dtype=values.dtype, device=device)], dim=1)

    fed = slice(cached, length + 1)
    valid = extended(attention_mask.to(torch.bool), True)
    positions = (valid.long().cumsum(dim=1) - 1).clamp(min=0)
    types = extended(token_type_ids, config.target_type_id if lm_mode == SEQ2SEQ else 2)
    columns = torch.arange(length + 1, device=device)
    source = valid & (columns < prompt_length) if lm_mode == SEQ2SEQ else torch.zeros_like(valid)
    queries = columns[fed]
    before = columns[None, :] <= queries[:, None]
    visible = source[:, None, :] | (before[None] & ~source[:, fed, None])
    visible = (visible & valid[:, None, :]) | (columns[None, :] == queries[:, None])[None]
    mask = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(~visible, torch.finfo(dtype).min)
    return {
        "input_ids": extended(input_ids, config.mask_token_id)[:, fed],
        "token_type_ids": types[:, fed],
        "position_ids": positions[:, fed],
        "attention_mask": mask[:, None],
    }


def is_upstreams(one: Any) -> bool:
    """Whether a processor or criterion comes with transformers."""
    return type(one).__module__.startswith("transformers.")


class OutputLogitsProcessors(LogitsProcessorList):
    """Processors of which upstream's are shown what stands behind the prompt."""

    prompt_length = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        for processor in self:
            first = self.prompt_length if is_upstreams(processor) else 0
            if isinstance(processor, ForcedBOSTokenLogitsProcessor):
                first -= 1  # it acts behind a start token, here the prompt's last
            scores = processor(input_ids[:, first:], scores)
        return scores


class OutputStoppingCriteria(StoppingCriteria):
    """A criterion that is shown what stands behind the prompt."""

    def __init__(self, criterion: Any, prompt_length: int):
        self.criterion = criterion
        self.prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return self.criterion(input_ids[:, self.prompt_length :], scores, **kwargs)


class UniLMGeneration(Behind):
    """The generating side of `UniLMForConditionalGeneration`; a mixin in front of the model and `GenerationMixin`."""

    _is_stateful = True  # the [MASK] must leave the cache: nothing may feed several tokens at once

    def generate(
        self: Any, inputs: torch.Tensor | None = None, lm_mode: int | torch.Tensor = SEQ2SEQ, **kwargs: Any
    ) -> Any:
        """Generate as upstream does (greedy, sampling, beam search), or by the reference's own beam search."""
        input_ids = kwargs.pop("input_ids", None) if inputs is None else inputs
        if input_ids is None:
            raise ValueError(f"`input_ids` must be given, got {input_ids}: UniLM generates from a prompt.")
        mask = kwargs.pop("attention_mask", None)
        if mask is None:
            pad = self.config.pad_token_id
            mask = torch.ones_like(input_ids) if pad is None else (input_ids != pad).long()
        lm_mode = common_mode(lm_mode)
        kwargs = with_chosen_search(kwargs)
        check_generation(self.config, int(mask.sum(dim=1).max()), lm_mode, kwargs, self.generation_config)
        check_source_lengths(kwargs.pop("source_lengths", None), mask, lm_mode)
        check_positions(kwargs.pop("position_ids", None), mask)
        kwargs.pop("token_type_ids", None)  # a tokenizer knows of 0 and 1 only: the mode decides
        return super().generate(
            input_ids,
            attention_mask=mask,
            token_type_ids=prompt_token_types(self.config, mask, lm_mode),
            lm_mode=torch.full((len(input_ids),), lm_mode, device=input_ids.device),
            source_lengths=torch.full((len(input_ids),), input_ids.shape[1], device=input_ids.device),
            **kwargs,
        )

    def _get_logits_processor(
        self: Any, generation_config: GenerationConfig, input_ids_seq_length: int, **kwargs: Any
    ) -> LogitsProcessorList:
        generation_config._prompt_length = input_ids_seq_length  # type: ignore[attr-defined]
        seen = copy.copy(generation_config)  # as if the output were all
        seen.max_length -= input_ids_seq_length
        if seen.min_new_tokens is not None:
            seen.min_length = None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Passing `(repetition_penalty|no_repeat_ngram_size)`")
            stock = super()._get_logits_processor(seen, input_ids_seq_length=0, **{**kwargs, "model_kwargs": None})
        processors = OutputLogitsProcessors(stock)
        processors.prompt_length = input_ids_seq_length
        return processors

    def _get_stopping_criteria(
        self: Any, generation_config: GenerationConfig, *args: Any, **kwargs: Any
    ) -> StoppingCriteriaList:
        stock = super()._get_stopping_criteria(generation_config, *args, **kwargs)
        return StoppingCriteriaList(
            OutputStoppingCriteria(one, generation_config._prompt_length)  # type: ignore[attr-defined]
            if isinstance(one, StopStringCriteria)  # the others of upstream's read the last token or the length
            else one
            for one in stock
        )

    def prepare_inputs_for_generation(
        self: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        lm_mode: torch.Tensor | None = None,
        source_lengths: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """One step's inputs, see `step_inputs`; the loop's `source_lengths` are the columns of the prompt."""
        cached = 0 if cache is None else cache.get_seq_length() - getattr(cache, "prefix_length", 0)
        mode = SEQ2SEQ if lm_mode is None else int(lm_mode[0])
        prompt = input_ids.shape[1] if source_lengths is None else int(source_lengths[0])
        if attention_mask is None:  # the loop drops a mask of ones
            attention_mask = torch.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = prompt_token_types(self.config, attention_mask, mode)
        inputs = step_inputs(self.config, input_ids, attention_mask, token_type_ids, prompt, cached, self.dtype, mode)
        ids = inputs.pop("input_ids")
        asked = {"logits_to_keep": 1, **{name: value for name, value in kwargs.items() if name not in NOT_HANDED_ON}}
        return {"input_ids": ids, "step_inputs": inputs, **asked, "cache": cache}

    def _update_model_kwargs_for_generation(
        self: Any, outputs: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        types = model_kwargs.pop("token_type_ids")
        model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **kwargs)
        mode = int(model_kwargs["lm_mode"][0])
        last = self.config.target_type_id if mode == SEQ2SEQ else 2
        model_kwargs["token_type_ids"] = torch.cat([types, types.new_full((len(types), 1), last)], dim=1)
        cache = model_kwargs.get("cache")
        if cache is not None:
            cache.crop(-1)  # the [MASK] leaves before a beam search reorders
        return model_kwargs

    def save_pretrained(
        self: Any, save_directory: str | os.PathLike, is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """Save as the other classes do, with the reference's beam search as `custom_generate/generate.py`."""
        if is_main_process and not os.path.isfile(save_directory):
            write_custom_generate(save_directory)
        super().save_pretrained(save_directory, is_main_process, *args, **kwargs)

    def _get_files_timestamps(self: Any, working_dir: str | os.PathLike) -> dict[str, float]:
        """As upstream, for `push_to_hub`: what is not listed counts as new and is uploaded."""
        timestamps = super()._get_files_timestamps(working_dir)
        timestamps.pop(CUSTOM_GENERATE, None)
        return timestamps
