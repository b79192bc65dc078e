"""A resumed run sees the rows and the masks that the uninterrupted run would have seen."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, IterableDataset
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from ..files import write_whole
from ..redaction import redacted
from .collator_state import RecordedCollator, State, at_call, is_counted, restart, restore, state_of, stateful_parts
from .manifest import JOB_FILE, TRAINER_STATE, TypedTrainer, damage_of, last_complete_checkpoint
from .rows import is_resumable, rows_digest
from .stream_loader import StreamLoader

logger = logging.get_logger(__name__)

DATA_STATE = "data_state_{rank}.json"


class ExactResume(TypedTrainer):
    """`transformers.Trainer` with exact resume.

    * The state of a training set with `state_dict`/`load_state_dict` (see `hf_ptm_ext.data`) goes into every
      checkpoint, one file a process, and comes back on resume: the run continues with the very row that would have
      come next. With `dataloader_num_workers` one worker of each process reads it ahead.
    * The collator's state is saved and restored too, so masks are those of the uninterrupted run, and the same with
      any number of workers. Evaluations draw theirs from its start, and leave it as it was.
    * Rows are compared by content, and a damaged checkpoint is refused.
    """

    # What decides the result of a job, which goes into its checkpoints.
    job_signature: dict[str, Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._batches_used = 0
        self._start: tuple[State, int] = ({}, 0)
        self._recorded: RecordedCollator | None = None
        self._rows: tuple[Any, str | None] | None = None
        self._stream_loader: StreamLoader | None = None
        self._behind = 0
        told = self._inexact_workers()
        if told:
            logger.warning(f"{told}: a resumed run sees the same rows with other masks.")
        if is_resumable(self.train_dataset):
            # The stream continues by itself; upstream's skipping would read rows a second time.
            self.args.ignore_data_skip = True

    def _inexact_workers(self) -> str | None:
        """Why the masks of a loader's workers would not be those of one process, if they would not."""
        args, state = self.args, state_of(stateful_parts(self.data_collator))
        if not args.dataloader_num_workers or is_resumable(self.train_dataset) or not state:
            return None
        if not is_counted(state):
            return f"The collator's state is no count of calls under {args.dataloader_num_workers} workers"
        if args.dataloader_persistent_workers or not args.dataloader_in_order:
            return "`dataloader_persistent_workers` is on or `dataloader_in_order` is off"
        return None

    # ---- batches ----

    @contextmanager
    def _recorded_collator(self) -> Iterator[None]:
        """A loader that is made in the block, while training begins, uses the training collator from where it was."""
        if not self.is_in_train:
            yield
            return
        collator, (state, used) = self.data_collator, self._start
        if isinstance(self.train_dataset, IterableDataset) and not self.args.ignore_data_skip:
            # Upstream skips batches by making them again.
            used, state = 0, at_call(state, 0)
        self._batches_used = self._start[1]
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        workers = self.args.dataloader_num_workers
        self._recorded = self.data_collator = RecordedCollator(collator, seed, state, used, workers)
        try:
            yield
        finally:
            self.data_collator = collator

    def get_train_dataloader(self) -> DataLoader:
        with self._recorded_collator():
            if not is_resumable(self.train_dataset):
                return super().get_train_dataloader()
            workers = min(self.args.dataloader_num_workers, 1)
            self._stream_loader = StreamLoader(
                self.train_dataset,
                self.data_collator,
                self._train_batch_size,
                (self._start[1], self._behind),
                self.args.device,
                num_workers=workers,
                pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
                prefetch_factor=self.args.dataloader_prefetch_factor if workers else None,
            )
            return self._stream_loader

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> DataLoader:
        """As upstream; an evaluation has all rows, and workers draw for it what one process alone would."""
        if kwargs.get("is_training"):
            return super()._get_dataloader(*args, **kwargs)
        workers, collator, drop_last = (
            self.args.dataloader_num_workers,
            self.data_collator,
            self.args.dataloader_drop_last,
        )
        if workers:
            parts = stateful_parts(collator)
            state = state_of(parts)
            self.data_collator = RecordedCollator(collator, self.args.seed, at_call(state, 0), 0, workers)
            restore(parts, state)
        self.args.dataloader_drop_last = False  # upstream leaves rows out of evaluations too
        try:
            return super()._get_dataloader(*args, **kwargs)
        finally:
            self.data_collator, self.args.dataloader_drop_last = collator, drop_last

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._batches_used += len(batches)
        if self._recorded is not None:
            self._recorded.state_before(self._batches_used)
        return batches, num_items_in_batch

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; every evaluation draws the same masks, and takes none from training."""
        parts = stateful_parts(self.data_collator)
        training = state_of(parts)
        restart(self.data_collator)
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            restore(parts, training)

    # ---- saved ----

    def _data_state_path(self, checkpoint: str | Path) -> Path:
        return Path(checkpoint) / DATA_STATE.format(rank=self.args.process_index)

    def _rows_digest(self) -> str | None:
        """Of the training set, computed once."""
        if self._rows is None or self._rows[0] is not self.train_dataset:
            self._rows = self.train_dataset, rows_digest(self.train_dataset)
        return self._rows[1]

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the data state with the random states, before `trainer_state.json` closes the checkpoint."""
        super()._save_rng_state(output_dir)
        if self.job_signature is not None and self.is_world_process_zero():
            write_whole(Path(output_dir) / JOB_FILE, json.dumps(redacted(self.job_signature), ensure_ascii=False))
        state: dict[str, Any] = {
            "batches_used": self._batches_used,
            "world_size": self.args.world_size,
            "rows": self._rows_digest(),
            "collator": self._collator_state(),
        }
        if is_resumable(self.train_dataset):
            state["stream"], state["behind"] = self._stream_state()
        write_whole(self._data_state_path(output_dir), json.dumps(state, ensure_ascii=False))

    def _stream_state(self) -> tuple[State, int]:
        """The state of the stream, and how many rows it stands before the next that training will use."""
        if self._stream_loader is None:
            return self.train_dataset.state_dict(), 0
        return self._stream_loader.state_before(self._batches_used)

    def _collator_state(self) -> State:
        """Before the next batch that training will use."""
        state = {} if self._recorded is None else self._recorded.state_before(self._batches_used)
        try:
            json.dumps(state)
        except TypeError as error:
            logger.warning(f"The collator's state cannot be saved ({error}): a resumed run sees other masks.")
            return {}
        return state

    # ---- resumed ----

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """As upstream, but of weights that are tied to others of the file, which no file has twice."""
        missing, tied = load_result.missing_keys, getattr(self.model, "all_tied_weights_keys", {})
        missing[:] = [name for name in missing if name not in tied or tied[name] in missing]
        super()._issue_warnings_after_load(load_result)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As upstream; on resume the stream and the masks continue where the checkpoint left them."""
        self._recorded = None
        self._start = state_of(stateful_parts(self.data_collator)), 0
        self._batches_used = self._behind = 0
        if resume_from_checkpoint is True:
            newest = last_complete_checkpoint(self.args.output_dir)
            if newest is None:
                raise ValueError(f"`output_dir` = {self.args.output_dir} has no complete checkpoint to resume from.")
            resume_from_checkpoint = str(newest)
        if not resume_from_checkpoint:
            return super().train(None, *args, **kwargs)
        resume_from_checkpoint = str(resume_from_checkpoint)
        state = self._load_data_state(resume_from_checkpoint)
        if 0 < self.args.max_steps <= state.global_step:
            # Upstream would make one update more.
            logger.warning(f"{resume_from_checkpoint} has made its {state.global_step} updates: nothing to train.")
            self._load_from_checkpoint(resume_from_checkpoint)
            self.state = state
            return TrainOutput(state.global_step, 0.0, {})
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_data_state(self, checkpoint: str) -> TrainerState:
        """Check a checkpoint, go on with its data, and give the state of its training."""
        path = self._data_state_path(checkpoint)
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            world_size = int(state["world_size"])
        except (OSError, ValueError, TypeError, KeyError):
            state, world_size = None, self.args.world_size
        if world_size != self.args.world_size:
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} was written by {world_size} processes and this run "
                f"has {self.args.world_size}, so the data cannot continue where they stopped. Use as many, or start a "
                "new run from the checkpoint with `model_name_or_path`."
            )
        # One process reads all files, so that all agree.
        damage = broadcast_object_list([damage_of(checkpoint) if self.is_world_process_zero() else None])[0]
        if damage is not None:
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} is damaged: {damage}. Resume from another checkpoint of "
                "the run (True, or `auto` for the jobs, takes the newest that is intact), or start a new run from "
                "its weights with `model_name_or_path`."
            )
        if state is None:
            raise ValueError(
                f"`resume_from_checkpoint` = {checkpoint} has no {path.name}: it was saved with `save_only_model`, by "
                "another job or by fewer processes, so the training cannot continue where they stopped. Resume with "
                "the same number of processes, or start a new run from the checkpoint with `model_name_or_path`."
            )
        if state["rows"] != self._rows_digest():
            told = (
                f"`resume_from_checkpoint` = {checkpoint} was trained on other rows than these: data, tokenizer or "
                "length differ."
            )
            if not getattr(self.args, "accept_changes", False):
                raise ValueError(
                    f"{told} Use the same, or start a new run from the checkpoint with `model_name_or_path`."
                )
            logger.warning(f"{told} The run goes on with these.")
        self._batches_used = state["batches_used"]
        self._start = state["collator"], self._batches_used
        if is_resumable(self.train_dataset):
            self.train_dataset.load_state_dict(state["stream"])
            self._behind = state.get("behind", 0)
        return TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE))
