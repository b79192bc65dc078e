"""The Trainer of sequence-to-sequence fine-tuning: upstream's, for prompt + continuation models too."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import Seq2SeqTrainer

from .base import OwnEvaluationCollator

# Entry of an evaluation batch with what the loss is computed from, where that is not what generation starts from.
LOSS_INPUTS = "loss_inputs"


class PtmSeq2SeqTrainer(OwnEvaluationCollator, Seq2SeqTrainer):
    """`transformers.Seq2SeqTrainer` with exact resume, and evaluation of models that answer behind their prompt.

    An encoder-decoder is evaluated as upstream does. For a model whose `generate` returns prompt + continuation
    (UniLM), the evaluation collator makes batches of prompts, padded on the left, with an entry `loss_inputs`: the
    batch that the loss is computed from. The prompt is cut off before anything counts the output, so lengths and
    metrics are those of the continuation.

    Args:
        args: as `transformers.Seq2SeqTrainer`.
        eval_collator: makes evaluation batches; reset before each evaluation. Default: a copy of `data_collator` or,
            with `predict_with_generate`, what its `for_generation()` gives if it has one (UniLM's).
        decoding: keyword arguments of `generate`, given the number of columns of the prompt, 0 for encoder-decoders;
            called for every batch. Default: none; behind a prompt, as many new tokens as `generation_max_length`, the
            model's `generation_config` or else 64 say.
        kwargs: as `transformers.Seq2SeqTrainer`.
    """

    def __init__(
        self,
        *args: Any,
        decoding: Callable[[int], dict[str, Any]] | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.decoding = decoding
        if kwargs.get("eval_collator") is None and self.args.predict_with_generate:
            prompts = getattr(self.data_collator, "for_generation", None)
            self.eval_collator = prompts() if prompts is not None else self.eval_collator

    @contextmanager
    def _own_generation_config(self) -> Iterator[None]:
        """Upstream writes defaults into the model's `generation_config`, which checkpoints would then carry."""
        kept = self.model.generation_config
        self.model.generation_config = copy.deepcopy(kept)
        try:
            yield
        finally:
            self.model.generation_config = kept

    def _answer_options(self) -> dict[str, Any]:
        """What was asked of generation; `max_length`, which upstream counts with the prompt, as the answer's own."""
        asked = dict(getattr(self, "_gen_kwargs", {}))
        length = asked.pop("max_length", None) or self.model.generation_config.max_new_tokens or 64
        return {"max_new_tokens": length, **asked}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; rows that fill the last batch of several processes are dropped again, so each counts once."""
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Any, torch.Tensor | None, torch.Tensor | None]:
        """As upstream; the prompt of a prompt + continuation model is cut off what it generated."""
        inputs = dict(inputs)
        loss_inputs = inputs.pop(LOSS_INPUTS, None)
        prompt = 0 if loss_inputs is None else inputs["input_ids"].shape[1]
        if self.decoding is not None:
            gen_kwargs = {**self.decoding(prompt), **getattr(self, "_gen_kwargs", {}), **gen_kwargs}
        elif prompt:
            gen_kwargs = {**self._answer_options(), **gen_kwargs}
        if loss_inputs is None:
            with self._own_generation_config():
                return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs)
        loss, _, _ = super().prediction_step(model, loss_inputs, True, ignore_keys)
        if prediction_loss_only or not self.args.predict_with_generate:
            return loss, None, None
        labels = inputs.pop("labels", None)
        with self._own_generation_config():
            output: Any = super().prediction_step(model, inputs, False, ignore_keys, **gen_kwargs)
        return loss, output[1][:, prompt:], self._prepare_inputs({"labels": labels})["labels"]
