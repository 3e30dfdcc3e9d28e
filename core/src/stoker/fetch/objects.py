"""The objects of a fetcher: makes their pages readable by flights, one for each page at a time.

The only place where a plan, the cache and the stores meet. What must hold at each `await`: docs/design/fetch.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.fill import Fill
from stoker.cache.layout import PAGE
from stoker.cache.writer import CacheWriter
from stoker.fetch.counters import Counter
from stoker.fetch.disk import Disk
from stoker.fetch.files import File
from stoker.fetch.flight import Flight, ObjectState
from stoker.fetch.lanes import Lanes, Priority
from stoker.fetch.pages import AHEAD_PIECE, HELD_PIECES, NotStoredError, PageSink
from stoker.fetch.phases import Waits
from stoker.fetch.plan import LOAD_PAGES, RANGE_PAGES, Range, Run, byte_span, overlaps, plan, spans_to_consider
from stoker.fetch.sessions import Session
from stoker.fetch.streams import Ahead, Streams
from stoker.fetch.transfer import Asked, transfer, unforeseen
from stoker.sources.base import PIECE

MOST_IDLE = 4096
"""Objects whose streams are remembered after their last read."""

NO_ROOM_S = 10.0
"""A load that could store nothing for this long ends: eviction takes about a second where it can free anything."""

NO_ROOM_RETRY_S = 0.1
"""A load waits for room in steps of this: the owner commits twice a second, and evicts in between."""


class Objects:
    """All objects of one fetcher. `writer` comes with the owner's welcome."""

    def __init__(
        self, writer: CacheWriter, disk: Disk, lanes: Lanes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.writer = writer
        self.lanes = lanes
        self._disk = disk
        self._clock = clock
        self._states: dict[bytes, ObjectState] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def state(self, session: Session, file: File) -> ObjectState:
        """What is known of an object; made at its first request."""
        state = self._states.pop(file.oid, None)
        if state is None:
            mount = session.spec.mount
            streams = Streams(file.pages, max(1, mount.block_size // PAGE), mount.read_ahead_max // PAGE)
            state = ObjectState(file.oid, file.size, streams)
            self._make_room()
        self._states[file.oid] = state
        return state

    async def read(self, session: Session, file: File, wanted: Run, bad: bool, *, exact: bool = False) -> int | None:
        """Make pages readable; their incarnation, or None: serve them without the cache. Raises StokerError.

        `exact`: the request says nothing of what its reader reads next."""
        state = self.state(session, file)
        fill = await self.writer.begin_settled(file.oid, file.size, session.spec.data_set)
        if fill is None:
            return None
        try:
            if bad:
                session.tally.add(Counter.BAD_PAGES, wanted[1] - wanted[0])
                self._drop(state, fill, wanted)
            ahead = None if exact else state.streams.seen(*wanted)
            for flight in self._start(session, file, state, fill, wanted, ahead, Priority.DEMAND):
                flight.ticket.hurry()
                with session.waits.waiting(flight.ticket.phases):
                    there = await flight.reached(min(wanted[1], flight.last))
                if not there:
                    return None
            return fill.incarnation or 0
        finally:
            fill.close()

    def note(self, session: Session, file: File, seen: Run) -> None:
        """A reader reached a trigger: fetch what it has earned. Never waits."""
        state = self.state(session, file)
        ahead = state.streams.seen(*seen)
        fill = self.writer.begin(file.oid, file.size, session.spec.data_set) if ahead else None
        if ahead is None or fill is None:
            return
        self._start(session, file, state, fill, (ahead.first, ahead.first), ahead, Priority.AHEAD)
        fill.close()

    async def load(self, session: Session, file: File, waits: Waits | None = None) -> int:
        """Make the whole object present; its incarnation. Raises StokerError: CacheFull when it cannot be stored.
        `waits`: where a reader is counted who waits for it."""
        state = self.state(session, file)
        give_up = self._clock() + NO_ROOM_S
        while True:
            fill = await self.writer.begin_settled(file.oid, file.size, session.spec.data_set)
            if fill is not None:
                try:
                    stored, some = await self._load(session, file, state, fill, waits)
                    if stored:
                        return fill.incarnation or 0
                finally:
                    fill.close()
                give_up = self._clock() + NO_ROOM_S if some else give_up
            if self._clock() > give_up:
                step = "free disk space or raise the cache's quota; the file is still readable from its source."
                raise StokerError(Reason.CacheFull, "the cache has no room for the file", next_step=step)
            await asyncio.sleep(NO_ROOM_RETRY_S)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Inside

    async def _load(
        self, session: Session, file: File, state: ObjectState, fill: Fill, waits: Waits | None
    ) -> tuple[bool, bool]:
        """One pass over the object, with as many ranges on their way as the session has threads; whether all that was
        missing is stored now, and whether some of it is."""
        most = session.stores[file.source].lane.threads
        waiting: list[Flight] = []
        ends = []
        for first in range(0, file.pages, LOAD_PAGES):
            part = first, min(first + LOAD_PAGES, file.pages)
            waiting += self._start(session, file, state, fill, part, None, Priority.LOAD)
            while len(waiting) > most:
                ends.append(await _end_of(waiting.pop(0), waits))
        ends += [await _end_of(flight, waits) for flight in waiting]
        return all(ends), any(ends)

    def _start(
        self,
        session: Session,
        file: File,
        state: ObjectState,
        fill: Fill,
        wanted: Run,
        ahead: Ahead | None,
        priority: Priority,
    ) -> list[Flight]:
        """Begin what is missing and not on its way; the flights that bring pages of `wanted`. Never waits."""
        spans = spans_to_consider(file.size, wanted, (ahead.first, ahead.last) if ahead else None)
        missing = [run for span in spans for run in fill.missing(*span)]
        if spans != [wanted] and not overlaps(missing, wanted) and not state.over(*wanted):
            missing += fill.missing(*wanted)  # only an answer of none is checked against the disk
        trigger = ahead.trigger if ahead else None
        most = LOAD_PAGES if priority is Priority.LOAD else RANGE_PAGES
        for piece in plan(missing, state.runs(), wanted, most):
            flight = self._begin(session, file, state, piece, priority)
            if trigger is not None and trigger < piece.last:
                flight.trigger = max(trigger, piece.first)
        return state.over(*wanted)

    def _begin(self, session: Session, file: File, state: ObjectState, piece: Range, priority: Priority) -> Flight:
        if priority is Priority.DEMAND and not piece.demand:
            priority = Priority.AHEAD
        pages = piece.last - piece.first
        size = PIECE if priority is Priority.DEMAND else AHEAD_PIECE
        ticket = session.stores[file.source].lane.ticket(priority, pages, min(pages * PAGE, HELD_PIECES * size))
        flight = Flight(piece.first, piece.last, ticket, size)
        if priority is Priority.AHEAD:
            session.tally.add(Counter.AHEAD_BYTES, pages * PAGE)
        if file.oid in self.writer.evicted_lately:
            session.tally.add(Counter.AGAIN_BYTES, pages * PAGE)
        state.flights.append(flight)
        flight.task = asyncio.create_task(self._fly(session, file, state, flight))
        self._tasks.add(flight.task)
        # By callback: a task that is cancelled before its first step never runs its own `finally`.
        flight.task.add_done_callback(lambda task: self._landed(state, flight, task))
        return flight

    async def _fly(self, session: Session, file: File, state: ObjectState, flight: Flight) -> None:
        fill = self.writer.begin(file.oid, file.size, session.spec.data_set)
        if fill is None:
            return
        start, stop = byte_span((flight.first, flight.last), file.size)
        sink = PageSink(fill, flight, stop, self._disk, session.tally)
        try:
            if not await fill.reserve(flight.first, flight.last):
                return
            if flight.trigger is not None:
                fill.set_trigger(flight.trigger)
            asked = Asked(session.stores[file.source].primary, file.version, start, stop, flight.piece)
            await transfer(asked, sink, flight.ticket, self.lanes, session.patience, session.tally)
            flight.outcome = True
        except NotStoredError:
            pass
        except StokerError as error:
            self._failed(state, flight, error)
        except Exception as error:
            self._failed(state, flight, unforeseen(error, session.stores[file.source].spec.uri))
        finally:
            await sink.close()
            fill.close()

    def _failed(self, state: ObjectState, flight: Flight, error: StokerError) -> None:
        if flight.wanted:
            state.failures.add(flight.ready, flight.last, error, self._clock())
        flight.outcome = error

    def _landed(self, state: ObjectState, flight: Flight, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        state.flights.remove(flight)
        flight.end(flight.outcome if flight.outcome is not None else False)

    @staticmethod
    def _drop(state: ObjectState, fill: Fill, wanted: Run) -> None:
        """Forget pages that a reader found to be wrong, unless they are being fetched again already."""
        if not state.over(*wanted):
            fill.drop(*wanted)

    def _make_room(self) -> None:
        if len(self._states) < MOST_IDLE:
            return
        for oid, state in list(self._states.items())[: MOST_IDLE // 8]:
            if state.idle:
                del self._states[oid]


async def _end_of(flight: Flight, waits: Waits | None) -> bool:
    with waits.waiting(flight.ticket.phases) if waits is not None else nullcontext():
        return await flight.reached(flight.last)
