"""Writing folders whole: nothing half-written is ever seen under the final name."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..files import is_torch_write_error, system_error

CONFIGS = ("config.json", "adapter_config.json")
# What a system refuses to write for.
WRITE_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EMFILE, errno.ENFILE),
)


def check_target(target: str | Path, overwrite: bool = False) -> None:
    """Refuse a target that cannot be replaced, before any work is done.

    Args:
        target: the folder to write.
        overwrite: whether a checkpoint that is there already may be replaced.

    Raises:
        FileExistsError: the folder has files and `overwrite` is not set.
        ValueError: it is a file, or has files and is not a checkpoint (no `config.json` or `adapter_config.json`, or a
            repository in it).

    Examples:
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
        The temporary folder. If the block raises, it is removed, with the parents that were made for it, and the
        target stays as it was.

    Raises:
        OSError: nothing can be written there: no permission, a full disk, a limit. File and reason are named.

    Examples:
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with written_whole(f"{parent}/target") as folder:
        ...         _ = (folder / "file").write_text("done", encoding="utf-8")
        ...     (Path(parent) / "target" / "file").read_text(encoding="utf-8")
        'done'
    """
    target = Path(target)
    check_target(target, overwrite)
    resolved = target.resolve()
    made = [folder for folder in resolved.parents if not folder.exists()]
    temporary = None
    try:
        resolved.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{resolved.name[:100]}.", suffix=".tmp", dir=resolved.parent))
        yield temporary
        _open_to_readers(temporary)
        _replace(resolved, temporary)
    except BaseException as error:
        number = None if _is_of_another_place(error, temporary) else _write_error(error, resolved.parent)
        name = _being_written(error, temporary) if number is not None else ""
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:  # the innermost first
            with suppress(OSError):
                folder.rmdir()
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(target / name)) from error


def _write_error(error: BaseException, folder: Path) -> int | None:
    """The system's number of a write that failed, whichever library was writing; `None` for other errors."""
    number = None if isinstance(error, ValueError) else system_error(error)  # it may quote another's
    if is_torch_write_error(error):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        number = errno.ENOSPC if shutil.disk_usage(existing).free < 2**20 else errno.EFBIG
    return number if number in WRITE_ERRORS else None


def _is_of_another_place(error: BaseException, temporary: Path | None) -> bool:
    """Whether the system's error names a file that is none of those being written."""
    name = (error.filename2 or error.filename) if isinstance(error, OSError) else None
    return temporary is not None and isinstance(name, str) and not name.startswith(str(temporary))


def _being_written(error: BaseException, folder: Path | None) -> str:
    """The file at which writing stopped: the innermost function's, else the youngest."""
    if folder is None:
        return ""
    trace, found = error.__traceback__, None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, str | Path) and str(value).startswith(f"{folder}{os.sep}") and Path(value).suffix:
                found = Path(value)
        trace = trace.tb_next
    if found is None:
        files = [path for path in folder.rglob("*") if path.is_file()]
        found = max(files, key=lambda path: path.stat().st_mtime_ns, default=folder)
    return found.relative_to(folder).as_posix()


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
