"""From a cache file to a socket: by sendfile, so that the bytes are never copied into this process.

Pages of an earlier boot are compared with their checksums first, and then sent from memory. A file that the kernel must
read from disk is read by a thread, so a slow disk stops nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass

from aiohttp import web

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.reader import BadPage, Hit
from stoker.s3.reads import Piece, Range, Reads

SMALL = 128 << 10
"""An answer of so many bytes is one write with its headers: the copy costs less than two more system calls."""
STEP = 1 << 20
"""Bytes at a time; a client that does not take them within `STALLED_S` is cut off: it holds a file or memory."""
STALLED_S = 60.0
_AHEAD = 4 << 20
_PROBE = 256 << 10
_TRIES = 3


@dataclass(frozen=True, slots=True)
class _File:
    """What `loop.sendfile` wants of a file."""

    fd: int
    mode: str = "rb"

    def fileno(self) -> int:
        return self.fd


async def send(response: web.StreamResponse, transport: asyncio.Transport, reads: Reads, piece: Piece) -> None:
    """One piece of an answer whose headers are sent. Raises StokerError, ConnectionError, TimeoutError."""
    if piece.hit is None:
        await _write(response, memoryview(piece.data))
        return
    cold = False
    for start in range(piece.range.start, piece.range.stop, STEP):
        part = piece.range.part(start, min(start + STEP, piece.range.stop))
        try:
            cold = await _send_part(response, transport, reads, part, piece.hit, cold)
        except BadPage:
            await _write(response, memoryview(await small(reads, part, bad=True)))


async def small(reads: Reads, wanted: Range, *, bad: bool = False) -> bytes:
    """All bytes of a small range. Raises StokerError."""
    for _ in range(_TRIES):
        piece = await reads.bring(wanted, bad=bad)
        with contextlib.closing(piece):
            if piece.hit is None:
                return piece.data
            try:
                return await _bytes(reads, wanted, piece.hit)
            except BadPage:
                bad = True
    raise StokerError(
        Reason.CacheCorrupt, "a page of the cache is wrong again and again", next_step="see the node's log."
    )


async def _send_part(
    response: web.StreamResponse, transport: asyncio.Transport, reads: Reads, part: Range, hit: Hit, cold: bool
) -> bool:
    """Whether the disk had to be asked: then it is asked ahead for the next one, too. Raises BadPage."""
    if hit.unverified:
        await _write(response, memoryview(await _bytes(reads, part, hit)))
        return False
    length = part.stop - part.start
    if not _in_memory(hit.fd, part.start, length):
        os.posix_fadvise(hit.fd, part.start, _AHEAD if cold else length, os.POSIX_FADV_WILLNEED)
        await asyncio.to_thread(_touch, reads, part, hit)
        cold = True
    async with asyncio.timeout(STALLED_S):
        sent = await asyncio.get_running_loop().sendfile(transport, _File(hit.fd), part.start, length)  # type: ignore[arg-type]
    if sent != length:
        raise ConnectionAbortedError(f"{sent} of {length} bytes are in the cache file")
    return cold


async def _bytes(reads: Reads, wanted: Range, hit: Hit) -> bytes:
    """Raises BadPage."""
    file, length = wanted.file, wanted.stop - wanted.start
    try:
        return bytes(reads.reader.read(hit, file.oid, file.size, wanted.start, length, nowait=True))
    except BlockingIOError:
        found = await asyncio.to_thread(reads.reader.read, hit, file.oid, file.size, wanted.start, length)
        return bytes(found)


def _touch(reads: Reads, part: Range, hit: Hit) -> None:
    """In a thread: what is read is in the kernel's memory afterwards. Raises BadPage."""
    reads.reader.read(hit, part.file.oid, part.file.size, part.start, part.stop - part.start)


def _in_memory(fd: int, start: int, length: int) -> bool:
    """Whether a sendfile will hardly wait for the disk: looked at in a few places."""
    byte = [bytearray(1)]
    try:
        for at in (*range(start, start + length, _PROBE), start + length - 1):
            os.preadv(fd, byte, at, os.RWF_NOWAIT)
    except OSError:
        return False
    return True


async def _write(response: web.StreamResponse, data: memoryview) -> None:
    for at in range(0, len(data), STEP):
        async with asyncio.timeout(STALLED_S):
            await response.write(data[at : at + STEP])
