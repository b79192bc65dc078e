"""Pushes to the Hub: checked before training, told when they fail, and never with a secret or a pickle in them."""

import os
import shlex
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from fnmatch import fnmatch
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, SaveStrategy
from transformers.utils import PushInProgress, logging

from ..redaction import hide_secrets, redact_log_records, redacted
from .manifest import JOB_FILE, MANIFEST, TypedTrainer

logger = logging.get_logger(__name__)

CARD = "README.md"
PICKLED_ARGUMENTS = (TRAINING_ARGS_NAME, f"*/{TRAINING_ARGS_NAME}")
RECIPE = "recipe.yaml"  # of a job, with the paths of this machine
NEVER_PUSHED = (*PICKLED_ARGUMENTS, RECIPE, "_*", f"{PREFIX_CHECKPOINT_DIR}-*")
# What only a resumed training reads; the rest of a checkpoint is the model.
TRAINING_STATE = (
    *(TRAINING_ARGS_NAME, MANIFEST, JOB_FILE, "trainer_state.json", "data_state_*", "optimizer*", "scheduler.pt"),
    "carried_state_*",
    *("scaler.pt", "rng_state*", "pytorch_model_fsdp*", "global_step*", "latest", "zero_to_fp32.py", "*.partial"),
    "checkpoint-is-incomplete.txt",
)
# Links to the files that are being pushed; a leading underscore: never pushed itself.
PUSHED_FROM = "_pushes"
LONGEST_REASON = 300


class PushFailed(OSError):
    """A push that did not arrive. What was trained is complete, and the message says where and what pushes it."""


def check_hub(args: Any) -> str | None:
    """Ask the Hub, before anything is trained, whether it will take the model; make the repository.

    Args:
        args: `push_to_hub`, `hub_model_id` (default: the name of `output_dir`), `hub_token`, `hub_private_repo` and
            `hub_revision`, as in `transformers.TrainingArguments`.

    Returns:
        The repository's id, or `None` if nothing is to be pushed.

    Raises:
        ValueError: the Hub is not reached, does not know the token, or it may not write there.
    """
    if not args.push_to_hub:
        return None
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    api = HfApi(token=args.hub_token)
    try:
        _ask(api.whoami)
        repository = api.create_repo(name, private=args.hub_private_repo, exist_ok=True).repo_id
        _ask(api.auth_check, repository, write=True)
        if args.hub_revision is not None:
            api.repo_info(repository, revision=args.hub_revision)
    except Exception as error:
        raise ValueError(
            f"`push_to_hub`: the Hub does not take pushes to `hub_model_id` = {redacted(name)}: "
            f"{reason_of(error, [args.hub_token])} Nothing was trained. Log in with `hf auth login` or pass a "
            "`hub_token` that may write, name a repository of yours (and a branch that it has, `hub_revision`), or "
            "leave `push_to_hub` out."
        ) from None  # its traceback would show the address and the headers
    return repository


def _ask(question: Any, *args: Any, **kwargs: Any) -> None:
    """A question that not every Hub answers: only a refusal counts."""
    try:
        answer = question(*args, **kwargs)
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise
        return
    role = (((answer or {}).get("auth") or {}).get("accessToken") or {}).get("role")
    if role == "read":
        raise PermissionError(f"The token may only {role}.")


def reason_of(error: BaseException, secrets: Sequence[str | None] = ()) -> str:
    """An error's reason as one sentence without secrets."""
    cause = error.__cause__ or (error.__context__ if not error.__suppress_context__ else None)
    # A server's own words come last in a message of many lines, behind the address and an id of the request.
    told = getattr(error, "server_message", None) if isinstance(error, HfHubHTTPError) else None
    if told:
        told = f"{error.response.status_code} {told}"  # type: ignore[attr-defined]
    text = " ".join((told or str(error) or type(error).__name__).split())
    if cause is not None and str(cause) not in text and not told:
        text = f"{text.rstrip('.')}: {' '.join(str(cause).split()) or type(cause).__name__}"
    text = redacted(text, secrets)
    return f"{(text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + '...').rstrip('.')}."


def push_command(repository: str, folder: str | Path, ignored: Sequence[str] = NEVER_PUSHED) -> str:
    """The command that pushes a folder by hand."""
    words = ["hf", "upload", repository, str(folder), "."]
    words += [word for pattern in ignored for word in ("--exclude", pattern)]
    return redacted(" ".join(shlex.quote(word) for word in words))


def push_folder(folder: str | Path, args: Any, message: str | None, ignored: Sequence[str] = NEVER_PUSHED) -> Any:
    """Push a finished folder as one commit.

    Args:
        folder: what is pushed.
        args: as `check_hub`.
        message: of the commit.
        ignored: patterns of files that are not pushed; the pickle of the arguments and a job's recipe never are.

    Returns:
        What `huggingface_hub` says of the commit.

    Raises:
        PushFailed: the Hub refused it or was not reached.
    """
    name = args.hub_model_id or Path(folder).absolute().name
    ignored = [*dict.fromkeys([*PICKLED_ARGUMENTS, RECIPE, *ignored])]
    try:
        api = HfApi(token=args.hub_token)
        name = api.create_repo(name, private=args.hub_private_repo, exist_ok=True).repo_id
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message=message,
            revision=args.hub_revision,
            ignore_patterns=ignored,
        )
        _pin(Path(folder) / CARD, name, commit.oid, args)
        return commit
    except Exception as error:
        raise PushFailed(
            f"Training is complete and the model lies in {folder}, but it was not pushed to {redacted(name)}: "
            f"{reason_of(error, [args.hub_token])} Push it with: {push_command(name, folder, ignored)}"
        ) from None


def _pin(card: Path, repository: str, commit: str, args: Any) -> None:
    """Let a card's snippets load the commit that has just been pushed, from where it is, and push the card again."""
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    pinned = text.replace('revision="COMMIT"', f'revision="{commit}"')
    if pinned == text:
        return
    for name in (args.hub_model_id, f"your-name/{card.parent.absolute().name}"):
        pinned = pinned.replace(f'"{name}"', f'"{repository}"')
    try:
        card.write_text(pinned, encoding="utf-8", newline="\n")
        HfApi(token=args.hub_token).upload_file(
            path_or_fileobj=card,
            path_in_repo=CARD,
            repo_id=repository,
            commit_message=f"Pin {commit[:12]} in the card",
            revision=args.hub_revision,
        )
    except Exception as error:  # the model is there
        reason = reason_of(error, [args.hub_token])
        logger.warning(f"{repository} was pushed, but its card does not name the commit {commit}: {reason}")


class HubPushes(TypedTrainer):
    """`transformers.Trainer` with such pushes; the repository is made as training begins, so predicting needs none."""

    def __init__(self, *args: Any, **kwargs: Any):
        self._asks_hub = False
        self._pushes: list[Future | OSError] = []
        super().__init__(*args, **kwargs)
        self._asks_hub = True
        hide_secrets(self.args)
        if self.args.push_to_hub:
            redact_log_records()

    @cached_property
    def _hub(self) -> HfApi:
        """One client: its uploads follow one another."""
        return HfApi(token=self.args.hub_token)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Check the Hub and make the repository; not while the Trainer is built."""
        self.push_in_progress = None
        if self._asks_hub and self.is_world_process_zero():
            self.hub_model_id = check_hub(self._hub_arguments(token, private))

    def _hub_arguments(
        self, token: str | None = None, private: bool | None = None, revision: str | None = None
    ) -> SimpleNamespace:
        """The Trainer's arguments for the Hub, as changed by a method's."""
        return SimpleNamespace(
            push_to_hub=True,
            output_dir=self.args.output_dir,
            hub_model_id=self.hub_model_id or self.args.hub_model_id or Path(self.args.output_dir).absolute().name,
            hub_token=self.args.hub_token if token is None else token,
            hub_private_repo=self.args.hub_private_repo if private is None else private,
            hub_revision=self.args.hub_revision if revision is None else revision,
        )

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.args.push_to_hub and self.hub_model_id is None:
            self.init_hf_repo()
        self._pushes = []
        output = super().train(*args, **kwargs)
        if self.is_world_process_zero():
            shutil.rmtree(Path(self.args.output_dir) / PUSHED_FROM, ignore_errors=True)
        errors = [push if isinstance(push, OSError) else push.exception() for push in self._pushes]
        failed = [reason_of(error, [self.args.hub_token]) for error in errors if error is not None]
        if failed:
            logger.warning(
                f"{len(failed)} of {len(errors)} pushes in training failed, at last: {failed[-1]} Checkpoints lie in "
                f"{self.args.output_dir}; when the model is saved there, push it with: "
                f"{push_command(self.hub_model_id or '', self.args.output_dir)}"
            )
        return output

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        hide_secrets(self.args)  # whatever was set since
        super()._save(output_dir, state_dict)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """As upstream, unless the output folder has a card: upstream would write its own template over it."""
        card = Path(self.args.output_dir) / CARD
        if card.is_file():
            return
        super().create_model_card(*args, **kwargs)
        if card.is_file():
            card.write_text(redacted(card.read_text(encoding="utf-8")), encoding="utf-8")

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """As upstream; a push that fails says in one line where the model lies and what pushes it."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        args = self._hub_arguments(token, private, revision)
        kwargs.setdefault("model_name", args.hub_model_id.rpartition("/")[2])
        tags = kwargs.get("tags") or []
        tags = [tags] if isinstance(tags, str) else tags
        kwargs["tags"] = [*dict.fromkeys([*tags, *(getattr(self.model, "model_tags", None) or ())])]
        self.create_model_card(**kwargs)
        self._finish_current_push()
        if blocking:
            return push_folder(self.args.output_dir, args, commit_message)
        job = self._hub.run_as_future(push_folder, self.args.output_dir, args, commit_message)
        job.add_done_callback(self._tell_of)
        return job

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push what the checkpoint holds of the model, all of it; a fault is told and stops nothing."""
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        running = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if running and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        by_step = self.args.save_strategy == SaveStrategy.STEPS
        number = f"step {self.state.global_step}" if by_step else f"epoch {int(self.state.epoch or 0)}"
        uploads: list[tuple[Any, ...]] = [(f"Training in progress, {number}", TRAINING_STATE, None)]
        if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            last = self.args.hub_strategy == HubStrategy.CHECKPOINT
            place = "last-checkpoint" if last else Path(checkpoint_folder).name
            uploads.append((f"Training in progress, {number}, checkpoint", PICKLED_ARGUMENTS, place))
        jobs: Any = []
        for message, left_out, place in uploads:
            try:
                folder = self._snapshot(Path(checkpoint_folder), left_out)
            except OSError as error:
                self._pushes.append(error)
                self._tell(error)
                continue
            job = self._hub.upload_folder(
                repo_id=self.hub_model_id,
                folder_path=folder,
                path_in_repo=place,
                commit_message=message,
                revision=self.args.hub_revision,
                run_as_future=True,
            )
            job.add_done_callback(partial(self._pushed, folder))
            jobs.append(job)
        self._pushes += jobs
        if running:
            self.push_in_progress.jobs.extend(jobs)
        else:
            self.push_in_progress = PushInProgress(jobs)

    def _snapshot(self, checkpoint: Path, left_out: Sequence[str]) -> Path:
        """What is pushed of a checkpoint, in a folder of its own: training may remove the checkpoint meanwhile."""
        folder = Path(self.args.output_dir) / PUSHED_FROM / f"{checkpoint.name}-{len(left_out)}"
        shutil.rmtree(folder, ignore_errors=True)
        for source in sorted(checkpoint.rglob("*")):
            name = source.relative_to(checkpoint)
            if source.is_file() and not any(fnmatch(part, kind) for part in name.parts for kind in left_out):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source, folder / name)
                except OSError:  # not every file system has links
                    shutil.copy(source, folder / name)
        return folder

    def _pushed(self, folder: Path, job: Future) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._tell_of(job)

    def _tell_of(self, job: Future) -> None:
        error = None if job.cancelled() else job.exception()
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        reason = reason_of(error, [self.args.hub_token])
        logger.warning(f"A push to {redacted(str(self.hub_model_id))} failed, training goes on: {reason}")
