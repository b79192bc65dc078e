# Generated from models/canonical/files_canonical.py by scripts/sync_copies.py; change that file.
"""Names of files in a checkpoint's JSON: they lead to files inside the checkpoint, and nowhere else."""

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

INDEXES = ("model.safetensors.index*.json", "pytorch_model.bin.index*.json")


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
