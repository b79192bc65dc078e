"""Files that others wrote: JSON with errors that name file and line, names that stay inside their folder."""

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object, such as a `config.json`.

    Args:
        path: the file.

    Returns:
        The object.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not valid UTF-8 JSON (the line is named), or not an object.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "config.json"
        ...     _ = path.write_text('{"hidden_size": 32}', encoding="utf-8")
        ...     read_json(path)
        {'hidden_size': 32}
    """
    path = Path(path)
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text: {error}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must be JSON, line {error.lineno}: {error.msg}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(value).__name__}.")
    return value


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
folder. Files of a checkpoint are named relative to it.
    """
    root = Path(folder)
    outside = ValueError(
        f"{what} names {name!r}, which is no file inside its folder. Files of a checkpoint are named relative to it."
    )
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise outside
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or PureWindowsPath(name).is_absolute() or PurePosixPath(name).is_absolute() or ":" in parts[0]:
        raise outside
    path = root / name
    # A Hub snapshot is made of links into the cache's `blobs` beside it: those are the checkpoint's own files.
    homes = [root.resolve()]
    if root.resolve().parent.name == "snapshots":
        homes.append(root.resolve().parent.parent / "blobs")
    if path.exists() and not any(path.resolve().is_relative_to(home) for home in homes):
        raise outside
    return path


__all__ = ["path_inside", "read_json"]
