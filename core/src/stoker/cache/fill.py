"""One object being filled: which pages are missing, room for them, bytes to disk, and the news to readers.

Order, always: reserve (paid, marked) -> put (bytes on disk, whole pages) -> publish (checksums, then bits).
All methods run in the fetcher's loop, except `put`, which may run in any thread.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from stoker.cache.files import OpenFile
from stoker.cache.layout import (
    PAGE,
    PAGES_PER_CHUNK,
    chunk_overhead,
    object_path,
    page_count,
    pages_cost,
    run_bits,
    runs_of,
)
from stoker.cache.presence import INODE_PAID, OVERHEAD_PAID

if TYPE_CHECKING:
    from stoker.cache.writer import CacheWriter

PRESIZE_BYTES = 1 << 20
"""Larger objects get their length first: XFS would set blocks aside beyond the end of a file that grows."""

_opening = threading.Lock()


def split_span(first: int, last: int) -> Iterator[tuple[int, int]]:
    """(chunk, bits) of the pages [first, last) of an object."""
    for chunk in range(first // PAGES_PER_CHUNK, -(-last // PAGES_PER_CHUNK)):
        base = chunk * PAGES_PER_CHUNK
        yield chunk, run_bits(max(first - base, 0), min(last - base, PAGES_PER_CHUNK))


def page_crcs(pieces: Sequence[memoryview]) -> list[int]:
    """CRC32C of each page of bytes that lie in several buffers; the last page may be short."""
    crcs: list[int] = []
    open_crc, open_bytes = 0, 0
    for piece in pieces:
        at = 0
        if open_bytes:
            at = min(PAGE - open_bytes, len(piece))
            open_crc, open_bytes = crc32c(piece[:at], open_crc), open_bytes + at
            if open_bytes < PAGE:
                continue
            crcs.append(open_crc)
            open_bytes = 0
        whole = len(piece) - (len(piece) - at) % PAGE
        crcs += [crc32c(piece[start : start + PAGE]) for start in range(at, whole, PAGE)]
        if whole < len(piece):
            open_crc, open_bytes = crc32c(piece[whole:]), len(piece) - whole
    return [*crcs, open_crc] if open_bytes else crcs


@dataclass(frozen=True, slots=True)
class Written:
    """What `Fill.put` did: checksums of whole pages, in the file of one incarnation."""

    incarnation: int
    crcs: list[int]


@dataclass(slots=True)
class ChunkState:
    """The fetcher's own copy of what index and table hold of a chunk.

    `slot` None: nothing is on its way to the index. `reserved`: paid in this slot; `pending`: about to be written;
    `written`: published or failed, so it may hold blocks; `overhead`, `inode`: this slot tells the owner that the
    chunk's extents, the new file, were paid.
    """

    present: int = 0
    allocated: int = 0
    slot: int | None = None
    reserved: int = 0
    pending: int = 0
    written: int = 0
    overhead: bool = False
    inode: bool = False


class Fill:
    """Made by `CacheWriter.begin`, closed once per begin; one per object at a time, shared by all who fill it."""

    def __init__(self, writer: CacheWriter, oid: bytes, size: int, owner: int, tier: int) -> None:
        self.oid, self.size, self.owner, self.tier = oid, size, owner, tier
        self.users = 0
        self.incarnation: int | None = None
        self.new = False
        """The incarnation was begun here: whatever the file holds is in `chunks`, and not yet all in the index."""
        self.inode_pending = False
        """The inode is paid, and no slot tells the owner of it yet."""
        self.chunks: dict[int, ChunkState] = {}
        self._created = False
        self._file: OpenFile | None = None
        self._writer = writer

    @property
    def place(self) -> tuple[int, int]:
        """(tier, account) of its credit: whoever is charged for the object pays."""
        return self.tier, self.owner

    # What is here

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """The runs of pages of [first, last) that are not readable. An answer of none is checked first: readers ask
        because they did not find the pages, so the file may have been removed, or a page found to be bad."""
        missing = self._missing(first, last)
        if missing or first >= last:
            return missing
        if self._file_is_gone():
            self._writer.restart(self)
        else:
            self._writer.refresh(self, [chunk for chunk, _ in split_span(first, last)])
        return self._missing(first, last)

    def drop(self, first: int, last: int) -> None:
        """These pages turned out bad: they are missing until written again. Their room is paid already."""
        for chunk, bits in split_span(first, last):
            self.chunk(chunk).present &= ~bits

    # Room

    async def reserve(self, first: int, last: int) -> bool:
        """Room for the pages [first, last) that have none yet. False: serve them without the cache; what was reserved
        is given back at `close`."""
        for chunk, bits in split_span(first, last):
            if not self._reserve_chunk(chunk, bits):
                if not await self._can_pay(chunk, bits):
                    return False
                if not self._reserve_chunk(chunk, bits):
                    return False
        return True

    def set_trigger(self, page: int) -> None:
        """Ask the reader that reaches `page` to tell. Call it after `reserve` and before the page is published."""
        state = self.chunks.get(page // PAGES_PER_CHUNK)
        if state is not None and state.slot is not None:
            self._writer.table.set_trigger(state.slot, page)

    # Bytes

    def write(self, first: int, data: memoryview) -> None:
        """Write whole pages from page `first` on and make them readable. OSError: serve them without the cache."""
        try:
            written = self.put(first, [data])
        except OSError as error:
            self.failed(first, -(-len(data) // PAGE), error)
            raise
        if not self.publish(first, written):
            raise OSError(errno.ESTALE, "the cache file was replaced")

    def put(self, first: int, pieces: Sequence[memoryview]) -> Written:
        """The part of `write` that takes time: bytes to disk. Its answer goes to `publish`, its OSError to `failed`.
        May run in a thread; the object's last page is as short as it is."""
        incarnation, file = self._open()
        at = first * PAGE
        for piece in pieces:
            done = 0
            while done < len(piece):
                done += os.pwrite(file.fd, piece[done:], at + done)
            at += done
        return Written(incarnation, page_crcs(pieces))

    def publish(self, first: int, written: Written) -> bool:
        """The pages from `first` on were put: readers see them from now on. False, and nothing done, when the file has
        been replaced since they were reserved, so that they are not in it, or not paid."""
        crcs = written.crcs
        if written.incarnation != self.incarnation or not self._is_pending(first, first + len(crcs)):
            return False
        at = 0
        for chunk, bits in split_span(first, first + len(crcs)):
            state, count = self.chunks[chunk], bits.bit_count()
            assert state.slot is not None
            self._may_hold_blocks(state, bits)
            state.present |= bits
            self._writer.table.publish(state.slot, (first + at) % PAGES_PER_CHUNK, crcs[at : at + count])
            at += count
        self._writer.tier_stored(self.tier)
        return True

    def failed(self, first: int, pages: int, error: OSError) -> None:
        """`put` failed: the pages may hold blocks, so they stay paid. The tier takes no more for a while, unless only
        this file is gone."""
        if self._created:
            for chunk, bits in split_span(first, first + pages):
                if chunk in self.chunks:
                    self._may_hold_blocks(self.chunks[chunk], bits & self.chunks[chunk].pending)
        if error.errno in (errno.ENOENT, errno.ESTALE):
            self._writer.restart(self)
        else:
            self._writer.tier_failed(self.tier, error)

    def close(self) -> None:
        """One user less. The last one gives back the room that was not used."""
        self.users -= 1
        if self.users == 0:
            self._writer.ended(self)

    # For the writer

    def chunk(self, chunk: int) -> ChunkState:
        """The state of a chunk, from the index at first."""
        state = self.chunks.get(chunk)
        if state is None:
            state = self.chunks[chunk] = self._writer.chunk_state(self, chunk)
        return state

    def adopt(self, incarnation: int | None) -> None:
        """The index holds this incarnation of the object."""
        self.incarnation = incarnation
        self._created = incarnation is not None

    def detach(self) -> None:
        """Let go of the file; of the name, too, when no file was ever made under it."""
        self._file = None
        if self.inode_pending and not self._created:
            self._writer.credit.refund(self.place, 0, 1)
            self.inode_pending = False
            self.abandon()

    def abandon(self) -> None:
        """The next page begins a new incarnation."""
        self.incarnation = None
        self.new = self._created = False
        self._file = None
        self.chunks = {}

    # Inside

    def _is_pending(self, first: int, last: int) -> bool:
        states = ((self.chunks.get(chunk), bits) for chunk, bits in split_span(first, last))
        return all(state is not None and state.slot is not None and not bits & ~state.pending for state, bits in states)

    def _missing(self, first: int, last: int) -> list[tuple[int, int]]:
        runs: list[tuple[int, int]] = []
        for chunk, bits in split_span(first, min(last, page_count(self.size))):
            for start, stop in runs_of(bits & ~self.chunk(chunk).present, chunk * PAGES_PER_CHUNK):
                if runs and runs[-1][1] == start:
                    runs[-1] = (runs[-1][0], stop)
                else:
                    runs.append((start, stop))
        return runs

    def _file_is_gone(self) -> bool:
        if self.incarnation is None:
            return False
        return not os.path.exists(object_path(self._writer.roots[self.tier], self.oid, self.incarnation))

    def _price(self, chunk: int, bits: int) -> tuple[int, int]:
        """(bytes, inodes) that the pages `bits` of a chunk still cost, with the file if it is new."""
        state = self.chunk(chunk)
        held = state.allocated | state.reserved
        nbytes = pages_cost(self.size, chunk, bits & ~held) + (0 if held else chunk_overhead(self.size))
        return nbytes, int(self.incarnation is None)

    async def _can_pay(self, chunk: int, bits: int) -> bool:
        if self.incarnation is None and not await self._writer.ensure_folder(self.tier, self.oid, self.owner):
            return False
        return await self._writer.credit.ensure(self.place, *self._price(chunk, bits))

    def _reserve_chunk(self, chunk: int, bits: int) -> bool:
        if not self._writer.accepts(self.tier) or not self._be_a_file():
            return False
        state = self.chunk(chunk)
        if state.slot is None and not self._writer.give_slot(self, chunk, state):
            return False
        assert state.slot is not None
        held = state.allocated | state.reserved
        new = bits & ~held
        overhead = 0 if held or not new else chunk_overhead(self.size)
        if not self._writer.credit.spend(self.place, pages_cost(self.size, chunk, new) + overhead, 0):
            return False
        if overhead:
            state.overhead = True
            self._writer.table.set_flags(state.slot, set_=OVERHEAD_PAID)
        state.reserved |= new
        state.pending |= bits
        self._writer.table.reserve(state.slot, new)
        return True

    def _be_a_file(self) -> bool:
        """Have a paid inode, a folder and a name. The file itself is made by the first `put`."""
        if self.incarnation is not None:
            return True
        if not self._writer.be_folder(self.tier, self.oid) or not self._writer.credit.spend(self.place, 0, 1):
            return False
        self.incarnation = self._writer.credit.incarnation(self.place)
        self.new = self.inode_pending = True
        self.chunks = {}
        return True

    def _may_hold_blocks(self, state: ChunkState, bits: int) -> None:
        state.pending &= ~bits
        state.written |= bits
        state.allocated |= bits
        if self.inode_pending and state.slot is not None:
            self.inode_pending = False
            state.inode = True
            self._writer.table.set_flags(state.slot, set_=INODE_PAID)

    def _open(self) -> tuple[int, OpenFile]:
        with _opening:
            incarnation = self.incarnation
            if incarnation is None:
                raise OSError(errno.ESTALE, "the cache file is gone")
            if self._file is None:
                path = object_path(self._writer.roots[self.tier], self.oid, incarnation)
                # Only the first open may make the file: a file that was removed must not come back empty.
                how = 0 if self._created else os.O_CREAT | os.O_EXCL
                file = OpenFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o600))
                self._created = True
                if how and self.size > PRESIZE_BYTES:
                    os.ftruncate(file.fd, self.size)
                self._file = file
            return incarnation, self._file
