"""One range from a store to a sink, with its retries: each try asks for the rest only, and only in its turn.

What a store sends is checked by `stoker.sources`; a wrong answer never reaches a sink as its bytes.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.fetch.counters import Counter, Counters
from stoker.fetch.lanes import Lanes, Ticket
from stoker.fetch.phases import DISK, NETWORK, STORE, Phases
from stoker.fetch.retry import Patience, Retry
from stoker.sources import answered
from stoker.sources.base import PIECE, ObjectVersion, Source, SourceError

log = structlog.get_logger("stoker.fetch")


AFTER_BREAK = 256 << 10
"""Pieces of a try after one that broke off: a piece that does not come whole is lost, and the next break may
come soon."""


class Sink(Protocol):
    """Takes the bytes of a range in order. `taken`: how many, so that a try after a break asks for the others only."""

    @property
    def taken(self) -> int: ...

    async def take(self, piece: memoryview) -> bool:
        """Whether something that a reader can use has come of it."""
        ...

    async def broken(self) -> bool:
        """The try failed: until the next one, no more than a page may be held. Answers like `take`."""
        ...


class BytesSink:
    """Keeps the bytes, for an answer that carries them; after a break it begins again."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def taken(self) -> int:
        return len(self.data)

    async def take(self, piece: memoryview) -> bool:
        self.data += piece
        return False

    async def broken(self) -> bool:
        self.data = bytearray()
        return False


@dataclass(frozen=True, slots=True)
class Tally:
    """Where the requests of a session are counted."""

    counters: Counters
    slot: int

    def add(self, counter: Counter, count: int = 1) -> None:
        self.counters.add(self.slot, counter, count)


@dataclass(frozen=True, slots=True)
class Asked:
    """The bytes [start, stop) of a version at a source, in pieces of about `piece` bytes."""

    source: Source
    version: ObjectVersion
    start: int
    stop: int
    piece: int = PIECE

    @property
    def place(self) -> str:
        return f"{self.source.origin}/{self.version.key.decode(errors='backslashreplace')}"


async def transfer(
    asked: Asked,
    sink: Sink,
    ticket: Ticket,
    lanes: Lanes,
    patience: Patience,
    tally: Tally,
    *,
    keep_memory: bool = False,
) -> None:
    """All of it into the sink. Raises StokerError when no try is left; what the sink raises goes through.

    `keep_memory`: after success the ticket's memory is the caller's to give back.
    """
    retry: Retry | None = None
    while True:
        try:
            await lanes.enter(ticket)
            done = False
            try:
                retry = retry or Retry(patience)  # the time in the queue is not the store's
                await _one_try(asked, sink, ticket, retry, tally)
                done = True
                return
            finally:
                lanes.leave(ticket, keep_memory=done and keep_memory)
                ticket.phases.enter(DISK)
        except SourceError as error:
            assert retry is not None
            asked = replace(asked, piece=min(asked.piece, AFTER_BREAK))
            tally.add(Counter.SOURCE_ERRORS)
            ticket.phases.enter(STORE)
            if await sink.broken():
                retry.progress()
            wait = retry.wait_after(error)
            if wait is None:
                raise
            log.debug("asked again", place=error.place, reason=error.reason, error=error.message, wait_s=wait)
        tally.add(Counter.SOURCE_RETRIES)
        await asyncio.sleep(wait)


async def _one_try(asked: Asked, sink: Sink, ticket: Ticket, retry: Retry, tally: Tally) -> None:
    tally.add(Counter.SOURCE_REQUESTS)
    rate, phases = ticket.lane.rate, ticket.phases
    phases.enter(STORE)
    heard = _Heard(tally, phases)
    try:
        await _stream(asked, sink, retry, tally, phases)
    except SourceError as error:
        if error.reason is Reason.Throttled:
            rate.refused(error.retry_after_s)
        raise
    except TimeoutError as error:
        least = min(asked.piece, asked.stop - asked.start)
        text = f"{least:,} bytes did not come within {_patience_s(asked, retry):g} s"
        raise SourceError(Reason.SourceUnavailable, text, place=asked.place, retryable=True) from error
    finally:
        heard.ended()
    rate.succeeded()


class _Heard:
    """One request to a store, as it is counted: when it answered, and how long all of it took."""

    def __init__(self, tally: Tally, phases: Phases) -> None:
        self._tally = tally
        self._phases = phases
        self._asked = time.monotonic()
        self._before = phases.now()
        self._answers = 0
        answered.listen(self._answered)

    def _answered(self, status: int) -> None:
        self._answers += 1
        self._phases.enter(NETWORK)
        tally = self._tally
        tally.counters.answered(tally.slot, status, time.monotonic() - self._asked)

    def ended(self) -> None:
        if not self._answers:
            self._tally.add(Counter.STATUS_NONE)
            return
        now, before = self._phases.now(), self._before
        body_s = now[NETWORK] - before[NETWORK]
        self._tally.counters.received(self._tally.slot, now[STORE] - before[STORE] + body_s, body_s)


async def _stream(asked: Asked, sink: Sink, retry: Retry, tally: Tally, phases: Phases) -> None:
    loop = asyncio.get_running_loop()
    begin = asked.start + sink.taken
    if begin >= asked.stop:
        return
    pieces = asked.source.read(asked.version, begin, asked.stop, asked.piece)
    patience_s = _patience_s(asked, retry)
    async with asyncio.timeout(patience_s) as limit, aclosing(pieces):
        async for part in pieces:
            tally.add(Counter.SOURCE_BYTES, len(part))
            limit.reschedule(None)  # the disk is not the store's fault
            phases.enter(DISK)
            if await sink.take(part):
                retry.progress()
            phases.enter(NETWORK)
            limit.reschedule(loop.time() + patience_s)


def _patience_s(asked: Asked, retry: Retry) -> float:
    """A large piece may take longer: a slow store is not a silent one, and its bytes are seen late here."""
    return retry.patience.timeout_s * max(1, asked.piece // PIECE)


def unforeseen(error: Exception, place: str) -> StokerError:
    """What a fault that no source foresaw becomes."""
    log.error("read failed", place=place, error=repr(error), exc_info=error)
    return StokerError(Reason.Internal, f"the read failed: {error!r}", place=place, next_step="see the log.")
