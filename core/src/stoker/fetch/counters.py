"""Counts of each session in shared memory: one writer (a worker or a fetcher), read by the daemon at any time.

They outlive their writer, so a count never goes back when a process is replaced. Not for anything that is summed over
sessions only: every count belongs to a slot.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Mapping
from enum import IntEnum

SLOTS = 1024
"""Sessions of one node."""

_WORDS = 16
_TAG = 15  # which session the counts of a row belong to
_BYTES = SLOTS * _WORDS * 8


class Counter(IntEnum):
    """The place of a count in its session's row. Names in lower case are the keys of `Counters.read`."""

    READS = 0
    READ_BYTES = 1
    HIT_BYTES = 2
    ERRORS = 3
    SOURCE_BYTES = 4
    SOURCE_REQUESTS = 5
    SOURCE_ERRORS = 6
    SOURCE_RETRIES = 7
    STORED_BYTES = 8
    INLINE_BYTES = 9
    AHEAD_BYTES = 10
    BAD_PAGES = 11


_NAMES = {counter: counter.name.lower() for counter in Counter}


def create_counters() -> int:
    """A descriptor of new shared memory (memfd), all counts zero."""
    fd = os.memfd_create("stoker-counters", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class Counters:
    """The mapped counts of one process. The descriptor stays the caller's."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._map).cast("Q")

    def add(self, slot: int, counter: Counter, count: int) -> None:
        """Only the one writer may call this."""
        self._words[slot * _WORDS + counter] += count

    def read(self, slot: int) -> dict[str, int]:
        row = self._words[slot * _WORDS : (slot + 1) * _WORDS]
        return {name: row[counter] for counter, name in _NAMES.items()}

    def claim(self, slot: int, session: str) -> None:
        """A session has this slot now: its counts begin at zero, and stay when the same one is claimed again.

        Only the one writer may call this.
        """
        tag = int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), "little")
        row = self._words[slot * _WORDS : (slot + 1) * _WORDS]
        if row[_TAG] != tag:
            row[:] = memoryview(bytes(_WORDS * 8)).cast("Q")
            row[_TAG] = tag

    def close(self) -> None:
        self._words.release()
        self._map.close()


def total(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum over several processes."""
    sums = dict.fromkeys(_NAMES.values(), 0)
    for row in rows:
        for name, count in row.items():
            sums[name] += count
    return sums
