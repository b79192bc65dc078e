"""Files: JSON that others wrote, names that stay inside their folder, writing that appears whole, the package's data.

What is written aside has a name that ends in `.partial` until it is complete.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .hints import did_you_mean
from .models.files_core import check_link as check_link
from .models.files_core import check_shard_index as check_shard_index
from .models.files_core import path_inside as path_inside
from .models.tokenizer_files_core import check_tokenizer_config as check_tokenizer_config

PACKAGE = Path(__file__).resolve().parent
# name -> (folder in a wheel, folder in a checkout)
RESOURCES = {
    "model_cards": (PACKAGE / "_resources" / "model_cards", PACKAGE.parent / "model_cards"),
    "configs": (PACKAGE / "_resources" / "configs", PACKAGE.parent / "scripts" / "configs"),
    "decoding": (PACKAGE / "_resources" / "decoding", PACKAGE.parent / "scripts" / "decoding"),
    "evidence": (PACKAGE / "_resources" / "evidence", PACKAGE.parent / "scripts" / "evidence" / "results"),
}
_TORCH_WRITER = re.compile(r"PytorchStreamWriter|file write failed|unexpected pos \d|iostream error")


# ---- read ----


def read_json(path: str | Path, strict: bool = False) -> dict[str, Any]:
    """Read a JSON object, such as a `config.json`; `strict` refuses names that are there twice, NaN and infinity."""
    path = Path(path)
    try:
        with open(path, encoding="utf-8") as file:
            options: dict[str, Any] = {"object_pairs_hook": _once, "parse_constant": _no_number} if strict else {}
            value = json.load(file, **options)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text: {error}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must be JSON, line {error.lineno}: {error.msg}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} must be JSON, and is nested too deeply to be read.") from error
    except ValueError as error:  # of the hooks, or an integer of thousands of digits
        raise ValueError(f"{path} must be JSON: {str(error).partition(';')[0]}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(value).__name__}.")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are different ones."""
    value: dict[str, Any] = {}
    for name, item in pairs:
        if name in value:
            raise ValueError(f"{name!r} is there twice")
        value[name] = item
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's content, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def resource_folder(name: str) -> Path:
    """One of the package's data folders: inside an installed wheel, or at the top of a checkout."""
    if name not in RESOURCES:
        raise ValueError(f"`name` must be one of {', '.join(RESOURCES)}, got {name!r}.")
    for folder in RESOURCES[name]:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"The installation of hf_ptm_ext has no {name}: looked in {RESOURCES[name]}. Reinstall it."
    )


def resource(name: str, file_name: str) -> Path:
    """A file of a data folder."""
    if Path(file_name).name != file_name:
        raise ValueError(f"`file_name` must be a bare file name, got {file_name!r}.")
    folder = resource_folder(name)
    path = folder / file_name
    if not path.is_file():
        names = sorted(found.name for found in folder.iterdir() if found.is_file())
        listed = ", ".join(names) or "none"
        raise FileNotFoundError(
            f"There is no {file_name} among the {name}.{did_you_mean(file_name, names)} There are: {listed}."
        )
    return path


# ---- written ----


@contextmanager
def file_aside(file: str | Path) -> Iterator[Path]:
    """Context: a name beside the file to write to, which takes the file's place if the block succeeds."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    try:
        yield partial
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(file: str | Path, text: str) -> None:
    """Write a text that appears whole."""
    with file_aside(file) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(file: str | Path, value: Any, **options: Any) -> None:
    """Write JSON that appears whole, indented by 2 unless `options` of `json.dumps` say otherwise."""
    write_whole(file, json.dumps(value, **{"indent": 2, **options}) + "\n")


def system_error(error: BaseException) -> int | None:
    """The system's number of an error, whichever library met it; `None` if it tells none."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))  # safetensors and tokenizers say it in the text
    return None if found is None else int(found[1])


def is_torch_write_error(error: BaseException) -> bool:
    """Whether torch could not write a file; it does not say why."""
    return isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)) is not None
