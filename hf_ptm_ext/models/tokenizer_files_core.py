"""Names of files in the JSON of a tokenizer or processor: they lead to files inside the checkpoint, nowhere else.

`files_core` does the same for models: a model and its tokenizer may be pushed by two versions of the package.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

TOKENIZER_CONFIG = "tokenizer_config.json"
# Arguments of upstream's tokenizers that are read as a file if they are text.
READ_AS_FILES = ("vocab", "merges")


def file_inside(folder: str | Path, name: Any, what: str) -> Path:
    """The file of a folder that `what` names; a ValueError if it is absolute or leads out of the folder."""
    windows = PureWindowsPath(name if isinstance(name, str) else "")
    if not str(name).strip() or "\0" in str(name) or windows.anchor or not windows.parts or ".." in windows.parts:
        raise ValueError(
            f"{what} names {name!r}, which is no file inside its folder: whatever a checkpoint names must lie inside "
            "the checkpoint, relative to it."
        )
    path = Path(folder, *windows.parts)
    refuse_link_outside(folder, path, what)
    return path


def refuse_link_outside(folder: str | Path, path: str | Path, what: str) -> None:
    """A ValueError for a link out of the folder; a Hub snapshot's links into `blobs` beside it are its own files."""
    root, real = Path(folder).resolve(), Path(path).resolve()
    snapshots = next((parent for parent in root.parents if parent.name == "snapshots"), None)
    homes = [root] if snapshots is None else [root, (snapshots.parent / "blobs").resolve()]
    if os.path.lexists(path) and not any(real.is_relative_to(home) for home in homes):
        raise ValueError(
            f"{what} names {Path(path).name!r}, which is no file inside its folder: it leads to {real}. Links out of "
            "a checkpoint are not followed; copy the file into the folder if it belongs there."
        )


def tokenizer_config(path: Path) -> dict[str, Any]:
    """The JSON object in a file that may be missing; a ValueError if it is none, or could not be saved again."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0].rstrip(".")
        raise ValueError(f"{path} must be JSON: {reason}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(value).__name__}.")
    return value


def check_tokenizer_config(folder: str | Path, fields: Iterable[str] = (), lists: bool = True) -> dict[str, Any]:
    """Refuse a `tokenizer_config.json` that names files outside its folder, before anything reads them."""
    path = Path(folder, TOKENIZER_CONFIG)
    config = tokenizer_config(path)
    for field in READ_AS_FILES:
        if isinstance(config.get(field), str):
            raise ValueError(f"`{field}` of {path} must not name a file, got {config[field]!r}. Remove it.")
    if config.get("init_inputs"):
        raise ValueError(f"`init_inputs` of {path} must be empty, got {config['init_inputs']!r:.80}. Remove it.")
    found = {}
    for field, takes_list in {**dict.fromkeys(fields, lists), "fast_tokenizer_files": True}.items():
        value = config.get(field)
        names = [value] if isinstance(value, str) else value if isinstance(value, list) and takes_list else []
        paths = [file_inside(folder, name, f"`{field}` of {TOKENIZER_CONFIG}") for name in names]
        if paths and field != "fast_tokenizer_files":
            found[field] = paths
    return found


def tokenizer_files(
    source: Any, resolved: Mapping[str, Any], given: Mapping[str, Any], fields: Iterable[str], lists: bool = True
) -> dict[str, Any]:
    """What a tokenizer of ours takes from a checkpoint's files, none of which leads out of the checkpoint."""
    config = resolved.get("tokenizer_config_file")
    folder = Path(config).parent if config else Path(source)
    if not folder.is_dir():  # a single file, which the caller named
        return {}
    found = check_tokenizer_config(folder, fields, lists)
    # Without its vocabulary upstream makes one of five pieces, to which every word is unknown.
    if not any(resolved.get(name) or name in given for name in ("vocab_file", "tokenizer_file", "vocab")):
        raise ValueError(f"{source} has no vocabulary: neither tokenizer.json nor vocab.txt is a file there.")
    for name, path in resolved.items():
        if path is not None and name not in given:
            refuse_link_outside(folder, path, str(source))
    return {name: paths for name, paths in found.items() if name not in given}


def with_words(tokenizer: Any, source: Any) -> Any:
    """The tokenizer that upstream loaded; a ValueError if it made one of five pieces for want of a vocabulary."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ValueError(
            f"`pretrained_model_name_or_path` = {source} has no vocabulary. Name a folder with a tokenizer.json or a "
            "vocab.txt, or a repository of the Hub that has one and is within reach."
        )
    return tokenizer
