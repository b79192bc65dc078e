"""Files that others wrote: JSON with errors that name file and line, names that stay inside their folder."""

import json
from pathlib import Path
from typing import Any

from .models.canonical.files_canonical import check_link, check_shard_index, check_tokenizer_config, path_inside


def read_json(path: str | Path, strict: bool = False) -> dict[str, Any]:
    """Read a JSON object, such as a `config.json`.

    Args:
        path: the file.
        strict: whether names that are there twice, NaN and infinity, which JSON has not, are refused (default False).

    Returns:
        The object.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not valid UTF-8 JSON (the line is named), nested too deeply, or not an object.

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


__all__ = ["check_link", "check_shard_index", "check_tokenizer_config", "path_inside", "read_json"]
