"""Checkpoints that tell whether they are complete: a manifest of all files and their digests, written last.

A folder without one was interrupted while it was written, or an older version wrote it: it counts as incomplete.
"""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import Trainer
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints
from transformers.utils import logging

from ..files import file_digest, is_torch_write_error, path_inside, read_json, system_error, write_json

logger = logging.get_logger(__name__)

MANIFEST = "checkpoint_manifest.json"
TRAINER_STATE = "trainer_state.json"
JOB_FILE = "job.json"
NOT_LISTED = (MANIFEST, TRAINING_ARGS_NAME, "README.md", "checkpoint-is-incomplete.txt", "*.partial")


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
    """The newest `checkpoint-N` that is as it was written, or `None`.

    Every file of its manifest must be there, of its size and content. One that is interrupted, damaged or without a
    manifest is passed over with a warning that names the file and what is wrong with it.

    Args:
        output_dir: the run's output folder.

    Returns:
        Its path, or `None`.
    """
    for folder in reversed(checkpoints(output_dir)):
        damage = damage_of(folder)
        if damage is None:
            return folder
        logger.warning(f"{folder} is passed over: {damage}.")
    return None


def damage_of(checkpoint: str | Path) -> str | None:
    """What is wrong with a checkpoint, named by file; `None` if it is as it was written."""
    folder = Path(checkpoint)
    if not (folder / MANIFEST).is_file():
        return f"it has no {MANIFEST}, so it was interrupted while it was written, or an older version wrote it"
    try:
        files = read_json(folder / MANIFEST)["files"]
        listed = {
            name: (path_inside(folder, name, MANIFEST), int(entry["size"]), str(entry["sha256"]))
            for name, entry in files.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return f"{MANIFEST} is damaged"
    if TRAINER_STATE not in listed:
        return f"{MANIFEST} does not list {TRAINER_STATE}"
    wrong = []
    for name, (path, size, digest) in listed.items():
        try:
            found = path.stat().st_size
            if found != size:
                wrong.append(f"{name} has {found} bytes, {size} were written")
            elif file_digest(path) != digest:
                wrong.append(f"{name} is not what was written, its content differs")
        except FileNotFoundError:
            wrong.append(f"it has no {name}")
        except OSError as error:
            wrong.append(f"{name} cannot be read ({error.strerror or error})")
    more = f", and {len(wrong) - 3} files more" if len(wrong) > 3 else ""
    return "; ".join(wrong[:3]) + more if wrong else None


def write_manifest(checkpoint: str | Path) -> None:
    """List a checkpoint's files: from now on it is complete."""
    folder = Path(checkpoint)
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": file_digest(path)}
        for path in _listed(folder)
    }
    write_json(folder / MANIFEST, {"version": 1, "files": files}, indent=1)


def _listed(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(fnmatch(path.name, pattern) for pattern in NOT_LISTED):
            yield path


class TypedTrainer(Trainer):
    """`transformers.Trainer`, whose attributes are what they are once it is made."""

    args: Any
    model: Any
    train_dataset: Any
    eval_dataset: Any
    hub_model_id: Any
    push_in_progress: Any
    _signature_columns: Any


class CompleteCheckpoints(TypedTrainer):
    """`transformers.Trainer` whose checkpoints end with a manifest; what is pushed or removed is so after it."""

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        args, run = self.args, Path(self._get_output_dir(trial=trial))
        folder = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)  # upstream notes no best model in one that is not there yet
        if args.should_save:
            (folder / MANIFEST).unlink(missing_ok=True)
        kept = args.push_to_hub, args.save_total_limit
        args.push_to_hub, args.save_total_limit = False, None
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not (isinstance(error, OSError) or system_error(error) or is_torch_write_error(error)):
                raise
            raise OSError(
                f"The checkpoint {folder} could not be written: {' '.join(str(error).split())}. It is incomplete; "
                "the run resumes from the one before it."
            ) from error
        finally:
            args.push_to_hub, args.save_total_limit = kept
        self.accelerator.wait_for_everyone()  # every process has written its own files
        if args.should_save:
            if (folder / TRAINING_ARGS_NAME).is_file():
                torch.save(args, folder / TRAINING_ARGS_NAME)  # with what was set aside above
            write_manifest(folder)
        if args.push_to_hub:
            self._push_from_checkpoint(str(folder))
        if args.should_save:
            rotate_checkpoints(
                output_dir=str(run),
                save_total_limit=args.save_total_limit,
                best_model_checkpoint=self.state.best_model_checkpoint,
                use_mtime=True,
            )
