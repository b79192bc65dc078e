"""Making a checkpoint's folder complete: the code files of its family and the whole auto_map.

`save_pretrained` of our classes does the same; this is for folders that were written otherwise, and for checking.
"""

import importlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import read_json

MODELS = Path(__file__).resolve().parents[1] / "models"
ENTRY_FILES = ("configuration", "modeling", "tokenization", "processing")


def families() -> list[str]:
    """The `model_type` of every family of the package.

    Returns:
        The names, sorted.

    Example:
        >>> "spanbert" in families()
        True
    """
    return sorted(path.parent.name for path in MODELS.glob("*/configuration_*.py"))


def code_files(family: str, entries: Sequence[str] = ENTRY_FILES) -> list[Path]:
    """The files of a family that a checkpoint carries: its entry files and all that they import from their folder.

    Args:
        family: its `model_type`.
        entries: kinds of entry files (default all).

    Returns:
        Paths inside the package, sorted by name.

    Raises:
        ValueError: the package has no such family.

    Example:
        >>> "modeling_spanbert.py" in [path.name for path in code_files("spanbert")]
        True
    """
    from transformers.dynamic_module_utils import get_relative_import_files

    _check_family(family)
    found: set[Path] = set()
    for kind in entries:
        entry = MODELS / family / f"{kind}_{family}.py"
        if entry.is_file():
            found |= {entry, *(Path(path) for path in get_relative_import_files(entry))}
    return sorted(found)


def full_auto_map(family: str) -> dict[str, Any]:
    """The auto_map that every checkpoint of a family carries.

    Args:
        family: its `model_type`.

    Returns:
        Auto class -> `file.Class` in the checkpoint's folder.

    Raises:
        ValueError: the package has no such family.

    Example:
        >>> full_auto_map("spanbert")["AutoModelForMaskedLM"]
        'modeling_spanbert.SpanBertForMaskedLM'
    """
    _check_family(family)
    module = importlib.import_module(f"hf_ptm_ext.models.{family}.configuration_{family}")
    return dict(module.AUTO_MAP)


def finish_folder(folder: str | Path) -> list[str]:
    """Copy the family's code files into a checkpoint's folder and complete the auto_map of its `config.json`.

    A family with a decoding of its own also gets its `custom_generate/generate.py`.

    Args:
        folder: a folder with `config.json`. A `model_type` that is not one of ours needs no code: nothing is done.

    Returns:
        Names of the code files that the folder has now, sorted.

    Raises:
        FileNotFoundError: there is no `config.json`.
        ValueError: it is not a JSON object.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "config.json"
        ...     _ = path.write_text('{"model_type": "spanbert"}', encoding="utf-8")
        ...     files = finish_folder(folder)
        ...     "modeling_spanbert.py" in files, len(read_config(folder)["auto_map"])
        (True, 8)
    """
    folder = Path(folder)
    config = read_config(folder)
    family = config.get("model_type")
    if family in families():
        remove_links(folder)
        # Without the file of a tokenizer or a processor nothing names its code, and saving the model again drops it.
        files = {"tokenization": "tokenizer_config.json", "processing": "processor_config.json"}
        for path in code_files(
            family, [kind for kind in ENTRY_FILES if kind not in files or (folder / files[kind]).is_file()]
        ):
            shutil.copyfile(path, folder / path.name)
        if (MODELS / family / f"beam_search_{family}.py").is_file():
            search = importlib.import_module(f"hf_ptm_ext.models.{family}.beam_search_{family}")
            if hasattr(search, "write_custom_generate"):
                search.write_custom_generate(folder)
        config["auto_map"] = {**(config.get("auto_map") or {}), **full_auto_map(family)}
        with open(folder / "config.json", "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return sorted(path.name for path in folder.glob("*.py"))


def remove_links(folder: str | Path) -> None:
    """Take away links where files are about to be written: what they lead to is another's, or the Hub's cache.

    Args:
        folder: of a checkpoint.
    """
    folder = Path(folder)
    for path in (folder / "config.json", folder / "custom_generate", *folder.glob("*.py")):
        if path.is_symlink():
            path.unlink()
    search = folder / "custom_generate" / "generate.py"
    if search.is_symlink():
        search.unlink()


def read_config(folder: str | Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint's folder.

    Args:
        folder: the folder.

    Returns:
        The fields of the configuration.

    Raises:
        FileNotFoundError: the folder or the file does not exist.
        ValueError: the file is not a JSON object.
    """
    path = Path(folder) / "config.json"
    if not path.is_file() and (Path(folder) / "adapter_config.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds an adapter, not a model: `import hf_ptm_ext`, load the base model and put the adapter on "
            "it by `peft.PeftModel.from_pretrained(base, folder)`."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a checkpoint: it has no config.json.")
    return read_json(path)


def _check_family(family: str) -> None:
    if family not in families():
        raise ValueError(f"`family` must be one of {', '.join(families())}, got {family!r}.")


__all__ = ["code_files", "families", "finish_folder", "full_auto_map", "read_config", "remove_links"]
