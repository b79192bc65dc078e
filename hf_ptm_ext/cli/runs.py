"""The output folder of a job: what it resumes from, what it may not write over, and files that appear whole."""

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.utils import CONFIG_NAME
from transformers.utils import logging as transformers_logging

from ..trainers import checkpoints, last_complete_checkpoint

PARTIAL = "_partial"  # leading underscore: never pushed by upstream's uploads either


def choose_checkpoint(training_args: Any) -> str | None:
    """The checkpoint to resume from, if any; refuses to write over another run.

    Args:
        training_args: `resume_from_checkpoint` is a folder, or `auto` for the newest complete one; without any the
            run starts, so that one command can be repeated until it is through.

    Raises:
        ValueError: the folder to resume from does not exist, or the output folder holds another run.
    """
    wanted = training_args.resume_from_checkpoint
    output = Path(training_args.output_dir)
    if output.exists() and not output.is_dir():
        raise ValueError(f"`output_dir` must be a folder, got the file {output}.")
    if wanted is not None and str(wanted).lower() not in ("true", "auto"):
        if not Path(wanted).is_dir():
            raise ValueError(f"`resume_from_checkpoint` must be a checkpoint folder, got {wanted}.")
        return str(wanted)
    newest = last_complete_checkpoint(output)
    if wanted is not None and newest is not None:
        return str(newest)
    # A run that was stopped before its first checkpoint leaves these, and nothing to lose.
    own = {path.name for path in checkpoints(output)} | {PARTIAL, "before_results.json"}
    others = [path for path in output.glob("*") if wanted is None or path.name not in own]
    if others and not training_args.overwrite:
        raise ValueError(
            f"`output_dir` = {output} is not empty. Pass --resume_from_checkpoint auto to go on, --overwrite true to "
            "train anew, or name another folder."
        )
    return None


def remove_checkpoints(trainer: Any) -> None:
    """Remove another run's checkpoints, the newest of which a later resume would take.

    Args:
        trainer: its first process removes, the others wait.
    """
    if trainer.is_world_process_zero():
        for folder in checkpoints(trainer.args.output_dir):
            shutil.rmtree(folder)
    trainer.accelerator.wait_for_everyone()


def configure_logging(training_args: Any) -> None:
    """Log from the first process only, at the asked level."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    transformers_logging.set_verbosity(training_args.get_process_log_level())


@contextmanager
def written_aside(output: Path) -> Iterator[Path]:
    """A temporary folder whose files move into `output` when everything in it was written.

    A model's config.json goes first and comes last: until all is in place, the folder does not pass for a model.

    Args:
        output: the folder that gets the files.
    """
    partial = output / PARTIAL
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
        files = sorted(partial.iterdir(), key=lambda file: file.name == CONFIG_NAME)
        if CONFIG_NAME in {file.name for file in files}:
            for old in (
                output / CONFIG_NAME,
                *output.glob("model*.safetensors*"),
                *output.glob("pytorch_model*.bin*"),
            ):
                old.unlink(missing_ok=True)
        for file in files:
            if file.is_dir():
                shutil.rmtree(output / file.name, ignore_errors=True)
            file.replace(output / file.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
