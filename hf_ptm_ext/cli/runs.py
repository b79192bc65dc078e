"""The output folder of a job: one job at a time, what it resumes from, what it may not write over, whole files.

What begins with an underscore is never pushed. A start that fails leaves the folder as it was.
"""

import errno
import json
import logging
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import CONFIG_NAME

from ..files import read_json
from ..files import write_whole as write_whole
from ..redaction import redacted
from ..trainers import checkpoints, last_complete_checkpoint
from ..trainers.auxiliary import AUXILIARY_FILE, PROJECTIONS_FILE
from ..trainers.manifest import JOB_FILE, MANIFEST, TRAINER_STATE
from ..trainers.pushes import PUSHED_FROM
from .arguments import GO_ON
from .console import console, is_first_process, log_to_console
from .recipes import OWN_RECIPE, is_written, write_recipe
from .signature import changes, refuse_changes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

PARTIAL, LOCK, RUNS, BEFORE = "_partial", "_lock.json", "_runs", "_runs_before"
BEFORE_RESULTS, ALL_RESULTS = "before_results.json", "all_results.json"
# Leftovers of a run that was stopped before its first checkpoint: nothing to lose.
LEFTOVERS = (PARTIAL, LOCK, RUNS, BEFORE, PUSHED_FROM, BEFORE_RESULTS, "runs", "logs")
# What else a job makes before it has done any work; the rest is not its own.
MADE = (OWN_RECIPE, "_stages", "checkpoint-", "predictions_", "stage-", "training_args.bin")
# A folder with one of these holds work.
WORK = ("trainer_state.json", CONFIG_NAME, "adapter_config.json", "results.json", ALL_RESULTS, "finished.json")
# What another run leaves that this one may not: records, scores and what it was told.
OF_A_RUN = (RUNS, OWN_RECIPE, BEFORE_RESULTS, ALL_RESULTS, "trainer_state.json", "results.json")
RECORD = re.compile(r"seed\w+\.json")  # of a finished run, once it is whole
ENDED = "ended"  # in the place of a checkpoint


@contextmanager
def own_folder(output: Path) -> Iterator[None]:
    """A folder that no other job writes to."""
    if output.exists() and not output.is_dir():
        raise ValueError(f"`output_dir` must be a folder, got the file {output}.")
    if not is_first_process():
        yield
        return
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    output.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(output):
            _put_back(output)
            there, work = set(output.iterdir()), _work(output)
            try:
                yield
            except BaseException:
                shutil.rmtree(output / PARTIAL, ignore_errors=True)
                if not _work(output) - work:
                    for path in set(output.iterdir()) - there - {output / BEFORE, output / LOCK}:
                        if path.name in LEFTOVERS or path.name.startswith(MADE):
                            _remove(path)
                    _put_back(output)
                raise
            shutil.rmtree(output / BEFORE, ignore_errors=True)
    finally:
        for folder in made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def begin_folder(output: Path, args: Any, anew: bool) -> None:
    """Write what the job was told; if it begins anew, another run's records go aside until there is work to keep."""
    if anew:
        for path in (output / name for name in OF_A_RUN if (output / name).exists()):
            (output / BEFORE).mkdir(exist_ok=True)
            path.rename(output / BEFORE / path.name)
    if not (output / OWN_RECIPE).exists():
        write_recipe(output, args)


def _put_back(output: Path) -> None:
    """Give the records their place again that an `--overwrite` without any work of its own took."""
    if (output / BEFORE).is_dir():
        if not any(map(_work, (output / RUNS, *checkpoints(output)))):
            for path in (output / BEFORE).iterdir():
                _remove(output / path.name)
                path.rename(output / path.name)
        shutil.rmtree(output / BEFORE)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def has_work(folder: Path) -> bool:
    """Whether anything in a job's folder would be lost with it."""
    return bool(_work(folder))


def _work(folder: Path) -> set[Path]:
    """Files that stand for work done: checkpoints, models, scores of finished runs."""
    found = set()
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (PARTIAL, BEFORE)]
        runs = Path(place).name == RUNS
        if Path(place).name.startswith("checkpoint-"):  # half-written without this
            names = [name for name in names if name == TRAINER_STATE]
        found |= {Path(place) / name for name in names if name in WORK or (runs and RECORD.fullmatch(name))}
    return found


@contextmanager
def _locked(output: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system lets go when the process ends, however it ends."""
    path = output / LOCK
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - open as long as the lock is held
        try:
            if fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                logger.warning("%s has no locks (%s): start one job at a time there.", output, error)
                break
            file.seek(0)
            holder = _holder(file.read())
            file.close()
            raise ValueError(
                f"`output_dir` = {output} is in use by another job ({holder}). Wait for its end, or name another."
            ) from error
        try:
            same = os.fstat(file.fileno()).st_ino == path.stat().st_ino
        except FileNotFoundError:  # the job before removed it in between
            same = False
        if same:
            break
        file.close()
    file.seek(0)
    if before := file.read():
        logger.info("The job before in %s (%s) ended without saying so.", output, _holder(before))
    file.truncate(0)
    file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
    file.flush()
    try:
        yield
    finally:
        if fcntl is None:  # Windows removes no open file
            file.close()
        path.unlink(missing_ok=True)
        file.close()


def _holder(text: str) -> str:
    try:
        held = json.loads(text)
        return f"process {held['pid']} on {held['host']}"
    except (ValueError, KeyError, TypeError):
        return "process unknown"


def choose_checkpoint(training_args: Any) -> str | None:
    """The checkpoint to resume from, if any, or `ENDED`; refuses to write over another run."""
    wanted = training_args.resume_from_checkpoint
    output = Path(training_args.output_dir)
    if wanted is not None and str(wanted).lower() not in GO_ON:
        if not Path(wanted).is_dir():
            raise ValueError(f"`resume_from_checkpoint` must be a checkpoint folder, got {wanted}.")
        return str(wanted)
    newest = None if wanted is None else last_complete_checkpoint(output)
    if newest is not None:
        return str(newest)
    if wanted is not None and (output / RUNS / JOB_FILE).is_file() and (output / ALL_RESULTS).is_file():
        return ENDED
    refuse_others(output, training_args)
    return None


def refuse_others(output: Path, training_args: Any) -> None:
    """Refuse to start in a folder that holds something, unless it may be written over."""
    own = {path.name for path in checkpoints(output)} | set(LEFTOVERS)
    others = [path for path in output.glob("[!.]*") if path.name not in own and not is_written(path)]
    going_on = training_args.resume_from_checkpoint is not None
    work = _work(output)
    if going_on:  # what was killed while its first checkpoint was written begins again
        work = {path for path in work if path.name != TRAINER_STATE or (path.parent / MANIFEST).is_file()}
    if (others or work) and not training_args.overwrite:
        advice = "Pass --resume_from_checkpoint auto to go on with its runs, --overwrite true"
        if going_on:
            advice = "It has no whole checkpoint of this job to go on from: pass --overwrite true"
        raise ValueError(f"`output_dir` = {output} is not empty. {advice} to train anew, or name another folder.")


def begin_run(trainer: Any, checkpoint: str | None, signature: Mapping[str, Any]) -> None:
    """Compare what decides the result with what began the run that goes on; checkpoints then tell it."""
    trainer.job_signature = dict(signature)
    before = None if checkpoint is None else Path(checkpoint) / JOB_FILE
    if before is not None and before.is_file():
        refuse_changes(before.parent.parent, read_json(before), signature, trainer.args.accept_changes)
    anew = trainer.args.overwrite and checkpoint is None
    if anew:
        remove_checkpoints(trainer)  # another run's, the newest of which a later resume would take
    if trainer.is_world_process_zero():
        begin_folder(Path(trainer.args.output_dir), trainer.args, anew)


def end_run(trainer: Any) -> None:
    """Note that a run is through, and remove its checkpoints unless some are to be kept."""
    if trainer.is_world_process_zero():
        write_json(Path(trainer.args.output_dir) / RUNS / JOB_FILE, trainer.job_signature)
    if not trainer.args.keeps_checkpoints:
        remove_checkpoints(trainer)


def ended_run(training_args: Any, signature: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a run that is through; refused if another one was asked for."""
    output = Path(training_args.output_dir)
    before = read_json(output / RUNS / JOB_FILE)
    if changed := changes(before, {name: value for name, value in signature.items() if name in before}):
        raise ValueError(
            f"The run in `output_dir` = {output} is through and its checkpoints are removed, so it cannot go on as "
            f"another one: {changed}. Start from it with `model_name_or_path`, pass --overwrite true to train anew, "
            "or name another folder; `save_total_limit` keeps checkpoints."
        )
    logger.info("The run in %s is through: nothing is trained.", output)
    return read_json(output / ALL_RESULTS)


def remove_checkpoints(trainer: Any) -> None:
    """Remove the checkpoints of the output folder."""
    if trainer.is_world_process_zero():
        for folder in checkpoints(trainer.args.output_dir):
            shutil.rmtree(folder)
    trainer.accelerator.wait_for_everyone()


def configure_logging(args: Any) -> None:
    """Let the first process alone speak, and draw bars if there is a terminal on which they may be."""
    if args.disable_tqdm:
        console.stop()
    else:
        console.start()
    replica = "error" if args.log_level_replica == "warning" else args.log_level_replica  # upstream's default
    log_to_console(args.log_level if is_first_process() else replica)
    args.disable_tqdm = not console.live
    if args.use_cpu or not torch.accelerator.is_available():
        args.dataloader_pin_memory = False  # each loader would warn that it cannot


# ---- files that appear whole ----


def write_json(file: Path, value: Any) -> None:
    """Write JSON that appears whole, without secrets."""
    write_whole(file, json.dumps(redacted(value), indent=1, ensure_ascii=False) + "\n")


def save_trained(
    output: Path, trainer: Any, *processors: Any, also: Callable[[Path], None] = lambda folder: None
) -> None:
    """Write a Trainer's plain model, what prepares its input and what else comes with it into the output folder."""
    state_dict = trainer.whole_state()
    if trainer.is_world_process_zero():
        with written_aside(output) as partial:
            trainer.save_whole(partial, state_dict)
            for processor in processors:
                processor.save_pretrained(partial)
            also(partial)


@contextmanager
def written_aside(output: Path) -> Iterator[Path]:
    """A temporary folder whose files move into `output` when everything in it was written.

    A model's config.json goes first and comes last: until all is in place, the folder does not pass for a model.
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
                output / AUXILIARY_FILE,
                output / PROJECTIONS_FILE,
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
