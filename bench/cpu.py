"""CPU time of processes, from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _CSTIME = 11, 14  # their places behind the name in /proc/PID/stat: utime stime cutime cstime


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of these processes and of their children that have ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[_UTIME : _CSTIME + 1])
    return ticks / _TICKS_PER_S


def pids_in(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(f"/proc/{entry.name}/cwd") == str(folder):
                found.append(int(entry.name))
    return found
