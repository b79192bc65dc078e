"""The pre-training Trainer: resumable streams, evaluation in running sums, exact resume of masks."""

import copy
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, Subset
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import TrainOutput, speed_metrics
from transformers.utils import logging

from .base import TRAINER_STATE, PtmTrainer, last_complete_checkpoint

logger = logging.get_logger(__name__)

DATA_STATE = "data_state_{rank}.json"
# Labelled positions whose logits are alive at once in the evaluation of any masked language model.
LABELS_AT_ONCE = 128


def is_resumable(dataset: Any) -> bool:
    """Whether the dataset can save and restore its own position."""
    return hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")


def rows_digest(dataset: Any, samples: int = 64) -> str | None:
    """A fingerprint of prepared rows: their number and a sample of them; `None` for streams, which have their own.

    Args:
        dataset: the training set.
        samples: how many rows are looked at.
    """
    if is_resumable(dataset) or not hasattr(dataset, "__len__"):
        return None
    digest = hashlib.blake2b(str(len(dataset)).encode("utf-8"), digest_size=8)
    for number in range(0, len(dataset), max(len(dataset) // samples, 1)):
        row = dataset[number]
        digest.update(str(sorted((name, str(value)) for name, value in row.items())).encode("utf-8"))
    return digest.hexdigest()


def metrics_from_sums(sums: dict[str, torch.Tensor], weights: dict[str, float], prefix: str) -> dict[str, float]:
    """Turn `[cross entropy, correct, targets]` sums per term into metrics.

    Args:
        sums: term -> sums, as a model's `evaluation_sums` returns them.
        weights: term -> its weight in the total loss (default 1).
        prefix: put before every name.

    Returns:
        `<prefix>_<term>_loss`, `<prefix>_<term>_accuracy` and `<prefix>_<term>_targets` of each term that has targets,
        and the weighted `<prefix>_loss`.

    Example:
        >>> import torch
        >>> metrics_from_sums({"mlm": torch.tensor([6.0, 1.0, 2.0])}, {}, "eval")
        {'eval_mlm_loss': 3.0, 'eval_mlm_accuracy': 0.5, 'eval_mlm_targets': 2, 'eval_loss': 3.0}
    """
    metrics: dict[str, float] = {}
    total = 0.0
    for term, (loss_sum, correct, targets) in sums.items():
        if not targets:
            continue
        loss = float(loss_sum / targets)
        metrics[f"{prefix}_{term}_loss"] = loss
        metrics[f"{prefix}_{term}_accuracy"] = float(correct / targets)
        metrics[f"{prefix}_{term}_targets"] = int(targets)
        total += weights.get(term, 1.0) * loss
    metrics[f"{prefix}_loss"] = total
    return metrics


def sums_of_batch(model: torch.nn.Module, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Evaluation sums of one batch: the model's own, or those of any masked language model.

    Args:
        model: in evaluation mode.
        batch: the inputs, with `labels`.

    Returns:
        term -> float64 `[sum of cross entropies, correct, targets]`.
    """
    if hasattr(model, "evaluation_sums"):
        return model.evaluation_sums(**batch)
    batch.pop("label_positions", None)
    most = max(int((batch["labels"] != -100).sum(dim=1).max()), 1)
    rows = max(LABELS_AT_ONCE // most, 1)
    sums = torch.zeros(3, dtype=torch.float64)
    for start in range(0, len(batch["labels"]), rows):
        part = {name: values[start : start + rows] for name, values in batch.items()}
        sums += masked_lm_sums(model, **part).cpu()
    return {"mlm": sums}


def masked_lm_sums(model: torch.nn.Module, labels: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Sums of a few rows, with the vocabulary projection at labelled positions only.

    Args:
        model: any masked language model.
        labels: `(batch, seq_len)`.
        inputs: what its forward takes besides.

    Returns:
        Float64 `[sum of cross entropies, correct, targets]`.
    """
    index = (labels.reshape(-1) != -100).nonzero().squeeze(-1)
    targets = labels.reshape(-1).index_select(0, index)
    projection = model.get_output_embeddings()

    def labelled_only(module: torch.nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        states, *rest = arguments
        return (states.reshape(-1, states.shape[-1]).index_select(0, index), *rest)

    hook = projection.register_forward_pre_hook(labelled_only) if projection is not None else None
    try:
        logits = model(**inputs).logits
    finally:
        if hook is not None:
            hook.remove()
    if hook is None:
        logits = logits.reshape(-1, logits.shape[-1]).index_select(0, index)
    logits = logits.float()
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    correct = (logits.argmax(-1) == targets).sum()
    return torch.stack(
        [loss.double(), correct.double(), torch.tensor(float(len(targets)), device=loss.device).double()]
    )


class PreTrainingTrainer(PtmTrainer):
    """Trainer of the pre-training job.

    * A training set with `state_dict`/`load_state_dict` (see `hf_ptm_ext.data`) is read by a plain loader in the main
      process, which never reads ahead; its state goes into every checkpoint, one file a process, and comes back on
      resume: the run continues with the very row that would have come next.
    * The collator's draw counter is saved and restored too, so masks are those of the uninterrupted run.
    * A model with `evaluation_sums` is evaluated in running sums: no logits are gathered, memory does not grow with
      the evaluation set.

    Args:
        args: as `transformers.Trainer`.
        eval_collator: collator of evaluation batches; its counter is reset before each evaluation, so that every
            evaluation sees the same masks.
        kwargs: as `transformers.Trainer`.
    """

    def __init__(self, *args: Any, eval_collator: Any = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # A collator of its own: resetting the training collator's counter would repeat its masks.
        self.eval_collator = eval_collator if eval_collator is not None else copy.deepcopy(self.data_collator)
        self._batches_used = 0
        workers = self.args.dataloader_num_workers
        if workers and not is_resumable(self.train_dataset) and hasattr(self.data_collator, "load_state_dict"):
            logger.warning(
                f"`dataloader_num_workers` is {workers}: a resumed run sees the same rows with other masks. Set it to "
                "0 to resume exactly."
            )
        if is_resumable(self.train_dataset):
            if workers:
                raise ValueError(
                    "`dataloader_num_workers` must be 0 with a resumable stream, got "
                    f"{workers}: worker processes read ahead and their position is lost. "
                    "The stream tokenises in batches; set it to 0."
                )
            # The stream continues by itself; upstream's skipping would read rows a second time.
            self.args.ignore_data_skip = True

    # ---- training data and its state ----

    def get_train_dataloader(self) -> DataLoader:
        if not is_resumable(self.train_dataset):
            return super().get_train_dataloader()
        return DataLoader(
            self.train_dataset,
            batch_size=self._train_batch_size,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            # A loader without one draws from the global generator, and a resumed run would drop other units.
            generator=torch.Generator(),
        )

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._batches_used += len(batches)
        return batches, num_items_in_batch

    def _data_state_path(self, checkpoint: str | Path) -> Path:
        return Path(checkpoint) / DATA_STATE.format(rank=self.args.process_index)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the data state with the random states, before `trainer_state.json` closes the checkpoint."""
        super()._save_rng_state(output_dir)
        state: dict[str, Any] = {
            "batches_used": self._batches_used,
            "world_size": self.args.world_size,
            "rows": rows_digest(self.train_dataset),
        }
        if is_resumable(self.train_dataset):
            state["stream"] = self.train_dataset.state_dict()
        path = self._data_state_path(output_dir)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        partial.replace(path)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """As upstream; on resume the stream and the masks continue where the checkpoint left them."""
        self._batches_used = 0
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_complete_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"`output_dir` = {self.args.output_dir} has no complete checkpoint to resume from.")
        if resume_from_checkpoint:
            resume_from_checkpoint = str(resume_from_checkpoint)
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE))
            if 0 < self.args.max_steps <= state.global_step:
                # Upstream would make one update more.
                logger.warning(f"{resume_from_checkpoint} has made its {state.global_step} updates: nothing to train.")
                self._load_from_checkpoint(resume_from_checkpoint)
                self.state = state
                return TrainOutput(state.global_step, 0.0, {})
            self._load_data_state(resume_from_checkpoint)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _load_data_state(self, checkpoint: str | Path) -> None:
        path = self._data_state_path(checkpoint)
        if not path.is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} has no {path.name}: it was written by another job or by "
                "fewer processes, so the data cannot continue where they stopped. Resume with the same number of "
                "processes, or start a new run from the checkpoint with `model_name_or_path`."
            )
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["world_size"] != self.args.world_size:
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} was written by {state['world_size']} processes and this run "
                f"has {self.args.world_size}, so the data cannot continue where they stopped. Use as many, or start a "
                "new run from the checkpoint with `model_name_or_path`."
            )
        if state["rows"] != rows_digest(self.train_dataset):
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} was trained on other rows than these: data, tokenizer or "
                "length differ. Use the same, or start a new run from the checkpoint with `model_name_or_path`."
            )
        self._batches_used = state["batches_used"]
        self._restore_masks()
        if is_resumable(self.train_dataset):
            self.train_dataset.load_state_dict(state["stream"])

    def _restore_masks(self) -> None:
        if hasattr(self.data_collator, "load_state_dict"):
            self.data_collator.load_state_dict({**self.data_collator.state_dict(), "calls": self._batches_used})

    # ---- evaluation ----

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """Batches of this process's share of the rows, each row in exactly one process."""
        if self.is_fsdp_enabled:
            return super().get_eval_dataloader(eval_dataset)
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        share = Subset(dataset, range(self.args.process_index, len(dataset), self.args.world_size))
        if hasattr(self.eval_collator, "load_state_dict"):
            self.eval_collator.load_state_dict({**self.eval_collator.state_dict(), "calls": 0})
        return DataLoader(share, batch_size=self.args.per_device_eval_batch_size, collate_fn=self.eval_collator)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate in running sums: no logits are gathered, memory does not grow with the data.

        Under FSDP, whose parameters are whole only inside the wrapped forward, losses are evaluated as upstream does.

        Args:
            eval_dataset: a map-style dataset of rows (default: the Trainer's).
            ignore_keys: as upstream.
            metric_key_prefix: put before every metric.

        Returns:
            Loss, accuracy and number of targets of each term, see `metrics_from_sums`.

        Raises:
            ValueError: there is no evaluation dataset.
        """
        if self.is_fsdp_enabled:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise ValueError("`eval_dataset` must be given: the Trainer has none.")
        start = time.time()
        model = self.accelerator.unwrap_model(self.model)
        was_training = model.training
        model.eval()
        sums: dict[str, torch.Tensor] = {}
        for batch in self.get_eval_dataloader(dataset):
            batch = self._prepare_inputs(batch)
            with torch.no_grad(), self.compute_loss_context_manager():
                batch_sums = sums_of_batch(model, batch)
            for term, values in batch_sums.items():
                sums[term] = sums[term] + values if term in sums else values
        model.train(was_training)
        # As objects: a process without rows knows no term, and must take part all the same.
        parts = gather_object([{term: values.tolist() for term, values in sums.items()}])
        sums = {}
        for part in parts:
            for term, values in part.items():
                sums[term] = sums.get(term, 0) + torch.tensor(values, dtype=torch.float64)
        weights = {"sbo": float(getattr(model.config, "sbo_loss_weight", 1.0))}
        metrics = metrics_from_sums(sums, weights, metric_key_prefix)
        metrics.update(speed_metrics(metric_key_prefix, start, num_samples=len(dataset)))
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics
