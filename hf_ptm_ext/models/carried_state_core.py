"""Generation whose cache is what a model hands on from one segment to the next, `carried_state`."""

import copy
from typing import Any

import torch

# The classes behind the mixin in the order of bases, whose types upstream does not give.
Behind: Any = object

# What upstream's beam search calls such a cache; another name would not follow the beams.
IN_SEARCH = "state"


class CarriedStateGeneration(Behind):
    """Mixin in front of a base class and `GenerationMixin`, for language models that hand a state on.

    Their outputs and forward have it under the name `carried_state`, with rows in dimension 1. One that the caller
    gives goes before the text. Without a cache the whole text is read behind it in every step.
    """

    carried_state: str
    _is_stateful = True  # assisted decoding is refused: a state does not go back

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """The state is the cache."""
        return False

    def prepare_inputs_for_generation(
        self: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        is_first_iteration: bool | None = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The text, or its last word behind the state of the others."""
        found = kwargs.get(IN_SEARCH) or {}
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if is_first_iteration and inputs_embeds is not None:
            inputs |= {"input_ids": None, "inputs_embeds": inputs_embeds}
        elif found:
            inputs |= {"input_ids": input_ids[:, -1:], "attention_mask": None}
        names = (self.carried_state, "mem_lengths", "use_cache", "output_hidden_states", "output_attentions")
        given = {name: kwargs[name] for name in (*names, "logits_to_keep") if kwargs.get(name) is not None}
        return {**inputs, **given, **found}

    def _update_model_kwargs_for_generation(
        self: Any, outputs: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **kwargs)
        if model_kwargs.get("use_cache", True) and outputs.get(self.carried_state):
            names = (self.carried_state, "mem_lengths")
            model_kwargs[IN_SEARCH] = {name: outputs[name] for name in names if outputs.get(name) is not None}
        return model_kwargs

    def _expand_inputs_for_generation(
        self: Any, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **model_kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """As upstream, a state of the caller's too: each row's for all of its beams or samples."""
        state = model_kwargs.get(self.carried_state)
        input_ids, model_kwargs = super()._expand_inputs_for_generation(
            expand_size, is_encoder_decoder, input_ids, **model_kwargs
        )
        if state and expand_size > 1:
            texts = (state[0] if torch.is_tensor(state[0]) else state[0][0]).shape[1]
            model_kwargs[self.carried_state] = of_rows(state, torch.arange(texts).repeat_interleave(expand_size))
        return input_ids, model_kwargs

    def _get_logits_processor(self: Any, generation_config: Any, *args: Any, **kwargs: Any) -> Any:
        """As upstream; `guidance_scale` reads its other text anew in each step, since it carries no such state."""
        anew = copy.copy(generation_config)
        anew.use_cache = False
        return super()._get_logits_processor(anew, *args, **kwargs)

    @staticmethod
    def _reorder_cache(state: Any, beam_idx: torch.Tensor) -> Any:
        """The state of other beams."""
        return of_rows(state, beam_idx)


def of_rows(state: Any, rows: torch.Tensor) -> Any:
    """The state of some rows, which are the second dimension of all but vectors."""
    if torch.is_tensor(state):
        return state.index_select(min(1, state.dim() - 1), rows.to(state.device))
    if isinstance(state, dict):
        return {name: of_rows(part, rows) for name, part in state.items()}
    return [of_rows(part, rows) for part in state]
