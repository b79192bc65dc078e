"""Writing folders whole: nothing half-written is ever seen under the final name."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIGS = ("config.json", "adapter_config.json")


def check_target(target: str | Path, overwrite: bool = False) -> None:
    """Refuse a target that cannot be replaced, before any work is done.

    Args:
        target: the folder to write.
        overwrite: whether a checkpoint that is there already may be replaced.

    Raises:
        FileExistsError: the folder has files and `overwrite` is not set.
        ValueError: it is a file, or has files and is not a checkpoint (no `config.json` or `adapter_config.json`, or a
            repository in it).

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_target(f"{folder}/new")
    """
    target = Path(target)
    if target.exists() and not target.is_dir():
        raise ValueError(f"`target` must be a folder, got the file {target}.")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(f"`target` must be a new or empty folder, got {target}. Replace it with `--overwrite`.")
    if not any((target / name).is_file() for name in CONFIGS) or (target / ".git").exists():
        raise ValueError(
            f"`--overwrite` replaces a checkpoint, and {target} is none: it has no config.json, or it is a git "
            "repository. Empty it by hand or choose another target."
        )


@contextmanager
def written_whole(target: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Context: a temporary folder beside the target, which takes the target's place if the block succeeds.

    Args:
        target: the folder to write; parents are made.
        overwrite: whether a checkpoint that is there already may be replaced, see `check_target`.

    Returns:
        The temporary folder. If the block raises, it is removed and the target stays as it was.

    Example:
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with written_whole(f"{parent}/target") as folder:
        ...         _ = (folder / "file").write_text("done", encoding="utf-8")
        ...     (Path(parent) / "target" / "file").read_text(encoding="utf-8")
        'done'
    """
    target = Path(target)
    check_target(target, overwrite)
    parent = target.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.resolve().name}.", suffix=".tmp", dir=parent))
    try:
        yield temporary
        _open_to_readers(temporary)
        _replace(target.resolve(), temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _open_to_readers(folder: Path) -> None:
    """Give the permissions of ordinary new files: temporary folders, and some writers' files, are private."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def _replace(target: Path, folder: Path) -> None:
    if not target.exists():
        folder.rename(target)
        return
    old = folder.with_suffix(".old")
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


__all__ = ["check_target", "written_whole"]
