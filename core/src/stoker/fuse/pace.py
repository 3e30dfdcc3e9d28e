"""Who reads through a session, and when they waited: what one worker saw since its last report.

The daemon joins the reports of all workers (`node/pace.py`): one reader's requests go to any of them. Times are
those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_MOST_READERS = 1024
"""Threads of one report; a thread beyond is not told of. More cannot wait at once in one worker than it has records."""


@dataclass(slots=True)
class _Waiting:
    """A thread of which `count` requests wait, since `since` at least one."""

    count: int
    since: float


@dataclass(slots=True)
class Pace:
    """Of one session in one worker. `first` and `last`: when a thread asked for something, by thread."""

    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    _waits: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    _requests: int = 0
    _changed: float = 0.0
    _seconds: float = 0.0

    def began(self, thread: int, now: float) -> None:
        """A request of this thread waits."""
        self._count(1, now)
        waiting = self._waiting.get(thread)
        if waiting is None:
            self._waiting[thread] = _Waiting(1, now)
        else:
            waiting.count += 1

    def ended(self, thread: int, now: float) -> None:
        """It waits no more."""
        self._count(-1, now)
        waiting = self._waiting[thread]
        waiting.count -= 1
        if not waiting.count:
            del self._waiting[thread]
            self._waits.setdefault(thread, []).append((waiting.since, now))
            self.last[thread] = now
            self.first.setdefault(thread, waiting.since)

    def report(self, now: float) -> dict[str, Any] | None:
        """What is new: for each thread when it was seen first and last, and from when to when it waited. `waited` is
        the time of all requests together. None when nobody read."""
        self._count(0, now)
        for thread, waiting in self._waiting.items():
            self._waits.setdefault(thread, []).append((waiting.since, now))
            self.first.setdefault(thread, waiting.since)
            self.last[thread] = waiting.since = now
        if not self.last:
            return None
        seen = list(self.last)[:_MOST_READERS]
        readers = [[t, _us(self.first[t]), _us(self.last[t]), self._flat(t)] for t in seen]
        report = {"readers": readers, "waited": _us(self._seconds)}
        self.first, self.last, self._waits, self._seconds = {}, {}, {}, 0.0
        return report

    def _flat(self, thread: int) -> list[int]:
        return [_us(moment) for wait in self._waits.get(thread, ()) for moment in wait]

    def _count(self, more: int, now: float) -> None:
        self._seconds += self._requests * (now - self._changed)
        self._changed = now
        self._requests += more


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
