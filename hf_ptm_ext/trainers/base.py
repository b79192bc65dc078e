"""What every Trainer of ours adds to transformers' own.

Loss terms in the log, exact means under gradient accumulation, pushes that always contain the code files, and
checkpoints that tell whether they are complete.
"""

import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

TRAINER_STATE = "trainer_state.json"
JOB_FILE = "job.json"
TERM_SUFFIX = "_loss"


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The `checkpoint-N` folders of a run, oldest first, complete or not.

    Args:
        output_dir: the run's output folder.

    Returns:
        Their paths.
    """
    numbered = []
    for folder in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = folder.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if number.isdigit():
            numbered.append((int(number), folder))
    return [folder for _, folder in sorted(numbered)]


def last_complete_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest `checkpoint-N` that was written to its end, or `None`.

    `trainer_state.json` is the last file of a checkpoint; a folder without a readable one was interrupted.

    Args:
        output_dir: the run's output folder.

    Returns:
        Its path, or `None`.
    """
    for folder in reversed(checkpoints(output_dir)):
        try:
            TrainerState.load_from_json(str(folder / TRAINER_STATE))
        except (OSError, ValueError, TypeError, KeyError):
            continue
        return folder
    return None


class PtmTrainer(Trainer):
    """`transformers.Trainer` with loss terms, exact accumulation and complete Hub pushes.

    Any model whose output has fields named `<term>_loss` gets each of them logged as the mean over the updates since
    the last log. A model whose `forward` takes `target_counts` is told how many targets each of its label columns has
    over all micro-batches of an update, so that every term is a mean over the update, whatever the row lengths; a
    model with `count_targets(batch)` counts them itself.

    Args:
        args: as `transformers.Trainer`.
        kwargs: as `transformers.Trainer`.
    """

    # Label columns other than `labels` whose targets are counted over an update.
    target_columns: ClassVar[tuple[str, ...]] = ("span_labels", "next_sentence_label")
    # What decides the result of a job, which goes into its checkpoints.
    job_signature: dict[str, Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        self._count_targets_of = getattr(model, "count_targets", self._count_labels)
        self._takes_target_counts = "target_counts" in inspect.signature(model.forward).parameters
        self._target_counts: dict[str, torch.Tensor] = {}
        self._term_sums: dict[str, torch.Tensor] = {}
        self._updates_since_log = 0

    @property
    def saved_model(self) -> nn.Module:
        """The plain model that checkpoints hold."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def _set_signature_columns_if_needed(self) -> None:
        """As upstream; the columns that the collator reads are not dropped either."""
        super()._set_signature_columns_if_needed()
        for name in getattr(self.data_collator, "input_columns", ()):
            if name not in self._signature_columns:
                self._signature_columns.append(name)

    # ---- evaluation ----

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        """Rows in their own order, so that predictions belong to them.

        Upstream draws evaluation rows by length too when `train_sampling_strategy` is "group_by_length": predictions
        then come back in another order than the data set's, and nothing says so.
        """
        if eval_dataset is None or not hasattr(eval_dataset, "__len__") or self.args.world_size > 1:
            return None  # of several processes each is dealt its share in order
        return SequentialSampler(eval_dataset)

    # ---- exact means over an update ----

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._updates_since_log += 1
        # DataParallel scatters its inputs; counts have no rows to scatter, and the model's estimate serves there.
        if self._takes_target_counts and self.args.n_gpu <= 1:
            self._target_counts = self._count_targets(batches, device)
        return batches, num_items_in_batch

    def _count_targets(self, batches: list[dict[str, Any]], device: torch.device) -> dict[str, torch.Tensor]:
        """Number of targets per label column other than `labels`, over all micro-batches and processes."""
        each = [self._count_targets_of(batch) for batch in batches]
        counts = {name: sum(numbers[name] for numbers in each).to(device) for name in (each[0] if each else ())}
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            counts = {name: self.accelerator.reduce(count, reduction="sum") for name, count in counts.items()}
        return counts

    def _count_labels(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Entries of each of the `target_columns` that are not -100."""
        return {name: (batch[name] != -100).sum() for name in self.target_columns if name in batch}

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """As upstream; also hands over the target counts and remembers the terms of the loss."""
        if model.training and self._target_counts:
            inputs = {**inputs, "target_counts": self._target_counts}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        scaled = num_items_in_batch is not None and self.args.average_tokens_across_devices
        if scaled and self.compute_loss_func is not None and self.args.n_gpu > 1:
            # DataParallel gathers the outputs before this loss is taken: it is the whole batch's, not a replica's
            # part, and upstream's factor is one too many.
            loss = loss / self.args.n_gpu
        if model.training and isinstance(outputs, dict):
            self._remember_terms(outputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    # ---- loss terms in the log ----

    def _remember_terms(self, outputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None) -> None:
        """Add this micro-batch's part of each term's mean over the update."""
        if num_items_in_batch is None:
            factor = 1.0 / self.current_gradient_accumulation_steps
        else:
            # Divided by the count of all processes already: the mean over processes must be their sum.
            factor = float(self.args.world_size) if self.args.average_tokens_across_devices else 1.0
        for name, value in outputs.items():
            if name.endswith(TERM_SUFFIX) and torch.is_tensor(value) and value.dim() == 0:
                part = value.detach().float() * factor
                self._term_sums[name] = self._term_sums[name] + part if name in self._term_sums else part

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream, with the mean of each loss term beside the training loss."""
        if "loss" in logs and self._term_sums:
            for name in sorted(self._term_sums):
                mean = self.accelerator.gather(self._term_sums[name].reshape(1)).mean()
                logs[name] = float(f"{mean.item() / self._updates_since_log:.6g}")
            self._term_sums = {}
            self._updates_since_log = 0
        super().log(logs, *args, **kwargs)

    # ---- pushes ----

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """As upstream, unless the output folder has a card: upstream would write its own template over it."""
        if not (Path(self.args.output_dir) / "README.md").is_file():
            super().create_model_card(*args, **kwargs)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push with the code files and an entity table that is a file of the checkpoint.

        Upstream copies weights and config only: what the config names besides would point nowhere.
        """
        if self.is_world_process_zero():
            source = getattr(self.accelerator.unwrap_model(self.model).config, "entity_embeddings_source", None) or {}
            if (Path(checkpoint_folder) / source.get("path", "")).is_file():
                target = Path(self.args.output_dir) / source["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(checkpoint_folder) / source["path"], target)
            for source in Path(checkpoint_folder).glob("*.py"):
                shutil.copy(source, Path(self.args.output_dir) / source.name)
            decoding = Path(checkpoint_folder) / "custom_generate"
            if decoding.is_dir():
                shutil.copytree(decoding, Path(self.args.output_dir) / decoding.name, dirs_exist_ok=True)
        super()._push_from_checkpoint(checkpoint_folder)
