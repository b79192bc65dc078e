"""What decides the result of a job, compared by content whenever a run goes on."""

import glob
import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file, extract_commit_hash

from ..redaction import redacted

logger = logging.getLogger(__name__)

# What may change between the parts of one job: where it runs, what it reports, what its card says.
FREE_ARGUMENTS = (
    *("output_dir", "overwrite", "resume_from_checkpoint", "accept_changes", "do_train", "do_eval", "seeds"),
    *("logging_", "log_", "report_to", "run_name", "disable_tqdm", "project", "trackio", "save_"),
    *("push_to_hub", "hub_", "use_cpu", "dataloader_num", "dataloader_pin", "dataloader_pre", "dataloader_per"),
    *("ddp_", "local_rank", "torch_compile", "per_device_eval_batch_size", "debug", "license", "data_license"),
)
MODELS = (
    *("model_name_or_path", "teacher_name_or_path", "student_name_or_path", "config_name", "tokenizer_name"),
    *("augment_model", "baseline_init"),
)
# Options beside `..._file` that name files or folders.
FILES = (
    "kg",
    "entity_table",
    "entity_titles",
    "wordnet_senses",
    "dataset_name",
    "decoding",
    "deepspeed",
    "fsdp_config",
)
# Of a model's folder what a job writes beside the model.
NO_MODEL = ("README.md", "recipe.yaml", "results.json", "trainer_state.json", "training_args.bin")
BLOCK = 1 << 22


def signature_of(*groups: Any, **more: Any) -> dict[str, Any]:
    """All that decides the result, as JSON: options by value, files and models that they name by content."""
    found: dict[str, Any] = {}
    for group in groups:
        values = group.to_dict() if hasattr(group, "to_dict") else asdict(group)
        revision = values.get("model_revision") or values.get("teacher_revision")
        kept = {name: value for name, value in values.items() if not name.startswith(FREE_ARGUMENTS)}
        found |= {name: content_of(name, value, revision) for name, value in kept.items()}
    return redacted(json.loads(json.dumps({**found, **more}, default=str)))


def content_of(name: str, value: Any, revision: str | None = None) -> Any:
    """A value of an option; what lies on the disk under its name is told by content, so that it may be moved."""
    if isinstance(value, dict):
        return {key: content_of(key, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [content_of(name, one, revision) for one in value]
    if not isinstance(value, (str, Path)) or not str(value):
        return value
    if name in ("concepts", "concept_vectors"):  # NAME=FILE
        base, _, file = str(value).partition("=")
        return f"{base}={content_of('kg', file)}"
    model, path = name in MODELS, Path(value)
    if not model and not name.endswith("_file") and name not in FILES:
        return str(value)
    try:
        if model and path.is_dir():
            return digest_of_files(file for file in path.iterdir() if file.is_file() and not _is_report(file.name))
        if path.is_file():
            return digest_of_files([path])
        if name.endswith("_file") or path.is_dir():
            files = sorted(path.rglob("*") if path.is_dir() else map(Path, glob.glob(str(value), recursive=True)))
            return digest_of_files(file for file in files if file.is_file()) if files else str(value)
    except OSError:  # no name of a file
        return str(value)
    return f"{value} at {commit_of(str(value), revision)}" if model else str(value)


def _is_report(name: str) -> bool:
    return name.startswith(("_", ".", "predictions_")) or name in NO_MODEL or name.endswith(("_results.json", ".png"))


def digest_of_files(files: Iterable[Path]) -> str:
    """A fingerprint of the names and bytes of files."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(files, key=lambda path: path.name):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode("utf-8", "surrogateescape"))
        with open(file, "rb") as opened:
            while block := opened.read(BLOCK):
                digest.update(block)
    return f"content {digest.hexdigest()}"


def commit_of(name: str, revision: str | None = None) -> str | None:
    """The commit of a Hub repository, if it is within reach or in the cache."""
    try:
        file = cached_file(name, "config.json", revision=revision, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):
        return None
    return extract_commit_hash(file, None)


def digest_of(examples: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """A fingerprint of the examples of each split, so that runs on other data are not taken for the same."""
    digests = {}
    for split, ones in examples.items():
        digest = hashlib.blake2b(digest_size=8)
        for one in ones:
            digest.update(repr(one).encode("utf-8", "surrogatepass"))
        digests[split] = digest.hexdigest()
    return digests


def changes(before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()) -> str:
    """The first few things that have changed, in words; nothing if all that may not change is the same."""
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if set(changed) <= set(free):
        return ""
    return ", ".join(f"{name} = {now.get(name)} (was {before.get(name)})" for name in changed[:5])


def refuse_changes(where: Path, before: Mapping[str, Any], now: Mapping[str, Any], accept: bool) -> None:
    """Refuse to go on with a run that other options, data or models began, unless that is meant."""
    # What began under an earlier version knows nothing of the options that are new.
    changed = changes(before, {name: value for name, value in now.items() if name in before})
    if changed and not accept:
        raise ValueError(
            f"`output_dir` = {where} holds runs of another job, which cannot go on as this one or be compared with "
            f"it: {changed}. Give the same arguments, pass --accept_changes true if it is meant, --overwrite true to "
            "train anew, or name another folder."
        )
    if changed:
        logger.warning("%s goes on with changes: %s.", where, changed)
