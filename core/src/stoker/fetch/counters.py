"""Counts in shared memory: one writer (a process of the node), read by the daemon at any time.

They outlive their writer, so a count never goes back when a process is replaced. A row belongs to a session; what has
no session (latencies, requests by kind, queues) stands in one row of the process. docs/METRICS.md says what each means.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import IntEnum

from stoker.cache.shares import Why

SLOTS = 1024
"""Sessions of one node."""

ROW_WORDS = 32
_TAG = ROW_WORDS - 1  # which session the counts of a row belong to
_ROW_BYTES = ROW_WORDS * 8
_ROWS_BYTES = SLOTS * _ROW_BYTES


class Counter(IntEnum):
    """The place of a count in its session's row. Names in lower case are the keys of `Counters.read`.

    HIT: reads answered from the cache. MISS: those that waited for a source. WAIT: what for, at a fetcher.
    """

    HITS = 0
    HIT_BYTES = 1
    HIT_US = 2
    MISSES = 3
    MISS_BYTES = 4
    MISS_US = 5
    ERRORS = 6
    DISK_US = 7
    SERVED_US = 8
    SOURCE_BYTES = 9
    SOURCE_REQUESTS = 10
    SOURCE_ERRORS = 11
    SOURCE_RETRIES = 12
    STORED_BYTES = 13
    INLINE_BYTES = 14
    AHEAD_BYTES = 15
    AGAIN_BYTES = 16
    BAD_PAGES = 17
    WAIT_QUEUE_US = 18
    WAIT_STORE_US = 19
    WAIT_NETWORK_US = 20
    WAIT_DISK_US = 21
    FIRST_BYTE_US = 22
    BODY_US = 23
    STATUS_NONE = 24
    STATUS_2XX = 25
    STATUS_3XX = 26
    STATUS_4XX = 27
    STATUS_5XX = 28


NAMES = {counter: counter.name.lower() for counter in Counter}


class Node(IntEnum):
    """The place of a count, or of a present value (WAITING, RUNNING, PENDING), in the row of a process."""

    STARTS = 0
    SUPERVISORS = 1
    BUSY_US = 2
    WAITING = 3
    RUNNING = 4
    PENDING = 5
    BAD_PAGES = 6
    LISTED_NONE = 8
    LISTED_2XX = 9
    LISTED_3XX = 10
    LISTED_4XX = 11
    LISTED_5XX = 12


_WHY = tuple(Why)
"""Two words each, from `_EVICTIONS` on."""


class Latency(IntEnum):
    """What has a histogram."""

    FIRST_BYTE = 0
    REQUEST = 1
    CACHE_READ = 2


BOUNDS_S = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets, in seconds: from an answer out of memory to the timeout of a request."""

OPS = 64
_BUCKETS = len(BOUNDS_S) + 1
_NODE = _ROWS_BYTES // 8
_EVICTIONS = _NODE + 32
_OPS = _NODE + 64
_LATENCIES = _OPS + OPS
_LATENCY_WORDS = 32
_SUM = _LATENCY_WORDS - 1
_FIRST_BYTE, _REQUEST, _CACHE_READ = (_LATENCIES + int(one) * _LATENCY_WORDS for one in Latency)
_CACHE_READ_SUM = _CACHE_READ + _SUM
_STATUS_2XX, _FIRST_BYTE_US, _BODY_US = (
    int(one) for one in (Counter.STATUS_2XX, Counter.FIRST_BYTE_US, Counter.BODY_US)
)
_BYTES = _ROWS_BYTES + 4096


def create_counters() -> int:
    """A descriptor of new shared memory (memfd), all counts zero. Pages that nobody writes take no memory."""
    fd = os.memfd_create("stoker-counters", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class Counters:
    """The mapped counts of one process. The descriptor stays the caller's."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._map).cast("Q")

    # The one writer

    def add(self, slot: int, counter: Counter, count: int) -> None:
        self._words[slot * ROW_WORDS + counter] += count

    def hit(self, slot: int, length: int, seconds: float) -> None:
        """A read answered from the cache. Written out, and not by `add`: it is in the way of each warm read."""
        words = self._words
        us = int(seconds * 1e6)
        row = slot * ROW_WORDS
        words[row] += 1
        words[row + 1] += length
        words[row + 2] += us
        words[_CACHE_READ + bisect_left(BOUNDS_S, seconds)] += 1
        words[_CACHE_READ_SUM] += us

    def miss(self, slot: int, length: int, seconds: float) -> None:
        """A read that waited for its source."""
        self.add(slot, Counter.MISSES, 1)
        self.add(slot, Counter.MISS_BYTES, length)
        self.add(slot, Counter.MISS_US, int(seconds * 1e6))

    def answered(self, slot: int, status: int, seconds: float) -> None:
        """A store began to answer, so many seconds after it was asked. Written out as well: once for each object."""
        words = self._words
        us = int(seconds * 1e6)
        row = slot * ROW_WORDS
        words[row + _STATUS_2XX + min(max(status // 100, 2), 5) - 2] += 1
        words[row + _FIRST_BYTE_US] += us
        words[_FIRST_BYTE + bisect_left(BOUNDS_S, seconds)] += 1
        words[_FIRST_BYTE + _SUM] += us

    def received(self, slot: int, whole_s: float, body_s: float) -> None:
        """A request was answered whole. The time that the cache took for it is in neither."""
        words = self._words
        words[slot * ROW_WORDS + _BODY_US] += int(body_s * 1e6)
        words[_REQUEST + bisect_left(BOUNDS_S, whole_s)] += 1
        words[_REQUEST + _SUM] += int(whole_s * 1e6)

    def count_op(self, op: int) -> None:
        """A request of the kernel."""
        self._words[_OPS + op % OPS] += 1

    def tally(self, what: Node, count: int = 1) -> None:
        self._words[_NODE + what] += count

    def show(self, what: Node, value: int) -> None:
        """How something stands now."""
        self._words[_NODE + what] = value

    def evicted(self, why: Why, objects: int, nbytes: int) -> None:
        at = _EVICTIONS + 2 * _WHY.index(why)
        self._words[at] += objects
        self._words[at + 1] += nbytes

    def claim(self, slot: int, session: str) -> None:
        """A session has this slot now: its counts begin at zero, and stay when the same one is claimed again."""
        tag = tag_of(session)
        row = self._words[slot * ROW_WORDS : (slot + 1) * ROW_WORDS]
        if row[_TAG] != tag:
            row[_TAG] = 0
            row[:] = memoryview(bytes(_ROW_BYTES)).cast("Q")
            row[_TAG] = tag

    # Anybody

    def read(self, slot: int, session: str | None = None) -> dict[str, int]:
        """A row; all zero when it is not (yet) that of the session named."""
        row = self._words[slot * ROW_WORDS : (slot + 1) * ROW_WORDS].tolist()
        if session is not None and row[_TAG] != tag_of(session):
            row = [0] * ROW_WORDS
        return {name: row[counter] for counter, name in NAMES.items()}

    def told(self, what: Node) -> int:
        return self._words[_NODE + what]

    def ops(self) -> list[int]:
        return self._words[_OPS : _OPS + OPS].tolist()

    def evictions(self) -> dict[Why, tuple[int, int]]:
        """Objects and bytes."""
        words = self._words[_EVICTIONS : _EVICTIONS + 2 * len(_WHY)].tolist()
        return {why: (words[2 * at], words[2 * at + 1]) for at, why in enumerate(_WHY)}

    def latency(self, latency: Latency) -> tuple[list[int], int]:
        """Count of each bucket, and the sum in microseconds."""
        first = _LATENCIES + latency * _LATENCY_WORDS
        return self._words[first : first + _BUCKETS].tolist(), self._words[first + _SUM]

    def close(self) -> None:
        self._words.release()
        self._map.close()


def tag_of(session: str) -> int:
    """What stands in a row for a session; never 0."""
    return int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), "little") | 1


def total(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum over several processes."""
    sums = dict.fromkeys(NAMES.values(), 0)
    for row in rows:
        for name, count in row.items():
            sums[name] += count
    return sums
