"""What somebody may have meant."""

import difflib
import os
from collections.abc import Iterable
from os import PathLike
from typing import Any


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """A sentence, with a space in front, that names the most similar of the known names; nothing if none is."""
    similar = difflib.get_close_matches(str(name), sorted(map(str, known)), n=1)
    return f" Did you mean {similar[0]!r}?" if similar else ""


def similar_path(path: str | PathLike[str]) -> str:
    """Likewise for a file or folder that is not there, of what lies beside it."""
    folder, name = os.path.split(path)
    return did_you_mean(name, os.listdir(folder or ".")) if os.path.isdir(folder or ".") else ""
