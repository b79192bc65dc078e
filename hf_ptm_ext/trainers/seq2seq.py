"""The Trainer of sequence-to-sequence fine-tuning: upstream's, for prompt + continuation models too."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainer

from .base import PtmTrainer
from .collator_state import restart

# Entry of an evaluation batch with what the loss is computed from, where that is not what generation starts from.
LOSS_INPUTS = "loss_inputs"


class PtmSeq2SeqTrainer(PtmTrainer, Seq2SeqTrainer):
    """`transformers.Seq2SeqTrainer` with exact resume, and evaluation of models that answer behind their prompt.

    An encoder-decoder is evaluated as upstream does. For a model whose `generate` returns prompt + continuation
    (UniLM), the evaluation collator makes batches of prompts, padded on the left, with an entry `loss_inputs`: the
    batch that the loss is computed from. The prompt is cut off before anything counts the output, so lengths and
    metrics are those of the continuation.

    Args:
        args: as `transformers.Seq2SeqTrainer`.
        eval_collator: collator of evaluation batches (default: a copy of `data_collator`); its draw counter is reset
            before each evaluation, so that every evaluation sees the same masks.
        decoding: keyword arguments of `generate`, given the number of columns of the prompt, 0 for encoder-decoders;
            called for every batch (default: none).
        kwargs: as `transformers.Seq2SeqTrainer`.
    """

    def __init__(
        self,
        *args: Any,
        eval_collator: Any = None,
        decoding: Callable[[int], dict[str, Any]] | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.eval_collator = eval_collator if eval_collator is not None else copy.deepcopy(self.data_collator)
        self.decoding = decoding

    @contextmanager
    def _own_generation_config(self) -> Iterator[None]:
        """Upstream writes defaults into the model's `generation_config`, which checkpoints would then carry."""
        kept = self.model.generation_config
        self.model.generation_config = copy.deepcopy(kept)
        try:
            yield
        finally:
            self.model.generation_config = kept

    @contextmanager
    def _evaluation_collator(self) -> Iterator[None]:
        """Loaders that are made in the block use the evaluation collator, from its first draw on."""
        collator, self.data_collator = self.data_collator, self.eval_collator
        restart(self.eval_collator)
        try:
            yield
        finally:
            self.data_collator = collator

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        with self._evaluation_collator():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        with self._evaluation_collator():
            return super().get_test_dataloader(test_dataset)

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
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """As upstream; the prompt of a prompt + continuation model is cut off what it generated."""
        inputs = dict(inputs)
        loss_inputs = inputs.pop(LOSS_INPUTS, None)
        prompt = 0 if loss_inputs is None else inputs["input_ids"].shape[1]
        if self.decoding is not None:
            gen_kwargs = {**self.decoding(prompt), **getattr(self, "_gen_kwargs", {}), **gen_kwargs}
        if loss_inputs is None:
            with self._own_generation_config():
                return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs)
        loss, _, _ = super().prediction_step(model, loss_inputs, True, ignore_keys)
        if prediction_loss_only or not self.args.predict_with_generate:
            return loss, None, None
        labels = inputs.pop("labels", None)
        with self._own_generation_config():
            _, generated, _ = super().prediction_step(model, inputs, False, ignore_keys, **gen_kwargs)
        return loss, generated[:, prompt:], self._prepare_inputs({"labels": labels})["labels"]
