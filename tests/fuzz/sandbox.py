"""One input in a process of its own: what it may not do, whatever comes out of it."""

import contextlib
import importlib
import json
import math
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from hf_ptm_ext.weights import not_finite

from .damage import CANARY, SECRET

SECONDS, MEGABYTES = 20, 2048
ALLOWED = (ValueError, TypeError, OSError, ImportError)
HINT = re.compile(r"`|--\w|line \d|no such file|there is no|argument", re.IGNORECASE)
OUT = "out"


def snapshot(folder: Path) -> dict[str, Any]:
    """Name -> size and time of everything in a folder but what the sandbox itself keeps there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith("."):
            state = path.lstat()
            found[name] = (state.st_mode, state.st_size, state.st_mtime_ns if not path.is_dir() else 0)
    return found


def in_a_child(folder: Path, work: Callable[[], Any]) -> dict[str, Any]:
    """Call something in a forked process inside a folder; what it said, gave, raised and used."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _be_the_child(folder, work, writing)
    os.close(writing)
    started, status, used = time.monotonic(), None, None
    data = bytearray()
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        os.set_blocking(pipe.fileno(), False)
        while status is None:
            done, code, usage = os.wait4(child, os.WNOHANG)
            data += pipe.read() or b""
            if done:
                status, used = code, usage
            elif time.monotonic() - started > 20 * SECONDS or _seconds_of(child) > SECONDS:
                os.kill(child, signal.SIGKILL)
                _, status, used = os.wait4(child, 0)
                data = bytearray(b'{"hang": true}')
            else:
                time.sleep(0.003)
        data += pipe.read() or b""
    found = json.loads(data or b"{}")
    found["megabytes"] = (used.ru_maxrss * 1024 - found.get("begun", 0)) >> 20
    found["status"] = os.waitstatus_to_exitcode(status)
    found["said"] = {name: (folder / f".{name}").read_text("utf-8", "replace") for name in ("stdout", "stderr")}
    for name in found.get("modules", ()):  # the next child has them already
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return found


def _seconds_of(child: int) -> float:
    """Seconds of the processor that a process has had."""
    values = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def _be_the_child(folder: Path, work: Callable[[], Any], writing: int) -> None:
    found: dict[str, Any] = {}
    try:
        os.chdir(folder)
        os.setsid()
        temporary = folder / ".tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        for name, number in (("stdout", 1), ("stderr", 2)):
            target = os.open(folder / f".{name}", os.O_WRONLY | os.O_CREAT)
            os.dup2(target, number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        size, resident = (
            int(one) * resource.getpagesize() for one in Path("/proc/self/statm").read_text().split()[:2]
        )
        found["begun"] = resident
        limit = size + (3 * MEGABYTES << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        known = set(sys.modules)
        try:
            found["result"] = work()
        except SystemExit as error:
            found["result"] = {"code": error.code}
        except BaseException as error:
            frame = list(traceback.walk_tb(error.__traceback__))[-1][0]
            found["error"] = {
                "ours": str(frame.f_globals.get("__name__")).startswith("hf_ptm_ext"),
                "type": type(error).__name__,
                "allowed": isinstance(error, ALLOWED),
                "message": str(error),
            }
            found["trace"] = traceback.format_exc()[-1500:]
        found["modules"] = [name for name in sys.modules if name not in known and "transformers_modules" not in name]
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(writing, json.dumps(found, default=str).encode("utf-8", "surrogatepass"))
    finally:
        os._exit(0 if found else 70)


# ---- what may not be ----


def problems(
    found: Mapping[str, Any], verdict: str, folder: Path, before: Mapping[str, Any], caller: str
) -> list[str]:
    """What is wrong with what came out of a "command", a "reader", or of "upstream", whose own errors may be any."""
    is_command = caller == "command"
    told = list(_of_the_process(found, folder))
    if told and told[0].startswith(("hang", "died")):
        return told
    refused = "error" in found or (is_command and (found["result"] or {}).get("code") != 0)
    if refused and caller == "upstream" and not found["error"]["ours"]:
        told += _leftovers(before, snapshot(folder))
    elif refused:
        message = found.get("error", {}).get("message")
        if is_command:
            told += _of_a_command(found)
            message = found["said"]["stderr"].rstrip("\n").rpartition("\n")[2].partition("error: ")[2]
            message = message or found["said"]["stdout"].partition("\n")[0]
        elif not found["error"]["allowed"]:
            told.append(f"traceback: {found['error']['type']}: {message[:300]}")
        told += _of_a_message(message or "", before) if not any("traceback" in one for one in told) else []
        told += _leftovers(before, snapshot(folder))
    elif verdict == "refuse":
        told.append(f"silent: must be refused, gave {str(found['result'])[:300]}")
    else:
        told += (found["result"] or {}).get("wrong", [])
    return told


def _of_the_process(found: Mapping[str, Any], folder: Path) -> Iterator[str]:
    if found.get("hang"):
        yield f"hang: more than {SECONDS} seconds"
    elif found["status"]:
        yield f"died: exit status {found['status']}, {found['said']['stderr'][-300:]}"
    if found["megabytes"] > MEGABYTES:
        yield f"memory: {found['megabytes']} MB"
    if any(folder.rglob(CANARY)):
        yield "code was run: there is a canary"
    said = "".join(found["said"].values())
    if SECRET in said or any(
        SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    ):
        yield "secret: in the output or in a file"
    if any((folder / ".tmp").glob("*")):
        yield f"leftover: {sorted(path.name for path in (folder / '.tmp').glob('*'))} among the temporary files"


def _of_a_command(found: Mapping[str, Any]) -> Iterator[str]:
    said = found["said"]["stderr"].rstrip("\n")
    if "error" in found:
        yield f"traceback: {found['error']['type']}: {found['error']['message'][:300]} {found['trace'][-700:]}"
    elif "Traceback (most recent call last)" in said:
        yield f"traceback: in what was logged: {said[-300:]}"
    elif found["result"]["code"] not in (1, 2):
        yield f"exit code: {found['result']['code']}"
    elif found["result"]["code"] == 2 and found["said"]["stdout"].startswith("usage: ") and not said:
        return
    elif found["result"]["code"] == 2 and not re.match(r"hf-ptm-ext.*?: error: .", said.rpartition("\n")[2]):
        yield f"message: not one line at the end: {said[-400:]!r}"


def _of_a_message(message: str, before: Mapping[str, Any]) -> Iterator[str]:
    if not message.strip():
        yield "message: empty"
    elif "\n" in message.strip():
        yield f"message: more than one line: {message[:300]!r}"
    elif len(message) > 9000:
        yield f"message: {len(message)} characters"
    elif not HINT.search(message) and not any(Path(name).name in message for name in before):
        yield f"message: names no field or file: {message[:300]!r}"


def _leftovers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if f"{OUT}/first/all_results.json" in after:  # a finished stage is work that the corrected command goes on with
        changed = [name for name in changed if not name.startswith(OUT)]
    if changed:
        yield f"leftover: {changed[:8]}"


# ---- what a success must be ----


def check_output(folder: Path) -> list[str]:
    """What is wrong with the files of a successful job: numbers that are none, weights that are not whole."""
    wrong = []
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in (".safetensors", ".pt", ".bin"):
            try:
                tensors = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
            except pickle.UnpicklingError:  # of arguments
                continue
            if not isinstance(tensors, dict) or not all(map(torch.is_tensor, tensors.values())):
                continue  # of an optimizer
            wrong += [f"not finite: {path.name}: {name}" for name in not_finite(tensors)[:3]]
        elif path.suffix in (".json", ".jsonl"):
            text = path.read_text(encoding="utf-8")
            for part in filter(None, text.split("\n") if path.suffix == ".jsonl" else [text]):
                if not all(map(math.isfinite, _floats(json.loads(part)))):
                    wrong.append(f"not finite: a number in {path.name}")
    if (folder / "config.json").is_file() and list(folder.glob("*.safetensors")):
        wrong += _incomplete(folder)
    return wrong


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _floats(one)


def _incomplete(folder: Path) -> list[str]:
    """Whether the model that a folder names has all its weights there, the same at every loading."""
    import transformers

    import hf_ptm_ext

    config = transformers.AutoConfig.from_pretrained(folder)
    name = (config.architectures or [""])[0]
    cls = getattr(hf_ptm_ext, name, None) or getattr(transformers, name)
    states = []
    for _ in range(2):
        model, info = cls.from_pretrained(folder, output_loading_info=True)
        if info["missing_keys"] or info["mismatched_keys"]:
            return [f"incomplete: {sorted(info['missing_keys'])[:3]} {sorted(info['mismatched_keys'])[:3]}"]
        states.append(model.state_dict())
    return (
        []
        if all(torch.equal(states[0][key], states[1][key]) for key in states[0])
        else ["incomplete: two loads differ"]
    )


def check_value(value: Any, wrong: list[str] | None = None, depth: int = 0) -> list[str]:
    """What is wrong with what a reader gave: numbers that are none, text that nothing can write."""
    wrong = [] if wrong is None else wrong
    if isinstance(value, str):
        if re.search("[\ud800-\udfff]", value):
            wrong.append("a lone surrogate was read")
        elif "\0" in value:
            wrong.append("a NUL was read")
    elif isinstance(value, float):
        if not math.isfinite(value):
            wrong.append(f"not finite: {value} was read")
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            wrong.append("not finite: an array was read")
    elif isinstance(value, torch.Tensor):
        wrong += ["not finite: a tensor was read"] if not_finite({"": value}) else []
    elif is_dataclass(value) and not isinstance(value, type):
        check_value([getattr(value, one.name) for one in fields(value)], wrong, depth + 1)
    elif isinstance(value, Mapping):
        check_value([*value.keys(), *value.values()], wrong, depth + 1)
    elif isinstance(value, list | tuple) and depth < 9:
        for one in value:
            check_value(one, wrong, depth + 1)
    return wrong[:3]


__all__ = ["OUT", "check_output", "check_value", "in_a_child", "problems", "snapshot"]
