# Generated from models/canonical/files_canonical.py by scripts/sync_copies.py; change that file.
"""Names of files in a checkpoint's JSON: they lead to files inside the checkpoint, and nowhere else.

Only the caller of a function may name a file elsewhere, as its argument.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

TOKENIZER_CONFIG = "tokenizer_config.json"
INDEXES = ("model.safetensors.index*.json", "pytorch_model.bin.index*.json")
# Arguments of upstream's tokenizers that are read as a file if they are text.
READ_AS_FILES = ("vocab", "merges")


def path_inside(folder: str | Path, name: Any, what: str) -> Path:
    """The file of a folder that the folder's own JSON names: never one outside, by `..`, absolutely or by a link.

    Args:
        folder: of the checkpoint.
        name: as the JSON spells it.
        what: names the JSON and its field in the error.

    Returns:
        The path, which need not exist.

    Raises:
        ValueError: the name is no relative path, or leads out of the folder.

    Example:
        >>> path_inside("model", "../other/weights.safetensors", "model.safetensors.index.json")
        Traceback (most recent call last):
        ...
        ValueError: model.safetensors.index.json names '../other/weights.safetensors', which is no file inside its \
folder: whatever a checkpoint names must lie inside the checkpoint, relative to it.
    """
    path = Path(folder, relative_name(name, what))
    check_link(folder, path, what)
    return path


def relative_name(name: Any, what: str) -> PurePosixPath:
    """A name that cannot lead out of the folder that it is in.

    Args:
        name: as the JSON spells it.
        what: as in `path_inside`.

    Returns:
        The name, as a relative path.

    Raises:
        ValueError: it is no text, absolute, or has `..` in it.
    """
    usable = isinstance(name, str) and bool(name.strip()) and "\0" not in name
    parts = PurePosixPath(name.replace("\\", "/")).parts if usable else ()
    if not parts or ".." in parts or parts[0] == "/" or ":" in parts[0] or PureWindowsPath(name).is_absolute():
        raise ValueError(
            f"{what} names {name!r}, which is no file inside its folder: whatever a checkpoint names must lie inside "
            "the checkpoint, relative to it."
        )
    return PurePosixPath(*parts)


def check_link(folder: str | Path, path: str | Path, what: str) -> None:
    """Refuse a file that is a link out of its folder.

    A Hub snapshot is made of links into the cache's `blobs` beside it: those are the checkpoint's own files.

    Args:
        folder: of the checkpoint.
        path: of the file, which need not exist.
        what: as in `path_inside`.

    Raises:
        ValueError: the path leads out of the folder.
    """
    root = Path(folder).resolve()
    snapshots = next((parent for parent in root.parents if parent.name == "snapshots"), None)
    homes = [root] if snapshots is None else [root, (snapshots.parent / "blobs").resolve()]
    real = Path(path).resolve()
    if os.path.lexists(path) and not any(real.is_relative_to(home) for home in homes):
        raise ValueError(
            f"{what} names {Path(path).name!r}, which is no file inside its folder: it leads to {real}. Links out of "
            "a checkpoint are not followed; copy the file into the folder if it belongs there."
        )


def read_config_file(path: Path) -> dict[str, Any]:
    """A JSON object beside a checkpoint's weights.

    Args:
        path: the file.

    Returns:
        The object.

    Raises:
        ValueError: the file is no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        # What is read is saved again: no number that is none, no half character.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0].rstrip(".")
        raise ValueError(f"{path} must be JSON: {reason}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(value).__name__}.")
    return value


def check_shard_index(folder: str | Path) -> None:
    """Refuse an index of shards that names files outside its folder, before anything reads them.

    Args:
        folder: of the checkpoint; without an index nothing is checked.

    Raises:
        ValueError: an index is no JSON object with a `weight_map`, or names a file outside.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index = Path(folder) / "model.safetensors.index.json"
        ...     _ = index.write_text('{"metadata": {}, "weight_map": {"a": "/etc/passwd"}}', encoding="utf-8")
        ...     check_shard_index(folder)
        Traceback (most recent call last):
        ...
        ValueError: `weight_map` of model.safetensors.index.json names '/etc/passwd', which is no file inside its \
folder: whatever a checkpoint names must lie inside the checkpoint, relative to it.
    """
    for path in sorted(path for pattern in INDEXES for path in Path(folder).glob(pattern)):
        index = read_config_file(path)
        for field in ("metadata", "weight_map"):
            if not isinstance(index.get(field), dict):
                raise ValueError(
                    f"{path} must have `metadata`, and a `weight_map` from weights to files, got "
                    f"{index.get(field)!r:.60} for `{field}`. Save the model again."
                )
        for name in {repr(name): name for name in index["weight_map"].values()}.values():
            relative_name(name, f"`weight_map` of {path.name}")


def check_tokenizer_config(folder: str | Path, fields: Iterable[str] = (), lists: bool = True) -> dict[str, Any]:
    """Refuse a `tokenizer_config.json` that names files outside its folder, before anything reads them.

    Args:
        folder: of the checkpoint; without that file nothing is checked.
        fields: of a tokenizer of ours, that may name a file inside.
        lists: whether a list in such a field is one of files.

    Returns:
        Those of the fields that name files, with lists of paths.

    Raises:
        ValueError: the file is no JSON object, or names a file outside, or one in a field that only a caller may fill.
    """
    path = Path(folder, TOKENIZER_CONFIG)
    config = read_config_file(path) if path.is_file() else {}
    for field in READ_AS_FILES:
        if isinstance(config.get(field), str):
            raise ValueError(f"`{field}` of {path} must not name a file, got {config[field]!r}. Remove it.")
    if config.get("init_inputs"):
        raise ValueError(f"`init_inputs` of {path} must be empty, got {config['init_inputs']!r:.80}. Remove it.")
    found = {}
    for field, takes_list in {**dict.fromkeys(fields, lists), "fast_tokenizer_files": True}.items():
        value = config.get(field)
        names = [value] if isinstance(value, str) else value if isinstance(value, list) and takes_list else []
        paths = [path_inside(folder, name, f"`{field}` of {TOKENIZER_CONFIG}") for name in names]
        if paths and field != "fast_tokenizer_files":
            found[field] = paths
    return found


def tokenizer_files(
    source: Any, resolved: Mapping[str, Any], given: Mapping[str, Any], fields: Iterable[str], lists: bool = True
) -> dict[str, Any]:
    """What a tokenizer of ours takes from a checkpoint's files, none of which leads out of the checkpoint.

    Args:
        source: folder or Hub id.
        resolved: paths that upstream found for a tokenizer's files.
        given: the caller's arguments, which may name files anywhere.
        fields: as in `check_tokenizer_config`.
        lists: as there.

    Returns:
        As there, without what the caller gave.

    Raises:
        ValueError: as there, a file is a link out of the checkpoint, or there is no vocabulary.
    """
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
            check_link(folder, path, str(source))
    return {name: paths for name, paths in found.items() if name not in given}


def with_words(tokenizer: Any, source: Any) -> Any:
    """The tokenizer that upstream loaded; a ValueError if it made one of five pieces for want of a vocabulary."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ValueError(
            f"`pretrained_model_name_or_path` = {source} has no vocabulary. Name a folder with a tokenizer.json or a "
            "vocab.txt, or a repository of the Hub that has one and is within reach."
        )
    return tokenizer
