"""The records of the index: versioned, checksummed together with their key, packed as small as they can be.

A record that cannot be read (another version, a wrong checksum, a wrong length) is None: the cache treats it as absent.
A later version adds fields behind a new version number, and a function here reads the old one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from stoker.cache.amount import Amount
from stoker.cache.pinbook import Pinned

VERSION = 1
NO_BOOT = bytes(16)

# version u8, -, pages u16, check u32, incarnation u64, boot 16; then present, allocated, verified bits; then CRCs u32
_CHUNK = struct.Struct("<BxHIQ16s")
# version u8, owners u8, -, check u32, incarnation, size, accounted, present bytes u64, epoch u32; then owners u64
_OBJECT = struct.Struct("<BBxxIQQQQI")
_CHECK = struct.Struct("<I")
_CHECK_AT = 4
_KEY = struct.Struct(">20sI")


def chunk_key(oid: bytes, chunk: int) -> bytes:
    """Big endian, so that the chunks of one object follow each other."""
    return _KEY.pack(oid, chunk)


def split_chunk_key(key: bytes) -> tuple[bytes, int]:
    """The inverse of `chunk_key`."""
    oid, chunk = _KEY.unpack(key)
    return oid, chunk


def _checksum(key: bytes, raw: bytes | bytearray) -> int:
    return crc32c(raw[_CHECK_AT + 4 :], crc32c(raw[:_CHECK_AT], crc32c(key)))


def _seal(key: bytes, raw: bytes) -> bytes:
    return raw[:_CHECK_AT] + _CHECK.pack(_checksum(key, raw)) + raw[_CHECK_AT + 4 :]


def _sound(key: bytes, raw: bytes, least: int, version: int = VERSION) -> bool:
    return len(raw) >= least and raw[0] == version and _CHECK.unpack_from(raw, _CHECK_AT)[0] == _checksum(key, raw)


@dataclass(slots=True)
class ChunkRecord:
    """What is on disk of one chunk. Bit n is page n of the chunk.

    `present`: readable; `allocated`: may hold disk blocks (a superset); `verified`: written or checked in `boot`.
    """

    incarnation: int
    boot: bytes
    pages: int
    present: int
    allocated: int
    verified: int
    crcs: list[int]

    def verified_in(self, boot: bytes) -> int:
        """The pages that need no check while the machine has not booted again."""
        return self.present & self.verified if self.boot == boot else 0

    def pack(self, key: bytes) -> bytes:
        width = -(-self.pages // 8)
        bits = b"".join(b.to_bytes(width, "little") for b in (self.present, self.allocated, self.verified))
        crcs = struct.pack(f"<{self.pages}I", *self.crcs)
        return _seal(key, _CHUNK.pack(VERSION, self.pages, 0, self.incarnation, self.boot) + bits + crcs)

    @classmethod
    def unpack(cls, key: bytes, raw: bytes | None) -> ChunkRecord | None:
        if raw is None or not _sound(key, raw, _CHUNK.size):
            return None
        _, pages, _, incarnation, boot = _CHUNK.unpack_from(raw)
        width, at = -(-pages // 8), _CHUNK.size
        if len(raw) != at + 3 * width + 4 * pages:
            return None
        present, allocated, verified = (
            int.from_bytes(raw[at + n * width : at + (n + 1) * width], "little") for n in range(3)
        )
        crcs = list(struct.unpack_from(f"<{pages}I", raw, at + 3 * width))
        return cls(incarnation, boot, pages, present, allocated, verified, crcs)


@dataclass(slots=True)
class ObjectRecord:
    """One cached object: its incarnation, bytes it takes on disk, bytes of it that are present, and who uses it.

    The first of `owners` is charged for it: its limits count it.

    `epoch`: seconds since 1970 of the last known use, coarse; the key of the object in the order of eviction.
    """

    incarnation: int
    size: int
    accounted: int
    present_bytes: int
    epoch: int
    owners: tuple[int, ...] = ()

    @property
    def payer(self) -> int:
        """The DataSet that is charged for it."""
        return self.owners[0] if self.owners else 0

    def pack(self, oid: bytes) -> bytes:
        head = _OBJECT.pack(
            VERSION,
            len(self.owners),
            0,
            self.incarnation,
            self.size,
            self.accounted,
            self.present_bytes,
            self.epoch,
        )
        return _seal(oid, head + struct.pack(f"<{len(self.owners)}Q", *self.owners))

    @classmethod
    def unpack(cls, oid: bytes, raw: bytes | None) -> ObjectRecord | None:
        if raw is None or not _sound(oid, raw, _OBJECT.size):
            return None
        _, owners, _, incarnation, size, accounted, present_bytes, epoch = _OBJECT.unpack_from(raw)
        if len(raw) != _OBJECT.size + 8 * owners:
            return None
        ids = struct.unpack_from(f"<{owners}Q", raw, _OBJECT.size)
        return cls(incarnation, size, accounted, present_bytes, epoch, ids)


MAX_OWNERS = 255
"""An object keeps this many owners; more than that share it without being named in the usage report."""


_ORDER = struct.Struct(">QI20s")


def order_key(payer: int, epoch: int, oid: bytes) -> bytes:
    """Sorts what one DataSet is charged for by last use; beside it there is nothing to know."""
    return _ORDER.pack(payer, epoch, oid)


def split_order_key(key: bytes) -> tuple[int, int, bytes]:
    """The inverse of `order_key`."""
    payer, epoch, oid = _ORDER.unpack(key)
    return payer, epoch, oid


_PIN = struct.Struct("<BxxxIIQ")
_PIN_KEY = struct.Struct(">20sQ")


def pin_key(oid: bytes, pinner: int) -> bytes:
    """The pins of one object follow each other."""
    return _PIN_KEY.pack(oid, pinner)


def split_pin_key(key: bytes) -> tuple[bytes, int]:
    """The inverse of `pin_key`: object id, DataSet."""
    oid, pinner = _PIN_KEY.unpack(key)
    return oid, pinner


@dataclass(frozen=True, slots=True)
class PinRecord:
    """An object version that a DataSet has pinned, cached or not. `mark` tells the pins of its newest choice of files
    from older ones."""

    size: int
    mark: int

    def pack(self, key: bytes) -> bytes:
        return _seal(key, _PIN.pack(VERSION, 0, self.mark, self.size))

    @classmethod
    def unpack(cls, key: bytes, raw: bytes | None) -> PinRecord | None:
        if raw is None or len(raw) != _PIN.size or not _sound(key, raw, _PIN.size):
            return None
        _, _, mark, size = _PIN.unpack(raw)
        return cls(size, mark)


SUMS_VERSION = 3
"""Of what can be made again from the records of objects and pins: owners, totals, the order of eviction. 1: one order
for all; 2: no pins."""

_OWNER = struct.Struct("<BxxxI10Q")


@dataclass(slots=True)
class OwnerRecord:
    """What one DataSet holds on this tier: an object of several counts for each of them, and is charged to one.

    `pinned`: what its pins take when all of them are cached; `filled`: what they take now; `unmovable`: what it is
    charged for that somebody has pinned. `name` "" = not yet told."""

    disk_bytes: int = 0
    inodes: int = 0
    charged_bytes: int = 0
    charged_inodes: int = 0
    pinned_bytes: int = 0
    pinned_inodes: int = 0
    filled_bytes: int = 0
    filled_inodes: int = 0
    unmovable_bytes: int = 0
    unmovable_inodes: int = 0
    name: str = ""

    def pack(self, key: bytes) -> bytes:
        held = self.disk_bytes, self.inodes, self.charged_bytes, self.charged_inodes
        pins = self.pinned_bytes, self.pinned_inodes, self.filled_bytes, self.filled_inodes
        unmovable = self.unmovable_bytes, self.unmovable_inodes
        return _seal(key, _OWNER.pack(SUMS_VERSION, 0, *held, *pins, *unmovable) + self.name.encode())

    @classmethod
    def unpack(cls, key: bytes, raw: bytes | None) -> OwnerRecord | None:
        if raw is None or not _sound(key, raw, _OWNER.size, SUMS_VERSION):
            return None
        _, _, *sums = _OWNER.unpack_from(raw)
        record = cls(*sums)
        record.name = raw[_OWNER.size :].decode(errors="replace")
        return record

    @property
    def pinned(self) -> Pinned:
        """Its pins as the books have them."""
        return Pinned(
            Amount(self.pinned_bytes, self.pinned_inodes),
            Amount(self.filled_bytes, self.filled_inodes),
            Amount(self.unmovable_bytes, self.unmovable_inodes),
        )

    @property
    def pins(self) -> bool:
        """Whether it has pins, or is charged for those of others."""
        return bool(self.pinned_inodes or self.unmovable_inodes)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to say of it."""
        return not (self.inodes or self.disk_bytes or self.pins)


_TOTALS_2 = struct.Struct("<BxxxIQQQB")
_TOTALS = struct.Struct("<BxxxIQQQB4Q")


@dataclass(slots=True)
class Totals:
    """The sums over all object records, kept in the same transaction; the next free incarnation; whether the last stop
    was a clean one; what is pinned by anybody, each object once, and how much of that is cached."""

    disk_bytes: int = 0
    inodes: int = 0
    next_incarnation: int = 1
    clean: bool = False
    pinned_bytes: int = 0
    pinned_inodes: int = 0
    filled_bytes: int = 0
    filled_inodes: int = 0
    version: int = SUMS_VERSION

    KEY = b"totals"

    def pack(self) -> bytes:
        held = self.disk_bytes, self.inodes, self.next_incarnation, self.clean
        pins = self.pinned_bytes, self.pinned_inodes, self.filled_bytes, self.filled_inodes
        return _seal(self.KEY, _TOTALS.pack(self.version, 0, *held, *pins))

    @classmethod
    def unpack(cls, raw: bytes | None) -> Totals | None:
        if raw is None or not raw or raw[0] > SUMS_VERSION:
            return None
        layout = _TOTALS if len(raw) == _TOTALS.size else _TOTALS_2
        if len(raw) != layout.size or not _sound(cls.KEY, raw, layout.size, raw[0]):
            return None
        version, _, held, inodes, incarnation, clean, *pins = layout.unpack(raw)
        totals = cls(held, inodes, incarnation, bool(clean), *pins)
        totals.version = version
        return totals
