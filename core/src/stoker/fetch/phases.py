"""What a transfer is waiting for at each moment, and how the waiting of its readers divides by that.

A flight may be long on its way when a reader comes for its pages, so a reader's part is the difference between two
looks at the flight's clock. Nothing here does I/O.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stoker.fetch.counters import Counter

QUEUE, STORE, NETWORK, DISK = range(4)
"""For a turn; until an answer begins, pauses after refusals included; for the body; for the cache to take it. Plain
numbers: each small object passes eight of them."""

_COUNTERS = (Counter.WAIT_QUEUE_US, Counter.WAIT_STORE_US, Counter.WAIT_NETWORK_US, Counter.WAIT_DISK_US)

Times = tuple[float, float, float, float]


class Phases:
    """The clock of one transfer: seconds in each phase so far."""

    __slots__ = ("_clock", "_phase", "_since", "_spent")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = QUEUE
        self._since = clock()
        self._spent = [0.0] * 4

    def enter(self, phase: int) -> None:
        now = self._clock()
        self._spent[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def now(self) -> Times:
        """With the phase that goes on."""
        self.enter(self._phase)
        queue, store, network, disk = self._spent
        return queue, store, network, disk


class Waits:
    """The readers of a session that wait at this fetcher. `add(counter, microseconds)` is told of their time."""

    def __init__(self, add: Callable[[Counter, int], None]) -> None:
        self._add = add
        self._seen: dict[object, tuple[Phases, Times]] = {}

    @contextmanager
    def waiting(self, phases: Phases) -> Iterator[None]:
        """A reader waits for this transfer inside the block."""
        me = object()
        self._seen[me] = phases, phases.now()
        try:
            yield
        finally:
            self._count(*self._seen.pop(me))

    def settle(self) -> None:
        """Count what those who still wait have waited so far: a store that hangs shows while it does."""
        for me, (phases, before) in self._seen.items():
            self._seen[me] = phases, self._count(phases, before)

    def _count(self, phases: Phases, before: Times) -> Times:
        now = phases.now()
        for counter, was, its in zip(_COUNTERS, before, now, strict=True):
            if its > was:
                self._add(counter, int((its - was) * 1e6))
        return now
