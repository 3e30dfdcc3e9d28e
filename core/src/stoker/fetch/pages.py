"""From the pieces of a body to whole pages on disk, published as they come. One sink per flight.

Holds at most the pieces of one write and those that are collected, so its memory is bounded whatever the range is.
"""

from __future__ import annotations

import asyncio
import errno

from stoker.cache.fill import Fill, Written
from stoker.cache.layout import PAGE
from stoker.fetch.counters import Counter
from stoker.fetch.disk import Disk
from stoker.fetch.flight import Flight
from stoker.fetch.transfer import Tally

BATCH = 16 * PAGE
"""Least bytes per write (256 KiB): a thread hop (0.1 ms) for each is 10 % of what CRC and copy cost."""

AHEAD_PIECE = 4 << 20
"""Pieces of what nobody waits for yet: each hand-over from the client library to the disk costs
0.3 ms, whatever its size."""

HELD_PIECES = 3
"""What one transfer holds at most: a piece being written, one that waits, one that the client library collects."""


class NotStoredError(Exception):
    """The cache did not take the pages: serve them without it."""


class PageSink:
    """Writes the pages of `flight` into `fill`. `taken` counts the bytes received, written or not."""

    def __init__(self, fill: Fill, flight: Flight, stop: int, disk: Disk, tally: Tally) -> None:
        self._fill = fill
        self._flight = flight
        self._stop = stop - flight.first * PAGE
        self._disk = disk
        self._tally = tally
        self._pieces: list[memoryview] = []
        self._collected = 0
        self._writing: asyncio.Future[Written] | None = None
        self._refused: OSError | None = None
        self.taken = 0

    async def take(self, piece: memoryview) -> bool:
        """Raises NotStoredError."""
        self._pieces.append(piece)
        self._collected += len(piece)
        self.taken += len(piece)
        last = self.taken == self._stop
        if not last and self._collected < BATCH:
            return False
        await self._flush(last)
        if last:
            await self._written()
        return True

    async def broken(self) -> bool:
        """Write the whole pages there are; what is left is less than one."""
        if self._collected < PAGE:
            return False
        await self._flush(last=False)
        return True

    async def _flush(self, last: bool) -> None:
        batch = self._batch(last)
        await self._written()
        self._write(*batch)

    async def close(self) -> None:
        """Nothing is being written any more when this returns: the fill may be closed."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def _batch(self, last: bool) -> tuple[int, list[memoryview], int]:
        """First page, buffers and length of all whole pages collected. The rest, less than a page, stays as a copy: it
        must not hold its piece in memory."""
        pieces, length = self._pieces, self._collected
        first = self._flight.first + (self.taken - length) // PAGE
        rest = 0 if last else length % PAGE
        tail = b""
        while rest > len(tail):
            piece = pieces.pop()
            keep = min(len(piece), rest - len(tail))
            tail = bytes(piece[len(piece) - keep :]) + tail
            if keep < len(piece):
                pieces.append(piece[: len(piece) - keep])
        self._pieces = [memoryview(tail)] if tail else []
        self._collected = rest
        return first, pieces, length - rest

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._refused is not None:
            raise NotStoredError from self._refused

    def _write(self, first: int, pieces: list[memoryview], length: int) -> None:
        self._writing = self._disk.put(self._fill, first, pieces)
        self._writing.add_done_callback(lambda done: self._publish(first, length, done))

    def _publish(self, first: int, length: int, done: asyncio.Future[Written]) -> None:
        """Readers see the pages as soon as they are written, whatever the store does next."""
        self._writing = None
        pages = -(-length // PAGE)
        error = done.exception()
        if error is None and self._fill.publish(first, done.result()):
            self._tally.add(Counter.STORED_BYTES, length)
            self._flight.advance(first + pages)
            return
        self._refused = error if isinstance(error, OSError) else OSError(errno.ESTALE, "the cache file was replaced")
        if error is not None:
            self._fill.failed(first, pages, self._refused)
