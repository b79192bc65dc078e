"""The peak of a process's memory."""

import re
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_megabytes() -> float:
    """The most that this process alone has held; `getrusage` begins at the peak of the process that started it."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text(encoding="utf-8"))[1]) / 1024
