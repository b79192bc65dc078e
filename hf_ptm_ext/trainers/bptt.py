"""Truncated backpropagation through time: the state of a batch goes on in the next one."""

from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import Sampler, SequentialSampler
from transformers import TrainerCallback

from .pretraining import PreTrainingTrainer, target_sums

CARRIED_STATE = "carried_state_{rank}.pt"


class LengthScaledRates(TrainerCallback):
    """Rates of one update times the length of its segments over the usual one (Merity et al. 2018)."""

    def __init__(self, trainer: Any):
        self.trainer, self.rates = trainer, []  # type: ignore[var-annotated]

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Scale them."""
        lengths, self.trainer.lengths = self.trainer.lengths, []
        share = sum(lengths) / len(lengths) / self.trainer.train_dataset.bptt
        groups = self.trainer.optimizer.param_groups
        self.rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] *= share

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Set them back."""
        for group, rate in zip(self.trainer.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate


class BpttTrainer(PreTrainingTrainer):
    """Trains a language model whose state (an LSTM's, Transformer-XL's memory) is carried from batch to batch.

    A model takes part by the class attribute `carried_state`: the name of the keyword argument of its forward, and of
    the field of its output, that is handed on, detached: a tensor, or tuples and lists of tensors. It is None at the
    beginning of an epoch and of an evaluation. Its `logits` and `shift_labels` give the loss and the metrics
    (`eval_lm_loss`, whose exponential is the perplexity, and `eval_lm_accuracy`).

    A resumed run is the uninterrupted one: the state is in the checkpoint, one file a process, and a checkpoint
    without it is refused. Under several processes each has its own streams.

    Args:
        args: as `transformers.Trainer`; `train_dataset` is a `ContiguousStreams` of as many streams as rows of a batch
            times processes, `data_collator` a `DataCollatorForBackpropagationThroughTime`.
        scale_learning_rate: whether an update's rate is that of its schedule times the length of its segments over
            `bptt`, as the AWD-LSTM's code does with variable lengths (default False).
        kwargs: as `PreTrainingTrainer`.

    Raises:
        ValueError: a model without `carried_state`, another number of streams, or several devices in one process.
    """

    def __init__(self, *args: Any, scale_learning_rate: bool = False, **kwargs: Any):
        super().__init__(*args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        self.carried_name = getattr(model, "carried_state", None)
        if self.carried_name is None:
            raise ValueError(
                f"`model` = {type(model).__name__} carries no state from batch to batch (class attribute "
                "`carried_state`): train it with `PreTrainingTrainer`."
            )
        if self.args.n_gpu > 1 or self.args.dataloader_persistent_workers:
            raise ValueError(
                f"A state needs one device a process and workers of each epoch, got {self.args.n_gpu} devices "
                f"and `dataloader_persistent_workers` = {self.args.dataloader_persistent_workers}: use torchrun."
            )
        self._check_streams(self.train_dataset, "train")
        self._check_streams(self.eval_dataset, "eval")
        self._carried: Any = None
        self._segment = -1
        self.lengths: list[int] = []
        if scale_learning_rate:
            self.add_callback(LengthScaledRates(self))

    def _check_streams(self, rows: Any, name: str) -> None:
        """Refuse rows that would not go on in the next batch."""
        if rows is None:
            return
        size, world = getattr(self.args, f"per_device_{name}_batch_size"), self.args.world_size
        if (found := getattr(rows, "batch_size", None)) != size * world:
            raise ValueError(
                f"`{name}_dataset` must be a `ContiguousStreams` of `per_device_{name}_batch_size` x processes = "
                f"{size} x {world} streams, got {type(rows).__name__} of {found}."
            )

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler:
        """Rows in their own order."""
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    # ---- the state ----

    def _continued(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs with the state that they go on from."""
        inputs = dict(inputs)
        segment = inputs.pop("segment", None)
        if segment is None:
            raise ValueError(
                f"`data_collator` must be a `DataCollatorForBackpropagationThroughTime`, got {sorted(inputs)}."
            )
        if segment == 0:
            self._carried = None
        elif segment != self._segment + 1:
            raise ValueError(f"Segment {segment} came behind segment {self._segment}: the loader changed their order.")
        self._segment = segment
        return inputs if self._carried is None else {**inputs, str(self.carried_name): self._carried}

    def _carry(self, outputs: Any) -> None:
        """Keep the state for the next batch; of an update that is left out none that is not finite."""
        skips = getattr(self, "nonfinite", "stop") == "skip"
        self._carried = tree_map(
            lambda value: torch.nan_to_num(value.detach()) if skips else value.detach(), outputs[self.carried_name]
        )

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """As `PtmTrainer`, from the state of the batch before."""
        self.lengths.append(inputs["input_ids"].shape[1])
        loss, outputs = super().compute_loss(model, self._continued(inputs), True, num_items_in_batch)
        self._carry(outputs)
        return (loss, outputs) if return_outputs else loss

    # ---- evaluation ----

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As `PreTrainingTrainer`, with a state of its own."""
        self._check_streams(eval_dataset, "eval")
        training = self._carried, self._segment
        try:
            return super().evaluate(eval_dataset, *args, **kwargs)
        finally:
            self._carried, self._segment = training

    def batch_sums(self, model: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Sums over the targets of a batch."""
        inputs = self._continued(batch)
        targets = inputs.pop("shift_labels")
        inputs.pop("labels", None)
        outputs = model(**inputs)
        self._carry(outputs)
        chosen = targets != -100
        return {"lm": target_sums(outputs["logits"][chosen], targets[chosen])}

    # ---- resume ----

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        torch.save({"state": self._carried, "segment": self._segment}, self._state_file(output_dir))

    def _state_file(self, checkpoint: str) -> Path:
        return Path(checkpoint) / CARRIED_STATE.format(rank=self.args.process_index)

    def _load_data_state(self, checkpoint: str) -> Any:
        """As every Trainer here; the state goes on too."""
        state, file = super()._load_data_state(checkpoint), self._state_file(checkpoint)
        if not file.is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} has no {file.name}, so the model's state cannot go on: "
                "another Trainer wrote it. Start a new run from it with `model_name_or_path`."
            )
        kept = torch.load(file, map_location=self.args.device, weights_only=True)
        self._carried, self._segment = kept["state"], kept["segment"]
        return state

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; a new run begins without a state."""
        self._carried, self._segment = None, -1
        return super().train(*args, **kwargs)
