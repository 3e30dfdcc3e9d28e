"""One range on its way from the source, and all who wait for pages of it: each page is asked once at a time.

Also what a fetcher knows of an object beside its pages: flights, streams, and what failed a moment ago.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from stoker.api.errors import StokerError
from stoker.fetch.lanes import Ticket
from stoker.fetch.streams import Streams

ERROR_MEMORY_S = 3.0
"""The kernel asks again for each page of a failed read-ahead, and programs for a failed read: one failure."""


@dataclass(slots=True, eq=False)
class Flight:
    """Pages [first, last), of which those below `ready` are readable. They come in pieces of about `piece` bytes.
    `trigger`: the page to mark in it."""

    first: int
    last: int
    ticket: Ticket
    piece: int
    trigger: int | None = None
    ready: int = 0
    task: asyncio.Task[None] | None = None
    outcome: bool | StokerError | None = None
    _waiters: list[tuple[int, asyncio.Future[bool]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ready = self.first

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiters)

    async def reached(self, page: int) -> bool:
        """Wait until the pages below `page` are readable. False: they could not be stored. Raises StokerError."""
        if self.ready >= page:
            return True
        if isinstance(self.outcome, StokerError):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (page, waiter)
        self._waiters.append(entry)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._given_up(entry)
            raise

    def advance(self, ready: int) -> None:
        """The pages below `ready` are readable now."""
        self.ready = ready
        if not self._waiters:
            return
        left = []
        for page, waiter in self._waiters:
            if page > ready:
                left.append((page, waiter))
            elif not waiter.done():
                waiter.set_result(True)
        self._waiters = left

    def end(self, outcome: bool | StokerError) -> None:
        """Landed; or False: the cache does not take it; or what failed for good."""
        self.outcome = outcome
        for _, waiter in self._waiters:
            if waiter.done():
                continue
            if isinstance(outcome, StokerError):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)
        self._waiters = []

    def _given_up(self, entry: tuple[int, asyncio.Future[bool]]) -> None:
        """The last who waited has gone: what has not begun need not begin."""
        if entry in self._waiters:
            self._waiters.remove(entry)
        if not self._waiters and self.task is not None and self.ticket.waiter is not None:
            self.task.cancel()


@dataclass(slots=True)
class Failures:
    """What of one object failed a moment ago."""

    _known: list[tuple[int, int, float, StokerError]] = field(default_factory=list)

    def add(self, first: int, last: int, error: StokerError, now: float) -> None:
        """Remember for a moment that the pages [first, last) cannot be read."""
        self._known = [failure for failure in self._known if failure[2] > now]
        self._known.append((first, last, now + ERROR_MEMORY_S, error))

    def get(self, first: int, last: int, now: float) -> StokerError | None:
        """What failed a moment ago for some page of [first, last)."""
        for start, stop, until, error in self._known:
            if start < last and first < stop and now < until:
                return error
        return None

    def over(self, now: float) -> bool:
        """Whether nothing is remembered any more."""
        return all(until <= now for _, _, until, _ in self._known)


@dataclass(slots=True, eq=False)
class ObjectState:
    """What is going on with one object. Kept a while after its last use, for its streams."""

    oid: bytes
    size: int
    streams: Streams
    flights: list[Flight] = field(default_factory=list)
    loading: asyncio.Task[None] | None = None
    load_again_at: float = 0.0
    failures: Failures = field(default_factory=Failures)

    @property
    def idle(self) -> bool:
        return not self.flights and self.loading is None

    def over(self, first: int, last: int) -> list[Flight]:
        """The flights that bring pages of [first, last) which are not readable yet."""
        return [flight for flight in self.flights if flight.first < last and first < flight.last]

    def runs(self) -> list[tuple[int, int]]:
        return [(flight.first, flight.last) for flight in self.flights]
