"""The bytes of an object in pieces: from the cache file where they are there, else by a fetcher, in order.

A piece asks for its own pages and nothing else: the range says where its reader stops, so nothing is read ahead of it.
What is asked for before its turn, and what waits in memory, is bounded. Not for sockets: `sending.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.layout import fetcher_of, page_span
from stoker.cache.reader import CacheReader, Hit
from stoker.fetch.client import AsyncFetchClient
from stoker.fetch.counters import Counter, Counters
from stoker.fetch.files import File
from stoker.fetch.protocol import FLAG_BAD_PAGE, FLAG_EXACT, FLAG_INLINE, KIND_READ, Status, mark_of
from stoker.fetch.touched import Touched
from stoker.s3.buckets import Bucket, Object
from stoker.s3.room import Room

PIECE = 8 << 20
"""Bytes of a piece, aligned: as much as a fetcher asks a store for at once."""
FIRST_PIECE = 1 << 20
"""Of the first one, so that an answer begins soon."""
WINDOW = 3
"""Pieces of one answer that are asked for before their turn."""
MOST_IN_MEMORY = 96 << 20
"""Bytes of pieces that no cache took, for all answers of a process together."""
_TRIES = 4  # the cache may be evicted between "it is there" and the look at it; then the bytes come with the answer
_GRACE_S = 15.0  # a fetcher ends every request by its own deadline; this is for one that does not


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes [start, stop) of an object. `bypass`: from the source, and nothing is stored."""

    bucket: Bucket
    object: Object
    start: int
    stop: int
    bypass: bool = False

    @property
    def file(self) -> File:
        return self.object.file

    def pieces(self) -> Iterator[Range]:
        at = self.start
        while at < self.stop:
            end = min(self.stop, at + FIRST_PIECE if at == self.start else (at // PIECE + 1) * PIECE)
            yield self.part(at, end)
            at = end

    def part(self, start: int, stop: int) -> Range:
        return Range(self.bucket, self.object, start, stop, self.bypass)


@dataclass(slots=True)
class Piece:
    """A range whose bytes are there: in a cache file (`hit`), or in `data`. Close it when they are sent."""

    range: Range
    hit: Hit | None
    data: bytes
    close: Callable[[], None]


@dataclass(slots=True)
class Reads:
    """The reads of one process."""

    reader: CacheReader
    fetchers: Sequence[AsyncFetchClient]
    counters: Counters
    touched: Touched = field(default_factory=Touched)
    on_let_go: Callable[[], None] = lambda: None
    _held: dict[tuple[bytes, int], int] = field(default_factory=dict)  # pieces that use a cache file
    _room: Room = field(default_factory=lambda: Room(MOST_IN_MEMORY))

    def holds(self, oid: bytes, incarnation: int) -> bool:
        """Whether an answer uses this cache file."""
        return (oid, incarnation) in self._held

    def count_error(self, wanted: Range) -> None:
        self.counters.add(wanted.bucket.spec.slot, Counter.ERRORS, 1)

    async def pieces(self, wanted: Range) -> AsyncGenerator[Piece, None]:
        """In order. Each is closed when the next one is asked for. Raises StokerError. Use it in `aclosing`."""
        rest = wanted.pieces()
        coming: deque[asyncio.Task[Piece]] = deque()
        try:
            for at in rest:
                piece = None if coming else self.cached(at)
                if piece is None:
                    coming.append(asyncio.create_task(self.bring(at)))
                    if len(coming) <= WINDOW:
                        continue
                    piece = await self._next(coming)
                with contextlib.closing(piece):
                    yield piece
            while coming:
                with contextlib.closing(await self._next(coming)) as piece:
                    yield piece
        finally:
            for task in coming:
                task.cancel()
                task.add_done_callback(_close_result)

    @staticmethod
    async def _next(coming: deque[asyncio.Task[Piece]]) -> Piece:
        piece = await asyncio.shield(coming[0])
        coming.popleft()
        return piece

    def cached(self, wanted: Range) -> Piece | None:
        """The piece when all of it is in the cache now."""
        began = time.monotonic()
        piece = self._cached(wanted)
        if piece is not None:
            self.counters.hit(wanted.bucket.spec.slot, wanted.stop - wanted.start, time.monotonic() - began)
        return piece

    async def bring(self, wanted: Range, *, bad: bool = False) -> Piece:
        """The piece, from wherever it is. `bad`: what the cache holds of it is wrong. Raises StokerError."""
        if not bad and (piece := self.cached(wanted)) is not None:
            return piece
        began, length = time.monotonic(), wanted.stop - wanted.start
        give = await self._room.take(length)
        piece = None
        try:
            async with asyncio.timeout(wanted.bucket.spec.mount.deadline_s + _GRACE_S):
                piece = await self._fetch(wanted, bad, give)
        except TimeoutError:
            raise StokerError(Reason.Timeout, "no answer from the fetcher") from None
        finally:
            if piece is None or piece.hit is not None:
                give()  # in a file, not in memory
        self.counters.miss(wanted.bucket.spec.slot, length, time.monotonic() - began)
        return piece

    def _cached(self, wanted: Range) -> Piece | None:
        file = wanted.file
        if wanted.bypass or not file.cacheable:
            return None
        hit = self.reader.find(file.oid, file.size, *page_span(wanted.start, wanted.stop - wanted.start, file.size))
        if hit is None:
            return None
        self.touched.add(wanted.bucket.spec.data_set, file.oid)
        return Piece(wanted, hit, b"", self._hold(file.oid, hit.incarnation))

    def _hold(self, oid: bytes, incarnation: int) -> Callable[[], None]:
        held = oid, incarnation
        self._held[held] = self._held.get(held, 0) + 1

        def let_go() -> None:
            left = self._held[held] = self._held[held] - 1
            if not left:
                del self._held[held]
                self.on_let_go()

        return _once(let_go)

    async def _fetch(self, wanted: Range, bad: bool, give: Callable[[], None]) -> Piece:
        file, slot = wanted.file, wanted.bucket.spec.slot
        fetcher = self.fetchers[fetcher_of(file.oid, len(self.fetchers))]
        inline = wanted.bypass or not file.cacheable
        for tried in range(2 * _TRIES):
            flags = FLAG_INLINE if inline or tried >= _TRIES else FLAG_EXACT | (FLAG_BAD_PAGE if bad else 0)
            length = wanted.stop - wanted.start
            reply = await fetcher.ask(KIND_READ, flags, slot, wanted.object.inode, wanted.start, length)
            bad = False
            if reply.status == Status.PRESENT:
                if (piece := self._cached(wanted)) is not None:
                    return piece
            elif reply.mark not in (0, mark_of(file.oid)):
                continue  # about another session that had this slot before, or has it next
            elif reply.status == Status.ERROR:
                raise StokerError.from_json(reply.error())
            else:
                return Piece(wanted, None, reply.data, give)
        raise StokerError(Reason.Timeout, "the object was evicted again and again", next_step="ask again.")


def _once(call: Callable[[], None]) -> Callable[[], None]:
    done = False

    def run() -> None:
        nonlocal done
        if not done:
            done = True
            call()

    return run


def _close_result(task: asyncio.Task[Piece]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
