"""What a user sees while a job runs: a line for each phase with its time, and on a terminal always what moves.

Bars are upstream's own (tqdm: those of transformers, datasets and the Trainer). Where nothing was written for a
second, a thread draws the open bars anew, or else says what is being done and for how long, on a line that the next
output takes. Without a terminal, under `--disable_tqdm` and in every process but the first there are neither bars nor
such a line. Nothing heavy is imported here: this module speaks while the libraries are loaded.
"""

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any

from ..redaction import redact_log_records

logger = logging.getLogger(__name__)

PACKAGE = __name__.partition(".")[0]
BEAT, SILENCE = 0.5, 1.0  # seconds between two looks, and without output before something is drawn
ESCAPES = re.compile(r"\x1b\[[\d;?]*\w")
# Some libraries compute for long without letting another thread run (the index of some million titles). This process
# draws when it hears nothing of ours: that goes on then, and can write nothing itself.
STAND_IN = """
import os, select, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
what, since = "", 0.0
while True:
    if select.select([0], [], [], 2.0)[0]:
        heard = os.read(0, 4096)
        if not heard:
            break
        since, _, what = heard.decode().splitlines()[-1].partition(" ")
    elif what:
        os.write(2, f"\\r\\x1b[2K  {what} {time.monotonic() - float(since):.0f} s".encode())
"""


def is_first_process() -> bool:
    """Whether this is the process that writes, before anything is known of the others."""
    return int(os.environ.get("RANK", "0")) == 0


class _Stream:
    """A standard stream whose writers find an empty line."""

    def __init__(self, stream: Any, console: "Console"):
        self._stream, self._console = stream, console

    def write(self, text: str) -> int:
        return self._console.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Console:
    """The terminal of a job; `live` says whether there is one that is drawn on."""

    def __init__(self) -> None:
        self.live = False
        self._lock = threading.RLock()
        self._phases: list[tuple[str, float]] = []
        self._idle = ("", 0.0)
        self._streams: tuple[Any, Any] = (None, None)
        self._ended = threading.Event()
        self._drawn = self._inside_line = False
        self._last_output = self._last_beat = 0.0
        self._stand_in: Any = None
        self._marks = cycle("|/-\\")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def start(self, what: str = "working") -> None:
        """Draw from now on if standard error is a terminal, and say what is done until a phase begins."""
        self._idle = what, time.monotonic()
        if self.live or not is_first_process() or os.environ.get("TERM") == "dumb":
            return
        if sys.stderr is None or not sys.stderr.isatty():
            return
        self.live, self._streams, self._ended = True, (sys.stdout, sys.stderr), threading.Event()
        self._drawn = self._inside_line = False
        sys.stdout, sys.stderr = (_Stream(stream, self) for stream in self._streams)
        if os.name == "posix":
            self._stand_in = subprocess.Popen([sys.executable, "-ISc", STAND_IN], stdin=subprocess.PIPE, bufsize=0)
        threading.Thread(target=self._watch, args=(self._ended,), daemon=True).start()

    def stop(self) -> None:
        """Draw no more."""
        if not self.live:
            return
        with self._lock:
            self._erase()
            self.live = False
            self._ended.set()
            sys.stdout, sys.stderr = self._streams
        if self._stand_in is not None:
            with suppress(OSError):
                self._stand_in.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._stand_in.wait(timeout=2)
            self._stand_in.kill()  # somebody else holds its input open: a process that was not forked by Python
            self._stand_in.wait()
            self._stand_in = None

    def _forget(self) -> None:
        """In a process that was forked off there is no thread that draws, and maybe a lock that nobody lets go."""
        if self.live:
            self.live, self._lock = False, threading.RLock()
            sys.stdout, sys.stderr = self._streams
            if self._stand_in is not None:
                # It ends with its input, which would be open for as long as this process lives.
                self._stand_in.stdin.close()

    # ---- drawing ----

    def write(self, stream: Any, text: str) -> int:
        """Write to a stream, onto an empty line."""
        with self._lock:
            if self.live:
                self._erase()
                if text and (stream is self._streams[1] or stream.isatty()):
                    self._last_output = time.monotonic()
                    if visible := ESCAPES.sub("", text):
                        self._inside_line = visible[-1] not in "\r\n"
            return stream.write(text)

    def _erase(self) -> None:
        unheard = self._stand_in is not None and time.monotonic() - self._last_beat > 1.5
        if unheard:
            self._beat()  # it draws no more
        if self._drawn or unheard:
            self._streams[1].write("\r\x1b[2K")
            self._streams[1].flush()
            self._drawn = False

    def _watch(self, ended: threading.Event) -> None:
        """Draw what moves, until the end."""
        try:
            while True:
                self._beat()
                if ended.wait(BEAT):
                    return
                if time.monotonic() - self._last_output > SILENCE:
                    for bar in (bars := open_bars()):
                        bar.refresh()
                    if not bars:
                        self._draw()
        except (OSError, ValueError):  # the terminal is gone
            return

    def _beat(self) -> None:
        """Tell the process that stands in that this one lives, and what it does."""
        with self._lock:
            what, since = self._now()
            self._last_beat = time.monotonic()
            if self.live and self._stand_in is not None:
                with suppress(OSError):  # somebody ended it
                    self._stand_in.stdin.write(f"{since} {what}\n".encode())

    def _now(self) -> tuple[str, float]:
        return self._phases[-1] if self._phases else self._idle

    def _draw(self) -> None:
        what, since = self._now()
        with self._lock:
            if self.live and not self._inside_line:
                columns = os.get_terminal_size(self._streams[1].fileno()).columns or 80
                line = f"{next(self._marks)} {what} {time.monotonic() - since:.0f} s"
                self._streams[1].write(f"\r\x1b[2K{line[: columns - 1]}")
                self._streams[1].flush()
                self._drawn = True

    # ---- what jobs say ----

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Say what is being done, and when it is done how long it took."""
        begun = time.monotonic()
        self._phases.append((what, begun))
        self._beat()
        try:
            yield
        finally:
            self._phases.pop()
        logger.info("%s", f"{what:<44} {time.monotonic() - begun:6.1f} s")


console = Console()
phase = console.phase


def headline(message: str, *values: Any) -> None:
    """Say what begins."""
    logger.info(message, *values, extra={"style": "bold"})


def open_bars() -> list[Any]:
    """The bars of tqdm that are on the screen."""
    tqdm: Any = sys.modules.get("tqdm.std")
    try:
        return [bar for bar in tqdm.tqdm._instances if hasattr(bar, "start_t")] if hasattr(tqdm, "tqdm") else []
    except RuntimeError:  # one was opened meanwhile
        return open_bars()


def bar(things: Iterable[Any] | None, what: str, total: int | None = None) -> Any:
    """A bar of upstream's, which is gone when the things have been gone through."""
    from transformers.utils.logging import tqdm

    return tqdm(things, desc=what, total=total, unit="", dynamic_ncols=True)


def in_parts(things: Sequence[Any], what: str, size: int = 1000) -> Iterator[Sequence[Any]]:
    """Some of the things at a time, with a bar over all."""
    with bar(None, what, len(things)) as shown:
        for start in range(0, len(things), size):
            part = things[start : start + size]
            yield part
            shown.update(len(part))


class Lines(logging.Handler):
    """Writes records above the bars, to what is standard error now; a warning is told once, whoever repeats it."""

    def __init__(self) -> None:
        from rich.console import Console as Rich

        super().__init__()
        self.rich, self.told = Rich(stderr=True, highlight=False), set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        from rich.text import Text
        from tqdm import tqdm

        try:
            message = self.format(record)
            if record.levelno >= logging.WARNING or getattr(record, "once", False):
                if message in self.told:
                    return
                self.told.add(message)
            style = "yellow" if record.levelno >= logging.WARNING else getattr(record, "style", "")
            with tqdm.external_write_mode(file=sys.stderr):
                self.rich.print(Text.from_ansi(message, style=style), soft_wrap=True)
        except Exception:
            self.handleError(record)


def log_to_console(level: str = "passive") -> None:
    """Send all logs through one handler: of what is asked for, or else our own notes and others' warnings."""
    from datasets import disable_progress_bars
    from transformers.utils import logging as upstream

    root, asked = logging.getLogger(), upstream.log_levels.get(level)
    for handler in root.handlers:
        if isinstance(handler, Lines):
            handler.told.clear()
    if not root.handlers:
        root.addHandler(Lines())
    redact_log_records()
    upstream.disable_default_handler()  # it writes into the bars
    upstream.enable_propagation()
    if asked is not None:
        upstream.set_verbosity(asked)
    logging.getLogger(PACKAGE).setLevel(logging.INFO if asked is None else asked)
    if console.live:  # bars that are full are taken away
        upstream.set_tqdm_hook(lambda bar, args, options: bar(*args, **{"leave": False, **options}))
    else:
        upstream.disable_progress_bar()
        disable_progress_bars()
