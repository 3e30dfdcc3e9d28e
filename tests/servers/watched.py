"""What something takes while it works: looked at as often as it goes, from a thread of its own."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

from servers.node import Node, processes_of

_OWN = re.compile(r"^Pss_(?:Anon|Shmem): +(\d+) kB", re.MULTILINE)


class Watched:
    """`seen`: all that `look` gave between begin and end."""

    def __init__(self, look: Callable[[], int], every_s: float = 0.01) -> None:
        self._look = look
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.seen: list[int] = []

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self.seen.append(self._look())

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def memory_of(node: Node) -> int:
    """Anonymous and shared memory of all its processes, in bytes; what several share counts once."""
    total = 0
    for pid in processes_of(node.root):
        with contextlib.suppress(OSError):  # it ended meanwhile
            total += sum(int(kib) for kib in _OWN.findall(Path(f"/proc/{pid}/smaps_rollup").read_text()))
    return total << 10
