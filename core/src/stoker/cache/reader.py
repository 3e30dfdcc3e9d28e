"""How workers (and fetchers) find and read cached pages. One per process, one thread; `read` may run in others.

A `Hit` keeps its file open for as long as anybody holds the hit: a descriptor's number is never closed, and so never
used again for another file, under a read that is still going on.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Sequence

import lmdb
from crc32c import crc32c

from stoker.cache.files import OpenFile
from stoker.cache.index import IndexReader
from stoker.cache.indexes import Indexes
from stoker.cache.layout import (
    CHUNK,
    PAGE,
    PAGES_PER_CHUNK,
    bits_bytes,
    chunk_count,
    chunk_pages,
    fetcher_of,
    object_path,
    run_bits,
    tier_of,
)
from stoker.cache.presence import PresenceTable
from stoker.cache.record import ChunkRecord
from stoker.cache.root import tier_seed

MOST_FILES = 4096
RETRY_TIER_S = 5.0
"""A tier whose index failed is asked again after this long; until then its objects are misses."""

_ANSWER = (1 << 20) + 2 * PAGE  # the longest request of the kernel, in whole pages


class BadPage(Exception):  # noqa: N818 - what it tells of is a page, not an error of this program
    """The pages [first, last) are not what was promised: ask the fetcher for them, with its BAD_PAGE flag."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"pages {first} to {last}")
        self.first, self.last = first, last


class Hit:
    """All pages that were asked for are in the file `fd`. Hold the hit for as long as `fd` is used.

    `unverified`: some page was written before this boot, so only `CacheReader.read` may be used, never the bare
    descriptor. `trigger`: the page of the span whose reader was asked to tell the fetcher.
    """

    __slots__ = ("_file", "crcs", "fd", "incarnation", "trigger", "unverified")

    def __init__(
        self, file: OpenFile, incarnation: int, crcs: dict[int, int] | None = None, trigger: int | None = None
    ) -> None:
        self._file = file
        self.fd = file.fd
        self.incarnation = incarnation
        self.crcs = crcs
        self.unverified = crcs is not None
        self.trigger = trigger


class _Entry:
    """One open incarnation. `bits`: per chunk the pages known present and verified; they only grow."""

    __slots__ = ("bits", "complete", "file", "full", "hit", "incarnation", "triggers", "used")

    def __init__(self, file: OpenFile, incarnation: int) -> None:
        self.file = file
        self.incarnation = incarnation
        self.hit = Hit(file, incarnation)
        self.bits: dict[int, int] = {}
        self.triggers: dict[int, int] = {}
        self.full: set[int] = set()
        self.complete = False
        self.used = False

    def add(self, size: int, chunk: int, bits: int) -> int:
        before = self.bits.get(chunk, 0)
        after = before | bits
        if after != before:
            self.bits[chunk] = after
            whole = run_bits(0, chunk_pages(size, chunk))
            if after == whole:
                self.full.add(chunk)
                self.complete = len(self.full) == chunk_count(size)
        return after


class _Chunk:
    """What table and index together say of one chunk."""

    __slots__ = ("crcs", "incarnation", "present", "trigger", "verified")

    def __init__(
        self, incarnation: int, present: int, verified: int, crcs: list[int] | None, trigger: int | None
    ) -> None:
        self.incarnation = incarnation
        self.present = present
        self.verified = verified
        self.crcs = crcs
        self.trigger = trigger


class CacheReader:
    """`tiers`: roots; `tables`: one per fetcher, in order; `boot`: see `stoker.cache.boot`.

    `seeds`: of the tiers, when they are known; else the folders' markers are read.
    `on_error(tier, error)` is told when the index of a tier fails; its objects are misses for a while.
    """

    def __init__(
        self,
        tiers: Sequence[str],
        tables: Sequence[PresenceTable],
        boot: bytes,
        *,
        seeds: Sequence[bytes] = (),
        on_error: Callable[[int, Exception], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = tuple(tiers)
        self._seeds = tuple(seeds) or tuple(tier_seed(root) for root in tiers)
        self._tables = tuple(tables)
        self._boot = boot
        self._on_error = on_error
        self._clock = clock
        self._indexes = Indexes(self._roots, clock)
        self._retry_at = [0.0] * len(self._roots)
        self._entries: dict[bytes, _Entry] = {}
        self._lock = threading.Lock()  # around removals and insertions: `read` may find a bad page in any thread
        self._answer = memoryview(bytearray(_ANSWER))
        self._most = min(MOST_FILES, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))

    def find(self, oid: bytes, size: int, first: int, last: int) -> Hit | None:
        """A hit when all pages [first, last) of the object are cached; None otherwise."""
        entry = self._entries.get(oid)
        if entry is not None:
            if entry.complete:
                entry.used = True
                return entry.hit
            known = self._known(entry, first, last)
            if known is not None:
                return known
        return self._look_up(oid, size, first, last)

    def complete(self, oid: bytes, size: int) -> Hit | None:
        """A hit when every page of the object is present and verified in this boot: fit for passthrough."""
        if not size or not self._may_be_complete(oid, size):
            return None
        hit = self.find(oid, size, 0, -(-size // PAGE))
        return hit if hit is not None and not hit.unverified else None

    def present_bytes(self, oid: bytes, size: int) -> int:
        """How many bytes of the object are cached now. One look-up per chunk: for people, not for reads."""
        if not self._roots:
            return 0
        tier = tier_of(oid, self._seeds)
        chunks = ((number, self._chunk(tier, oid, number)) for number in range(chunk_count(size)))
        return sum(bits_bytes(size, number, seen.present) for number, seen in chunks if seen is not None)

    def read(self, hit: Hit, oid: bytes, size: int, offset: int, length: int, nowait: bool = False) -> memoryview:
        """The bytes [offset, offset + length) of the object, cut at its end. May run in another thread.

        `nowait`: only from memory, by one thread only, and what is returned is good until the next such call. Raises
        BlockingIOError (with `nowait`) and BadPage.
        """
        stop = min(offset + length, size)
        if stop <= offset:
            return memoryview(b"")
        if hit.crcs is None:
            return self._pread(hit, oid, offset, stop, nowait)
        return self._checked(hit, oid, size, offset, stop, nowait)

    def forget(self, oid: bytes, incarnation: int | None = None) -> None:
        """Drop what is known of an object (of one incarnation only, when given): evicted, or a bad page."""
        with self._lock:
            entry = self._entries.get(oid)
            if entry is not None and incarnation in (None, entry.incarnation):
                del self._entries[oid]

    def close(self) -> None:
        """Drop all files and indexes."""
        self._entries.clear()
        self._indexes.close()

    # Finding

    def _may_be_complete(self, oid: bytes, size: int) -> bool:
        """One look-up saves one per chunk of a large object; what is not indexed yet will be in a second."""
        entry = self._entries.get(oid)
        if size <= CHUNK or (entry is not None and entry.complete) or not self._roots:
            return True
        tier = tier_of(oid, self._seeds)
        try:
            index = self._index(tier)
            record = index.object(oid) if index is not None else None
        except (lmdb.Error, OSError) as error:
            self._drop_index(tier, error)
            return False
        return record is not None and record.present_bytes == size

    @staticmethod
    def _known(entry: _Entry, first: int, last: int) -> Hit | None:
        trigger = None
        for chunk in range(first // PAGES_PER_CHUNK, -(-last // PAGES_PER_CHUNK)):
            base = chunk * PAGES_PER_CHUNK
            wanted = run_bits(max(first - base, 0), min(last - base, PAGES_PER_CHUNK))
            if wanted & ~entry.bits.get(chunk, 0):
                return None
            if chunk in entry.triggers and first <= entry.triggers[chunk] < last:
                trigger = entry.triggers.pop(chunk)
        entry.used = True
        return entry.hit if trigger is None else Hit(entry.file, entry.incarnation, None, trigger)

    def _look_up(self, oid: bytes, size: int, first: int, last: int) -> Hit | None:
        if not self._roots or last <= first:
            return None
        tier = tier_of(oid, self._seeds)
        crcs: dict[int, int] = {}
        entry: _Entry | None = None
        for chunk in range(first // PAGES_PER_CHUNK, -(-last // PAGES_PER_CHUNK)):
            base = chunk * PAGES_PER_CHUNK
            wanted = run_bits(max(first - base, 0), min(last - base, PAGES_PER_CHUNK))
            seen = self._chunk(tier, oid, chunk)
            if seen is None or wanted & ~seen.present:
                return None
            if entry is None:
                entry = self._entry(tier, oid, seen.incarnation)
            if entry is None or entry.incarnation != seen.incarnation:
                return None
            self._note(entry, size, chunk, seen, wanted, crcs)
        assert entry is not None
        return Hit(entry.file, entry.incarnation, crcs) if crcs else self._known(entry, first, last)

    @staticmethod
    def _note(entry: _Entry, size: int, chunk: int, seen: _Chunk, wanted: int, crcs: dict[int, int]) -> None:
        if seen.trigger is not None:
            entry.triggers[chunk] = seen.trigger
        unverified = wanted & ~entry.add(size, chunk, seen.verified)
        if unverified and seen.crcs is not None:
            base = chunk * PAGES_PER_CHUNK
            crcs.update((base + n, crc) for n, crc in enumerate(seen.crcs) if unverified >> n & 1)

    def _chunk(self, tier: int, oid: bytes, chunk: int) -> _Chunk | None:
        table = self._tables[fetcher_of(oid, len(self._tables))] if self._tables else None
        sighting = table.look(oid, chunk) if table is not None else None
        record = self._record(tier, oid, chunk)
        if sighting is None:
            if record is None:
                return None
            verified = record.verified_in(self._boot)
            return _Chunk(record.incarnation, record.present, verified, record.crcs, None)
        if record is None or record.incarnation != sighting.incarnation:
            return _Chunk(sighting.incarnation, sighting.present, sighting.present, None, sighting.trigger)
        verified = record.verified_in(self._boot) | sighting.present
        present = record.present | sighting.present
        return _Chunk(record.incarnation, present, verified, record.crcs, sighting.trigger)

    def _record(self, tier: int, oid: bytes, chunk: int) -> ChunkRecord | None:
        try:
            index = self._index(tier)
            return index.chunk(oid, chunk) if index is not None else None
        except (lmdb.Error, OSError) as error:
            self._drop_index(tier, error)
            return None

    def _index(self, tier: int) -> IndexReader | None:
        return self._indexes.get(tier) if self._clock() >= self._retry_at[tier] else None

    def _drop_index(self, tier: int, error: Exception) -> None:
        self._indexes.drop(tier)
        self._retry_at[tier] = self._clock() + RETRY_TIER_S
        self._on_error(tier, error)

    def _entry(self, tier: int, oid: bytes, incarnation: int) -> _Entry | None:
        entry = self._entries.get(oid)
        if entry is not None and entry.incarnation == incarnation:
            return entry
        try:
            fd = os.open(object_path(self._roots[tier], oid, incarnation), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with self._lock:
            self._make_room()
            entry = self._entries[oid] = _Entry(OpenFile(fd), incarnation)
        return entry

    def _make_room(self) -> None:
        while len(self._entries) >= self._most:
            oid = next(iter(self._entries))
            entry = self._entries.pop(oid)
            if entry.used:  # a second chance, once per use
                entry.used = False
                self._entries[oid] = entry

    # Reading

    def _pread(self, hit: Hit, oid: bytes, offset: int, stop: int, nowait: bool) -> memoryview:
        length = stop - offset
        # Fresh memory for each answer costs its page faults; only the thread of the loop reads with `nowait`.
        view = self._answer[:length] if nowait and length <= _ANSWER else memoryview(bytearray(length))
        done = 0
        try:
            while done < len(view):
                got = os.preadv(hit.fd, [view[done:]], offset + done, os.RWF_NOWAIT if nowait else 0)
                if not got:
                    break
                done += got
        except OSError as error:
            if nowait and error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise BlockingIOError(errno.EAGAIN, "not in memory") from None
            self.forget(oid, hit.incarnation)
            raise BadPage(offset // PAGE, -(-stop // PAGE)) from error
        if done < len(view):
            self.forget(oid, hit.incarnation)
            raise BadPage((offset + done) // PAGE, -(-stop // PAGE))
        return view

    def _checked(self, hit: Hit, oid: bytes, size: int, offset: int, stop: int, nowait: bool) -> memoryview:
        first, last = offset // PAGE, -(-stop // PAGE)
        raw = self._pread(hit, oid, first * PAGE, min(last * PAGE, size), nowait)
        crcs = hit.crcs or {}
        bad = [page for page in range(first, last) if page in crcs and crcs[page] != _page_crc(raw, page - first)]
        if bad:
            self.forget(oid, hit.incarnation)
            raise BadPage(bad[0], bad[-1] + 1)
        entry = self._entries.get(oid)
        if entry is not None and entry.incarnation == hit.incarnation:
            for page in range(first, last):
                entry.add(size, page * PAGE // CHUNK, 1 << page % PAGES_PER_CHUNK)
        return raw[offset - first * PAGE : stop - first * PAGE]


def _page_crc(raw: memoryview, page: int) -> int:
    return crc32c(raw[page * PAGE : (page + 1) * PAGE])
