"""Names of checkpoints that a job is given: a folder, or a repository of the Hub."""

from pathlib import Path
from typing import Any

from huggingface_hub.utils import HFValidationError, validate_repo_id
from transformers import AutoTokenizer
from transformers.utils.hub import cached_file

from ..files import check_tokenizer_config, read_json
from .errors import no_folder

FIELDS = ("model_name_or_path", "tokenizer_name", "config_name")
PROCESSOR_FILE = "processor_config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")


def check_names(model_args: Any) -> None:
    """Refuse names that can be neither a folder nor a repository, before anything is read."""
    for field in FIELDS:
        name = getattr(model_args, field, None)
        if name is not None:
            check_name(field, name)


def check_name(field: str, name: str) -> None:
    """Refuse one name."""
    path = Path(name)
    if path.is_dir() or (field == "config_name" and path.is_file()):
        return
    if path.is_file():
        raise ValueError(
            f"`{field}` = {name} is a file. Name the folder that it is in; weights of an original project become such "
            "a folder by `hf-ptm-ext convert`."
        )
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(
            f"`{field}` = {name} does not exist. Name the folder of a checkpoint, or a repository of the Hub (`name` "
            "or `owner/name`)."
        ) from error


def load_tokenizer(model_args: Any) -> Any:
    """The named tokenizer, or the checkpoint's."""
    field = "model_name_or_path" if getattr(model_args, "tokenizer_name", None) is None else "tokenizer_name"
    source = {"revision": model_args.model_revision, "trust_remote_code": model_args.trust_remote_code}
    advice = (
        " Name another folder's by `tokenizer_name`, or copy" if hasattr(model_args, "tokenizer_name") else " Copy"
    )
    return tokenizer_of(getattr(model_args, field), field, advice, **source)


def folder_of(name: str, file: str, revision: str | None = None) -> Path | None:
    """The folder where a file of a checkpoint lies, that of the Hub's cache for a repository; `None` without it."""
    if Path(name).is_dir():
        return Path(name)
    try:
        found = cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):  # loading says it
        return None
    return None if found is None else Path(found).parent


def tokenizer_of(name: str, field: str, advice: str = " Copy", **source: Any) -> Any:
    """The tokenizer of a folder or repository."""
    check_name(field, name)
    check_tokenizer_config(folder_of(name, "tokenizer_config.json", source.get("revision")) or name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
    except (OSError, ValueError) as error:
        folder = Path(name)
        if folder.is_dir() and not any((folder / file).is_file() for file in TOKENIZER_FILES):
            raise ValueError(
                f"`{field}` = {name} has no tokenizer.{advice} its tokenizer.json and tokenizer_config.json there."
            ) from error
        if not folder.is_dir() and isinstance(error, OSError):
            raise ValueError(f"`{field}` = {no_folder(name)} {error}") from error
        raise
    # Without its vocabulary upstream makes one of five pieces, to which every word is unknown.
    files = {"tokenizer.json", *getattr(tokenizer, "vocab_files_names", {}).values()} - {"tokenizer_config.json"}
    if Path(name).is_dir() and len(files) > 1 and not any((Path(name) / file).is_file() for file in files):
        raise ValueError(
            f"`{field}` = {name} has no vocabulary: none of {', '.join(sorted(files))} is a file there.{advice} it "
            "from where the checkpoint was."
        )
    return with_candidates(tokenizer, name, source.get("revision"))


def with_candidates(tokenizer: Any, name: str, revision: str | None) -> Any:
    """A tokenizer beside which a KnowBERT's dictionaries of candidates are saved, with these."""
    folder = folder_of(name, PROCESSOR_FILE, revision)
    file = None if folder is None else folder / PROCESSOR_FILE
    if file is None or not file.is_file() or read_json(file).get("processor_class") != "KnowBertProcessor":
        return tokenizer
    from ..models.processing_knowbert import KnowBertProcessor

    return KnowBertProcessor(tokenizer, KnowBertProcessor.from_pretrained(name, revision=revision).generators)
