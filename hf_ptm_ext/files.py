"""Files that others wrote: JSON with errors that name file and line, names that stay inside their folder."""

import json
from pathlib import Path
from typing import Any

from .models.canonical.files_canonical import check_link, check_shard_index, check_tokenizer_config, path_inside


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


__all__ = ["check_link", "check_shard_index", "check_tokenizer_config", "path_inside", "read_json"]
