"""Which errors are told in one line, and how: what was asked for, a file, the machine; not what breaks in training."""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

from ..files import is_torch_write_error, system_error
from ..hints import similar_path
from ..redaction import redacted

MOST_CHARACTERS = 1500
# errno -> what helps.
STORAGE = {
    errno.ENOSPC: "Free some space, or name a folder of another disk.",
    errno.EDQUOT: "Your quota is used up: free some space, or name a folder of another disk.",
    errno.EFBIG: "Raise the limit of a file's size (`ulimit -f`), or name a folder of another disk.",
    errno.EMFILE: "Raise the limit of open files (`ulimit -n`), or take fewer --dataloader_num_workers.",
    errno.ENFILE: "The machine has no open files left: end other programs, or raise its limit (fs.file-max).",
    errno.EROFS: "It cannot be written to: name a folder of another disk.",
    errno.EACCES: "Change its permissions, or name another one.",
    errno.EPERM: "Change its permissions, or name another one.",
    errno.EIO: "The disk or its connection is faulty: name a folder of another disk.",
}
# Optional package -> the extra that installs it, or the package itself.
EXTRAS = {
    "jieba": "hf-ptm-ext[zh]",
    "ahocorasick_rs": "hf-ptm-ext[knowledge]",
    "sacrebleu": "hf-ptm-ext[metrics]",
    "rouge_score": "hf-ptm-ext[metrics]",
    "seqeval": "hf-ptm-ext[metrics]",
    "sklearn": "hf-ptm-ext[metrics]",
    "matplotlib": "hf-ptm-ext[viz]",
    "gensim": "hf-ptm-ext[embeddings]",
    "torchao": "hf-ptm-ext[torchao]",
    "PIL": "pillow",
    "google": "protobuf",
}
# Local variables that hold the file, folder or repository that a function is about, the most telling first.
_SUBJECTS = (
    *("filename", "checkpoint_file", "shard_file", "safetensors_file", "resolved_config_file", "config_file"),
    *("vocab_file", "tokenizer_file", "fast_tokenizer_file", "weights_file", "file", "file_path", "path", "f", "fdst"),
    *("dst", "zip_path", "save_directory", "output_dir", "folder", "self"),
)
_SOURCES = ("pretrained_model_name_or_path", "repo_id", "path_or_repo_id")
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")


def told(error: BaseException) -> str | None:
    """The one line that tells an error; `None` for what broke inside a training that had begun well.

    There its traceback is needed.
    """
    if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
        return None
    message = _storage(error) or _known(error)
    if message is None and not _in_training(error):
        message = _missing_package(error) or _unknown(error)
    return None if message is None else folded(message)


def folded(message: str) -> str:
    """A message on one line of sensible length, without secrets and control characters."""
    line = without_secrets(" ".join(message.split()))
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    if len(line) <= MOST_CHARACTERS:
        return line
    return f"{line[: MOST_CHARACTERS - 300]} [...] {line[-295:]}"


def without_secrets(text: str) -> str:
    """A text without the secrets of this process, the token of its command line among them."""
    words = [word.partition("=") for word in sys.argv]
    tokens = [
        value if equals else following
        for (name, equals, value), (following, *_) in zip(words, [*words[1:], ("",)], strict=True)
        if name.replace("-", "_").startswith("__hub_t")
    ]
    return redacted(text, tokens)


def _storage(error: BaseException) -> str | None:
    """A full disk, a limit of files, a folder that cannot be written, whichever library met it."""
    for one in _chain(error):
        number = system_error(one)
        if is_torch_write_error(one):
            return (
                f"{_file(one) or _file(error) or 'A file'} could not be written: {_first_line(one)}. Is the disk full?"
            )
        if number in STORAGE:
            named = one.filename2 or one.filename if isinstance(one, OSError) else None
            if isinstance(named, int):  # a descriptor
                named = None
            name = _name(named) or _file(one) or _file(error)
            return f"{name or 'A file'}: {os.strerror(number)} (errno {number}). {STORAGE[number]}"
    return None


def _known(error: BaseException) -> str | None:
    """Errors whose message alone helps, in training too: a wrong value, a file or a network not as expected."""
    if any(cls.__name__ == "TrainingStopped" for cls in type(error).__mro__):
        return str(error)
    module = type(error).__module__.partition(".")[0]
    # The Hub's client lets its transport's errors through when there is no network.
    if module in _NETWORK:
        return _with_subject(error, _text(error))
    # Raised by configurations for a field of the wrong type; looked up so that no command imports more than it needs.
    hub_errors = sys.modules.get("huggingface_hub.errors")
    if hub_errors is not None and isinstance(error, hub_errors.StrictDataclassError):
        return _with_subject(error, _text(error))
    if not isinstance(error, ValueError | OSError) or (_in_training(error) and not _is_ours(error)):
        return None
    text = _text(error)
    if isinstance(error, UnicodeDecodeError):
        return (
            f"{_subject(error) or 'A file'} must be {error.encoding} text: {text}. Save it so, or name its encoding."
        )
    # What libraries say seldom names the file that they were reading.
    return text if _is_ours(error) else _with_subject(error, _of_checkpoint(error, text))


def _of_checkpoint(error: BaseException, text: str) -> str:
    """What upstream says of a checkpoint that is not there, or not of the wanted kind, with what helps."""
    name = _subject(error)
    kind = re.match(r"Unrecognized configuration class <class '.*\.(\w+)Config'> .*: (\w+)\.", text)
    if kind is not None:
        subject = name or "What `family` or `config_name` names"
        return f"{subject} is a {kind[1]}, which has no {kind[2]}: name a model of another kind, or do another task."
    if name is None or os.path.lexists(name) or not isinstance(error, OSError) or "huggingface.co" not in text:
        return text
    return f"{no_folder(name)} {text}"


def no_folder(name: str) -> str:
    """What is said of a model that is neither a folder nor within reach."""
    return f"{name} is no folder here, and as a repository of the Hub it cannot be read.{similar_path(name)}"


def _missing_package(error: BaseException) -> str | None:
    if not isinstance(error, ImportError):
        return None
    text = _text(error)
    package = (error.name or "").partition(".")[0]
    if "pip install" in text or not package:
        return text
    return f"{text}. Install what is missing: pip install {EXTRAS.get(package, package)}"


def _unknown(error: BaseException) -> str:
    """Any other error before training: what was damaged, if that can be seen, and where it showed."""
    text = _text(error)
    kind = "" if type(error) is Exception else f"{type(error).__name__}: "
    if isinstance(error, MemoryError) and not str(error):
        kind, text = "", "out of memory. Take less data, a smaller batch or a smaller model"
    if isinstance(error, RecursionError):
        kind, text = "", f"too deeply nested ({text})"
    frames = [frame for frame, _ in _frames(error)]
    loads = any(frame.f_code.co_name in ("from_pretrained", "from_config", "from_dict") for frame in frames)
    subject = _subject(error)
    line = f"{kind}{text.rstrip('.')}{_place(error)}."
    if loads and subject:
        return (
            f"{subject} cannot be loaded: {line} Its config, weights or tokenizer are damaged, incomplete or of "
            "another kind: save or download them again."
        )
    return f"{subject}: {line}" if subject and subject not in line and not _is_ours(error) else line


def _in_training(error: BaseException) -> bool:
    """Whether a Trainer had begun well, by an update at least, when it happened."""
    for frame, _ in _frames(error):
        for name in ("trainer", "self"):
            state = getattr(_local(frame, name), "__dict__", {}).get("state")
            if getattr(state, "global_step", 0):
                return True
    return False


# ---- what an error is about ----


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Frame and line of each call, the innermost first."""
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found[::-1]


def _local(frame: FrameType, name: str) -> Any:
    return frame.f_locals.get(name)


def _is_ours(error: BaseException) -> bool:
    """Whether this package raised it."""
    frames = _frames(error)
    return bool(frames) and str(frames[0][0].f_globals.get("__name__", "")).partition(".")[0] == "hf_ptm_ext"


def _file(error: BaseException) -> str | None:
    """The file or folder that the innermost functions were working on."""
    for frame, _ in _frames(error):
        for name in _SUBJECTS:
            value = _local(frame, name)
            if isinstance(value, io.IOBase | io.TextIOWrapper):
                value = getattr(value, "name", None)
            found = _name(value)
            if found is None or not os.path.basename(found) or not (os.sep in found or os.path.lexists(found)):
                continue
            # Its own folder may have been removed meanwhile, with whatever a failed start had written.
            parents = list(PurePath(found).parents)
            if any(os.path.lexists(parent) for parent in (parents[:-1] if os.path.isabs(found) else parents)):
                return found
    return None


def _subject(error: BaseException) -> str | None:
    """The file, else the checkpoint or repository that was being read."""
    loaded = None
    for frame, _ in _frames(error):
        config = getattr(_local(frame, "config"), "__dict__", {}).get("_name_or_path")
        loaded = next(filter(None, (*(_name(_local(frame, name)) for name in _SOURCES), _name(config))), None)
        if loaded is not None:
            break
    found = _file(error)
    if loaded is not None and (found is None or not os.path.isfile(found)):
        return loaded
    return found


def _name(value: Any) -> str | None:
    """A path or name as text, if it is one."""
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    text = os.fspath(value) if isinstance(value, PurePath) else value
    return text if isinstance(text, str) and 0 < len(text) < 4096 and "\0" not in text and "\n" not in text else None


def _text(error: BaseException) -> str:
    text = str(error).strip()
    if isinstance(error, KeyError):
        return f"{text or 'a name'} is missing"
    return text or type(error).__name__


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _with_subject(error: BaseException, text: str) -> str:
    subject = _subject(error)
    return text if subject is None or Path(subject).name in text else f"{subject}: {text}"


def _place(error: BaseException) -> str:
    """File and line of the innermost call, without the folders of this machine."""
    for frame, line in _frames(error)[:1]:
        parts = Path(frame.f_code.co_filename).parts
        start = max((at for at, part in enumerate(parts) if part in ("site-packages", "hf_ptm_ext")), default=None)
        if start is None:
            return ""
        return f" ({'/'.join(parts[start + (parts[start] == 'site-packages') :])}, line {line})"
    return ""
