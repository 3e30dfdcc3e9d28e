"""Who may ask a store now: readers before read-ahead before loads, each session within its threads, all within memory.

A lane is the queue of one source of one session. A slow store fills its own lane and no other; when memory is short,
lanes are served in the order in which they ran short. Not for what is done with a turn.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from dataclasses import dataclass, field
from enum import IntEnum

from stoker.cache.layout import PAGES_PER_CHUNK
from stoker.fetch.budget import Budget
from stoker.fetch.phases import QUEUE, STORE, Phases
from stoker.fetch.retry import Rate

UNITS = 16
THREAD_PAGES = PAGES_PER_CHUNK
"""One thread of `readAhead.threads` is one range of 4 MiB or more, or 16 small requests: what costs a link is bytes,
and 64 KiB objects asked 8 at a time would leave a store with 20 ms of latency idle."""


class Priority(IntEnum):
    DEMAND = 0
    AHEAD = 1
    LOAD = 2


@dataclass(slots=True, eq=False)
class Ticket:
    """One who wants a turn, again and again until its range is done. `cost`: bytes it holds in memory meanwhile.
    `phases`: what it waits for."""

    lane: Lane
    priority: Priority
    units: int
    cost: int
    running: bool = False
    entry: int = 0
    waiter: asyncio.Future[None] | None = None
    phases: Phases = field(default_factory=Phases)

    def hurry(self) -> None:
        """A reader waits for it now."""
        if self.priority > Priority.DEMAND:
            self.priority = Priority.DEMAND
            if self.waiter is not None:
                self.lane.push(self)
                self.lane.lanes.wake()


class Lane:
    """`threads` 0: four for each core. An eighth is kept free for readers."""

    def __init__(self, lanes: Lanes, threads: int, rate: Rate, cores: int) -> None:
        self.lanes = lanes
        self.rate = rate
        self.strict = threads > 0
        self.threads = threads or 4 * cores
        self.most = self.threads * UNITS
        self.running = 0
        self.queue: list[tuple[int, int, Ticket]] = []

    def ticket(self, priority: Priority, pages: int, cost: int) -> Ticket:
        """For a request of so many pages. Threads that a user wrote count requests, whatever their size."""
        small = -(-pages * UNITS // THREAD_PAGES)
        return Ticket(self, priority, UNITS if self.strict else max(1, min(UNITS, small)), cost)

    def push(self, ticket: Ticket) -> None:
        ticket.entry = next(self.lanes.numbers)
        heapq.heappush(self.queue, (ticket.priority, ticket.entry, ticket))

    def head(self) -> Ticket | None:
        """The first who still waits."""
        while self.queue:
            _, entry, ticket = self.queue[0]
            if ticket.waiter is not None and not ticket.waiter.done() and ticket.entry == entry:
                return ticket
            heapq.heappop(self.queue)
        return None

    def fits(self, ticket: Ticket) -> bool:
        most = self.most if ticket.priority is Priority.DEMAND else self.most - self.most // 8
        return (not self.running or self.running + ticket.units <= most) and self.rate.fits()


@dataclass(slots=True)
class Lanes:
    """All lanes of a fetcher."""

    budget: Budget
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    running: int = 0
    _waiting: dict[Lane, None] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Requests that have no turn yet."""
        return sum(ticket.waiter is not None for lane in self._waiting for _, _, ticket in lane.queue)

    async def enter(self, ticket: Ticket) -> None:
        """Wait for a turn; end it with `leave`. Whoever waits here holds no memory, so the memory of those who have a
        turn always comes free."""
        lane = ticket.lane
        ticket.phases.enter(QUEUE if lane.rate.fits() else STORE)  # a store that refuses is what it waits for
        if not self._waiting and lane.fits(ticket) and self.budget.fits(ticket.cost):
            self._start(ticket)
            return
        waiter = ticket.waiter = asyncio.get_running_loop().create_future()
        lane.push(ticket)
        self._waiting.setdefault(lane)
        self.wake()
        try:
            await waiter
        except asyncio.CancelledError:
            ticket.waiter = None
            if ticket.running:  # its turn came at the same moment
                self.leave(ticket)
            raise

    def leave(self, ticket: Ticket, *, keep_memory: bool = False) -> None:
        """The request is over. `keep_memory`: its bytes are still held, until `give_memory`."""
        ticket.running = False
        self.running -= 1
        ticket.lane.running -= ticket.units
        ticket.lane.rate.running -= 1
        if not keep_memory:
            self.budget.give(ticket.cost)
        if self._waiting:
            self.wake()

    def give_memory(self, ticket: Ticket) -> None:
        """What `leave` kept is free."""
        self.budget.give(ticket.cost)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Give turns to all who can have one."""
        holds = []
        for lane in list(self._waiting):
            hold = lane.rate.hold_s()  # before the queue is looked at: it may end meanwhile
            while (ticket := lane.head()) is not None and lane.fits(ticket):
                if not self.budget.fits(ticket.cost):
                    return  # nobody overtakes it: memory that comes free is for this one
                heapq.heappop(lane.queue)
                self._start(ticket)
            if ticket is None:
                del self._waiting[lane]
            elif hold:
                holds.append(hold)
        if holds:
            self._wake_in(min(holds))

    def _wake_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def _start(self, ticket: Ticket) -> None:
        ticket.running = True
        self.running += 1
        ticket.lane.running += ticket.units
        ticket.lane.rate.running += 1
        self.budget.take(ticket.cost)
        if ticket.waiter is not None:
            ticket.waiter.set_result(None)
            ticket.waiter = None
