"""The presence table: pages that are on disk but not yet in the index, in shared memory.

One table per fetcher. The fetcher keys slots and sets bits; the owner only sets `committed` and `accounted`; workers
only read. A slot's sequence is odd while it is being keyed or freed, and every reader compares it before and after a
copy, so bits of one object are never taken for those of another. The table outlives its fetcher (memfd); nothing here
allocates. Layout and order of stores: docs/design/cache.md.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
import threading
from dataclasses import dataclass
from typing import cast

from stoker.cache.layout import PAGES_PER_CHUNK

SLOTS = 4096
"""5 MiB per fetcher when all are in use: 16 GiB of large objects, or 4,096 small ones, between two commits."""

WAYS = 16
"""A chunk may take any of 16 slots of its bucket, so a reader looks at 16 words (0.7 us); a bucket is first full when
about 45 % of the table is in use (measured)."""

ACTIVE, OVERHEAD_PAID, INODE_PAID = 1, 2, 4
_TIER_SHIFT = 8

_HEADER = 4096
_FOLDERS_AT = 16
"""Word of the header where the counts of made folders begin, one per tier."""

# Native sizes and alignment: single words are then copied whole. sequence, object id, chunk, incarnation, size, owner,
# flags, trigger (page + 1), reserved, present, committed, accounted; then the CRCs.
_SLOT = struct.Struct("@Q20sIQQQQQ32s32s32s32s")
_KEYED = struct.Struct("@20sIQQQQQ128x")
_CRCS_AT = 200
_SLOT_BYTES = 1280
_SLOT_WORDS = _SLOT_BYTES // 8
_FLAGS, _TRIGGER, _RESERVED, _PRESENT, _COMMITTED, _ACCOUNTED = 7, 8, 9, 13, 17, 21
_MASK = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15
"""The golden ratio in 64 bits (odd): spreads the chunks of one object over the table."""

_Fields = tuple[int, bytes, int, int, int, int, int, int, bytes, bytes, bytes, bytes]

_TRIES = 8

_STRONG_ORDER = platform.machine() in ("x86_64", "AMD64", "i686")
_fence_lock = threading.Lock()
_fence_lock.acquire()


def fence() -> None:
    """Keep the stores before it before the stores after it. x86 does so by itself; elsewhere a lock's release and
    acquire is the only barrier that Python reaches (60 ns)."""
    if not _STRONG_ORDER:
        _fence_lock.release()
        _fence_lock.acquire()


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a reader sees of a chunk: bits only ever grow within one incarnation."""

    incarnation: int
    present: int
    trigger: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One slot, copied whole by the owner (or by a fetcher's successor)."""

    slot: int
    sequence: int
    oid: bytes
    chunk: int
    incarnation: int
    size: int
    owner: int
    tier: int
    flags: int
    reserved: int
    present: int
    committed: int
    accounted: int

    @property
    def active(self) -> bool:
        return bool(self.flags & ACTIVE)


def table_bytes(slots: int) -> int:
    """Size of the shared memory of a table."""
    return _HEADER + 8 * slots + _SLOT_BYTES * slots


def create_table(slots: int = SLOTS) -> int:
    """A descriptor of new shared memory (memfd) for one table."""
    fd = os.memfd_create("stoker-presence", os.MFD_CLOEXEC)
    os.ftruncate(fd, table_bytes(slots))
    return fd


class PresenceTable:
    """One mapped table. The descriptor stays the caller's. Who may call what: the three groups of methods below."""

    def __init__(self, fd: int, slots: int = SLOTS) -> None:
        if slots % WAYS or os.fstat(fd).st_size != table_bytes(slots):
            raise ValueError(f"a presence table of {slots} slots does not fit this memory")
        self.slots = slots
        self._buckets = slots // WAYS
        self._map = mmap.mmap(fd, table_bytes(slots))
        whole = memoryview(self._map).cast("Q")
        self._head = whole[: _HEADER // 8]
        self._tags = whole[_HEADER // 8 : _HEADER // 8 + slots]
        self._words = whole[_HEADER // 8 + slots :]
        self._slots_at = _HEADER + 8 * slots

    # Readers

    def look(self, oid: bytes, chunk: int) -> Sighting | None:
        """The pages of a chunk that are on disk, if this table knows the chunk. They were all written in this boot."""
        mix = (int.from_bytes(oid[8:16], "little") ^ (chunk * _MIX)) & _MASK
        first = mix % self._buckets * WAYS
        tags = self._tags[first : first + WAYS].tolist()
        tag = mix | 1
        if tag not in tags:
            return None
        seen = (self._sight(first + way, oid, chunk) for way in range(WAYS) if tags[way] == tag)
        return max((one for one in seen if one is not None), key=lambda one: one.incarnation, default=None)

    def _sight(self, slot: int, oid: bytes, chunk: int) -> Sighting | None:
        fields = self._copy(slot)
        if fields is None or fields[1] != oid or fields[2] != chunk or not self._tags[slot]:
            return None
        trigger = fields[7] - 1 if fields[7] else None
        return Sighting(fields[3], int.from_bytes(fields[9], "little"), trigger)

    def _copy(self, slot: int) -> _Fields | None:
        word, at = slot * _SLOT_WORDS, self._slots_at + slot * _SLOT_BYTES
        for _ in range(_TRIES):
            sequence = self._words[word]
            if sequence & 1:
                continue
            fence()
            fields = cast(_Fields, _SLOT.unpack_from(self._map, at))
            fence()
            if self._words[word] == sequence == fields[0]:
                return fields
        return None

    # The owner

    def occupied(self) -> list[int]:
        """The slots that hold something."""
        return [slot for slot, tag in enumerate(self._tags.tolist()) if tag]

    def snapshot(self, slot: int, dead: bool = False) -> Snapshot | None:
        """One slot as it is; None when it is free or being keyed. `dead`: its fetcher is gone, perhaps in the middle of
        opening the slot again: the fields are whole whenever there is a tag."""
        if not self._tags[slot]:
            return None
        whole = cast(_Fields, _SLOT.unpack_from(self._map, self._slots_at + slot * _SLOT_BYTES))
        fields = whole if dead else self._copy(slot)
        if fields is None:
            return None
        sequence, oid, chunk, incarnation, size, owner, flags, _ = fields[:8]
        bits = [int.from_bytes(part, "little") for part in fields[8:]]
        tier = flags >> _TIER_SHIFT
        return Snapshot(slot, sequence, oid, chunk, incarnation, size, owner, tier, flags & 0xFF, *bits)

    def crcs(self, slot: int, pages: int) -> list[int]:
        """The CRC32C of the first `pages` pages; those of present pages are final."""
        return list(struct.unpack_from(f"={pages}I", self._map, self._slots_at + slot * _SLOT_BYTES + _CRCS_AT))

    def settle(self, snapshot: Snapshot, committed: int, accounted: int) -> int | None:
        """The owner has indexed these pages. Returns what was accounted before; None, and nothing done, when the slot
        has changed hands or was opened again since: the pages then come with the next drain."""
        word = snapshot.slot * _SLOT_WORDS
        if self._words[word] != snapshot.sequence:
            return None
        before = self.progress(snapshot.slot)[2]
        self._or(word + _COMMITTED, committed)
        self._or(word + _ACCOUNTED, accounted)
        return before

    def folders_made(self, tier: int) -> int:
        """How many folders the fetchers of this table have made in a tier, ever."""
        return self._head[_FOLDERS_AT + tier]

    def _or(self, word: int, bits: int) -> None:
        while bits:
            part = bits & _MASK
            if part:
                self._words[word] |= part
            word += 1
            bits >>= 64

    # The fetcher

    def count_folder(self, tier: int) -> None:
        """One folder more was made in a tier, and paid for."""
        self._head[_FOLDERS_AT + tier] += 1

    def clear(self) -> None:
        """Free every slot: a new fetcher begins after the owner has drained what its predecessor left."""
        for slot in self.occupied():
            self.free(slot)

    def take(self, oid: bytes, chunk: int, incarnation: int, size: int, owner: int, tier: int) -> int | None:
        """Key a free slot for a chunk, active and empty; None when its bucket is full."""
        mix = (int.from_bytes(oid[8:16], "little") ^ (chunk * _MIX)) & _MASK
        first = mix % self._buckets * WAYS
        tags = self._tags[first : first + WAYS].tolist()
        if 0 not in tags:
            return None
        slot = first + tags.index(0)
        word = slot * _SLOT_WORDS
        self._words[word] |= 1
        fence()
        at = self._slots_at + slot * _SLOT_BYTES + 8
        _KEYED.pack_into(self._map, at, oid, chunk, incarnation, size, owner, ACTIVE | tier << _TIER_SHIFT, 0)
        self._tags[slot] = mix | 1
        fence()
        self._words[word] = (self._words[word] + 1) & _MASK
        return slot

    def free(self, slot: int) -> None:
        """Give a slot back: all its pages are in the index."""
        word = slot * _SLOT_WORDS
        self._words[word] |= 1
        fence()
        self._tags[slot] = 0
        fence()
        self._words[word] = (self._words[word] + 1) & _MASK

    def set_flags(self, slot: int, set_: int = 0, clear: int = 0) -> None:
        """Change flags. Setting `ACTIVE` moves the sequence, so that the owner settles nothing it saw before."""
        word = slot * _SLOT_WORDS
        flags = (self._words[word + _FLAGS] | set_) & ~clear
        if not set_ & ACTIVE:
            self._words[word + _FLAGS] = flags
            return
        self._words[word] |= 1
        fence()
        self._words[word + _FLAGS] = flags
        fence()
        self._words[word] = (self._words[word] + 1) & _MASK

    def set_trigger(self, slot: int, page: int) -> None:
        """Readers that reach this page (of the object) are asked to tell."""
        self._words[slot * _SLOT_WORDS + _TRIGGER] = page + 1

    def reserve(self, slot: int, bits: int) -> None:
        """These pages are paid for and may hold disk blocks from now on."""
        self._or(slot * _SLOT_WORDS + _RESERVED, bits)
        fence()

    def unreserve(self, slot: int, bits: int) -> None:
        """Nothing was written to these pages of an active slot: their credit is back with the fetcher."""
        word = slot * _SLOT_WORDS + _RESERVED
        for part in range(PAGES_PER_CHUNK // 64):
            self._words[word + part] &= ~(bits >> (64 * part)) & _MASK

    def publish(self, slot: int, first: int, crcs: list[int]) -> None:
        """The pages from `first` (in the chunk) are on disk: checksums, then bits."""
        at = self._slots_at + slot * _SLOT_BYTES + _CRCS_AT + 4 * first
        struct.pack_into(f"={len(crcs)}I", self._map, at, *crcs)
        fence()
        self._or(slot * _SLOT_WORDS + _PRESENT, ((1 << len(crcs)) - 1) << first)

    def progress(self, slot: int) -> tuple[int, int, int]:
        """(present, committed, accounted) at the moment."""
        at = self._slots_at + slot * _SLOT_BYTES + 8 * _PRESENT
        raw = bytes(self._map[at : at + 96])
        present, committed, accounted = (int.from_bytes(raw[n : n + 32], "little") for n in (0, 32, 64))
        return present, committed, accounted

    def close(self) -> None:
        """Unmap."""
        for view in (self._head, self._tags, self._words):
            view.release()
        self._map.close()
