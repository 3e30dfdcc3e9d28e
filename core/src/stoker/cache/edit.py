"""Changes of the index that keep its sums right: objects, chunks, order of eviction, owners and totals in one
transaction. Every writer of the index goes through here; none decides here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.cache.amount import NOTHING, Amount
from stoker.cache.index import IndexTxn
from stoker.cache.layout import bits_bytes, charge, chunk_pages
from stoker.cache.pinbook import Pinned
from stoker.cache.pinedit import PinEdit
from stoker.cache.presence import Snapshot
from stoker.cache.record import MAX_OWNERS, NO_BOOT, ChunkRecord, ObjectRecord, OwnerRecord, Totals

COARSE_S = 30
"""Seconds: an object's place in the order of eviction is not moved more often than this."""


@dataclass(frozen=True, slots=True)
class Gone:
    """An incarnation that left the index: its file is to be unlinked, its descriptors to be dropped."""

    oid: bytes
    incarnation: int
    disk_bytes: int
    payer: int


@dataclass(frozen=True, slots=True)
class SlotWork:
    """One slot of a presence table as the owner takes it: `present` and `held` are the pages to be indexed."""

    fetcher: int
    snapshot: Snapshot
    present: int
    held: int
    crcs: list[int]


@dataclass(slots=True)
class _Loaded:
    record: ObjectRecord
    place: tuple[int, int] | None
    """Its place in the order of eviction as stored (payer, epoch); None for a new object, and one that is pinned."""
    new: bool = False
    changed: bool = False


@dataclass(slots=True)
class IndexEdit:
    """One edit, inside one write transaction; call `finish` before it ends."""

    txn: IndexTxn
    boot: bytes
    names: dict[int, str]
    totals: Totals = field(init=False)
    pins: PinEdit = field(init=False)
    gone: list[Gone] = field(default_factory=list)
    _objects: dict[bytes, _Loaded] = field(default_factory=dict)
    _owners: dict[int, OwnerRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.totals = self.txn.totals() or Totals()
        self.pins = PinEdit(self.txn, self.totals, self._owner)

    def pin(self, oid: bytes, size: int, pinner: int, mark: int) -> None:
        """A DataSet pins an object, cached or not: it leaves the order of eviction."""
        self.pins.pin(oid, size, self._record(oid), pinner, mark)

    def unpin(self, oid: bytes, size: int, pinner: int) -> None:
        """A DataSet does not pin it any more."""
        self.pins.unpin(oid, size, self._record(oid), pinner)

    def is_pinned(self, oid: bytes) -> bool:
        """Whether somebody pins an object that is cached."""
        return self._load(oid) is not None and self.pins.pinned(oid)

    def fill(self, work: SlotWork, now: int) -> None:
        """Index the pages of a slot. An older incarnation makes room for a newer one; pages of an older one than is
        indexed are on no readable file, and left out."""
        snap = work.snapshot
        loaded = self._load(snap.oid)
        if loaded is not None and loaded.record.incarnation > snap.incarnation:
            return
        if loaded is not None and loaded.record.incarnation < snap.incarnation:
            self.drop(snap.oid)
            loaded = None
        if loaded is None:
            loaded = self._create(snap, now)
        record = self._chunk(snap)
        self._add(loaded.record, charge(snap.size, snap.chunk, work.held, record.allocated))
        loaded.record.present_bytes += bits_bytes(snap.size, snap.chunk, work.present & ~record.present)
        loaded.changed = True
        self._merge(record, work)
        self.txn.put_chunk(snap.oid, snap.chunk, record)

    def use(self, oid: bytes, epoch: int, owner: int | None) -> None:
        """An object was read, for a DataSet."""
        loaded = self._load(oid)
        if loaded is None:
            return
        record = loaded.record
        if epoch >= record.epoch + COARSE_S:
            record.epoch, loaded.changed = epoch, True
        if owner is not None and owner not in record.owners and len(record.owners) < MAX_OWNERS:
            record.owners += (owner,)
            loaded.changed = True
            self._count(owner, record.accounted, 1)

    def hand_over(self, oid: bytes, heir: int) -> None:
        """Another of its owners is charged for an object from now on; who was it until now has let go of it."""
        loaded = self._load(oid)
        if loaded is None or heir not in loaded.record.owners[1:]:
            return
        record = loaded.record
        self._charge(record.payer, -record.accounted, -1)
        self._count(record.payer, -record.accounted, -1)
        record.owners = (heir, *(owner for owner in record.owners[1:] if owner != heir))
        self._charge(heir, record.accounted, 1)
        loaded.changed = True

    def take_over(self, oid: bytes, payer: int, most: Amount) -> Amount:
        """One of its owners is charged for an object from now on, if that is not too much; who was it keeps using it.
        Returns what it is charged for now, and was not before."""
        loaded = self._load(oid)
        if loaded is None or payer not in loaded.record.owners[1:]:
            return NOTHING
        record = loaded.record
        amount = Amount(record.accounted, 1)
        if amount.smaller(most) != amount:
            return NOTHING
        self._charge(record.payer, -record.accounted, -1)
        record.owners = (payer, *(owner for owner in record.owners if owner != payer))
        self._charge(payer, record.accounted, 1)
        loaded.changed = True
        return amount

    def release(self, oid: bytes, owner: int) -> None:
        """One of its owners, who is not charged for it, uses an object no more."""
        loaded = self._load(oid)
        if loaded is None or owner not in loaded.record.owners[1:]:
            return
        record = loaded.record
        self._count(owner, -record.accounted, -1)
        record.owners = tuple(other for other in record.owners if other != owner)
        loaded.changed = True

    def drop(self, oid: bytes) -> Gone | None:
        """Take an object out of the index."""
        loaded = self._load(oid)
        if loaded is None:
            return None
        record, accounted = loaded.record, loaded.record.accounted
        self._add(record, -accounted)
        self.totals.inodes -= 1
        for owner in record.owners:
            self._count(owner, 0, -1)
        self._charge(record.payer, 0, -1)
        self.txn.drop_chunks(oid)
        if loaded.place is not None:
            self.txn.displace(oid, *loaded.place)
        if not loaded.new:
            self.txn.drop_object(oid)
        del self._objects[oid]
        gone = Gone(oid, record.incarnation, accounted, record.payer)
        self.gone.append(gone)
        return gone

    def found(self, oid: bytes, disk_bytes: int) -> None:
        """The file takes this much: more than was indexed when a crash lost the last pages of the table."""
        loaded = self._load(oid)
        if loaded is not None and disk_bytes > loaded.record.accounted:
            self._add(loaded.record, disk_bytes - loaded.record.accounted)
            loaded.changed = True

    def checked(self, oid: bytes, chunk: int, seen: ChunkRecord, good: int, bad: int) -> int:
        """Pages of a chunk were compared with the checksums of `seen`. Returns the pages dropped as bad."""
        loaded, record = self._load(oid), self.txn.chunk(oid, chunk)
        if loaded is None or record is None or record.incarnation != seen.incarnation:
            return 0
        if record.boot != self.boot:
            record.boot, record.verified = self.boot, 0
        good &= sum(1 << n for n in range(record.pages) if record.crcs[n] == seen.crcs[n])
        record.verified |= good & record.present
        bad &= record.present & ~record.verified
        record.present &= ~bad
        loaded.changed = True
        loaded.record.present_bytes -= bits_bytes(loaded.record.size, chunk, bad)
        self.txn.put_chunk(oid, chunk, record)
        return bad.bit_count()

    def finish(self) -> None:
        """Store what was changed beside the chunks. Nothing changed costs nothing: LMDB syncs only what is dirty."""
        for oid, loaded in self._objects.items():
            if loaded.changed:
                self.txn.put_object(oid, loaded.record)
            place = None if self.pins.pinned(oid) else (loaded.record.payer, loaded.record.epoch)
            if loaded.place != place:
                if loaded.place is not None:
                    self.txn.displace(oid, *loaded.place)
                if place is not None:
                    self.txn.place(oid, *place)
        self.pins.finish(self._record)
        for owner, record in self._owners.items():
            record.name = self.names.get(owner, record.name)
            self.txn.put_owner(owner, record)
        if self._owners:
            self.txn.put_totals(self.totals)

    def _load(self, oid: bytes) -> _Loaded | None:
        loaded = self._objects.get(oid)
        if loaded is None:
            record = self.txn.object(oid)
            if record is None:
                return None
            self.pins.seen(oid, record.size, record)
            place = None if self.pins.pinned(oid) else (record.payer, record.epoch)
            loaded = self._objects[oid] = _Loaded(record, place)
        return loaded

    def _record(self, oid: bytes) -> ObjectRecord | None:
        loaded = self._load(oid)
        return loaded.record if loaded is not None else None

    def _create(self, snap: Snapshot, now: int) -> _Loaded:
        record = ObjectRecord(snap.incarnation, snap.size, 0, 0, now, (snap.owner,))
        self.pins.seen(snap.oid, snap.size, None)
        self.totals.inodes += 1
        self._count(snap.owner, 0, 1)
        self._charge(snap.owner, 0, 1)
        loaded = self._objects[snap.oid] = _Loaded(record, None, new=True, changed=True)
        return loaded

    def _chunk(self, snap: Snapshot) -> ChunkRecord:
        record = self.txn.chunk(snap.oid, snap.chunk)
        pages = chunk_pages(snap.size, snap.chunk)
        if record is None or record.incarnation != snap.incarnation or record.pages != pages:
            return ChunkRecord(snap.incarnation, NO_BOOT, pages, 0, 0, 0, [0] * pages)
        return record

    def _merge(self, record: ChunkRecord, work: SlotWork) -> None:
        if record.boot != self.boot:
            record.boot, record.verified = self.boot, 0
        record.present |= work.present
        record.verified |= work.present
        record.allocated |= work.held
        if work.present.bit_count() == record.pages:
            record.crcs = work.crcs
            return
        for page, crc in enumerate(work.crcs):
            if work.present >> page & 1:
                record.crcs[page] = crc

    def _add(self, record: ObjectRecord, disk_bytes: int) -> None:
        record.accounted += disk_bytes
        self.totals.disk_bytes += disk_bytes
        for owner in record.owners:
            self._count(owner, disk_bytes, 0)
        self._charge(record.payer, disk_bytes, 0)

    def charged(self) -> dict[int, Amount]:
        """What the DataSets whose sums changed are charged for now."""
        return {owner: Amount(r.charged_bytes, r.charged_inodes) for owner, r in self._owners.items()}

    def pinned(self) -> dict[int, Pinned]:
        """The pins of the DataSets whose sums changed, as they are now."""
        return {owner: record.pinned for owner, record in self._owners.items()}

    def _count(self, owner: int, disk_bytes: int, inodes: int) -> None:
        record = self._owner(owner)
        record.disk_bytes += disk_bytes
        record.inodes += inodes

    def _charge(self, payer: int, disk_bytes: int, inodes: int) -> None:
        record = self._owner(payer)
        record.charged_bytes += disk_bytes
        record.charged_inodes += inodes

    def _owner(self, owner: int) -> OwnerRecord:
        record = self._owners.get(owner)
        if record is None:
            record = self._owners[owner] = self.txn.owner(owner)
        return record
