"""A Trainer whose resumed run sees the rows and the masks that the uninterrupted run would have seen."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from .base import JOB_FILE, TRAINER_STATE, PtmTrainer, last_complete_checkpoint

logger = logging.get_logger(__name__)

DATA_STATE = "data_state_{rank}.json"


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


def at_call(state: dict[str, Any], calls: int) -> dict[str, Any]:
    """The state of a collator, and of those inside it, before call number `calls`.

    Args:
        state: what the collator's `state_dict` gave.
        calls: how many batches it has made.

    Example:
        >>> at_call({"entropy": 5, "calls": 9, "mlm": {"entropy": 6, "calls": 9}}, 2)
        {'entropy': 5, 'calls': 2, 'mlm': {'entropy': 6, 'calls': 2}}
    """
    inner = {name: at_call(value, calls) for name, value in state.items() if isinstance(value, dict)}
    return {**state, "calls": calls, **inner}


class ResumableTrainer(PtmTrainer):
    """`PtmTrainer` with exact resume.

    * A training set with `state_dict`/`load_state_dict` (see `hf_ptm_ext.data`) is read by a plain loader in the main
      process, which never reads ahead; its state goes into every checkpoint, one file a process, and comes back on
      resume: the run continues with the very row that would have come next.
    * The collator's draw counter is saved and restored too, so masks are those of the uninterrupted run.
      Evaluations draw theirs from its start, and leave it as it was.

    Args:
        args: as `transformers.Trainer`.
        kwargs: as `transformers.Trainer`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
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

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; every evaluation draws the same masks, and takes none from training.

        Args:
            args: as upstream.
            kwargs: as upstream.
        """
        collator = self.data_collator
        if not hasattr(collator, "load_state_dict"):
            return super().evaluation_loop(*args, **kwargs)
        training = collator.state_dict()
        collator.load_state_dict(at_call(training, 0))
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            collator.load_state_dict(training)

    def _data_state_path(self, checkpoint: str | Path) -> Path:
        return Path(checkpoint) / DATA_STATE.format(rank=self.args.process_index)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the data state with the random states, before `trainer_state.json` closes the checkpoint."""
        super()._save_rng_state(output_dir)
        if self.job_signature is not None and self.is_world_process_zero():
            text = json.dumps(self.job_signature, ensure_ascii=False)
            (Path(output_dir) / JOB_FILE).write_text(text, encoding="utf-8")
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
            self.data_collator.load_state_dict(at_call(self.data_collator.state_dict(), self._batches_used))
