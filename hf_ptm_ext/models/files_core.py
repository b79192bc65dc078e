"""Names of files in a checkpoint's JSON: they lead to files inside the checkpoint, and nowhere else.

Only the caller of a function may name a file elsewhere, as its argument.
"""

import json
import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

# Of any name: `transformers_weights` of a configuration may give one.
INDEXES = ("*.index.json", "*.index.*.json")


def path_inside(folder: str | Path, name: Any, what: str) -> Path:
    """The file of a folder that the folder's own JSON names: never one outside, by `..`, absolutely or by a link."""
    path = Path(folder, relative_name(name, what))
    check_link(folder, path, what)
    return path


def relative_name(name: Any, what: str) -> PurePosixPath:
    """A name that cannot lead out of the folder that it is in."""
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
    """A JSON object beside a checkpoint's weights."""
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
    """Refuse an index of shards that names files outside its folder, before anything reads them."""
    for path in sorted(path for pattern in INDEXES for path in Path(folder).glob(pattern)):
        index = read_config_file(path)
        if "weight_map" not in index and not path.name.startswith(("model.", "pytorch_model.")):
            continue  # an index of something else
        for field in ("metadata", "weight_map"):
            if not isinstance(index.get(field), dict):
                raise ValueError(
                    f"{path} must have `metadata`, and a `weight_map` from weights to files, got "
                    f"{index.get(field)!r:.60} for `{field}`. Save the model again."
                )
        for name in {repr(name): name for name in index["weight_map"].values()}.values():
            relative_name(name, f"`weight_map` of {path.name}")
